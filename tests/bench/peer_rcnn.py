#!/usr/bin/env python3
"""The peer of Mask R-CNN and Faster R-CNN: torchvision's own model, trained on the CPU; `step` also on a GPU.

peer_rcnn.py step  [--px 480 --batch 2 --classes 80 --steps N --layout plain|channels_last --bf16 --cuda [--tf32] [--no-search]] ...
    a record "peer" of the quickest training step and of the median, in fp32, tf32 or bf16 autocast, of the most memory
    that the process (on a GPU: its tensors) held, and of the last step's regions in the mask head. --no-search: without
    cudnn.benchmark, which looks for algorithms for each new number of regions
peer_rcnn.py twice [--steps N] ...        trains two times from the same seed, on made-up pictures: a record "twice" of
                                          the first step with a different loss (0: all are equal)
peer_rcnn.py train TRAIN.json VAL.json IMAGES --seconds S ...
    trains for S seconds and scores the validation set now and then: a record "ap" each
    --budget STEPS in place of S, on a busy machine: as many as an idle machine trains in the time
All: --threads N, --backbone resnet18|34|50|101, --fpn CHANNELS, --head UNITS, --mask CHANNELS (torchvision's: 256 1024
256), --boxes: without masks, --frozen: frozen normalisation and first two stages, as with weights of ImageNet; without
it everything trains, as from scratch. --seed of the weights.
train: --px, --max (default 1333), --batch, --lr (default .02 / 16 x batch), --workers.

Needs torch and torchvision; train needs pycocotools too."""  # SPDX-License-Identifier: Apache-2.0
import argparse
import os
import random
import statistics
import time

import torch
import torchvision
from torchvision.models.detection import FasterRCNN, MaskRCNN
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.ops import misc

import made_up

LIMIT_S = 60  # of `step`


def model_of(a, classes):
    norm = misc.FrozenBatchNorm2d if a.frozen else torch.nn.BatchNorm2d
    body = getattr(torchvision.models, a.backbone)(weights=None, norm_layer=norm)
    if a.frozen:
        for name, p in body.named_parameters():
            p.requires_grad_(name.startswith(("layer2", "layer3", "layer4")))
    last = body.fc.in_features
    backbone = BackboneWithFPN(body, {"layer%d" % i: str(i - 1) for i in range(1, 5)}, [last // 8, last // 4, last // 2, last], a.fpn)
    keys = dict(min_size=a.px, max_size=a.max, box_head=TwoMLPHead(a.fpn * 49, a.head),
                box_predictor=FastRCNNPredictor(a.head, classes + 1))
    if a.boxes:
        return FasterRCNN(backbone, **keys)
    return MaskRCNN(backbone, mask_head=MaskRCNNHeads(a.fpn, (a.mask,) * 4, 1),
                    mask_predictor=MaskRCNNPredictor(a.mask, a.mask, classes + 1), **keys)


def optimizer_of(model, lr):
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr, momentum=0.9, weight_decay=1e-4)


def step(model, opt, images, targets, bf16=False):
    with torch.autocast(images[0].device.type, dtype=torch.bfloat16, enabled=bf16):
        losses = model(images, targets)
    loss = sum(x.float() for x in losses.values())
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.item()


# ---- how long a step takes ----

def shown(a):
    """Pictures of px x 4/3 px with seven objects each, those of bench_step."""
    w = a.px * 4 // 3
    images, targets = torch.from_numpy(made_up.pictures(a.batch, a.px, w)).permute(0, 3, 1, 2).float() / 255, []
    for i in range(a.batch):
        boxes, masks = made_up.boxes(i, a.px, w, a.classes), torch.zeros(made_up.OBJECTS, a.px, w, dtype=torch.uint8)
        for k, (x1, y1, x2, y2, _) in enumerate(boxes):
            masks[k, y1:y2, x1:x2] = 1
        targets.append({
            "boxes": torch.tensor([b[:4] for b in boxes], dtype=torch.float32), "labels": torch.tensor([1 + b[4] for b in boxes]),
            "masks": masks
        })
    if a.cuda:
        images, targets = images.cuda(), [{key: value.cuda() for key, value in t.items()} for t in targets]
    return list(images), targets


def peak_mib(cuda):
    if cuda:
        return torch.cuda.max_memory_allocated() / (1 << 20)
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM:"))


def made(a):
    """The model of `step` and `twice`, where it is to run."""
    torch.manual_seed(a.seed)
    model = model_of(a, a.classes).train()
    if a.frozen:
        # as in bench_step: under frozen statistics, random weights grow larger than in a trained network
        for name, scale in model.backbone.body.named_buffers():
            if name.startswith("layer") and name.endswith("bn%d.weight" % (2 if a.backbone in ("resnet18", "resnet34") else 3)):
                scale.fill_(0.2)
    if a.cuda:
        model = model.cuda()
        torch.backends.cudnn.benchmark = not a.no_search
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = a.tf32 or a.bf16
    return model.to(memory_format=torch.channels_last) if a.layout == "channels_last" else model


def losses(a):
    """Yields the losses of each step of a run from scratch."""
    model, (images, targets) = made(a), shown(a)
    opt = optimizer_of(model, 0.005)
    torch.manual_seed(a.seed)  # of the regions that are drawn
    for _ in range(a.steps):
        yield step(model, opt, images, targets, a.bf16)


def twice(a):
    first = list(losses(a))
    parted = next((i for i, (one, other) in enumerate(zip(first, losses(a)), 1) if one != other), 0)
    print("twice steps=%d parted=%d" % (a.steps, parted), flush=True)


def time_steps(a):
    model, regions = made(a), [0]
    if not a.boxes:
        model.roi_heads.mask_head.register_forward_pre_hook(lambda _, args: regions.__setitem__(0, len(args[0])))
    opt, times, began = optimizer_of(model, 1e-6), [], time.perf_counter()
    images, targets = shown(a)
    warm = 5 if a.cuda else 1  # steps that are not timed: the first ones look for algorithms
    for i in range(a.steps + warm):
        start = time.perf_counter()
        step(model, opt, images, targets, a.bf16)  # its loss is read, so it has ended
        if a.cuda:
            torch.cuda.synchronize()
        if i >= warm:
            times.append(time.perf_counter() - start)
        if len(times) > 1 and time.perf_counter() - began > LIMIT_S:
            break
    print(
        "peer model=%s layout=%s images_per_s=%.3f median_images_per_s=%.3f peak_mib=%.0f masks=%d" %
        ("faster_rcnn" if a.boxes else "mask_rcnn", a.layout, a.batch / min(times), a.batch / statistics.median(times), peak_mib(
            a.cuda), regions[0]), flush=True)


# ---- how well it learns ----

class Coco(torch.utils.data.Dataset):
    def __init__(self, path, images, train, masks):
        from pycocotools.coco import COCO
        self.coco, self.images, self.train, self.masks = COCO(path), images, train, masks
        self.labels = {c: i + 1 for i, c in enumerate(sorted(self.coco.cats))}
        usable = [i for i in sorted(self.coco.imgs) if self.objects(i)]
        self.ids = usable if train else sorted(self.coco.imgs)

    def objects(self, image):
        return [o for o in self.coco.imgToAnns[image] if not o.get("iscrowd") and o["bbox"][2] > 0 and o["bbox"][3] > 0]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, n):
        info = self.coco.imgs[self.ids[n]]
        image = torchvision.io.read_image(os.path.join(self.images, info["file_name"]), torchvision.io.ImageReadMode.RGB).float() / 255
        objects = self.objects(self.ids[n])
        boxes = torch.tensor([o["bbox"] for o in objects], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        target = {"boxes": boxes, "labels": torch.tensor([self.labels[o["category_id"]] for o in objects], dtype=torch.int64)}
        if self.masks:
            target["masks"] = torch.stack([torch.from_numpy(self.coco.annToMask(o))
                                           for o in objects]) if objects else torch.zeros(0, info["height"], info["width"])
        if self.train and random.random() < 0.5:
            image = image.flip(-1)
            target["boxes"] = torch.stack([info["width"] - boxes[:, 2], boxes[:, 1], info["width"] - boxes[:, 0], boxes[:, 3]], 1)
            if self.masks:
                target["masks"] = target["masks"].flip(-1)
        return image, target, self.ids[n]


@torch.inference_mode()
def score(model, data):
    """{task: (AP, AP at .5)}"""
    import contextlib
    import io

    import numpy
    from pycocotools import mask as rle
    from pycocotools.cocoeval import COCOeval
    model.eval()
    found, names = [], {v: k for k, v in data.labels.items()}
    for n in range(len(data)):
        image, _, number = data[n]
        out = model([image])[0]
        for k in range(len(out["scores"])):
            x1, y1, x2, y2 = out["boxes"][k].tolist()
            one = {
                "image_id": number, "category_id": names[int(out["labels"][k])], "score": float(out["scores"][k]),
                "bbox": [x1, y1, x2 - x1, y2 - y1]
            }
            if data.masks:
                one["segmentation"] = rle.encode(numpy.asfortranarray((out["masks"][k, 0] > 0.5).numpy().astype("uint8")))
            found.append(one)
    model.train()
    ret = {}
    for task in ("bbox",) + (("segm",) if data.masks else ()):
        ret[task] = (0.0, 0.0)
        if found:
            with contextlib.redirect_stdout(io.StringIO()):
                shown = [{k: v for k, v in one.items() if task == "bbox" or k != "bbox"} for one in found]
                e = COCOeval(data.coco, data.coco.loadRes(shown), task)
                e.evaluate()
                e.accumulate()
                e.summarize()
            ret[task] = (float(e.stats[0]), float(e.stats[1]))
    return ret


def learn(a):
    torch.manual_seed(a.seed)
    random.seed(a.seed)
    train, val = Coco(a.train, a.images, True, not a.boxes), Coco(a.val, a.images, False, not a.boxes)
    model = model_of(a, len(train.labels)).train().to(memory_format=torch.channels_last)
    lr = a.lr or 0.02 / 16 * a.batch
    opt = optimizer_of(model, lr)
    spent, steps, marks = 0.0, 0, [(a.budget or a.seconds) * k / 5 for k in range(1, 6)]
    while marks:
        loader = torch.utils.data.DataLoader(train, a.batch, shuffle=True, drop_last=True, num_workers=a.workers,
                                             collate_fn=lambda rows: list(zip(*rows)))
        start = time.perf_counter()
        for images, targets, _ in loader:
            done = steps if a.budget else spent + time.perf_counter() - start
            for group in opt.param_groups:  # linear warm-up, a tenth in the last fifth
                group["lr"] = lr * min(1, (steps + 1) / 100) * (0.1 if done > 0.8 * (a.budget or a.seconds) else 1)
            loss = step(model, opt, images, targets)
            steps += 1
            if (steps if a.budget else spent + time.perf_counter() - start) >= marks[0]:
                break
        spent += time.perf_counter() - start  # scoring does not count
        if (steps if a.budget else spent) >= marks[0]:
            marks.pop(0)
            for task, (ap, ap50) in score(model, val).items():
                print("ap task=%s seconds=%.0f steps=%d loss=%.4f ap=%.4f ap50=%.4f" % (task, spent, steps, loss, ap, ap50), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("step", "twice", "train"))
    p.add_argument("files", nargs="*")
    for name, kind, default in (("threads", int, 2), ("backbone", str, "resnet50"), ("fpn", int, 256), ("head", int, 1024),
                                ("mask", int, 256), ("px", int, 480), ("max", int, 1333), ("batch", int, 2), ("classes", int, 80),
                                ("steps", int, 5), ("seconds", float, 600), ("budget", int, 0), ("lr", float, 0), ("seed", int,
                                                                                                                   1), ("workers", int, 0)):
        p.add_argument("--" + name, type=kind, default=default)
    p.add_argument("--layout", choices=("plain", "channels_last"), default="channels_last")
    p.add_argument("--boxes", action="store_true")
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--frozen", action="store_true")
    p.add_argument("--cuda", action="store_true")
    p.add_argument("--tf32", action="store_true")
    p.add_argument("--no-search", action="store_true")
    a = p.parse_args()
    if len(a.files) != (3 if a.what == "train" else 0):
        p.error("train takes TRAIN.json VAL.json IMAGES, the others no files")
    torch.set_num_threads(a.threads)
    if a.what == "step":
        time_steps(a)
    elif a.what == "twice":
        twice(a)
    else:
        a.train, a.val, a.images = a.files
        learn(a)


main()

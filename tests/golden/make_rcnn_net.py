#!/usr/bin/env python3
"""Makes tests/golden/rcnn_net_{faster,mask}.safetensors with PyTorch and torchvision: Faster and Mask R-CNN of few channels, trained for ten steps on two
made-up images, written down as what each stage gives, the losses of every step and the gradient of each parameter in step 0, and the detections.

Nothing is random: weights, pixels and boxes are formulas that tests/golden/test_rcnn_net.c has too, and so many anchors and regions may be drawn that all are.
Normalisations have frozen statistics. Run from the repository root with any Python that has torchvision: tests/golden/make_rcnn_net.py"""
import json
import math
import struct

import numpy as np
import torch
import torchvision
from torchvision.models.detection import FasterRCNN, MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.image_list import ImageList
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.ops import FrozenBatchNorm2d

H, W, CLASSES, STEPS, LR = 96, 128, 3, 10, 0.002
FPN, HEAD, MASK = 16, 24, 8
SIZES = [(96, 128), (80, 112)]  # of the pictures on the canvas
ANCHORS = [8, 16, 32, 64, 128]
# image, class from 0, x1, y1, x2, y2
BOXES = [(0, 0, 10.5, 12.25, 52.0, 60.5), (0, 2, 60.0, 20.0, 121.5, 90.25), (0, 1, 30.25, 50.0, 44.0, 66.0), (1, 1, 8.0, 9.5, 40.0, 71.75),
         (1, 0, 50.5, 30.0, 108.25, 76.0)]


def save(arrays, path):
    header, data = {}, b""
    for k, v in sorted(arrays.items(), key=lambda a: (-a[1].element_size(), a[0])):
        raw = v.contiguous().numpy().tobytes()
        header[k] = {"dtype": "F64" if v.dtype == torch.float64 else "F32", "shape": list(v.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)


def noise(i):
    i = (np.asarray(i, dtype=np.uint64) * 2654435761 + 1) & 0xFFFFFFFF
    i ^= i >> 15
    i = (i * 2246822519) & 0xFFFFFFFF
    return i ^ (i >> 13)


def uniform(first, n):
    return (noise(first + np.arange(n)) >> 8) / 16777216.0


def key(name):
    """FNV-1a of the name."""
    h = 2166136261
    for c in name.encode():
        h = ((h ^ c) * 16777619) & 0xFFFFFFFF
    return h


def value(name, shape):
    """Weights by name and element; normalisations near the identity, with statistics of their own, and the last of a block far below it."""
    u = uniform(key(name), math.prod(shape)).reshape(shape)
    if name.endswith("running_mean"):
        v = 0.2 * u - 0.1
    elif name.endswith("running_var"):
        v = 0.75 + 0.5 * u
    elif len(shape) == 1 and (".bn" in name or "downsample.1" in name):
        v = (0.75 + 0.5 * u) * (0.25 if ".bn3" in name else 1) if name.endswith("weight") else 0.2 * u - 0.1
    elif len(shape) == 1:
        v = 0.1 * u - 0.05
    else:
        fan_in = shape[0] if "conv5_mask" in name else math.prod(shape[1:])
        v = (u - 0.5) * math.sqrt((0.2 if "rpn.head.bbox" in name or "box_predictor" in name else 6.0) / fan_in)
    return torch.from_numpy(v.astype(np.float32))


def part(g):
    """Of large gradients every fifth number."""
    g = g.detach().reshape(-1).clone()
    return g[::5].contiguous() if g.numel() > 1000 else g


class Narrow(ResNet):
    """ResNet with 1/16 of the channels, 8 at least, as model.width = 0.0625 makes it."""

    def __init__(self, block, layers):
        self.__dict__["first"] = True
        super().__init__(block, layers, norm_layer=FrozenBatchNorm2d)

    @property
    def inplanes(self):
        return self.__dict__["channels"]

    @inplanes.setter
    def inplanes(self, n):
        self.__dict__["channels"] = narrow(n) if self.__dict__["first"] else n
        self.__dict__["first"] = False

    def _make_layer(self, block, planes, blocks, stride=1, dilate=False):
        return super()._make_layer(block, narrow(planes), blocks, stride, dilate)


def narrow(channels):
    return max(8, int(math.floor(channels / 16 / 8 + 0.5)) * 8)


def model_of(mask, block, layers):
    body = Narrow(block, layers)
    channels = [narrow(64 << i) * block.expansion for i in range(4)]
    backbone = BackboneWithFPN(body, {f"layer{i + 1}": str(i) for i in range(4)}, channels, FPN)
    anchors = AnchorGenerator(tuple((s,) for s in ANCHORS), ((0.5, 1.0, 2.0),) * 5)
    kinds = dict(num_classes=CLASSES + 1, rpn_anchor_generator=anchors, rpn_pre_nms_top_n_train=200, rpn_post_nms_top_n_train=60,
                 rpn_pre_nms_top_n_test=200, rpn_post_nms_top_n_test=60, rpn_batch_size_per_image=1 << 14, rpn_positive_fraction=0.5,
                 box_batch_size_per_image=512, box_positive_fraction=0.5, box_score_thresh=0.05, box_nms_thresh=0.5)
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
    from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
    kinds.update(num_classes=None, box_head=TwoMLPHead(FPN * 49, HEAD), box_predictor=FastRCNNPredictor(HEAD, CLASSES + 1))
    if mask:
        kinds.update(mask_head=MaskRCNNHeads(FPN, [MASK] * 4, 1), mask_predictor=MaskRCNNPredictor(MASK, MASK, CLASSES + 1))
    m = (MaskRCNN if mask else FasterRCNN)(backbone, **kinds)
    state = {k: value(k, tuple(v.shape)) for k, v in m.state_dict().items()}
    m.load_state_dict(state)
    return m.train()


def pictures():
    bytes_ = (noise(np.arange(2 * H * W * 3) + 77) >> 24).reshape(2, H, W, 3).astype(np.float32)
    mean, std = np.array([123.675, 116.280, 103.530], np.float32), np.array([58.395, 57.120, 57.375], np.float32)
    x = (bytes_ - mean) / std
    for i, (h, w) in enumerate(SIZES):
        x[i, h:] = 0
        x[i, :, w:] = 0
    return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous()


def bitmap(box, h, w):
    """What the polygon of the box with one corner cut is as runs: whole pixels."""
    x1, y1, x2, y2 = (int(round(v)) for v in box)
    m = np.zeros((h, w), np.uint8)
    m[y1:y2, x1:x2] = 1
    for k in range((y2 - y1) // 3):
        m[y1 + k, x1:x1 + (y2 - y1) // 3 - k] = 0
    return torch.from_numpy(m)


def targets(mask):
    out = []
    for i, (h, w) in enumerate(SIZES):
        mine = [b for b in BOXES if b[0] == i]
        t = dict(boxes=torch.tensor([b[2:] for b in mine], dtype=torch.float32), labels=torch.tensor([b[1] + 1 for b in mine]))
        if mask:
            t["masks"] = torch.stack([bitmap(b[2:], H, W) for b in mine])
        out.append(t)
    return out


def losses_of(m, x, t):
    images = ImageList(x, SIZES)
    features = m.backbone(images.tensors)
    proposals, rpn = m.rpn(images, features, t)
    _, roi = m.roi_heads(features, proposals, images.image_sizes, t)
    return rpn | roi, features, proposals


def freeze(m, stages):
    for name, p in m.backbone.body.named_parameters():
        if stages > 0 and (name.startswith("conv1") or name.startswith("bn1")) or stages > 1 and name.startswith("layer1"):
            p.requires_grad_(False)


def run(name, mask, block, layers):
    torch.manual_seed(0)
    m = model_of(mask, block, layers)
    freeze(m, 2)
    x, t = pictures(), targets(mask)
    order = ["loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg"] + (["loss_mask"] if mask else [])
    trained = [p for p in m.parameters() if p.requires_grad]
    opt = torch.optim.SGD(trained, lr=LR, momentum=0.9, weight_decay=1e-4)
    out, rows = {}, []
    for step in range(STEPS):
        terms, features, proposals = losses_of(m, x, t)
        rows.append([terms[k].item() for k in order])
        opt.zero_grad()
        sum(terms.values()).backward()
        if step == 0:
            for k, f in features.items():
                out[f"feature.{k}"] = f.detach()[:, ::4].contiguous()
            for i, p in enumerate(proposals):
                out[f"proposals.{i}"] = p.detach()
            for k, p in m.named_parameters():
                if p.requires_grad:
                    out["grad." + k] = part(p.grad)
        opt.step()
    out["losses"] = torch.tensor(rows, dtype=torch.float64)
    m.eval()
    with torch.no_grad():
        images = ImageList(x, SIZES)
        features = m.backbone(images.tensors)
        found, _ = m.roi_heads(features, m.rpn(images, features)[0], images.image_sizes)
    for i, d in enumerate(found):
        out[f"found.{i}"] = torch.cat([d["boxes"], d["scores"][:, None], d["labels"][:, None].float()], 1)[:20].contiguous()
    save(out, f"tests/golden/{name}.safetensors")
    print(name, torchvision.__version__, rows[0], rows[-1], {k: tuple(v.shape) for k, v in out.items() if "grad" not in k})


if __name__ == "__main__":
    torch.set_num_threads(2)
    run("rcnn_net_faster", False, Bottleneck, [3, 4, 6, 3])
    run("rcnn_net_mask", True, BasicBlock, [2, 2, 2, 2])

#!/usr/bin/env python3
"""Makes tests/golden/rcnn_net_{faster,mask,d2,edges,edges_tv,val_tv,val_d2,fine,fine_tv}.safetensors with PyTorch and
torchvision: Faster and Mask R-CNN of few channels, trained for ten steps on two made-up images, recorded as the output
of each stage, the losses of every step and the gradient of each parameter in step 0, the biases and the detections
after the last.

The first two are torchvision's own models (flavor tv). The third is its network set up like detectron2's. The parts
between the convolutions follow the formulas of specs rcnn, every row of section 10 in detectron2's version (flavor d2).
Arrays have torchvision's names in all. The fourth is the third once more, with fewer layers, to test rows that make no
difference in the third: proposals and detections far thinner than a pixel, scores with a sigmoid of 1, an object with a
level that depends on a guard of 1e-6, pictures that were larger than they are on the canvas, and the masks of
detections. One step, no gradients. The fifth is the same scene shown to torchvision's own. Then follow losses of
validation (specs rcnn section 12.3): each image alone, with the proposals of evaluation, and the anchors and regions
with the smallest Philox words of (seed, place of the image in the data set). The last two are the fourth and the fifth
with masks of 56 x 56 cells, and gradients of the mask head.

Nothing is random: weights, pixels and boxes are formulas that tests/golden/test_rcnn_net.c has too, and in training so
many anchors and regions may be drawn that all are. Normalisations have frozen statistics. Run from the repository root
with any Python that has torchvision: tests/golden/make_rcnn_net.py"""  # SPDX-License-Identifier: Apache-2.0
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

from philox import philox

CLASSES, STEPS, LR, DECAY = 3, 10, 0.002, 0.1  # so much decay that ten steps tell
FPN, HEAD, MASK = 16, 24, 8
CELLS = 14  # the side of the mask head's input; its masks have twice as many cells
ANCHORS = [8, 16, 32, 64, 128]
H, W = 96, 128
SIZES = [(96, 128), (80, 112)]  # of the pictures on the canvas,
PICTURES = SIZES                # and as they were
# image, class from 0, x1, y1, x2, y2
BOXES = [(0, 0, 10.5, 12.25, 52.0, 60.5), (0, 2, 60.0, 20.0, 121.5, 90.25), (0, 1, 30.25, 50.0, 44.0, 66.0), (1, 1, 8.0, 9.5, 40.0, 71.75),
         (1, 0, 50.5, 30.0, 108.25, 76.0)]


# The biases in the fourth and the fifth, (array, element, number); and MASKS: the factor of the weights of mask logits
# there.
EDGES = [("rpn.head.cls_logits.bias", 0, 20.15), ("rpn.head.cls_logits.bias", 1, 20), ("rpn.head.cls_logits.bias", 2, 19.95)]
EDGES_D2 = EDGES + [("rpn.head.bbox_pred.bias", 2, -10), ("roi_heads.box_predictor.bbox_pred.bias", 6, -55),
                    ("roi_heads.mask_predictor.mask_fcn_logits.bias", 2, 0.85)]
EDGES_TV = EDGES + [("rpn.head.bbox_pred.bias", 2, -9.7), ("roi_heads.box_predictor.bbox_pred.bias", 10, -55),
                    ("roi_heads.mask_predictor.mask_fcn_logits.bias", 3, 0.85)]
MASKS = 60


def edges():
    global H, W, SIZES, PICTURES, BOXES
    H, W, SIZES, PICTURES = 96, 160, [(96, 160), (81, 141)], [(103, 167), (95, 162)]
    BOXES = [(0, 0, 2, 8, 158.7999, 88), (0, 2, 3.5, 1.25, 157, 93.5), (0, 1, 20, 50, 44, 86), (1, 1, 15, 12, 70, 75),
             (1, 0, 70.5, 20, 130.25, 78)]


def save(arrays, path):
    header, data = {}, b""
    for k, v in sorted(arrays.items(), key=lambda a: (-a[1].element_size(), a[0])):
        raw = v.contiguous().numpy().tobytes()
        header[k] = {
            "dtype": "F64" if v.dtype == torch.float64 else "F32", "shape": list(v.shape),
            "data_offsets": [len(data), len(data) + len(raw)]
        }
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
    """Returns a gradient, or every fifth number of a large one."""
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


def model_of(mask, block, layers, d2=False, edge=False):
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
        kinds.update(mask_roi_pool=torchvision.ops.MultiScaleRoIAlign(["0", "1", "2", "3"], CELLS, 2),
                     mask_head=MaskRCNNHeads(FPN, [MASK] * 4, 1), mask_predictor=MaskRCNNPredictor(MASK, MASK, CLASSES + 1))
    m = (MaskRCNN if mask else FasterRCNN)(backbone, **kinds)
    if d2:
        m.roi_heads.box_predictor.bbox_pred = torch.nn.Linear(HEAD, 4 * CLASSES)
        m.roi_heads.mask_predictor = MaskRCNNPredictor(MASK, MASK, CLASSES)
        for layer in (body.layer2, body.layer3, body.layer4) if block is Bottleneck else ():
            layer[0].conv1.stride, layer[0].conv2.stride = (2, 2), (1, 1)
    state = {k: value(k, tuple(v.shape)) for k, v in m.state_dict().items()}
    if d2:  # pictures reach 150 there
        state["backbone.body.conv1.weight"] *= 1 / 64
    if edge:
        state["roi_heads.mask_predictor.mask_fcn_logits.weight"] *= MASKS
        for name, at, number in EDGES_D2 if d2 else EDGES_TV:
            state[name][at] = number
    m.load_state_dict(state)
    return m.train()


def pictures(d2=False):
    bytes_ = (noise(np.arange(2 * H * W * 3) + 77) >> 24).reshape(2, H, W, 3).astype(np.float32)
    mean, std = np.array([123.675, 116.280, 103.530], np.float32), np.array([58.395, 57.120, 57.375], np.float32)
    x = bytes_[..., ::-1] - mean[::-1] if d2 else (bytes_ - mean) / std
    for i, (h, w) in enumerate(SIZES):
        x[i, h:] = 0
        x[i, :, w:] = 0
    return torch.from_numpy(x.copy()).permute(0, 3, 1, 2).contiguous()


def bitmap(box, h, w):
    """Returns the mask of the polygon of the box with a cut corner, as its runs give it: whole pixels."""
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


def losses_of(m, x, t, sizes=None):
    images = ImageList(x, sizes or SIZES)
    features = m.backbone(images.tensors)
    proposals, rpn = m.rpn(images, features, t)
    _, roi = m.roi_heads(features, proposals, images.image_sizes, t)
    return rpn | roi, features, proposals


def freeze(m, stages):
    for name, p in m.backbone.body.named_parameters():
        if stages > 0 and (name.startswith("conv1") or name.startswith("bn1")) or stages > 1 and name.startswith("layer1"):
            p.requires_grad_(False)


# ---- detectron2 ----

RPN_BATCH, PRE, POST, CLAMP, FOUND = 4096, 200, 60, math.log(1000 / 16), 20


def everything(labels, what, batch):
    """Which of the anchors or regions of an image with these labels (0, or 1 and above; -1 never) count."""
    return labels >= 0


def exact_anchors(level, h, w):
    cells = []
    for a in (0.5, 1.0, 2.0):
        bw = math.sqrt(ANCHORS[level] ** 2 / a)
        cells.append([-bw / 2, -a * bw / 2, bw / 2, a * bw / 2])
    cells = torch.tensor(cells, dtype=torch.float64).float()
    y, x = torch.meshgrid(torch.arange(h) * 4.0 * 2 ** level, torch.arange(w) * 4.0 * 2 ** level, indexing="ij")
    at = torch.stack([x, y, x, y], 2).reshape(-1, 1, 4)
    return (at + cells).reshape(-1, 4)


def encode(src, dst, weights):
    w, h = src[:, 2] - src[:, 0], src[:, 3] - src[:, 1]
    tw, th = dst[:, 2] - dst[:, 0], dst[:, 3] - dst[:, 1]
    d = [(dst[:, 0] + tw / 2 - src[:, 0] - w / 2) / w, (dst[:, 1] + th / 2 - src[:, 1] - h / 2) / h, (tw / w).log(), (th / h).log()]
    return torch.stack([k * v for k, v in zip(weights, d)], 1)


def decode(src, d, weights):
    w, h = src[:, 2] - src[:, 0], src[:, 3] - src[:, 1]
    dx, dy, dw, dh = (d[:, i] / weights[i] for i in range(4))
    cx, cy = dx * w + src[:, 0] + w / 2, dy * h + src[:, 1] + h / 2
    pw, ph = w * dw.clamp(max=CLAMP).exp(), h * dh.clamp(max=CLAMP).exp()
    return torch.stack([cx - pw / 2, cy - ph / 2, cx + pw / 2, cy + ph / 2], 1)


def clipped(box, size):
    return torch.stack([box[:, 0].clamp(0, size[1]), box[:, 1].clamp(0, size[0]), box[:, 2].clamp(0, size[1]), box[:, 3].clamp(0, size[0])],
                       1)


def flat(x, numbers):
    """[n, 3 * numbers, h, w] to [n, h * w * 3, numbers]."""
    n, _, h, w = x.shape
    return x.view(n, 3, numbers, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, numbers)


def propose(levels, anchors, i, size, pre=PRE, post=POST):
    boxes, scores, of = [], [], []
    for level, (logits, deltas) in enumerate(levels):
        order = torch.argsort(logits[i, :, 0], descending=True, stable=True)[:pre]
        boxes.append(clipped(decode(anchors[level][order], deltas[i, order], (1, 1, 1, 1)), size))
        scores.append(logits[i, order, 0])
        of.append(torch.full((len(order),), level))
    boxes, scores, of = torch.cat(boxes), torch.cat(scores), torch.cat(of)
    whole = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    boxes, scores, of = boxes[whole], scores[whole], of[whole]
    kept = [torch.nonzero(of == level)[:, 0] for level in range(len(levels))]
    kept = torch.cat([k[torchvision.ops.nms(boxes[k], scores[k], 0.7)] for k in kept])
    kept = kept[torch.argsort(scores[kept], descending=True, stable=True)][:post]
    return boxes[kept]


def rpn_losses(levels, anchors, t, chosen, batch):
    every, logits, deltas = torch.cat(anchors), torch.cat([l for l, _ in levels], 1)[..., 0], torch.cat([d for _, d in levels], 1)
    cls = box = 0
    for i, one in enumerate(t):
        iou = torchvision.ops.box_iou(one["boxes"], every)
        best, arg = iou.max(0)
        label = torch.where(best < 0.3, 0, torch.where(best < 0.7, -1, 1))
        label[(iou == iou.max(1, keepdim=True)[0]).any(0)] = 1
        label[~chosen(label, "rpn", batch)] = -1
        fg = label == 1
        cls = cls + torch.nn.functional.binary_cross_entropy_with_logits(logits[i][label >= 0], label[label >= 0].float(), reduction="sum")
        box = box + (deltas[i][fg] - encode(every[fg], one["boxes"][arg[fg]], (1, 1, 1, 1))).abs().sum()
    return cls / (batch * len(t)), box / (batch * len(t))


def pool(features, rois, side):
    """rois: image, x1, y1, x2, y2."""
    area = ((rois[:, 3] - rois[:, 1]) * (rois[:, 4] - rois[:, 2])).clamp(min=0)
    level = torch.floor(4 + torch.log2(area.sqrt() / 224 + 1e-8)).clamp(2, 5).long() - 2
    out = torch.zeros(len(rois), FPN, side, side)
    for k in range(4):
        at = torch.nonzero(level == k)[:, 0]
        out = out.index_put((at,), torchvision.ops.roi_align(features[str(k)], rois[at], (side, side), 1 / 2 ** (k + 2), 0, True))
    return out


def rois_of(boxes):
    return torch.cat([torch.cat([torch.full((len(b), 1), float(i)), b], 1) for i, b in enumerate(boxes)])


def outlines(roi, box):
    """The rectangle of the object, drawn anew on the cells of the region."""
    from pycocotools import mask as coco
    x1, y1, x2, y2 = (float(v) for v in roi)
    sx, sy = 2 * CELLS / max(x2 - x1, 0.1), 2 * CELLS / max(y2 - y1, 0.1)
    a, b, c, d = (float(v) for v in box)
    points = [a, b, c, b, c, d, a, d]
    points = [(v - (y1 if k % 2 else x1)) * (sy if k % 2 else sx) for k, v in enumerate(points)]
    return torch.from_numpy(coco.decode(coco.frPyObjects([points], 2 * CELLS, 2 * CELLS))[:, :, 0].astype(np.float32))


def d2_losses(m, x, t, sizes=None, chosen=everything, rpn_batch=RPN_BATCH, pre=PRE, post=POST):
    sizes = sizes or SIZES
    features = m.backbone(x)
    objectness, deltas = m.rpn.head(list(features.values()))
    levels = [(flat(a, 1), flat(b, 4)) for a, b in zip(objectness, deltas)]
    anchors = [exact_anchors(k, *a.shape[-2:]) for k, a in enumerate(objectness)]
    rpn = rpn_losses(levels, anchors, t, chosen, rpn_batch)
    with torch.no_grad():
        proposals = [propose(levels, anchors, i, sizes[i], pre, post) for i in range(len(t))]
        boxes = [torch.cat([p, one["boxes"]]) for p, one in zip(proposals, t)]
        keep = [chosen((torchvision.ops.box_iou(one["boxes"], b).amax(0) >= 0.5).long(), "rcnn", None) for b, one in zip(boxes, t)]
        boxes = [b[k] for b, k in zip(boxes, keep)]
        match = [torchvision.ops.box_iou(one["boxes"], b).max(0) for b, one in zip(boxes, t)]
        label = torch.cat([torch.where(best >= 0.5, one["labels"][arg] - 1, CLASSES) for (best, arg), one in zip(match, t)])
        goal = torch.cat([one["boxes"][arg] for (_, arg), one in zip(match, t)])
        rois = rois_of(boxes)
    head = m.roi_heads
    cls, reg = head.box_predictor(head.box_head(pool(features, rois, 7)))
    fg = torch.nonzero(label < CLASSES)[:, 0]
    box = (reg.view(-1, CLASSES, 4)[fg, label[fg]] - encode(rois[fg, 1:], goal[fg], (10, 10, 5, 5))).abs().sum() / len(rois)
    logits = head.mask_predictor(head.mask_head(pool(features, rois[fg], CELLS)))[torch.arange(len(fg)), label[fg]]
    want = torch.stack([outlines(rois[k, 1:], goal[k]) for k in fg])
    mask = torch.nn.functional.binary_cross_entropy_with_logits(logits, want)
    terms = dict(loss_objectness=rpn[0], loss_rpn_box_reg=rpn[1], loss_classifier=torch.nn.functional.cross_entropy(cls, label),
                 loss_box_reg=box, loss_mask=mask)
    return terms, features, proposals


def pasted(maps, boxes, h, w):
    """Returns the pixels of objects from probabilities [n][side][side]."""
    out, rows, columns = [], torch.arange(h, dtype=torch.float64) + 0.5, torch.arange(w, dtype=torch.float64) + 0.5
    for p, (x1, y1, x2, y2) in zip(maps, boxes.double()):
        y, x = torch.meshgrid((rows - y1) / (y2 - y1) * 2 - 1, (columns - x1) / (x2 - x1) * 2 - 1, indexing="ij")
        out.append(torch.nn.functional.grid_sample(p.double()[None, None], torch.stack([x, y], 2)[None], align_corners=False)[0, 0] >= 0.5)
    return out


def d2_masks(m, features, rois, cls, boxes, h, w):
    """rois: on the canvas; boxes: in the picture."""
    logits = m.roi_heads.mask_predictor(m.roi_heads.mask_head(pool(features, rois, CELLS)))[torch.arange(len(rois)), cls]
    return pasted(logits.sigmoid(), boxes, h, w)


def d2_found(m, x):
    """Returns for each image rows of a box in the picture, score and class from 1, and the masks of some rows."""
    features = m.backbone(x)
    objectness, deltas = m.rpn.head(list(features.values()))
    levels = [(flat(a, 1), flat(b, 4)) for a, b in zip(objectness, deltas)]
    anchors = [exact_anchors(k, *a.shape[-2:]) for k, a in enumerate(objectness)]
    out, masks = [], []
    for i, size in enumerate(SIZES):
        box = propose(levels, anchors, i, size)
        rois = torch.cat([torch.full((len(box), 1), float(i)), box], 1)
        cls, reg = m.roi_heads.box_predictor(m.roi_heads.box_head(pool(features, rois, 7)))
        score = cls.softmax(1)
        rows = []
        for k in range(CLASSES):
            at = torch.nonzero(score[:, k] > 0.05)[:, 0]
            mine = clipped(decode(box[at], reg.view(-1, CLASSES, 4)[at, k], (10, 10, 5, 5)), size)
            kept = torchvision.ops.nms(mine, score[at, k], 0.5)
            rows.append(torch.cat([mine[kept], score[at, k][kept][:, None], torch.full((len(kept), 1), k + 1.0)], 1))
        rows = torch.cat(rows)
        rows = rows[torch.argsort(rows[:, 4], descending=True, stable=True)][:100]
        (h, w), (fh, fw) = PICTURES[i], SIZES[i]
        scaled = clipped(rows[:, :4].double() * torch.tensor([w / fw, h / fh, w / fw, h / fh], dtype=torch.float64), (h, w))
        whole = (scaled[:, 2] > scaled[:, 0]) & (scaled[:, 3] > scaled[:, 1])
        rois = torch.cat([torch.full((int(whole.sum()), 1), float(i)), rows[whole, :4]], 1)[:FOUND]
        masks.append(d2_masks(m, features, rois, rows[whole, 5].long()[:FOUND] - 1, scaled[whole].float()[:FOUND], h, w))
        out.append(torch.cat([scaled.float(), rows[:, 4:]], 1)[whole])
    return out, masks


def runs(mask):
    """Returns lengths of runs along the rows, zeros first."""
    bits = mask.reshape(-1).numpy()
    ends = np.flatnonzero(np.diff(bits)) + 1
    lengths = np.diff(np.concatenate([[0], ends, [len(bits)]]))
    return torch.tensor(([0] if bits[0] else []) + list(lengths), dtype=torch.float32)


def tv_found(m, x):
    """The same result as d2_found(), from torchvision."""
    m.eval()
    images = ImageList(x, SIZES)
    features = m.backbone(images.tensors)
    found, _ = m.roi_heads(features, m.rpn(images, features)[0], images.image_sizes)
    found = m.transform.postprocess(found, images.image_sizes, PICTURES)
    rows = [torch.cat([d["boxes"], d["scores"][:, None], d["labels"][:, None].float()], 1) for d in found]
    return rows, [[p[0] > 0.5 for p in d["masks"][:FOUND]] if "masks" in d else [] for d in found]


# ---- validation ----

VAL = dict(pre=100, post=30, rpn=(40, 2),
           rcnn=(12, 2))  # proposals; of an image anchors and regions drawn, positive ones among them at most
SEED, PLACES = 0x1234567890, (3, 70000)                  # of the images in their data set
PURPOSES = {"rpn": ("rpn.pos", "rpn.neg"), "rcnn": ("rcnn.fg", "rcnn.bg")}


def smallest(candidates, purpose, place, want):
    op = key(purpose)
    op = (op >> 16 ^ op) & 0xFFFF
    words = {i: philox((SEED & 0xFFFFFFFF, SEED >> 32), (i // 4, op << 16, 0xFFFF << 16, place))[i % 4] for i in candidates}
    return sorted(words, key=lambda i: (words[i], i))[:want]


def counter(place):
    """Returns a function that chooses samples of the images at that place, in the form of everything()."""
    def chosen(labels, what, batch):
        most, positive = VAL[what]
        fg = smallest(torch.where(labels >= 1)[0].tolist(), PURPOSES[what][0], place, positive)
        bg = smallest(torch.where(labels == 0)[0].tolist(), PURPOSES[what][1], place, most - len(fg))
        print(f"place {place}, {what}: {len(fg)} of {int((labels >= 1).sum())} and {len(bg)} of {int((labels == 0).sum())}")
        mask = torch.zeros(len(labels), dtype=torch.bool)
        mask[fg + bg] = True
        return mask
    return chosen


class Sampler:
    """Replaces torchvision's function."""

    def __init__(self, place, what):
        self.chosen, self.what = counter(place), what

    def __call__(self, labels):
        masks = [self.chosen(one, self.what, None) for one in labels]
        return [m & (one >= 1) for m, one in zip(masks, labels)], [m & (one == 0) for m, one in zip(masks, labels)]


def run_val(name, d2):
    m = model_of(True, BasicBlock, [2, 2, 2, 2], d2)
    x, t = pictures(d2), targets(True)
    m.rpn._pre_nms_top_n, m.rpn._post_nms_top_n = {"training": VAL["pre"]}, {"training": VAL["post"]}
    rows = []
    for i, place in enumerate(PLACES):
        m.rpn.fg_bg_sampler, m.roi_heads.fg_bg_sampler = Sampler(place, "rpn"), Sampler(place, "rcnn")
        one = x[i:i + 1], t[i:i + 1], SIZES[i:i + 1]
        with torch.no_grad():
            terms = d2_losses(m, *one, counter(place), VAL["rpn"][0], VAL["pre"], VAL["post"])[0] if d2 else losses_of(m, *one)[0]
        rows.append([terms[k].item() for k in ORDER])
    rows.append(list(np.mean(rows, 0)))
    save({"losses": torch.tensor(np.array(rows), dtype=torch.float64)}, f"tests/golden/{name}.safetensors")
    print(name, rows)


# ---- all ----

ORDER = ["loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg", "loss_mask"]


def run(name, mask, block, layers, d2=False, edge=False, cells=14):
    global CELLS
    CELLS = cells
    m = model_of(mask, block, layers, d2, edge)
    freeze(m, 2)
    x, t = pictures(d2), targets(mask)
    order = ORDER[:5 if mask else 4]
    trained = [p for p in m.parameters() if p.requires_grad]
    opt = torch.optim.SGD(trained, lr=LR, momentum=0.9, weight_decay=1e-4 if edge else DECAY)
    out, rows = {}, []
    for step in range(1 if edge else STEPS):
        terms, features, _ = (d2_losses if d2 else losses_of)(m, x, t)
        rows.append([terms[k].item() for k in order])
        opt.zero_grad()
        sum(terms.values()).backward()
        if step == 0 and not edge:
            for k, f in features.items():
                out[f"feature.{k}"] = f.detach()[:, ::4].contiguous()
            for k, p in m.named_parameters():
                if p.requires_grad:
                    out["grad." + k] = part(p.grad)
        for k, p in m.roi_heads.named_parameters() if cells != 14 else ():
            if k.startswith("mask_"):
                out["grad.roi_heads." + k] = part(p.grad)
        opt.step()
    for k, p in m.named_parameters():
        if p.requires_grad and p.dim() == 1 and not edge:
            out["after." + k] = p.detach().clone()
    out["losses"] = torch.tensor(rows, dtype=torch.float64)
    with torch.no_grad():
        found, masks = (d2_found if d2 else tv_found)(m, x)
        for i, rows_ in enumerate(found):
            out[f"found.{i}"] = rows_[:100 if edge else FOUND].contiguous()
        for i, k in ((i, k) for i in range(len(masks)) for k in range(len(masks[i]) if edge else 0)):
            out[f"mask.{i}.{k}"] = runs(masks[i][k])
    save(out, f"tests/golden/{name}.safetensors")
    print(name, torchvision.__version__, rows[0], rows[-1], {k: tuple(v.shape) for k, v in out.items() if "grad" not in k})


if __name__ == "__main__":
    torch.set_num_threads(2)
    run("rcnn_net_faster", False, Bottleneck, [3, 4, 6, 3])
    run("rcnn_net_mask", True, BasicBlock, [2, 2, 2, 2])
    run("rcnn_net_d2", True, Bottleneck, [3, 4, 6, 3], d2=True)
    run_val("rcnn_net_val_tv", False)
    run_val("rcnn_net_val_d2", True)
    edges()
    run("rcnn_net_edges", True, BasicBlock, [2, 2, 2, 2], d2=True, edge=True)
    run("rcnn_net_edges_tv", True, BasicBlock, [2, 2, 2, 2], edge=True)
    run("rcnn_net_fine", True, BasicBlock, [2, 2, 2, 2], d2=True, edge=True, cells=28)
    run("rcnn_net_fine_tv", True, BasicBlock, [2, 2, 2, 2], edge=True, cells=28)

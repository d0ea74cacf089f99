#!/usr/bin/python3
"""Makes tests/golden/rcnn.safetensors: what torchvision's RegionProposalNetwork and RoIHeads make of two images, with the draws frozen, and the same with
every row of specs rcnn section 10 in which detectron2 differs (flavor d2), from the formulas: anchors, losses with gradients, proposals, regions, masks,
detections. Masks of fewer and of more cells stand in rcnn_masks.safetensors.

Draws: of the candidates those of the smallest Philox words, by element (specs determinism 3.8); philox() here is a program of its own. Logits and deltas
are number(), which tests/device/test_rcnn_golden.c has too, as it has the boxes and masks below. Arrays are named after flavor and what they are.
Run from the repository root: python3 tests/golden/make_rcnn.py (needs torchvision)"""  # SPDX-License-Identifier: Apache-2.0
import math

import torch
import torch.nn.functional as F
from torchvision.models.detection import _utils, roi_heads
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead
from torchvision.ops import batched_nms, boxes as box_ops, roi_align

from make_yolov3 import noise
from yolo import write

HEIGHT, WIDTH = 64, 96
SIZES = [(64, 96), (56, 88)]
SIDES = (8, 16, 32, 64, 128)
GRIDS = [(16, 24), (8, 12), (4, 6), (2, 3), (1, 2)]  # of the last, torchvision infers a stride of 48 along x
TRUTH = [
    [(4.5, 6.25, 30, 40.5), (20, 10, 90, 60), (50.25, 3, 60, 12), (70, 40, 82.5, 62)],
    [(10, 10, 41.5, 33), (3, 2, 87, 55)],
]
CLASSES = [[0, 2, 1, 2], [1, 0]]
K, PRE, POST, RPN_BATCH, BATCH, SIDE = 3, 60, 80, 64, 48, 28
OTHER_SIDES = (10, 56)
SEED = 20


def number(of, i):
    """Uniform in [-2, 2]."""
    return ((noise(of * 100000 + i) >> 8) / 16777216.0 - 0.5) * 4


def numbers(of, scale, *shape):
    count = math.prod(shape)
    return (torch.tensor([number(of, i) for i in range(count)], dtype=torch.float64).float() * scale).reshape(shape)


def philox(key, counter):
    key, counter = list(key), list(counter)
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def word(purpose, image, i):
    return philox((SEED, 0), (i // 4, purpose << 16, image << 16, 0))[i % 4]


def draw(purpose, image, candidates, want):
    """The numbers of those with the smallest words, ascending."""
    return sorted(sorted(candidates.tolist(), key=lambda i: (word(purpose, image, i), i))[:want])


class Draws:
    """In the place of torchvision's sampler."""

    def __init__(self, purposes, batch, positive):
        self.purposes, self.batch, self.positive = purposes, batch, positive

    def __call__(self, labels):
        masks = [[], []]
        for image, label in enumerate(labels):
            chosen = draw(self.purposes[0], image, torch.where(label >= 1)[0], self.positive)
            rest = draw(self.purposes[1], image, torch.where(label == 0)[0], self.batch - len(chosen))
            for mask, numbers_ in zip(masks, (chosen, rest)):
                mask.append(torch.zeros(len(label), dtype=torch.uint8))
                mask[-1][numbers_] = 1
        return masks


# ---- RPN ----

class Exact(torch.nn.Module):
    """Anchors of flavor d2."""

    def forward(self, images, features):
        out = []
        for (h, w), side, stride in zip(GRIDS, SIDES, (4, 8, 16, 32, 64)):
            cells = []
            for ratio in (0.5, 1.0, 2.0):
                bw = math.sqrt(side * side / ratio)
                cells.append((-bw / 2, -ratio * bw / 2, bw / 2, ratio * bw / 2))
            cells = torch.tensor(cells, dtype=torch.float64).float()
            y, x = torch.meshgrid(torch.arange(h).float() * stride, torch.arange(w).float() * stride, indexing="ij")
            at = torch.stack((x, y, x, y), -1).reshape(-1, 1, 4)
            out.append((at + cells).reshape(-1, 4))
        return [torch.cat(out)] * len(SIZES)


def l1_proposals(rpn, logits, deltas, anchors, sizes):
    """Proposals of flavor d2: by logit; boxes without area go."""
    boxes, scores = [], []
    for i, size in enumerate(sizes):
        found, level, z = [], [], []
        at = 0
        for l, (h, w) in enumerate(GRIDS):
            n = h * w * 3
            order = torch.argsort(logits[i, at:at + n], descending=True, stable=True)[:PRE] + at
            found.append(rpn.box_coder.decode(deltas[i, order], [anchors[i][order]])[:, 0])
            level.append(torch.full((len(order),), l))
            z.append(logits[i, order])
            at += n
        b, level, z = box_ops.clip_boxes_to_image(torch.cat(found), size), torch.cat(level), torch.cat(z)
        keep = (b[:, 2] > b[:, 0]) & (b[:, 3] > b[:, 1])
        b, level, z = b[keep], level[keep], z[keep]
        keep = batched_nms(b, z, level, 0.7)[:POST]
        boxes.append(b[keep])
        scores.append(z[keep])
    return boxes, scores


def rpn_part(flavor, arrays):
    tv = flavor == "tv"
    generator = AnchorGenerator(tuple((s,) for s in SIDES), ((0.5, 1.0, 2.0),) * 5) if tv else Exact()
    rpn = RegionProposalNetwork(generator, RPNHead(4, 3), 0.7, 0.3, RPN_BATCH, 0.5, {"training": PRE, "testing": PRE},
                                {"training": POST, "testing": POST}, 0.7)
    rpn.fg_bg_sampler = Draws((0, 1), RPN_BATCH, RPN_BATCH // 2)
    images = ImageList(torch.zeros(2, 3, HEIGHT, WIDTH), SIZES)
    logits = [numbers(l, 1, 2, h, w, 3).requires_grad_() for l, (h, w) in enumerate(GRIDS)]
    deltas = [numbers(10 + l, 0.25, 2, h, w, 12).requires_grad_() for l, (h, w) in enumerate(GRIDS)]
    anchors = generator(images, [z.permute(0, 3, 1, 2) for z in logits])
    z = torch.cat([t.reshape(2, -1) for t in logits], 1)
    d = torch.cat([t.reshape(2, -1, 4) for t in deltas], 1)
    targets = [{"boxes": torch.tensor(b)} for b in TRUTH]
    labels, matched = rpn.assign_targets_to_anchors(anchors, targets)
    wanted = torch.stack(rpn.box_coder.encode(matched, anchors))
    chosen, rest = (torch.stack(m).bool() for m in rpn.fg_bg_sampler(labels))
    if tv:
        cls, box = rpn.compute_loss(z, d.reshape(-1, 4), labels, list(wanted))
    else:
        y = torch.stack(labels)
        cls = F.binary_cross_entropy_with_logits(z[chosen | rest], y[chosen | rest], reduction="sum") / (RPN_BATCH * 2)
        box = (d[chosen] - wanted[chosen]).abs().sum() / (RPN_BATCH * 2)
    (cls + box).backward()
    arrays[flavor + ".rpn_loss"] = torch.stack((cls, box)).detach()
    for i in range(2):
        arrays["%s.anchor.%d" % (flavor, i)] = torch.cat((torch.where(chosen[i])[0], torch.where(rest[i])[0]))
        arrays["%s.matched.%d" % (flavor, i)] = matched[i][chosen[i]]
    arrays[flavor + ".dlogits"] = torch.cat([t.grad.flatten() for t in logits])
    # Of those that are not 0: what they are, and where.
    grad = torch.cat([t.grad.flatten() for t in deltas])
    arrays[flavor + ".ddeltas"] = torch.stack((torch.where(grad != 0)[0].float(), grad[grad != 0]))
    with torch.no_grad():
        if tv:
            boxes, scores = rpn.filter_proposals(
                rpn.box_coder.decode(d.reshape(-1, 4), anchors).view(2, -1, 4), z, SIZES, [h * w * 3 for h, w in GRIDS])
        else:
            boxes, scores = l1_proposals(rpn, z, d, anchors, SIZES)
    for i in range(2):
        arrays["%s.proposal.%d" % (flavor, i)] = boxes[i]
        arrays["%s.score.%d" % (flavor, i)] = scores[i]
    return boxes


# ---- RoI heads ----

def bitmap(image, t):
    """Some pixels of a box."""
    h, w = SIZES[image]
    x1, y1, x2, y2 = TRUTH[image][t]
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    inside = (x >= int(x1)) & (x < int(x2)) & (y >= int(y1)) & (y < int(y2))
    return (inside & ((x // 3 * 7 + y // 4 * 3 + t) % 5 < 3)).float()


def outline(image, t):
    """A polygon in a box."""
    x1, y1, x2, y2 = TRUTH[image][t]
    shape = [(0, 0), (.5, .2), (1, .1), (.8, .5), (1, 1), (.3, .9), (0, .75), (.25, .5)]
    return [(x1 + (x2 - x1) * a, y1 + (y2 - y1) * b) for a, b in shape]


def drawn(points, box, side):
    """Section 8.3, step by step, on the cells of a box."""
    w, h = max(box[2] - box[0], 0.1), max(box[3] - box[1], 0.1)
    x = [int(5 * ((p[0] - box[0]) * (side / w)) + .5) for p in points]
    y = [int(5 * ((p[1] - box[1]) * (side / h)) + .5) for p in points]
    x.append(x[0])
    y.append(y[0])
    u, v = [], []
    for xs, ys, xe, ye in zip(x, y, x[1:], y[1:]):
        dx, dy = abs(xe - xs), abs(ye - ys)
        if dx + dy == 0:
            continue
        flip = (dx >= dy and xs > xe) or (dx < dy and ys > ye)
        if flip:
            xs, ys, xe, ye = xe, ye, xs, ys
        for step in range(max(dx, dy) + 1):
            t = max(dx, dy) - step if flip else step
            u.append(t + xs if dx >= dy else int(xs + (xe - xs) / dy * t + .5))
            v.append(int(ys + (ye - ys) / dx * t + .5) if dx >= dy else t + ys)
    turns = torch.zeros(side * side + 1, dtype=torch.int64)
    for a, b in zip(range(1, len(u)), range(len(u))):
        column = ((u[a] if u[a] < u[b] else u[a] - 1) + .5) / 5 - .5
        row = math.ceil(min(max((min(v[a], v[b]) + .5) / 5 - .5, 0), side))
        if u[a] != u[b] and column == math.floor(column) and 0 <= column <= side - 1:
            turns[int(column) * side + row] += 1
    return (torch.cumsum(turns, 0)[:-1] % 2).reshape(side, side).t().float()


def masks_part(name, arrays, side, regions, of, kind, shown):
    """Of masks of side x side cells: targets of the first regions, all targets' and gradients' sums, the loss."""
    tv, count = name.startswith("tv"), sum(map(len, regions))
    z = numbers(32, 1, count, side, side, K + 1 if tv else K).requires_grad_()
    masks = [torch.stack([bitmap(i, t) for t in range(len(TRUTH[i]))]) for i in range(2)]
    if tv:
        loss = roi_heads.maskrcnn_loss(z.permute(0, 3, 1, 2), regions, masks, [torch.tensor(c) + 1 for c in CLASSES], of)
        target = torch.cat([roi_heads.project_masks_on_boxes(m, r, o, side) for m, r, o in zip(masks, regions, of)])
    else:
        target = torch.stack([drawn(outline(i, int(t)), [float(x) for x in r], side) for i in range(2) for r, t in zip(regions[i], of[i])])
        loss = F.binary_cross_entropy_with_logits(z.permute(0, 3, 1, 2)[torch.arange(count), torch.cat(kind) - 1], target)
        soft = torch.cat([roi_align(masks[i][of[i], None], torch.cat((torch.arange(len(of[i])).float()[:, None], regions[i]), 1), side, 1.0, 0,
                                    True) for i in range(2)])
        arrays[name + ".bitmaps"] = soft[:3, 0]  # before they are cut at 1/2
    loss.backward()
    arrays[name + ".mask_loss"] = loss.detach()
    arrays[name + ".targets"] = target[:shown]
    arrays[name + ".mask_sums"] = torch.stack((target.sum((1, 2)), z.grad.abs().sum((1, 2, 3)) * 100))


def heads_part(flavor, arrays, others, proposals):
    tv = flavor == "tv"
    heads = roi_heads.RoIHeads(None, None, None, 0.5, 0.5, BATCH, 0.25, (10.0, 10.0, 5.0, 5.0), 0.3, 0.5, 20)
    heads.fg_bg_sampler = Draws((2, 3), BATCH, BATCH // 4)
    targets = [{"boxes": torch.tensor(b), "labels": torch.tensor(c) + 1} for b, c in zip(TRUTH, CLASSES)]
    boxes, matched, labels, wanted = heads.select_training_samples([p.clone() for p in proposals], targets)
    for i in range(2):
        arrays["%s.region.%d" % (flavor, i)] = boxes[i]
        arrays["%s.label.%d" % (flavor, i)] = labels[i]  # 0: background, and classes from 1
        arrays["%s.of.%d" % (flavor, i)] = matched[i]
    rows, y = sum(map(len, boxes)), torch.cat(labels)
    z = numbers(30, 1.5, rows, K + 1).requires_grad_()
    d = numbers(31, 1, rows, 4 * (K + 1) if tv else 4 * K).requires_grad_()
    if tv:
        cls, box = roi_heads.fastrcnn_loss(z, d, labels, wanted)
    else:
        fg = torch.where(y > 0)[0]
        cls = F.cross_entropy(z, torch.where(y > 0, y - 1, K))
        box = (d.reshape(rows, K, 4)[fg, y[fg] - 1] - torch.cat(wanted)[fg]).abs().sum() / rows
    (cls + box).backward()
    arrays[flavor + ".box_loss"] = torch.stack((cls, box)).detach()
    arrays[flavor + ".box_dlogits"], arrays[flavor + ".box_ddeltas"] = z.grad, d.grad

    fg = [torch.where(l > 0)[0] for l in labels]
    regions, of, kind = ([x[f] for x, f in zip(xs, fg)] for xs in (boxes, matched, labels))
    masks_part(flavor, arrays, SIDE, regions, of, kind, 4)
    for side in OTHER_SIDES:
        masks_part("%s_%d" % (flavor, side), others, side, regions, of, kind, 2)

    # detections: of the proposals
    rows = sum(map(len, proposals))
    z, d = numbers(40, 1.5, rows, K + 1), numbers(41, 0.5, rows, 4 * (K + 1) if tv else 4 * K)
    if not tv:  # with torchvision's columns; boxes of no area stay
        z = torch.cat((z[:, K:], z[:, :K]), 1)
        d = torch.cat((torch.zeros(rows, 4), d), 1)
        box_ops.remove_small_boxes = lambda b, min_size: torch.arange(len(b))
    found = heads.postprocess_detections(z, d, proposals, SIZES)
    for i in range(2):
        arrays["%s.found.%d" % (flavor, i)] = torch.cat((found[0][i], found[1][i][:, None], found[2][i][:, None] - 1.0), 1)


def main():
    torch.set_num_threads(1)
    arrays, others = {}, {}
    for flavor in ("tv", "d2"):
        heads_part(flavor, arrays, others, rpn_part(flavor, arrays))
    write("tests/golden/rcnn.safetensors", arrays)
    write("tests/golden/rcnn_masks.safetensors", others)


if __name__ == "__main__":
    main()

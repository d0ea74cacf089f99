"""Sparse R-CNN in PyTorch, written from specs sparse_rcnn alone: the peer of the golden generator here, of
tests/bench/peer_sparse.py and of tests/search/learn. Arrays have detd's names. Needs torchvision and
SciPy."""  # SPDX-License-Identifier: Apache-2.0
import math

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import nn
from torchvision.ops import roi_align

GAINS = 2, 5, 2  # of the class, box-difference and overlap terms
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}


# ---- backbone and pyramid (sections 2.1) ----

class Frozen(nn.BatchNorm2d):
    """A normalisation by given statistics."""

    def __init__(self, c):
        super().__init__(c)
        self.requires_grad_(False)

    def forward(self, x):
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0, self.eps)


class Conv(nn.Conv2d):
    """A convolution without bias and its normalisation."""

    def __init__(self, c, k, size, stride, norm):
        super().__init__(c, k, size, stride, size // 2, bias=False)
        self.norm = norm(k)

    def forward(self, x):
        return self.norm(super().forward(x))


class Block(nn.Module):
    def __init__(self, c, k, stride, norm, bottleneck):
        super().__init__()
        sizes = ((c, k, 1, 1), (k, k, 3, stride), (k, 4 * k, 1, 1)) if bottleneck else ((c, k, 3, stride), (k, k, 3, 1))
        self.last = len(sizes)
        for i, one in enumerate(sizes):
            self.add_module("conv%d" % (i + 1), Conv(*one, norm))
        out = sizes[-1][1]
        self.shortcut = Conv(c, out, 1, stride, norm) if stride > 1 or c != out else None

    def forward(self, x):
        y = x
        for i in range(1, self.last + 1):
            y = getattr(self, "conv%d" % i)(y)
            y = F.relu(y) if i < self.last else y
        return F.relu(y + (self.shortcut(x) if self.shortcut else x))


class ResNet(nn.Module):
    def __init__(self, depth, width, norm):
        super().__init__()
        c = [max(8, int(math.floor((64 << i) * width / 8 + 0.5)) * 8) for i in range(4)]
        self.stem, self.channels, last = nn.ModuleDict({"conv1": Conv(3, c[0], 7, 2, norm)}), [], c[0]
        for i in range(4):
            blocks, out = [], c[i] * (4 if depth >= 50 else 1)
            for b in range(BLOCKS[depth][i]):
                blocks.append(Block(last if b == 0 else out, c[i], 2 if i and b == 0 else 1, norm, depth >= 50))
            self.add_module("res%d" % (i + 2), nn.Sequential(*blocks))
            self.channels.append(out)
            last = out

    def forward(self, x):
        x, out = F.max_pool2d(F.relu(self.stem["conv1"](x)), 3, 2, 1), []
        for i in range(2, 6):
            x = getattr(self, "res%d" % i)(x)
            out.append(x)
        return out


class Pyramid(nn.Module):
    def __init__(self, depth, width, d, norm):
        super().__init__()
        self.bottom_up = ResNet(depth, width, norm)
        for i, c in enumerate(self.bottom_up.channels):
            self.add_module("fpn_lateral%d" % (i + 2), nn.Conv2d(c, d, 1))
            self.add_module("fpn_output%d" % (i + 2), nn.Conv2d(d, d, 3, padding=1))

    def forward(self, x):
        c, out, top = self.bottom_up(x), [], None
        for i in range(5, 1, -1):
            side = getattr(self, "fpn_lateral%d" % i)(c[i - 2])
            top = side if top is None else side + F.interpolate(top, scale_factor=2, mode="nearest")
            out.insert(0, getattr(self, "fpn_output%d" % i)(top))
        return out


# ---- a stage (section 3) ----

def pool(levels, box, of):
    """P2 .. P5 and boxes [R,4] of the images `of` to [R,49,d]; no gradient to the boxes."""
    box = box.detach()
    side = ((box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])).sqrt()
    level = torch.floor(4 + torch.log2(side / 224 + 1e-8)).clamp(2, 5)
    rois, out = torch.cat([of[:, None].to(box.dtype), box], 1), None
    for k, x in enumerate(levels):
        at = torch.nonzero(level == k + 2)[:, 0]
        part = roi_align(x, rois[at], 7, 0.25 / 2 ** k, 2, True).flatten(2).transpose(1, 2)
        out = torch.zeros(len(box), *part.shape[1:], dtype=part.dtype) if out is None else out
        out = out.index_copy(0, at, part)
    return out


def decode(delta, box, clamp, floor=False):
    w, h = box[:, 2] - box[:, 0], box[:, 3] - box[:, 1]
    cx, cy = box[:, 0] + w / 2, box[:, 1] + h / 2
    grow = delta[:, 2:].clamp(min=-clamp if floor else None, max=clamp).exp()
    cx, cy, w, h = delta[:, 0] / 2 * w + cx, delta[:, 1] / 2 * h + cy, w * grow[:, 0], h * grow[:, 1]
    return torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], 1)


class Interaction(nn.Module):
    def __init__(self, d, e):
        super().__init__()
        self.d, self.e, self.dynamic_layer, self.out_layer = d, e, nn.Linear(d, 2 * d * e), nn.Linear(49 * d, d)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(e), nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, q, r):
        theta, many = self.dynamic_layer(q), self.d * self.e
        x = F.relu(self.norm1(r @ theta[:, :many].view(-1, self.d, self.e)))
        x = F.relu(self.norm2(x @ theta[:, many:].view(-1, self.e, self.d)))
        return F.relu(self.norm3(self.out_layer(x.flatten(1))))


def tower(d, n):
    return nn.Sequential(*[m for _ in range(n) for m in (nn.Linear(d, d, bias=False), nn.LayerNorm(d), nn.ReLU())])


class Stage(nn.Module):
    def __init__(self, d, heads, e, f, classes, clamp, floor):
        super().__init__()
        self.clamp, self.floor = clamp, floor
        self.self_attn, self.inst_interact = nn.MultiheadAttention(d, heads, batch_first=True), Interaction(d, e)
        self.linear1, self.linear2 = nn.Linear(d, f), nn.Linear(f, d)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.cls_module, self.reg_module = tower(d, 1), tower(d, 3)
        self.class_logits, self.bboxes_delta = nn.Linear(d, classes), nn.Linear(d, 4)

    def forward(self, levels, box, q):
        """box [N,P,4], q [N,P,d] to logits, boxes and q."""
        n, p, d = q.shape
        r = pool(levels, box.flatten(0, 1), torch.arange(n).repeat_interleave(p))
        q = self.norm1(q + self.self_attn(q, q, q, need_weights=False)[0]).flatten(0, 1)
        q = self.norm2(q + self.inst_interact(q, r))
        q = self.norm3(q + self.linear2(F.relu(self.linear1(q))))
        z, delta = self.class_logits(self.cls_module(q)), self.bboxes_delta(self.reg_module(q))
        return z.view(n, p, -1), decode(delta, box.flatten(0, 1), self.clamp, self.floor).view(n, p, 4), q.view(n, p, d)


class Sparse(nn.Module):
    def __init__(self, depth=18, width=0.25, d=64, proposals=20, stages=3, heads=8, e=16, f=256, classes=3, clamp=math.log(100000 / 16),
                 floor=False, frozen=False):
        super().__init__()
        self.backbone = Pyramid(depth, width, d, Frozen if frozen else nn.BatchNorm2d)
        self.init_proposal_boxes, self.init_proposal_features = nn.Embedding(proposals, 4), nn.Embedding(proposals, d)
        self.head = nn.ModuleDict({"head_series": nn.ModuleList(Stage(d, heads, e, f, classes, clamp, floor) for _ in range(stages))})

    def begin(self, grid=False):
        """Initial weights (section 3.9)."""
        for name, p in self.named_parameters():
            if name.startswith("backbone.fpn"):
                nn.init.kaiming_uniform_(p, a=1) if p.dim() > 1 else nn.init.zeros_(p)
            elif name.startswith("backbone"):
                nn.init.kaiming_normal_(p, mode="fan_out") if p.dim() > 1 else None
            elif name.startswith("head") and p.dim() > 1:
                nn.init.xavier_uniform_(p)
            elif name.endswith("class_logits.bias"):
                nn.init.constant_(p, -math.log(99))
        box, n = self.init_proposal_boxes.weight.data, self.init_proposal_boxes.num_embeddings
        c = math.ceil(math.sqrt(n))
        r, k = math.ceil(n / c), torch.arange(n)
        box[:] = torch.tensor([0.5, 0.5, 1, 1])
        if grid:
            box[:] = torch.stack([(k % c + 0.5) / c, (k // c + 0.5) / r, torch.full((n,), 0.25), torch.full((n,), 0.25)], 1)
        return self

    def forward(self, x, sizes):
        """Pictures [N,3,H,W] of sizes (h, w) on the canvas to the pyramid, and logits and boxes of each stage."""
        levels, e = self.backbone(x), self.init_proposal_boxes.weight
        cx, cy, w, h = e.unbind(1)
        box = torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], 1)
        box = torch.stack([box * box.new_tensor([w, h, w, h]) for h, w in sizes])
        q, out = self.init_proposal_features.weight.expand(len(sizes), -1, -1), []
        for stage in self.head["head_series"]:
            z, box, q = stage(levels, box, q)
            out.append((z, box))
            box = box.detach()
        return levels, out


# ---- matching and losses (sections 4 to 6) ----

def giou(a, b):
    """GIoU of pairs; equal edges share their gradient."""
    iw, ih = torch.minimum(a[..., 2], b[..., 2]) - torch.maximum(a[..., 0], b[..., 0]), torch.minimum(a[..., 3], b[..., 3]) - torch.maximum(
        a[..., 1], b[..., 1])
    cw, ch = torch.maximum(a[..., 2], b[..., 2]) - torch.minimum(a[..., 0], b[..., 0]), torch.maximum(a[..., 3], b[..., 3]) - torch.minimum(
        a[..., 1], b[..., 1])
    area = [(x[..., 2] - x[..., 0]) * (x[..., 3] - x[..., 1]) for x in (a, b)]
    both = iw.clamp(min=0) * ih.clamp(min=0)
    union, hull = area[0] + area[1] - both, cw * ch
    return both / union - (hull - union) / hull


def match(z, box, truth, whwh):
    """truth: (classes, boxes) of the image. Returns the rows of pairs: proposals, truths."""
    p = z.sigmoid()
    cls = 0.25 * (1 - p) ** 2 * -(p + 1e-8).log() - 0.75 * p ** 2 * -(1 - p + 1e-8).log()
    l1 = (box[:, None] / whwh - truth[1][None] / whwh).abs().sum(2)
    cost = GAINS[1] * l1 + GAINS[0] * cls[:, truth[0]] - GAINS[2] * giou(box[:, None], truth[1][None])
    return [torch.as_tensor(i) for i in linear_sum_assignment(cost.numpy())]


def focal(z, y):
    t = torch.where(y, z, -z)
    return torch.where(y, 0.25, 0.75) * (-t).sigmoid() ** 2 * -F.logsigmoid(t)


def set_loss(z, box, truth, sizes):
    """One stage: the sums F, L, I of each image, [N][3], and the truth of each proposal or -1, [N,P]."""
    rows, found = [], torch.full(z.shape[:2], -1)
    for i, (h, w) in enumerate(sizes):
        whwh = box.new_tensor([w, h, w, h])
        with torch.no_grad():
            at, of = match(z[i], box[i], truth[i], whwh)
        y = torch.zeros(z.shape[1:], dtype=torch.bool)
        y[at, truth[i][0][of]] = True
        found[i, at] = of
        goal = truth[i][1][of]
        rows.append(torch.stack([focal(z[i], y).sum(), ((box[i, at] - goal).abs() / whwh).sum(), (1 - giou(box[i, at], goal)).sum()]))
    return torch.stack(rows), found


def objective(out, truth, sizes):
    """The weighted terms of all stages over the number of pairs: the total, sums [S,N,3], matches [S,N,P]."""
    rows, found = zip(*(set_loss(z, box, truth, sizes) for z, box in out))
    rows, pairs = torch.stack(rows), sum(min(len(t[0]), out[0][0].shape[1]) for t in truth)
    return (rows * rows.new_tensor(GAINS)).sum() / max(1, pairs), rows, torch.stack(found)

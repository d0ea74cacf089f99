#!/usr/bin/env python3
"""Makes tests/golden/sparse_net.safetensors with PyTorch in float64 (sparse.py): two Sparse R-CNN of few channels on two
made-up images, trained for ten steps with AdamW. Recorded are, of step 0: the pyramid, logits, boxes and matches of
each stage, sums of validation, gradients of all parameters; then the losses of every step, the weights after the last,
and the detections.

Arrays that begin with `frozen.`: statistics and two stages are frozen, the backbone learns at half the rate, an image
has no objects. `batch.`: statistics of the batch, more objects than proposals in an image, sides that may neither grow
nor shrink by much. Rows of losses are in the order of TERMS, those of val (an image each) are numerators and end with
the number of pairs. A NaN among weights: the gradient is 0 but for rounding, so AdamW may move them anywhere.

Nothing is random: weights, pixels and boxes are formulas that tests/golden/test_sparse_net.c has too. Run from the
repository root with any Python that has torchvision and SciPy: tests/golden/make_sparse_net.py"""  # SPDX-License-Identifier: Apache-2.0
import math

import torch

from make_rcnn_net import SIZES, key, part, pictures, save, uniform
from sparse import GAINS, Sparse, objective

CLASSES, STEPS, STAGES, LR, DECAY, BURN_IN, FALL, FOUND = 3, 10, 3, 1e-3, 2.0, 4, 7, 6  # so much decay that ten steps tell
TERMS = ["total", "cls", "l1", "giou", "last_cls", "last_l1", "last_giou"] + ["total_%d" % (s + 1) for s in range(STAGES)]
# image, class from 0, x1, y1, x2, y2
FEW = [(0, 0, 10.5, 12.25, 52.0, 60.5), (0, 2, 60.0, 20.0, 121.5, 90.25), (0, 1, 30.25, 50.0, 44.0, 66.0)]
MANY = FEW + [(0, 1, 5.0, 6.0, 25.5, 30.0), (0, 0, 70.25, 4.0, 118.0, 50.5), (0, 2, 84.0, 60.5, 100.0, 92.0), (0, 1, 2.5, 40.0, 64.0, 94.0),
              (1, 1, 8.0, 9.5, 40.0, 71.75), (1, 0, 50.5, 30.0, 108.25, 76.0)]
# name: boxes, proposals, factor of the backbone's rate, frozen, keys of the network
CASES = {"frozen": (FEW, 8, 0.5, True, {}), "batch": (MANY, 6, 1.0, False, dict(clamp=0.4, floor=True))}


def value(name, shape):
    """Weights by name and element."""
    u = torch.from_numpy(uniform(key(name), math.prod(shape))).reshape(shape)
    if name == "init_proposal_boxes.weight":  # of a quarter of the picture to eight
        return torch.cat([0.3 + 0.4 * u[:, :2], 0.25 + 8 * u[:, 2:] * u[:, 2:] * u[:, 2:]], 1)
    if name == "init_proposal_features.weight":
        return 2 * u - 1
    if name.endswith("running_var") or len(shape) == 1 and name.endswith("weight"):
        return 0.75 + 0.5 * u
    if len(shape) == 1:
        return 0.2 * u - 0.1 - (2 if name.endswith("class_logits.bias") else 0)
    return (u - 0.5) * math.sqrt((2.0 if "bboxes_delta" in name else 6.0) / math.prod(shape[1:]))


def network(proposals, frozen, keys):
    net = Sparse(18, 0.0625, 16, proposals, STAGES, 4, 8, 32, CLASSES, frozen=frozen, **keys).double()
    state = {k: value(k, tuple(v.shape)).float().double() for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}
    net.load_state_dict(state, strict=False)
    if frozen:
        net.backbone.bottom_up.stem.requires_grad_(False)
        net.backbone.bottom_up.res2.requires_grad_(False)
    return net.train()


def truth_of(boxes):
    mine = [[b for b in boxes if b[0] == i] for i in range(len(SIZES))]
    return [(torch.tensor([b[1] for b in m], dtype=torch.long), torch.tensor([b[2:] for b in m], dtype=torch.float64).reshape(-1, 4))
            for m in mine]


def terms(rows):
    """Weighted sums [S][3] in the order of TERMS."""
    rows = rows * rows.new_tensor(GAINS)
    return [rows.sum().item()] + rows.sum(0).tolist() + rows[-1].tolist() + rows.sum(1).tolist()


def rate(i):
    return LR * (0.01 + 0.99 * i / BURN_IN if i < BURN_IN else 0.1 if i >= FALL else 1)


def found(z, box, size):
    """The best pairs of a proposal and a class: box, score, class from 1."""
    score, at = z.sigmoid().reshape(-1).sort(descending=True, stable=True)
    box, (h, w) = box[at // CLASSES], size
    rows = torch.cat(
        [box[:, :2].clamp(min=0),
         torch.minimum(box[:, 2:], box.new_tensor([w, h])), score[:, None], at[:, None] % CLASSES + 1.0], 1)[:len(z)]
    return rows[(rows[:, 2] > rows[:, 0]) & (rows[:, 3] > rows[:, 1])][:FOUND]


def first_step(net, x, truth):
    """The arrays that change with the weights, before the first step."""
    levels, out = net(x, SIZES)
    total, _, match = objective(out, truth, SIZES)
    match = torch.where(match >= 0, match + torch.tensor([0, len(truth[0][0])])[:, None], -1)
    ret = {"feature.%d" % k: f[:, ::4] for k, f in enumerate(levels)}
    ret |= {"logits": torch.stack([z for z, _ in out]), "boxes": torch.stack([b for _, b in out]), "match": match}
    total.backward()
    idle = [k for k, p in net.named_parameters() if p.requires_grad and not p.grad.any()]
    print("matches %s, without a gradient: %s" % (match.tolist(), idle))
    return ret | {"grad." + k: part(p.grad) for k, p in net.named_parameters() if p.requires_grad}


def validation(net, x, truth):
    net.eval()
    with torch.no_grad():
        _, rows, _ = objective(net(x, SIZES)[1], truth, SIZES)
    net.train()
    pairs = [min(len(t[0]), net.init_proposal_boxes.num_embeddings) for t in truth]
    return torch.tensor([terms(rows[:, i]) + [pairs[i]] for i in range(len(truth))], dtype=torch.float64)


def run(boxes, proposals, slow, frozen, keys):
    net, x, truth = network(proposals, frozen, keys), pictures().double(), truth_of(boxes)
    out = {"val": validation(net, x, truth)}
    stats = {k: v.clone() for k, v in net.named_buffers()}
    out |= first_step(net, x, truth)
    net.load_state_dict(stats, strict=False)  # first_step() moved them
    trained = {k: p for k, p in net.named_parameters() if p.requires_grad}
    groups = [dict(params=[p for k, p in trained.items() if k.startswith("backbone.") == b]) for b in (True, False)]
    opt, rows, most = torch.optim.AdamW(groups, weight_decay=DECAY), [], {k: 0 for k in trained}
    pairs = out["val"][:, -1].sum().item()
    for step in range(STEPS):
        total, sums, _ = objective(net(x, SIZES)[1], truth, SIZES)
        rows.append([t / pairs for t in terms(sums.sum(1))])
        opt.zero_grad()
        total.backward()
        norm = math.sqrt(sum((p.grad ** 2).sum().item() for p in trained.values()))
        for k, p in trained.items():
            p.grad *= min(1, 1 / norm)
            most[k] = torch.maximum(p.grad.abs(), torch.as_tensor(most[k]))
        for g, factor in zip(opt.param_groups, (slow, 1)):
            g["lr"] = rate(step) * factor
        opt.step()
        print("step %d, norm %g: %s" % (step, norm, " ".join("%s %.6g" % pair for pair in zip(TERMS, rows[-1]))))
    for k, p in trained.items():
        out["after." + k] = part(torch.where(most[k] > 1e-6 * most[k].max(), p.detach(), math.nan))
    out["losses"] = torch.tensor(rows, dtype=torch.float64)
    with torch.no_grad():
        z, box = net.eval()(x, SIZES)[1][-1]
        for i, size in enumerate(SIZES):
            out["found.%d" % i] = found(z[i], box[i], size)
    return {k: v.detach() if k in ("losses", "val") else v.detach().float() for k, v in out.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    arrays = {"%s.%s" % (name, k): v for name, case in CASES.items() for k, v in run(*case).items()}
    save(arrays, "tests/golden/sparse_net.safetensors")

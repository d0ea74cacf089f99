#!/usr/bin/env python3
"""Writes tests/golden/yolo_coords.json: heads with scale_x_y and new_coords as darknet trains and decodes them, in
double precision.

The source is AlexeyAB/darknet, commit 59596d7: src/yolo_layer.c (forward_yolo_layer, process_batch, delta_yolo_box with
iou_loss=mse and iou_normalizer=1, delta_yolo_class, get_yolo_box), src/blas.c (scal_add_cpu) and, for new_coords, the
logistic activation of the convolution in front: src/activations.c multiplies the gradient by p * (1 - p). Arrays have
the layout of darknet: channel first, entry_index().

    tests/golden/make_yolo_coords.py
"""  # SPDX-License-Identifier: Apache-2.0
import json
import math
import pathlib
import random

ANCHORS = [(10, 14), (23, 27), (37, 30), (31, 62), (60, 58)]
MASK = [1, 2, 4]
SIDE, GRID, BATCH = 96, 3, 2
IGNORE_THRESH = .4


def logistic(x):
    return 1 / (1 + math.exp(-x))


def overlap(a0, a1, b0, b1):
    return max(0, min(a0 + a1 / 2, b0 + b1 / 2) - max(a0 - a1 / 2, b0 - b1 / 2))


def box_iou(a, b):
    both = overlap(a[0], a[2], b[0], b[2]) * overlap(a[1], a[3], b[1], b[3])
    return both / (a[2] * a[3] + b[2] * b[3] - both)


class Layer:
    """A [yolo] layer over the raw outputs x of the convolution in front, before that one's activation."""

    def __init__(self, x, classes, scale_x_y, new_coords):
        self.classes, self.scale, self.new = classes, scale_x_y, new_coords
        self.slots = len(MASK) * GRID * GRID
        self.output, self.delta = list(x), [0.0] * len(x)
        for b in range(BATCH):
            for slot in range(self.slots):
                for entry in range(5 + classes):
                    at = self.entry(b, slot, entry)
                    if new_coords or entry not in (2, 3):
                        self.output[at] = logistic(self.output[at])  # with new_coords by the convolution, else by this layer
                    if entry < 2:
                        self.output[at] = self.output[at] * scale_x_y - 0.5 * (scale_x_y - 1)

    def entry(self, b, slot, entry):
        n, loc = divmod(slot, GRID * GRID)
        return ((b * len(MASK) + n) * (5 + self.classes) + entry) * GRID * GRID + loc

    def box(self, b, slot):
        """get_yolo_box(): in parts of the input."""
        n, loc = divmod(slot, GRID * GRID)
        j, i = divmod(loc, GRID)
        x, y, w, h = (self.output[self.entry(b, slot, k)] for k in range(4))
        aw, ah = ANCHORS[MASK[n]]
        if self.new:
            return [(i + x) / GRID, (j + y) / GRID, w * w * 4 * aw / SIDE, h * h * 4 * ah / SIDE]
        return [(i + x) / GRID, (j + y) / GRID, math.exp(w) * aw / SIDE, math.exp(h) * ah / SIDE]

    def train(self, truths):
        """process_batch(): the deltas, which are minus the gradient. The first scan is pjreddie's, which asks for no class."""
        for b in range(BATCH):
            for slot in range(self.slots):
                best = max([box_iou(self.box(b, slot), t[1:]) for t in truths[b]], default=0)
                obj = self.entry(b, slot, 4)
                self.delta[obj] = 0 if best > IGNORE_THRESH else 0 - self.output[obj]
            for cls, *t in truths[b]:
                shape = [min(aw / SIDE, t[2]) * min(ah / SIDE, t[3]) for aw, ah in ANCHORS]
                iou = [s / (aw / SIDE * ah / SIDE + t[2] * t[3] - s) for s, (aw, ah) in zip(shape, ANCHORS)]
                n = iou.index(max(iou))
                if n not in MASK:
                    continue
                i, j = int(t[0] * GRID), int(t[1] * GRID)
                slot = MASK.index(n) * GRID * GRID + j * GRID + i
                sides = [t[k] * SIDE / ANCHORS[n][k - 2] for k in (2, 3)]
                want = [t[0] * GRID - i, t[1] * GRID - j] + [math.sqrt(s / 4) if self.new else math.log(s) for s in sides]
                for k in range(4):
                    at = self.entry(b, slot, k)
                    assert self.delta[at] == 0, "two boxes in one slot"
                    self.delta[at] = (2 - t[2] * t[3]) * (want[k] - self.output[at])
                self.delta[self.entry(b, slot, 4)] = 1 - self.output[self.entry(b, slot, 4)]
                for k in range(self.classes):
                    at = self.entry(b, slot, 5 + k)
                    self.delta[at] = (k == cls) - self.output[at]

    def gradients(self):
        """By the raw outputs: with new_coords through the convolution's logistic."""
        ret = [-d for d in self.delta]
        for b in range(BATCH):
            for slot in range(self.slots):
                for entry in range(5 + self.classes):
                    at = self.entry(b, slot, entry)
                    p = self.output[at] if entry > 1 else (self.output[at] + 0.5 * (self.scale - 1)) / self.scale
                    ret[at] *= p * (1 - p) if self.new else 1
        return ret

    def decoded(self, b):
        """Returns for every slot: the box in pixels, objectness, scores."""
        ret = []
        for slot in range(self.slots):
            obj = self.output[self.entry(b, slot, 4)]
            ret.append([SIDE * v for v in self.box(b, slot)] + [obj] +
                       [obj * self.output[self.entry(b, slot, 5 + k)] for k in range(self.classes)])
        return ret


def single(x):
    """Returns the number rounded to float32."""
    import struct
    return struct.unpack("f", struct.pack("f", x))[0]


def case(name, seed, classes, scale_x_y, new_coords):
    r = random.Random(seed)
    scale_x_y = single(scale_x_y)
    x = [single(r.uniform(-1.5, 1.5)) for _ in range(BATCH * len(MASK) * (5 + classes) * GRID * GRID)]
    targets = [[], []]
    for cx, cy, w, h in ((.11, .95, .3, .3), (.52, .48, .42, .35), (.66, .17, .7, .55), (.9, .6, .15, .2)):
        targets[1].append([r.randrange(classes)] + [single(v) for v in (cx, cy, w, h)])
    layer = Layer(x, classes, scale_x_y, new_coords)
    layer.train(targets)
    return {"name": name, "img": SIDE, "grid": GRID, "batch": BATCH, "classes": classes, "anchors_px": ANCHORS, "mask": MASK,
            "scale_x_y": scale_x_y, "new_coords": int(new_coords), "targets": targets, "logits": x,
            "mode_darknet": {"ignore_thresh": IGNORE_THRESH, "truth_thresh": 1, "assign_iou_thresh": 1,
                             "grad": [round(g, 10) for g in layer.gradients()]},
            "decoded": [[round(v, 8) for v in row] for row in layer.decoded(1)]}


def main():
    cases = [case("plain", 1, 3, 1, False), case("scale_x_y", 2, 3, 1.2, False), case("wide_scale", 3, 2, 2, False),
             case("new_coords", 4, 3, 1, True), case("new_coords_scaled", 5, 35, 2, True)]
    text = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    path = pathlib.Path(__file__).parent / "yolo_coords.json"
    path.write_text('{"cases":[\n' + text + "\n]}\n")


if __name__ == "__main__":
    main()

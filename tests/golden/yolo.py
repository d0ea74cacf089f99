"""YOLOv3 in PyTorch for the golden generators of this folder: a network built from a darknet cfg, the loss of rule `darknet`, and the
safetensors file that results go into."""  # SPDX-License-Identifier: Apache-2.0
import json
import math
import struct

import torch
import torch.nn.functional as F

TERMS = ("total", "box", "obj", "noobj", "cls", "iou", "recall50", "recall75")  # the last three are sums over positive slots
POSITIVES = "positives"


def sections(text):
    """Returns the sections of a cfg: [(kind, {key: value})], [net] first."""
    net = []
    for line in text.split("\n"):
        if line.startswith("["):
            net.append((line.strip("[]"), {}))
        elif "=" in line:
            key, value = line.split("=", 1)
            net[-1][1][key] = value
    return net


class Head:
    """The logits of a [yolo] section, and its keys."""

    def __init__(self, z, o, width, height):
        numbers = [float(a) for a in o["anchors"].split(",")]
        self.anchors = [(w / width, h / height) for w, h in zip(numbers[::2], numbers[1::2])]  # parts of the input's sides
        self.mask = [int(m) for m in o["mask"].split(",")]
        self.classes, self.ignore_thresh = int(o["classes"]), float(o["ignore_thresh"])
        b, _, self.rows, self.columns = z.shape
        self.z = z.reshape(b, len(self.mask), 5 + self.classes, self.rows, self.columns).permute(0, 1, 3, 4,
                                                                                                 2)  # [image, anchor, row, column, number]

    def boxes(self):
        """Centre x, y, width, height of every slot, in parts of the input's sides."""
        z, gw, gh = self.z, self.columns, self.rows
        col, row = torch.arange(gw, dtype=z.dtype).view(1, 1, 1, gw), torch.arange(gh, dtype=z.dtype).view(1, 1, gh, 1)
        pw, ph = (torch.tensor([self.anchors[m][i] for m in self.mask], dtype=z.dtype).view(1, -1, 1, 1) for i in (0, 1))
        return (torch.sigmoid(z[..., 0]) + col) / gw, (torch.sigmoid(z[..., 1]) + row) / gh, pw * torch.exp(z[..., 2]), ph * torch.exp(
            z[..., 3])


class Net:
    """start(name, shape, fan_in) gives the first values of a parameter; fan_in is None for parameters of channels.
    Parameters are leaves that learn, running statistics are plain tensors; all by the worker's names."""

    def __init__(self, text, dtype, start):
        (_, net), *self.layers = sections(text)
        self.width, self.height, self.params, self.running, self.batch = int(net["width"]), int(net["height"]), {}, {}, {}
        out, c = [], 3

        def add(into, name, shape, fan_in=None):
            into[name] = torch.as_tensor(start(name, shape, fan_in), dtype=dtype).reshape(shape)

        for i, (kind, o) in enumerate(self.layers):
            if kind == "convolutional":
                k, s = int(o["filters"]), int(o["size"])
                add(self.params, f"module_list.{i}.conv_{i}.weight", (k, c, s, s), c * s * s)
                if "batch_normalize" in o:
                    add(self.params, f"module_list.{i}.batch_norm_{i}.weight", (k,))
                    add(self.params, f"module_list.{i}.batch_norm_{i}.bias", (k,))
                    add(self.running, f"module_list.{i}.batch_norm_{i}.running_mean", (k,))
                    add(self.running, f"module_list.{i}.batch_norm_{i}.running_var", (k,))
                else:
                    add(self.params, f"module_list.{i}.conv_{i}.bias", (k,))
                c = k
            elif kind == "route":
                c = sum(out[int(j) if int(j) >= 0 else i + int(j)] for j in o["layers"].split(","))
            out.append(c)
        for p in self.params.values():
            p.requires_grad_()

    def norm(self, i, x, training):
        """In training by the statistics of x, which self.batch then holds (variance unbiased), else by the running ones."""
        name = f"module_list.{i}.batch_norm_{i}."
        mean, var = (self.running[name + s] for s in ("running_mean", "running_var"))
        if training:
            mean, var = self.batch[name + "running_mean"], self.batch[name + "running_var"] = torch.zeros_like(mean), torch.ones_like(var)
        return F.batch_norm(x, mean, var, self.params[name + "weight"], self.params[name + "bias"], training, 1.0, 1e-5)

    def forward(self, x, training=True):
        outs, heads = [], []
        for i, (kind, o) in enumerate(self.layers):
            if kind == "convolutional":
                w, size, stride = self.params[f"module_list.{i}.conv_{i}.weight"], int(o["size"]), int(o["stride"])
                if "batch_normalize" in o:
                    x = self.norm(i, F.conv2d(x, w, None, stride, size // 2), training)
                    x = torch.sigmoid(x) if o["activation"] == "logistic" else F.leaky_relu(x, 0.1)
                else:
                    x = F.conv2d(x, w, self.params[f"module_list.{i}.conv_{i}.bias"], stride, 0)
            elif kind == "shortcut":
                x = x + outs[i + int(o["from"])]
            elif kind == "route":
                x = torch.cat([outs[int(j) if int(j) >= 0 else i + int(j)] for j in o["layers"].split(",")], 1)
            elif kind == "upsample":
                x = F.interpolate(x, scale_factor=2, mode="nearest")
            else:
                heads.append(Head(x, o, self.width, self.height))
            outs.append(x)
        return heads


def overlap(a, b):
    """Intersection over union of boxes (centre x, y, width, height), numbers or tensors."""
    (ax, ay, aw, ah), (bx, by, bw, bh) = ([torch.as_tensor(v, dtype=torch.float64) for v in box] for box in (a, b))
    w = (torch.minimum(ax + aw / 2, bx + bw / 2) - torch.maximum(ax - aw / 2, bx - bw / 2)).clamp(min=0)
    h = (torch.minimum(ay + ah / 2, by + bh / 2) - torch.maximum(ay - ah / 2, by - bh / 2)).clamp(min=0)
    return w * h / (aw * ah + bw * bh - w * h)


def head_terms(head, boxes, gains):
    """Rule `darknet` (specs yolov3, 4.3), summed over the images; boxes: per image [(class, centre x, centre y, width, height)]; gains: of
    box, obj, noobj, cls in the total."""
    z, gw, gh = head.z, head.columns, head.rows
    with torch.no_grad():
        predicted = head.boxes()
        ignored = torch.zeros(z.shape[:-1], dtype=torch.bool)
        positive = torch.zeros_like(ignored)
        target = {}
        for im, truths in enumerate(boxes):
            for (c, cx, cy, bw, bh) in truths:
                ignored[im] |= overlap([p[im] for p in predicted], (cx, cy, bw, bh)) > head.ignore_thresh
                shape = [min(bw, aw) * min(bh, ah) for aw, ah in head.anchors]
                iou = [s / (bw * bh + aw * ah - s) for s, (aw, ah) in zip(shape, head.anchors)]
                n = iou.index(max(iou))
                if n in head.mask:
                    i, j = min(int(cx * gw), gw - 1), min(int(cy * gh), gh - 1)
                    slot = (im, head.mask.index(n), j, i)
                    classes = (target[slot][0] if slot in target else set()) | {c}
                    target[slot] = (classes, (cx, cy, bw, bh), (cx * gw - i, cy * gh - j, math.log(bw / head.anchors[n][0]),
                                                                math.log(bh / head.anchors[n][1])))
                    positive[slot] = True
    bce = F.binary_cross_entropy_with_logits
    terms = {t: z.new_zeros(()) for t in TERMS + (POSITIVES,)}
    for slot, (classes, box, (tx, ty, tw, th)) in target.items():
        s, iou = z[slot], float(overlap([p[slot] for p in predicted], box))
        terms["box"] = terms["box"] + (2 - box[2] * box[3]) * (bce(s[0], s.new_tensor(tx)) + bce(s[1], s.new_tensor(ty)) +
                                                               .5 * (s[2] - tw) ** 2 + .5 * (s[3] - th) ** 2)
        terms["obj"] = terms["obj"] + bce(s[4], s.new_tensor(1.0))
        terms["cls"] = terms["cls"] + bce(s[5:], s.new_tensor([1.0 if k in classes else 0.0 for k in range(head.classes)]), reduction="sum")
        for name, amount in (("iou", iou), ("recall50", iou > .5), ("recall75", iou > .75), (POSITIVES, 1)):
            terms[name] = terms[name] + amount
    terms["noobj"] = F.softplus(z[..., 4][~positive & ~ignored]).sum()
    terms["total"] = sum(gain * terms[name] for gain, name in zip(gains, ("box", "obj", "noobj", "cls")))
    return terms


def loss_terms(net, x, boxes, training=True, gains=(1, 1, 1, 1)):
    """Sums over the images of a batch, of all heads."""
    heads = [head_terms(head, boxes, gains) for head in net.forward(x, training)]
    return {t: sum(h[t] for h in heads) for t in heads[0]}


def write(path, arrays):
    """safetensors of float32 arrays, {name: flat list or tensor}."""
    header, data = {}, b""
    for name in sorted(arrays):
        values = torch.as_tensor(arrays[name], dtype=torch.float64)
        raw = struct.pack(f"<{values.numel()}f", *values.flatten().tolist())
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)

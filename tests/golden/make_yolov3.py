#!/usr/bin/python3
"""Makes tests/golden/yolov3_{logistic,leaky}.{cfg,safetensors} with PyTorch (Debian: python3-torch): the whole YOLOv3 graph with few
channels, trained for ten steps on made-up images, written down as losses and as the gradients of step 0.

Everything that goes in is a formula that tests/golden/test_yolov3.c has too (weight(), pixel(), BOXES), so only results are stored.
  logistic  fp64, batch of 4 at 64 x 64, lr .002, momentum .9, decay .0005 on convolutions: losses [10] and gradients for V = 1 and V = 2
            (V = 2: the reference runs each half batch with its own batch statistics)
  leaky     fp64 gradient and loss of step 0 at V = 1, and how far the same in fp32 is from it
Run from the repository root: /usr/bin/python3 tests/golden/make_yolov3.py"""
import json
import math
import struct

import torch
import torch.nn.functional as F

SIZE, BATCH, CLASSES, STEPS = 64, 4, 3, 10
ANCHORS = [(5, 6), (8, 14), (15, 11), (14, 28), (28, 21), (27, 48), (44, 40), (50, 24), (56, 58)]
# image, class, centre x, centre y, width, height; image 2 has none
BOXES = [(0, 0, .30, .65, .42, .60), (0, 2, .71, .22, .13, .11), (1, 1, .52, .48, .85, .9), (1, 1, .12, .83, .2, .15),
         (1, 0, .55, .31, .23, .44), (3, 2, .82, .77, .3, .35), (3, 0, .4, .4, .09, .2)]


def channels(c):
    return max(4, c // 64)


def cfg(activation):
    """The graph of yolov3 (specs yolov3, table 1.5), channels by channels()."""
    out = [f"[net]\nbatch={BATCH}\nwidth={SIZE}\nheight={SIZE}\nchannels=3\n"]

    def conv(filters, size, stride=1):
        out.append(f"[convolutional]\nbatch_normalize=1\nfilters={channels(filters)}\nsize={size}\nstride={stride}\npad=1\nactivation={activation}\n")

    def head(mask):
        out.append(f"[convolutional]\nfilters={3 * (5 + CLASSES)}\nsize=1\nstride=1\npad=1\nactivation=linear\n")
        anchors = ", ".join(f"{w},{h}" for w, h in ANCHORS)
        out.append(f"[yolo]\nmask={mask}\nanchors={anchors}\nclasses={CLASSES}\nnum=9\nignore_thresh=.5\ntruth_thresh=1\n")

    conv(32, 3)
    for filters, blocks in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        conv(filters, 3, 2)
        for _ in range(blocks):
            conv(filters // 2, 1)
            conv(filters, 3)
            out.append("[shortcut]\nfrom=-3\nactivation=linear\n")
    for filters, mask, skip in ((512, "6,7,8", 61), (256, "3,4,5", 36), (128, "0,1,2", None)):
        for _ in range(3):
            conv(filters, 1)
            conv(2 * filters, 3)
        head(mask)
        if skip:
            out.append("[route]\nlayers=-4\n")
            conv(filters // 2, 1)
            out.append(f"[upsample]\nstride=2\n\n[route]\nlayers=-1,{skip}\n")
    return "\n".join(out)


def sections(text):
    net = []
    for line in text.split("\n"):
        if line.startswith("["):
            net.append((line.strip("[]"), {}))
        elif "=" in line:
            key, value = line.split("=", 1)
            net[-1][1][key] = value
    return net[1:]


def noise(i):
    """32 well mixed bits of a 32-bit number: the same in C."""
    i = (i * 2654435761 + 1) & 0xffffffff
    i ^= i >> 15
    i = (i * 2246822519) & 0xffffffff
    i ^= i >> 13
    return i


def weight(param, element, fan_in):
    """Uniform with the variance 2 / fan_in; param counts the parameters with gradients, element is its place in OIHW order."""
    u = (noise(param * 1000003 + element) >> 8) / 16777216.0 - 0.5
    return struct.unpack("f", struct.pack("f", u * math.sqrt(24.0 / fan_in)))[0]


def pixel(i):
    return struct.unpack("f", struct.pack("f", (noise(i + 77) >> 24) / 255.0))[0]


class Net:
    def __init__(self, text, dtype):
        self.layers, self.params, self.names = sections(text), [], []
        out, c = [], 3
        for i, (kind, o) in enumerate(self.layers):
            if kind == "convolutional":
                k, s = int(o["filters"]), int(o["size"])
                self.add(f"module_list.{i}.conv_{i}.weight", (k, c, s, s), c * s * s, dtype)
                if "batch_normalize" in o:
                    self.add(f"module_list.{i}.batch_norm_{i}.weight", (k,), None, dtype, 1.0)
                    self.add(f"module_list.{i}.batch_norm_{i}.bias", (k,), None, dtype, 0.0)
                else:
                    self.add(f"module_list.{i}.conv_{i}.bias", (k,), None, dtype, 0.0)
                c = k
            elif kind == "route":
                c = sum(out[int(j) if int(j) >= 0 else i + int(j)] for j in o["layers"].split(","))
            out.append(c)

    def add(self, name, shape, fan_in, dtype, constant=None):
        n = math.prod(shape)
        values = [weight(len(self.params), e, fan_in) for e in range(n)] if constant is None else [constant] * n
        self.params.append(torch.tensor(values, dtype=dtype).reshape(shape).requires_grad_())
        self.names.append(name)

    def forward(self, x):
        outs, heads, p = [], [], iter(self.params)
        for i, (kind, o) in enumerate(self.layers):
            if kind == "convolutional":
                size = int(o["size"])
                w = next(p)
                if "batch_normalize" in o:
                    x = F.conv2d(x, w, None, int(o["stride"]), size // 2)
                    x = F.batch_norm(x, None, None, next(p), next(p), True, 0.0, 1e-5)
                    x = torch.sigmoid(x) if o["activation"] == "logistic" else F.leaky_relu(x, 0.1)
                else:
                    x = F.conv2d(x, w, next(p), 1, 0)
            elif kind == "shortcut":
                x = x + outs[i - 3]
            elif kind == "route":
                x = torch.cat([outs[int(j) if int(j) >= 0 else i + int(j)] for j in o["layers"].split(",")], 1)
            elif kind == "upsample":
                x = F.interpolate(x, scale_factor=2, mode="nearest")
            else:
                heads.append((x, [int(m) for m in o["mask"].split(",")]))
            outs.append(x)
        return heads


def head_loss(z, mask, boxes):
    """Rule `darknet` (specs yolov3, 4.3), summed over the images; boxes: per image."""
    b, _, g, _ = z.shape
    z = z.reshape(b, 3, 5 + CLASSES, g, g).permute(0, 1, 3, 4, 2)
    col, row = torch.arange(g, dtype=z.dtype).view(1, 1, 1, g), torch.arange(g, dtype=z.dtype).view(1, 1, g, 1)
    pw = torch.tensor([ANCHORS[m][0] for m in mask], dtype=z.dtype).view(1, 3, 1, 1) / SIZE
    ph = torch.tensor([ANCHORS[m][1] for m in mask], dtype=z.dtype).view(1, 3, 1, 1) / SIZE
    with torch.no_grad():
        x, y = (torch.sigmoid(z[..., 0]) + col) / g, (torch.sigmoid(z[..., 1]) + row) / g
        w, h = pw * torch.exp(z[..., 2]), ph * torch.exp(z[..., 3])
        ignored = torch.zeros(z.shape[:-1], dtype=torch.bool)
        positive = torch.zeros_like(ignored)
        target = {}
        for im in range(b):
            for (c, cx, cy, bw, bh) in boxes[im]:
                iw = (torch.minimum(x[im] + w[im] / 2, torch.tensor(cx + bw / 2)) - torch.maximum(x[im] - w[im] / 2, torch.tensor(cx - bw / 2))).clamp(min=0)
                ih = (torch.minimum(y[im] + h[im] / 2, torch.tensor(cy + bh / 2)) - torch.maximum(y[im] - h[im] / 2, torch.tensor(cy - bh / 2))).clamp(min=0)
                inter = iw * ih
                ignored[im] |= inter / (w[im] * h[im] + bw * bh - inter) > 0.5
                shape = [min(bw, aw / SIZE) * min(bh, ah / SIZE) for aw, ah in ANCHORS]
                iou = [s / (bw * bh + aw * ah / SIZE / SIZE - s) for s, (aw, ah) in zip(shape, ANCHORS)]
                n = iou.index(max(iou))
                if n in mask:
                    i, j = min(int(cx * g), g - 1), min(int(cy * g), g - 1)
                    old = target.get((im, mask.index(n), j, i))
                    classes = (old[0] if old else set()) | {c}
                    target[(im, mask.index(n), j, i)] = (classes, cx * g - i, cy * g - j, math.log(bw * SIZE / ANCHORS[n][0]), math.log(bh * SIZE / ANCHORS[n][1]), 2 - bw * bh)
                    positive[im, mask.index(n), j, i] = True
    bce = F.binary_cross_entropy_with_logits
    total = z.new_zeros(())
    for (im, a, j, i), (classes, tx, ty, tw, th, m) in target.items():
        s = z[im, a, j, i]
        total = total + m * (bce(s[0], s.new_tensor(tx)) + bce(s[1], s.new_tensor(ty)) + .5 * (s[2] - tw) ** 2 + .5 * (s[3] - th) ** 2)
        total = total + bce(s[4], s.new_tensor(1.0))
        want = s.new_tensor([1.0 if k in classes else 0.0 for k in range(CLASSES)])
        total = total + bce(s[5:], want, reduction="sum")
    return total + F.softplus(z[..., 4][~positive & ~ignored]).sum()


def batch(dtype):
    n = BATCH * SIZE * SIZE * 3
    x = torch.tensor([pixel(i) for i in range(n)], dtype=dtype).reshape(BATCH, SIZE, SIZE, 3).permute(0, 3, 1, 2).contiguous()
    boxes = [[b[1:] for b in BOXES if b[0] == im] for im in range(BATCH)]
    return x, boxes


def step(net, shards, dtype):
    """Loss per image and gradients of one step with `shards` shards."""
    x, boxes = batch(dtype)
    per, total = BATCH // shards, 0.0
    for p in net.params:
        p.grad = None
    for v in range(shards):
        loss = sum(head_loss(z, mask, boxes[v * per:(v + 1) * per]) for z, mask in net.forward(x[v * per:(v + 1) * per])) / BATCH
        loss.backward()
        total += float(loss)
    return total, [p.grad.clone() for p in net.params]


def train(net, shards, dtype):
    momentum, losses, first = [torch.zeros_like(p) for p in net.params], [], None
    for _ in range(STEPS):
        loss, grads = step(net, shards, dtype)
        first = first or grads
        losses.append(loss)
        with torch.no_grad():
            for p, m, g in zip(net.params, momentum, grads):
                m.mul_(0.9).add_(g + (0.0005 * p if p.dim() == 4 else 0))
                p.sub_(0.002 * m)
    return losses, first


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


def main():
    torch.set_num_threads(1)
    text = cfg("logistic")
    arrays = {}
    for shards in (1, 2):
        losses, grads = train(net := Net(text, torch.float64), shards, torch.float64)
        arrays[f"v{shards}.losses"] = losses
        arrays.update({f"v{shards}.grad.{n}": g for n, g in zip(net.names, grads)})
        print("logistic, V =", shards, losses)
    with open("tests/golden/yolov3_logistic.cfg", "w") as f:
        f.write(text)
    write("tests/golden/yolov3_logistic.safetensors", arrays)

    text = cfg("leaky")
    exact_loss, exact = step(net := Net(text, torch.float64), 1, torch.float64)
    _, rough = step(Net(text, torch.float32), 1, torch.float32)
    distance = math.sqrt(sum(float(((a - b.double()) ** 2).sum()) for a, b in zip(exact, rough)))
    norm = math.sqrt(sum(float((a ** 2).sum()) for a in exact))
    print("leaky", exact_loss, "fp32 is", distance / norm, "of the gradient's norm from fp64")
    arrays = {f"grad.{n}": g for n, g in zip(net.names, exact)}
    arrays["loss"] = [exact_loss]
    arrays["fp32_distance"] = [distance]
    with open("tests/golden/yolov3_leaky.cfg", "w") as f:
        f.write(text)
    write("tests/golden/yolov3_leaky.safetensors", arrays)


if __name__ == "__main__":
    main()

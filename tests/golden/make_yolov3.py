#!/usr/bin/python3
"""Makes tests/golden/yolov3_{logistic,wide,leaky,bf16}.safetensors and their cfg files with PyTorch (Debian:
python3-torch): the whole YOLOv3 graph with few channels, trained for ten steps on made-up images, written down as
losses and as the gradients of step 0.

Everything that goes in is a formula that tests/golden/test_yolov3.c has too (weight(), pixel(), BOXES), so only results are stored.
  logistic  fp64, batch of 4 at 64 x 64, lr .002, momentum .9, decay .0005 on convolutions: losses [10] and gradients for V = 1 and V = 2
            (V = 2: the reference runs each half batch with its own batch statistics)
  wide      the logistic net at 96 x 64: five losses for V = 1 and V = 2, and of step 0 the gradients of the first
            convolution and of the heads'
  leaky     fp64 gradient and loss of step 0 at V = 1, and how far the same in fp32 is from it
  bf16      how far the logistic net's gradient and losses at V = 1 are from those in fp64 where it runs under bf16 autocast
Run from the repository root: /usr/bin/python3 tests/golden/make_yolov3.py"""  # SPDX-License-Identifier: Apache-2.0
import math
import struct

import torch

import yolo

SIZE, WIDE, BATCH, CLASSES, STEPS, WIDE_STEPS = 64, 96, 4, 3, 10, 5
ANCHORS = [(5, 6), (8, 14), (15, 11), (14, 28), (28, 21), (27, 48), (44, 40), (50, 24), (56, 58)]
# image, class, centre x, centre y, width, height; image 2 has no box
BOXES = [(0, 0, .30, .65, .42, .60), (0, 2, .71, .22, .13, .11), (1, 1, .52, .48, .85, .9), (1, 1, .12, .83, .2, .15),
         (1, 0, .55, .31, .23, .44), (3, 2, .82, .77, .3, .35), (3, 0, .4, .4, .09, .2)]


def channels(c):
    return max(4, c // 64)


def cfg(activation):
    """The graph of yolov3 (specs yolov3, table 1.5), channels by channels()."""
    out = [f"[net]\nbatch={BATCH}\nwidth={SIZE}\nheight={SIZE}\nchannels=3\n"]

    def conv(filters, size, stride=1):
        out.append(
            f"[convolutional]\nbatch_normalize=1\nfilters={channels(filters)}\nsize={size}\nstride={stride}\n"
            f"pad=1\nactivation={activation}\n")

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


def batch(net, dtype):
    n = BATCH * net.height * net.width * 3
    x = torch.tensor([pixel(i) for i in range(n)], dtype=dtype).reshape(BATCH, net.height, net.width, 3).permute(0, 3, 1, 2).contiguous()
    boxes = [[b[1:] for b in BOXES if b[0] == im] for im in range(BATCH)]
    return x, boxes


def step(net, shards, dtype):
    """Loss per image and gradients of one step with `shards` shards."""
    x, boxes = batch(net, dtype)
    per, total = BATCH // shards, 0.0
    for p in net.params.values():
        p.grad = None
    for v in range(shards):
        loss = yolo.loss_terms(net, x[v * per:(v + 1) * per], boxes[v * per:(v + 1) * per])["total"] / BATCH
        loss.backward()
        total += float(loss)
    return total, [p.grad.clone() for p in net.params.values()]


def distance(grads, exact):
    return math.sqrt(sum(float(((a - b.double()) ** 2).sum()) for a, b in zip(exact, grads)))


def train(net, shards, dtype, steps=STEPS):
    params = list(net.params.values())
    momentum, losses, first = [torch.zeros_like(p) for p in params], [], None
    for _ in range(steps):
        loss, grads = step(net, shards, dtype)
        first = first or grads
        losses.append(loss)
        with torch.no_grad():
            for p, m, g in zip(params, momentum, grads):
                m.mul_(0.9).add_(g + (0.0005 * p if p.dim() == 4 else 0))
                p.sub_(0.002 * m)
    return losses, first


def new_net(text, dtype):
    """Parameters are counted in order; parameters of channels start at 1 and 0, and the running statistics are not
    read."""
    count = iter(range(1 << 16))

    def start(name, shape, fan_in):
        if "running" in name:
            return [0.0] * shape[0]
        param = next(count)
        if fan_in is None:
            return [1.0 if "batch_norm" in name and name.endswith("weight") else 0.0] * shape[0]
        return [weight(param, e, fan_in) for e in range(math.prod(shape))]

    return yolo.Net(text, dtype, start)


def main():
    torch.set_num_threads(1)
    text = cfg("logistic")
    arrays = {}
    for shards in (1, 2):
        losses, grads = train(net := new_net(text, torch.float64), shards, torch.float64)
        arrays[f"v{shards}.losses"] = losses
        arrays.update({f"v{shards}.grad.{n}": g for n, g in zip(net.params, grads)})
        print("logistic, V =", shards, losses)
    with open("tests/golden/yolov3_logistic.cfg", "w") as f:
        f.write(text)
    yolo.write("tests/golden/yolov3_logistic.safetensors", arrays)

    exact_losses, exact = train(new_net(text, torch.float64), 1, torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses, grads = train(new_net(text, torch.float32), 1, torch.float32)
    arrays = {"distance": [distance(grads, exact)], "losses": [abs(a - b) for a, b in zip(losses, exact_losses)]}
    print("bf16 is", arrays, "from fp64")
    yolo.write("tests/golden/yolov3_bf16.safetensors", arrays)

    arrays, wide = {}, text.replace(f"width={SIZE}", f"width={WIDE}")
    for shards in (1, 2):
        losses, grads = train(net := new_net(wide, torch.float64), shards, torch.float64, WIDE_STEPS)
        arrays[f"v{shards}.losses"] = losses
        names = list(net.params)
        heads = [k for n in names if n.endswith(".conv_" + n.split(".")[1] + ".bias") for k in (n, n.replace("bias", "weight"))]
        arrays.update({f"v{shards}.grad.{n}": g for n, g in zip(net.params, grads) if n in heads + names[:1]})
        print("wide, V =", shards, losses)
    yolo.write("tests/golden/yolov3_wide.safetensors", arrays)

    text = cfg("leaky")
    exact_loss, exact = step(net := new_net(text, torch.float64), 1, torch.float64)
    _, rough = step(new_net(text, torch.float32), 1, torch.float32)
    off = distance(rough, exact)
    norm = math.sqrt(sum(float((a ** 2).sum()) for a in exact))
    print("leaky", exact_loss, "fp32 is", off / norm, "of the gradient's norm from fp64")
    arrays = {f"grad.{n}": g for n, g in zip(net.params, exact)}
    arrays["loss"] = [exact_loss]
    arrays["fp32_distance"] = [off]
    with open("tests/golden/yolov3_leaky.cfg", "w") as f:
        f.write(text)
    yolo.write("tests/golden/yolov3_leaky.safetensors", arrays)


if __name__ == "__main__":
    main()

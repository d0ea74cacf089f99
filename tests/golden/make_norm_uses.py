#!/usr/bin/python3
"""Makes tests/golden/norm_uses.safetensors with PyTorch (Debian: python3-torch): a batch normalisation that two
convolutions of one step share, in training mode, in fp64. y = act(norm(conv2(act(norm(conv1(x)))))), act leaky with
slope 0.1, loss sum(y * g).

Inputs are a formula that tests/device/test_norm_uses.c has too (value()); stored are gradients and, after the step,
running statistics.
  sync.*    both shards are one batch
  shards.*  each shard is normalised by itself; gradients are sums over them, running statistics take in means over them
Run from the repository root: /usr/bin/python3 tests/golden/make_norm_uses.py"""  # SPDX-License-Identifier: Apache-2.0
import torch

from make_yolov3 import noise
from yolo import write

CHANNELS, SHARDS, IMAGES, HEIGHT, WIDTH, MOMENTUM = 4, 2, 2, 5, 3, 0.1


def value(which, shape, scale, offset=0.0):
    """Uniform in [offset - scale / 2, offset + scale / 2], in fp32."""
    count = torch.Size(shape).numel()
    u = [(noise(which * 4096 + i) >> 8) / 16777216.0 - 0.5 for i in range(count)]
    return (torch.tensor(u, dtype=torch.float64) * scale + offset).float().double().reshape(shape)


def images(which, shard):
    return value(which + shard, (IMAGES, HEIGHT, WIDTH, CHANNELS), 2.0).permute(0, 3, 1, 2)


def parameters():
    w = [value(8 + i, (CHANNELS, 3, 3, CHANNELS), 0.8).requires_grad_() for i in range(2)]
    gamma = value(10, (CHANNELS,), 1.0, 1.0).requires_grad_()
    beta = value(11, (CHANNELS,), 1.0).requires_grad_()
    return w, gamma, beta


def forward(x, w, gamma, beta, mean, var, seen):
    for weight in w:
        x = torch.nn.functional.conv2d(x, weight.permute(0, 3, 1, 2), padding=1)
        seen.append((x.mean((0, 2, 3)).detach(), x.var((0, 2, 3), unbiased=True).detach()))
        x = torch.nn.functional.batch_norm(x, mean, var, gamma, beta, True, MOMENTUM, 1e-5)
        x = torch.nn.functional.leaky_relu(x, 0.1)
    return x


def results(name, w, gamma, beta, mean, var):
    return {f"{name}.w1": w[0].grad, f"{name}.w2": w[1].grad, f"{name}.gamma": gamma.grad, f"{name}.beta": beta.grad,
            f"{name}.mean": mean, f"{name}.var": var}


def start():
    return value(12, (CHANNELS,), 1.0), value(13, (CHANNELS,), 1.0, 1.0)


def sync():
    w, gamma, beta = parameters()
    mean, var = start()
    x, g = (torch.cat([images(which, s) for s in range(SHARDS)]) for which in (0, 4))
    (forward(x, w, gamma, beta, mean, var, []) * g).sum().backward()
    return results("sync", w, gamma, beta, mean, var)


def shards():
    w, gamma, beta = parameters()
    mean, var = start()
    seen = [[] for _ in range(SHARDS)]
    for s in range(SHARDS):
        (forward(images(0, s), w, gamma, beta, None, None, seen[s]) * images(4, s)).sum().backward()
    for use in range(2):
        mean = (1 - MOMENTUM) * mean + MOMENTUM * sum(seen[s][use][0] for s in range(SHARDS)) / SHARDS
        var = (1 - MOMENTUM) * var + MOMENTUM * sum(seen[s][use][1] for s in range(SHARDS)) / SHARDS
    return results("shards", w, gamma, beta, mean, var)


def main():
    torch.set_num_threads(1)
    arrays = {name: a.detach().reshape(-1) for name, a in {**sync(), **shards()}.items()}
    for name, a in arrays.items():
        print(name, a[:4].tolist())
    write("tests/golden/norm_uses.safetensors", arrays)


if __name__ == "__main__":
    main()

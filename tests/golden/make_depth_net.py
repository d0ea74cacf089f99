#!/usr/bin/env python3
"""Makes tests/golden/depth_net.json and depth_net_keys.json with PyTorch in double precision: the four kinds of depth
networks of few channels, trained for ten steps on made-up frames, recorded as the terms of every step, the gradient of
each parameter in step 0, and the statistics and terms of validation after the last.

Networks and losses follow specs featdepth sections 1 to 3. Nothing is random: weights and pixels are formulas that
tests/golden/test_depth_net.c has too, and Philox words choose the values that dropout drops. A gradient is recorded as
its length and its products with three vectors of formulas. Run from the repository root with any Python that has torch:
tests/golden/make_depth_net.py"""  # SPDX-License-Identifier: Apache-2.0
import json
import math

import numpy as np
import torch
import torch.nn.functional as F

from philox import philox

torch.set_default_dtype(torch.float64)
H, W, IMAGES, STEPS, LR, CLIP, SEED = 96, 128, 2, 10, 1e-4, 0.5, 0
WIDTH = 1 / 8
VECTORS = 3


def noise(i):
    i = (np.asarray(i, dtype=np.uint64) * 2654435761 + 1) & 0xFFFFFFFF
    i ^= i >> np.uint64(15)
    i = (i * 2246822519) & 0xFFFFFFFF
    return i ^ i >> np.uint64(13)


def key_of(name):
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    return h


def uniform(name, n):
    return (noise((key_of(name) + np.arange(n, dtype=np.uint64)) & 0xFFFFFFFF) >> np.uint64(8)).astype(np.float64) / 16777216


def value(name, shape):
    n = int(np.prod(shape))
    u = uniform(name, n)
    norm = ".bn" in name or "downsample.1" in name
    if name.endswith("running_mean"):
        x = 0.2 * u - 0.1
    elif name.endswith("running_var"):
        x = 0.75 + 0.5 * u
    elif len(shape) == 1 and norm:
        x = 0.75 + 0.5 * u if name.endswith("weight") else 0.2 * u - 0.1
    elif len(shape) == 1:
        x = 0.1 * u - 0.05
    else:
        x = (u - 0.5) * math.sqrt(6 / np.prod(shape[1:]))
    return torch.tensor(x.astype(np.float32).astype(np.float64)).reshape(shape)


def frame(which, images=IMAGES, first=0, dim=False):
    """Bytes of the pictures of a moving camera: which is -1, 0 or 1 for its frames, 2 for the other camera. dim: a
    sample with changed colours."""
    y, x, c = np.meshgrid(np.arange(H), np.arange(W), np.arange(3), indexing="ij")
    out = []
    for image in range(first, first + images):
        v = (5 * x + 3 * y + 90 * c + 60 * image + 11 * which + 2 * 512 + x * y // 16) % 512
        v = np.where(v < 256, v, 511 - v)
        grain = noise(((image * H + y) * W + x) * 3 + c + 1000003 * (which + 1)) >> np.uint64(28)
        v = v * 15 // 16 + grain.astype(np.int64)
        out.append(v * 7 // 8 if dim else v)
    return torch.tensor(np.stack(out).astype(np.float64)).permute(0, 3, 1, 2) / 255


# ---- networks ----

def scaled(channels):
    return max(8, int(math.floor(channels * WIDTH / 8 + 0.5)) * 8)


class Net:
    """Parameters by name, made when they are first used."""

    def __init__(self):
        self.p, self.frozen, self.train = {}, set(), True

    def get(self, name, shape):
        if name not in self.p:
            self.p[name] = value(name, shape)
            if not name.startswith(tuple(self.frozen)) and "running" not in name:
                self.p[name].requires_grad_(True)
        return self.p[name]

    def conv(self, x, name, k, size, stride=1, bias=True, mirrored=False):
        w = self.get(name + ".weight", (k, x.shape[1], size, size))
        b = self.get(name + ".bias", (k,)) if bias else None
        if mirrored:
            return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), w, b, stride)
        return F.conv2d(x, w, b, stride, size // 2)

    def bn(self, x, name, running=False):
        c = x.shape[1]
        gamma, beta = self.get(name + ".weight", (c,)), self.get(name + ".bias", (c,))
        mean, var = self.get(name + ".running_mean", (c,)), self.get(name + ".running_var", (c,))
        if not self.train or running:
            return F.batch_norm(x, mean, var, gamma, beta, False, 0.1, 1e-5)
        return F.batch_norm(x, mean, var, gamma, beta, True, 0.1, 1e-5)

    def resnet(self, x, part, stem_alone=False, running=False, layers=18):
        out = [F.relu(self.bn(self.conv(x, part + "conv1", scaled(64), 7, 2, bias=False), part + "bn1", running))]
        if stem_alone:
            return out
        x = F.max_pool2d(out[0], 3, 2, 1)
        for stage, blocks in enumerate([2, 2, 2, 2] if layers == 18 else [3, 4, 6, 3]):
            k = scaled(64 << stage)
            convs = [(k, 1), (k, 3), (4 * k, 1)] if layers == 50 else [(k, 3), (k, 3)]
            for block in range(blocks):
                name, stride, y = f"{part}layer{stage + 1}.{block}.", 2 if stage and not block else 1, x
                for i, (c, size) in enumerate(convs):
                    y = self.conv(F.relu(y) if i else y, f"{name}conv{i + 1}", c, size, stride if i == len(convs) - 2 else 1, bias=False)
                    y = self.bn(y, f"{name}bn{i + 1}", running)
                if stride == 2 or x.shape[1] != y.shape[1]:
                    x = self.bn(self.conv(x, name + "downsample.0", y.shape[1], 1, stride, bias=False), name + "downsample.1", running)
                x = F.relu(x + y)
            out.append(x)
        return out

    def dropped(self, x, purpose, step):
        if not self.train:
            return x
        op = key_of(purpose)
        op = (op >> 16 ^ op) & 0xFFFF
        keep = torch.zeros_like(x)
        n, c, h, w = x.shape
        for image in range(n):
            words = []
            for block in range((h * w * c + 3) // 4):
                words += philox((SEED, 0), (block, op << 16, 0 << 16 | image, step))
            u = (np.array(words[:h * w * c], dtype=np.int64) >> 8) / 16777216.0
            keep[image] = torch.tensor(np.where(u < 0.5, 0.0, 2.0)).reshape(h, w, c).permute(2, 0, 1)
        return x * keep

    def crp_decoder(self, f, step):
        wide, x, disp, out = scaled(256), None, None, [None] * 4
        for i in (4, 3, 2, 1):
            skip = self.dropped(f[i], f"depth.dropout{i}", step) if i >= 3 else f[i]
            skip = self.conv(skip, f"depth.decoder.reduce{i}.conv", scaled(512) if i == 4 else wide, 1, bias=False)
            if x is not None:
                skip = torch.cat([skip, x, disp], 1)
            x = F.leaky_relu(self.conv(skip, f"depth.decoder.iconv{i}.conv", wide, 3, mirrored=True), 0.01)
            top = total = x
            for k in range(4):
                top = self.conv(F.max_pool2d(top, 5, 1, 2), f"depth.decoder.crp{i}.0.{k + 1}_pointwise.conv", wide, 1, bias=False)
                total = total + top
            x = F.leaky_relu(self.conv(total, f"depth.decoder.merge{i}.conv", wide, 3, mirrored=True), 0.01)
            x = F.interpolate(x, scale_factor=2)
            disp = out[i - 1] = torch.sigmoid(self.conv(x, f"depth.decoder.disp{i}.0.conv", 1, 3, mirrored=True))
        return out

    def up_decoder(self, f):
        x, out = f[4], [None] * 4
        for i in range(4, -1, -1):
            k = scaled(16 << i)
            x = F.interpolate(F.elu(self.conv(x, f"depth.decoder.upconv{i}.0.conv.conv", k, 3, mirrored=True)), scale_factor=2)
            if i:
                x = torch.cat([x, f[i - 1]], 1)
            x = F.elu(self.conv(x, f"depth.decoder.upconv{i}.1.conv.conv", k, 3, mirrored=True))
            if i < 4:
                out[i] = torch.sigmoid(self.conv(x, f"depth.decoder.dispconv{i}.conv", 1, 3, mirrored=True))
        return out

    def motion(self, a, b, size, layers):
        x = (resized(torch.cat([a, b], 1), size[1], size[0]) - 0.45) / 0.225
        x = self.resnet(x, "pose.encoder.", layers=layers)[4]
        wide = scaled(256)
        x = F.relu(self.conv(x, "pose.decoder.reduce", wide, 1))
        x = F.relu(self.conv(x, "pose.decoder.conv1", wide, 3))
        x = F.relu(self.conv(x, "pose.decoder.conv2", wide, 3))
        return 0.01 * self.conv(x, "pose.decoder.conv3", 6, 1).mean((2, 3))

    def rebuilt(self, x):
        out = [None] * 4
        for k in range(5, 0, -1):
            c = scaled(8 << k)
            x = F.interpolate(F.elu(self.conv(x, f"extractor.decoder.upconv{k}.conv.conv", c, 3, mirrored=True)), scale_factor=2)
            x = F.elu(self.conv(x, f"extractor.decoder.iconv{k}.conv.conv", c, 3, mirrored=True))
            if k < 5:
                out[k - 1] = torch.sigmoid(self.conv(x, f"extractor.decoder.disp{k}.conv", 3, 3, mirrored=True))
        return out


# ---- geometry and losses ----

def matrix(v, invert):
    a, t = v[:, :3], v[:, 3:]
    theta = a.norm(dim=1, keepdim=True)
    k = a / (theta + 1e-7)
    c, s = torch.cos(theta)[..., None], torch.sin(theta)[..., None]
    zero = torch.zeros_like(k[:, 0])
    cross = torch.stack([zero, -k[:, 2], k[:, 1], k[:, 2], zero, -k[:, 0], -k[:, 1], k[:, 0], zero], 1).reshape(-1, 3, 3)
    r = c * torch.eye(3) + (1 - c) * k[:, :, None] * k[:, None, :] + s * cross
    if invert:
        r = r.transpose(1, 2)
        t = -(r @ t[..., None])[..., 0]
    return r, t


def warp(source, disp, pose, cameras, factor, keys):
    h, w = source.shape[2:]
    depth = 1 / (1 / keys["max_depth"] + (1 / keys["min_depth"] - 1 / keys["max_depth"]) * disp[:, 0])
    y, x = torch.meshgrid(torch.arange(h).double(), torch.arange(w).double(), indexing="ij")
    fx, fy, cx, cy = [(cameras[:, i] * factor)[:, None, None] for i in range(4)]
    r, t = pose
    p = torch.stack([(x - cx) / fx * depth, (y - cy) / fy * depth, depth], -1) @ r[:, None].transpose(2, 3) + t[:, None, None]
    u = (fx * p[..., 0] + cx * p[..., 2]) / (p[..., 2] + 1e-7)
    v = (fy * p[..., 1] + cy * p[..., 2]) / (p[..., 2] + 1e-7)
    grid = torch.stack([2 * u / (w - 1) - 1, 2 * v / (h - 1) - 1], -1)
    return F.grid_sample(source, grid, padding_mode="border", align_corners=keys["align_corners"])


def robust(a, b):
    return torch.sqrt((a - b) ** 2 + 1e-6).mean(1, keepdim=True)


def photometric(a, b, keys):
    x, y = F.pad(a, (1, 1, 1, 1), mode="reflect"), F.pad(b, (1, 1, 1, 1), mode="reflect")
    mx, my = F.avg_pool2d(x, 3, 1), F.avg_pool2d(y, 3, 1)
    sx, sy, sxy = F.avg_pool2d(x * x, 3, 1) - mx ** 2, F.avg_pool2d(y * y, 3, 1) - my ** 2, F.avg_pool2d(x * y, 3, 1) - mx * my
    s = (2 * mx * my + 1e-4) * (2 * sxy + 9e-4) / ((mx ** 2 + my ** 2 + 1e-4) * (sx + sy + 9e-4))
    ssim = keys["ssim_weight"]
    return ssim * torch.clamp((1 - s) / 2, 0, 1).mean(1, keepdim=True) + (1 - ssim) * robust(a, b)


def dx(f):
    return f[..., 1:] - f[..., :-1]


def dy(f):
    return f[..., 1:, :] - f[..., :-1, :]


def edges(f, image, k):
    """First and second order."""
    i = F.adaptive_avg_pool2d(image, f.shape[2:])

    def one(*order):
        a, b = f, i
        for d in order:
            a, b = d(a), d(b)
        return (a.abs() * torch.exp(-k * b.abs().mean(1, keepdim=True))).mean()
    return one(dx) + one(dy), one(dx, dx) + one(dx, dy) + one(dy, dx) + one(dy, dy)


def resized(x, h, w):
    return F.interpolate(x, size=(h, w), mode="bilinear", align_corners=False)


def camera(images=IMAGES, first=0):
    return torch.tensor([[0.9 * W + 3 * i, 1.1 * H - 2 * i, W / 2 + 3 + i, H / 2 - 2] for i in range(first, first + images)],
                        dtype=torch.float32).double()


DEFAULTS = dict(layers=18, decoder="crp", pose_layers=18, pose_size=[W, H], min_depth=0.1, max_depth=100.0, ssim_weight=0.85,
                perception=1e-3, smoothness=1e-3, dis=1e-3, cvt=1e-3, automask="auto", disp_norm="auto", align_corners=True,
                extractor_bn="running", target_pyramid="direct")


def terms(net, case, step, images=IMAGES, first=0):
    keys = DEFAULTS | {k: v for k, v in case.items() if k in ("layers", "decoder")} | case.get("keys", {})
    kind, sources, stereo, layers = case["kind"], case["sources"], case["stereo"], keys["layers"]
    target, k, ret = frame(0, images, first), camera(images, first), {}
    ids = sources + ([2] if stereo else [])
    shown = [frame(i, images, first) for i in ids]
    dim = "keys" in case
    seen = {i: frame(i, images, first, dim) for i in [0] + ids}  # by the networks of depth and motion
    automask, normalised = [not stereo if keys[name] == "auto" else keys[name] == "on" for name in ("automask", "disp_norm")]
    if kind != "autoencoder":
        f = net.resnet((seen[0] - 0.45) / 0.225, "depth.encoder.", layers=layers)
        disp = net.up_decoder(f) if keys["decoder"] == "upconv" else net.crp_decoder(f, step)
        poses = []
        for i in ids:
            if i == 2:
                v = torch.zeros(images, 6)
                v[:, 3] = torch.tensor([-0.015, 0.015][first:first + images], dtype=torch.float32).double()
                poses.append(matrix(v, False))
            else:
                poses.append(matrix(net.motion(seen[min(i, 0)], seen[max(i, 0)], keys["pose_size"], keys["pose_layers"]), i < 0))
        identity = [photometric(s, target, keys) for s in shown] if automask else []
        for s in range(4):
            full = resized(disp[s], H, W)
            maps = identity + [photometric(warp(x, full, p, k, 1, keys), target, keys) for x, p in zip(shown, poses)]
            ret[f"rec/{s}"] = torch.cat(maps, 1).min(1)[0].mean() / 4
            d = disp[s] / (disp[s].mean((2, 3), keepdim=True) + 1e-7) if normalised else disp[s]
            a, b = edges(d, target, 0.5)
            ret[f"sm/{s}"] = keys["smoothness"] / (4 * 2 ** s) * (a + b)
    if kind in ("features", "joint"):
        running = kind == "features" and keys["extractor_bn"] == "running"
        phi = net.resnet(target, "extractor.encoder.", kind == "features", running, layers)
        half = resized(disp[0], H // 2, W // 2)
        maps = [robust(warp(net.resnet(x, "extractor.encoder.", True, running)[0], half, p, k, 0.5, keys), phi[0])
                for x, p in zip(shown, poses)]
        ret["fm"] = keys["perception"] * torch.cat(maps, 1).min(1)[0].mean()
    if kind == "autoencoder":
        phi = net.resnet(target, "extractor.encoder.", layers=layers)
    if kind in ("autoencoder", "joint"):
        made, wanted = net.rebuilt(phi[4]), target
        for s in range(4):
            wanted = resized(wanted if keys["target_pyramid"] == "progressive" else target, H >> s, W >> s)
            ret[f"img/{s}"] = photometric(made[s], wanted, keys).mean() / 4
        for i in range(5):
            a, b = edges(phi[i], target, 1)
            ret[f"reg/{i}"] = (-keys["dis"] * a + keys["cvt"] * b) / (5 * 2 ** i)
    return ret


def probe(name, grad):
    g = grad.flatten()
    ret = [g.norm().item()]
    for k in range(VECTORS):
        ret.append((g * torch.tensor(uniform(f"{name}:{k}", g.numel()) - 0.5)).sum().item())
    return ret


def run(case):
    net = Net()
    if case["kind"] == "features":
        net.frozen = {"extractor."}
    out, optimizer = {"case": case, "terms": [], "gradients": {}}, None
    for step in range(STEPS):
        ret = terms(net, case, step)
        trained = {n: p for n, p in net.p.items() if p.requires_grad}
        optimizer = optimizer or torch.optim.Adam(trained.values(), lr=LR)
        optimizer.zero_grad()
        sum(ret.values()).backward()
        out["terms"].append({n: v.item() for n, v in ret.items()})
        if step == 0:
            out["gradients"] = {n: probe(n, p.grad) for n, p in trained.items()}
            out["statistics"] = {n: probe(n, p.detach()) for n, p in net.p.items() if "running" in n}
        torch.nn.utils.clip_grad_norm_(trained.values(), CLIP)
        optimizer.step()
        if step == 0:
            net.train = False
            with torch.no_grad():
                out["validation"] = [{n: v.item() for n, v in terms(net, case, 0, 1, i).items()} for i in range(IMAGES)]
            net.train = True
    return out


# Networks of depth_net.json, with the defaults of the presets.
plain = [
    dict(kind="baseline", sources=[-1, 1], stereo=False, decoder="crp"),
    dict(kind="baseline", sources=[1], stereo=False, decoder="upconv"),
    dict(kind="features", sources=[-1, 1], stereo=True, decoder="crp"),
    dict(kind="joint", sources=[-1, 1], stereo=False, decoder="crp"),
    dict(kind="autoencoder", sources=[-1, 1], stereo=False, decoder="crp")
]
# Networks of depth_net_keys.json, with changed colours: every key differs from its default, and the weights of the
# terms are so large that gradients depend on them, too. Then ResNet-50: a small change of the input makes larger
# changes there, as its last stage has only 24 pixels.
keyed = [
    dict(
        kind="features", sources=[1, -1], stereo=True, decoder="upconv",
        keys=dict(pose_layers=34, pose_size=[96, 64], min_depth=0.2, max_depth=50.0, ssim_weight=0.7, perception=0.5, smoothness=0.25,
                  automask="on", disp_norm="on", align_corners=False, extractor_bn="batch")),
    dict(kind="joint", sources=[-1, 1], stereo=False, decoder="crp",
         keys=dict(perception=2.0, smoothness=0.5, dis=0.125, cvt=0.25, automask="off", disp_norm="off", target_pyramid="progressive")),
    dict(kind="autoencoder", sources=[-1, 1], stereo=False, decoder="crp", keys=dict(ssim_weight=0.25, dis=0.5, cvt=0.125,
                                                                                     target_pyramid="progressive")),
    dict(kind="joint", layers=50, sources=[-1, 1], stereo=False, decoder="crp", keys=dict(pose_layers=50))
]


def rounded(x):
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    if isinstance(x, list):
        return [rounded(v) for v in x]
    return float(f"{x:.8g}") if isinstance(x, float) else x


for name, cases in ("depth_net", plain), ("depth_net_keys", keyed):
    with open(f"tests/golden/{name}.json", "w", encoding="ascii") as f:
        json.dump(rounded([run(c) for c in cases]), f, separators=(",", ":"))
        f.write("\n")

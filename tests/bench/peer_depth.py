#!/usr/bin/env python3
"""The peer of depth networks: FeatDepth and its baseline in PyTorch, on the CPU (`step` and `train` also on a GPU),
written from specs featdepth sections 1 to 7 with PyTorch's own operations.

peer_depth.py step [--width 320 --height 192 --batch 4 --steps N --layout plain|channels_last --compile --cuda [--tf32|--bf16]]
    a record "peer" of the quickest training step of featdepth_r18, its extractor frozen, and of the median, in fp32,
    tf32 or bf16 autocast, and of the most memory that the process (on a GPU: its tensors) held
peer_depth.py warp [--width 320 --height 192 --batch 4 --steps N]
    records "warp": grid sampling, there and back, of a picture and of 64 channels at half the sides, which have a
    gradient, too: with places that come from depth and motion, and, sampling_ms, with given ones
peer_depth.py train FOLDER --kind baseline|joint [--width --height --budget STEPS --batch --lr --channels X --workers N]
               [--sources=-1,1 --min-depth .1 --max-depth 100 --smoothness 1e-3 --list FILE --flip .5
               --init FILE --init-pose FILE --save FILE --cuda]
    trains on FOLDER/train.txt, or on --list, and now and then a record "depth": loss on FOLDER/val.txt, and abs_rel and
    a1 where there is measured depth.
    --sources as data.sources, where a frame stands for a source that is not there (data.missing_neighbour repeat);
    --init the --save of another run, --init-pose its network of motion alone
All: --threads N, --seed of the weights. --channels multiplies the channels of hidden layers, as model.width.

Needs torch and torchvision; train needs numpy and Pillow too."""  # SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import random
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models.resnet import BasicBlock

LIMIT_S = 60  # of `step`
LIMITS = 0.1, 100.0  # of depth
SCALES = 4


# ---- networks ----

def scaled(channels, x):
    return max(8, int(channels * x / 8 + 0.5) * 8)


class Encoder(nn.Module):
    """ResNet-18 without its head; five features."""

    def __init__(self, x, pictures=1):
        super().__init__()
        self.conv1 = nn.Conv2d(3 * pictures, scaled(64, x), 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(scaled(64, x))
        self.stages = nn.ModuleList()
        c = scaled(64, x)
        for stage in range(4):
            k = scaled(64 << stage, x)
            stride = 2 if stage else 1
            down = nn.Sequential(nn.Conv2d(c, k, 1, stride, bias=False), nn.BatchNorm2d(k)) if stride == 2 or c != k else None
            self.stages.append(nn.Sequential(BasicBlock(c, k, stride, down), BasicBlock(k, k)))
            c = k
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def stem(self, x):
        return F.relu(self.bn1(self.conv1(x)), inplace=True)

    def forward(self, x):
        out = [self.stem(x)]
        x = F.max_pool2d(out[0], 3, 2, 1)
        for stage in self.stages:
            x = stage(x)
            out.append(x)
        return out


def mirrored(c, k):
    return nn.Conv2d(c, k, 3, padding=1, padding_mode="reflect")


class Pooled(nn.Module):
    """Chained residual pooling."""

    def __init__(self, c):
        super().__init__()
        self.conv = nn.ModuleList(nn.Conv2d(c, c, 1, bias=False) for _ in range(4))

    def forward(self, x):
        top = x
        for conv in self.conv:
            top = conv(F.max_pool2d(top, 5, 1, 2))
            x = x + top
        return x


class Decoder(nn.Module):
    def __init__(self, x):
        super().__init__()
        wide, c = scaled(256, x), [scaled(64, x)] + [scaled(64 << i, x) for i in range(4)]
        self.reduce = nn.ModuleDict({str(i): nn.Conv2d(c[i], scaled(512, x) if i == 4 else wide, 1, bias=False) for i in (4, 3, 2, 1)})
        self.inward = nn.ModuleDict({str(i): mirrored(scaled(512, x) if i == 4 else 2 * wide + 1, wide) for i in (4, 3, 2, 1)})
        self.pooled = nn.ModuleDict({str(i): Pooled(wide) for i in (4, 3, 2, 1)})
        self.merge = nn.ModuleDict({str(i): mirrored(wide, wide) for i in (4, 3, 2, 1)})
        self.disp = nn.ModuleDict({str(i): mirrored(wide, 1) for i in (4, 3, 2, 1)})

    def forward(self, f):
        x, disp, out = None, None, [None] * SCALES
        for i in (4, 3, 2, 1):
            k = str(i)
            skip = self.reduce[k](F.dropout(f[i], 0.5, self.training) if i >= 3 else f[i])
            skip = skip if x is None else torch.cat([skip, x, disp], 1)
            x = self.pooled[k](F.leaky_relu(self.inward[k](skip), 0.01))
            x = F.interpolate(F.leaky_relu(self.merge[k](x), 0.01), scale_factor=2)
            disp = out[i - 1] = torch.sigmoid(self.disp[k](x))
        return out


class Motion(nn.Module):
    def __init__(self, x):
        super().__init__()
        self.encoder, wide = Encoder(x, 2), scaled(256, x)
        self.decoder = nn.Sequential(nn.Conv2d(scaled(512, x), wide, 1), nn.ReLU(True), nn.Conv2d(wide, wide, 3, padding=1), nn.ReLU(True),
                                     nn.Conv2d(wide, wide, 3, padding=1), nn.ReLU(True), nn.Conv2d(wide, 6, 1))

    def forward(self, a, b):
        return 0.01 * self.decoder(self.encoder((torch.cat([a, b], 1) - 0.45) / 0.225)[4]).mean((2, 3))


class Rebuilder(nn.Module):
    def __init__(self, x):
        super().__init__()
        c = [scaled(512, x)] + [scaled(8 << k, x) for k in range(5, 0, -1)]
        self.up = nn.ModuleList(mirrored(c[i], c[i + 1]) for i in range(5))
        self.inward = nn.ModuleList(mirrored(c[i + 1], c[i + 1]) for i in range(5))
        self.out = nn.ModuleList(mirrored(c[i + 1], 3) for i in range(1, 5))

    def forward(self, x):
        out = []
        for i in range(5):
            x = F.elu(self.inward[i](F.interpolate(F.elu(self.up[i](x)), scale_factor=2)))
            if i:
                out.append(torch.sigmoid(self.out[i - 1](x)))
        return out[::-1]


# ---- geometry and losses ----

def matrix(v, invert):
    a, t = v[:, :3], v[:, 3:]
    theta = a.norm(dim=1, keepdim=True)
    k = a / (theta + 1e-7)
    c, s = torch.cos(theta)[..., None], torch.sin(theta)[..., None]
    zero = torch.zeros_like(k[:, 0])
    cross = torch.stack([zero, -k[:, 2], k[:, 1], k[:, 2], zero, -k[:, 0], -k[:, 1], k[:, 0], zero], 1).reshape(-1, 3, 3)
    r = c * torch.eye(3, device=v.device) + (1 - c) * k[:, :, None] * k[:, None, :] + s * cross
    if invert:
        r = r.transpose(1, 2)
        t = -(r @ t[..., None])[..., 0]
    return r, t


def inverse_depth(disp, limits):
    near, far = limits
    return 1 / far + (1 / near - 1 / far) * disp


def places(w, h, disp, pose, cameras, limits):
    """Returns the place in the source's picture that each pixel falls on."""
    depth = 1 / inverse_depth(disp[:, 0], limits)
    y, x = torch.meshgrid(torch.arange(h, device=depth.device).float(), torch.arange(w, device=depth.device).float(), indexing="ij")
    fx, fy, cx, cy = [cameras[:, i, None, None] for i in range(4)]
    r, t = pose
    p = torch.stack([(x - cx) / fx * depth, (y - cy) / fy * depth, depth], -1) @ r[:, None].transpose(2, 3) + t[:, None, None]
    u = (fx * p[..., 0] + cx * p[..., 2]) / (p[..., 2] + 1e-7)
    v = (fy * p[..., 1] + cy * p[..., 2]) / (p[..., 2] + 1e-7)
    return torch.stack([2 * u / (w - 1) - 1, 2 * v / (h - 1) - 1], -1)


def sampled(source, grid):
    return F.grid_sample(source, grid, padding_mode="border", align_corners=True)


def warp(source, disp, pose, cameras, factor, limits=LIMITS):
    return sampled(source, places(source.shape[3], source.shape[2], disp, pose, cameras * factor, limits))


def robust(a, b):
    return torch.sqrt((a - b) ** 2 + 1e-6).mean(1, keepdim=True)


def photometric(a, b):
    x, y = F.pad(a, (1, 1, 1, 1), mode="reflect"), F.pad(b, (1, 1, 1, 1), mode="reflect")
    mx, my = F.avg_pool2d(x, 3, 1), F.avg_pool2d(y, 3, 1)
    sx, sy, sxy = F.avg_pool2d(x * x, 3, 1) - mx ** 2, F.avg_pool2d(y * y, 3, 1) - my ** 2, F.avg_pool2d(x * y, 3, 1) - mx * my
    s = (2 * mx * my + 1e-4) * (2 * sxy + 9e-4) / ((mx ** 2 + my ** 2 + 1e-4) * (sx + sy + 9e-4))
    return 0.85 * torch.clamp((1 - s) / 2, 0, 1).mean(1, keepdim=True) + 0.15 * robust(a, b)


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


class Depth(nn.Module):
    """kind: baseline, features (the extractor is frozen), joint (the extractor learns, too)."""

    def __init__(self, kind, x, limits=LIMITS, smoothness=1e-3):
        super().__init__()
        self.limits, self.smoothness = limits, smoothness
        self.kind, self.encoder, self.decoder, self.motion = kind, Encoder(x), Decoder(x), Motion(x)
        if kind != "baseline":
            self.extractor = Encoder(x)
        if kind == "features":
            self.extractor.requires_grad_(False)
        if kind == "joint":
            self.rebuilder = Rebuilder(x)

    def train(self, mode=True):
        super().train(mode)
        if self.kind == "features":
            self.extractor.eval()
        return self

    def disparities(self, seen):
        return self.decoder(self.encoder((seen - 0.45) / 0.225))

    def forward(self, seen, color, cameras, ids):
        """seen and color: of the target, then of each source. Returns the loss and the disparity at full size."""
        target, (h, w), loss = color[0], color[0].shape[2:], 0
        disp, poses = self.disparities(seen[0]), []
        for i, picture in zip(ids, seen[1:]):
            poses.append(matrix(self.motion(picture, seen[0]) if i < 0 else self.motion(seen[0], picture), i < 0))
        with torch.no_grad():
            identity = [photometric(s, target) for s in color[1:]]
        for s in range(SCALES):
            full = resized(disp[s], h, w)
            maps = [m + 1e-5 * torch.randn_like(m) if self.training else m for m in identity]
            maps += [photometric(warp(x, full, p, cameras, 1, self.limits), target) for x, p in zip(color[1:], poses)]
            loss = loss + torch.cat(maps, 1).min(1)[0].mean() / 4
            a, b = edges(disp[s] / (disp[s].mean((2, 3), keepdim=True) + 1e-7), target, 0.5)
            loss = loss + self.smoothness / (4 * 2 ** s) * (a + b)
        if self.kind == "baseline":
            return loss, disp[0]
        phi = self.extractor(target) if self.kind == "joint" else [self.extractor.stem(target)]
        half = resized(disp[0], h // 2, w // 2)
        maps = [robust(warp(self.extractor.stem(x), half, p, cameras, 0.5, self.limits), phi[0]) for x, p in zip(color[1:], poses)]
        loss = loss + 1e-3 * torch.cat(maps, 1).min(1)[0].mean()
        if self.kind == "joint":
            for s, made in enumerate(self.rebuilder(phi[4])):
                loss = loss + photometric(made, resized(target, h >> s, w >> s)).mean() / 4
            for i in range(5):
                a, b = edges(phi[i], target, 1)
                loss = loss + 1e-3 * (b - a) / (5 * 2 ** i)
        return loss, disp[0]


# ---- how long a step takes ----

def peak_mib(cuda):
    if cuda:
        return torch.cuda.max_memory_allocated() / (1 << 20)
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM:"))


def made_up_frames(a):
    """Noise in sixteenths of the width, which moves from frame to frame, as bench_step's."""
    base = F.interpolate(torch.rand(a.batch, 3, a.height // 16, a.width // 16 + 2), scale_factor=16)
    return [base[..., 3 * k:3 * k + a.width].contiguous()
            for k in range(3)], torch.tensor([[0.9 * a.width, 0.9 * a.width, a.width / 2, a.height / 2]] * a.batch)


def time_steps(a):
    net = Depth("features", a.channels).train()
    frames, cameras = made_up_frames(a)
    if a.cuda:
        net, frames, cameras = net.cuda(), [f.cuda() for f in frames], cameras.cuda()
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = a.tf32 or a.bf16
    if a.layout == "channels_last":
        net, frames = net.to(memory_format=torch.channels_last), [f.to(memory_format=torch.channels_last) for f in frames]
    run = torch.compile(net) if a.compile else net
    weights = [p for p in net.parameters() if p.requires_grad]
    opt, times, began = torch.optim.Adam(weights, lr=1e-6, fused=True), [], None
    warm = 5 if a.cuda else 2  # steps that are not timed: the first ones compile, or look for algorithms
    for i in range(a.steps + warm):
        start = time.perf_counter()
        with torch.autocast(frames[0].device.type, dtype=torch.bfloat16, enabled=a.bf16):
            loss = run(frames, frames, cameras, (-1, 1))[0]
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 35)
        opt.step()
        if a.cuda:
            torch.cuda.synchronize()
        if i == warm - 1:
            began = time.perf_counter()
        if i >= warm:
            times.append(time.perf_counter() - start)
            if time.perf_counter() - began > LIMIT_S:
                break
    print("peer model=featdepth_r18 layout=%s compiled=%d images_per_s=%.3f median_images_per_s=%.3f peak_mib=%.0f loss=%.4f" % (
        a.layout, a.compile, a.batch / min(times), a.batch / statistics.median(times), peak_mib(a.cuda), loss.item()), flush=True)


def time_warps(a):
    """Sideways by a tenth, with depths of 2.4 to 4.8, as bench_warp."""
    for what, channels, h, w, learns in (("picture", 3, a.height, a.width, False), ("features", 64, a.height // 2, a.width // 2, True)):
        for layout in (torch.contiguous_format, torch.channels_last):
            source = torch.rand(a.batch, channels, h, w).to(memory_format=layout).requires_grad_(learns)
            disp = (0.02 + 0.02 * torch.rand(a.batch, 1, h, w)).requires_grad_()
            motion = torch.tensor([[0, 0, 0, 0.1, 0, 0]] * a.batch).requires_grad_()
            cameras = torch.tensor([[0.9 * w, 0.9 * w, w / 2, h / 2]] * a.batch)
            back, best, bare = torch.rand(a.batch, channels, h, w).to(memory_format=layout), 1e9, 1e9
            grid = places(w, h, disp, matrix(motion, False), cameras, LIMITS).detach().requires_grad_()
            for _ in range(a.steps + 1):
                start = time.perf_counter()
                warp(source, disp, matrix(motion, False), cameras, 1).backward(back)
                middle = time.perf_counter()
                sampled(source, grid).backward(back)
                best, bare = min(best, middle - start), min(bare, time.perf_counter() - middle)
                source.grad = grid.grad = disp.grad = motion.grad = None
            print(
                "warp what=%s layout=%s ms=%.3f sampling_ms=%.3f" %
                (what, "plain" if layout == torch.contiguous_format else "channels_last", best * 1e3, bare * 1e3), flush=True)


# ---- how well it learns ----

class Frames(torch.utils.data.Dataset):
    """(seen, color, cameras) of each listed frame and its neighbours, as specs featdepth section 4.4 makes them."""

    def __init__(self, a, split, train):
        with open(os.path.join(a.folder, "intrinsics.json"), encoding="utf-8") as f:
            self.about = json.load(f)
        with open(a.list if train and a.list else os.path.join(a.folder, split + ".txt"), encoding="ascii") as f:
            self.list = [int(line) for line in f if line.strip()]
        self.a, self.train, self.ids = a, train, [int(i) for i in a.sources.split(",")]

    def __len__(self):
        return len(self.list)

    def camera(self, flip):
        sx, sy = self.a.width / self.about["width"], self.a.height / self.about["height"]
        cx = self.about["cx"] * sx
        return [self.about["fx"] * sx, self.about["fy"] * sy, self.a.width - cx if flip else cx, self.about["cy"] * sy]

    def path(self, i):
        return os.path.join(self.a.folder, self.about["frame_pattern"] % i)

    def __getitem__(self, n):
        from PIL import Image
        from torchvision.transforms import ColorJitter
        from torchvision.transforms import functional as T
        flip, jitter = self.train and random.random() < self.a.flip, self.train and random.random() < 0.5
        order, *by = ColorJitter.get_params((0.8, 1.2), (0.8, 1.2), (0.8, 1.2), (-0.1, 0.1))
        does, seen, color = (T.adjust_brightness, T.adjust_contrast, T.adjust_saturation, T.adjust_hue), [], []
        for i in [0] + self.ids:
            path = self.path(self.list[n] + i)
            picture = Image.open(path if os.path.exists(path) else self.path(self.list[n])).convert("RGB")
            picture = (T.hflip(picture) if flip else picture).resize((self.a.width, self.a.height), Image.LANCZOS)
            color.append(T.to_tensor(picture))
            for k in order if jitter else ():
                picture = does[k](picture, by[k])
            seen.append(T.to_tensor(picture))
        return seen, color, torch.tensor(self.camera(flip)), n

    def depth(self, n):
        import numpy
        from PIL import Image
        if "depth_pattern" not in self.about:
            return None
        with Image.open(os.path.join(self.a.folder, self.about["depth_pattern"] % self.list[n])) as f:
            return numpy.asarray(f).astype(numpy.float64) * self.about["depth_unit_m"]


def score(said, truth):
    """Returns abs_rel and a1 of the measured pixels, after scaling the prediction to the median of the truth."""
    import numpy
    from PIL import Image
    said = 1 / numpy.asarray(Image.fromarray(said).resize(truth.shape[::-1], Image.BILINEAR)).astype(numpy.float64)
    there = (truth > 1e-3) & (truth < 80)
    said, truth = said[there], truth[there]
    said = numpy.clip(said * numpy.median(truth) / numpy.median(said), 1e-3, 80)
    return float((abs(said - truth) / truth).mean()), float((numpy.maximum(said / truth, truth / said) < 1.25).mean())


def placed(a, seen, color, cameras):
    """On the device that trains."""
    return ([x.cuda() for x in seen], [x.cuda() for x in color], cameras.cuda()) if a.cuda else (seen, color, cameras)


@torch.no_grad()
def validate(net, data):
    net.eval()
    losses, scores = [], []
    for n in range(len(data)):
        seen, color, camera, _ = data[n]
        seen, color, camera = placed(data.a, [x[None] for x in seen], [x[None] for x in color], camera[None])
        loss, disp = net(seen, color, camera, data.ids)
        losses.append(loss.item())
        truth = data.depth(n)
        if truth is not None:
            scores.append(score(inverse_depth(disp[0, 0], net.limits).cpu().numpy(), truth))
    net.train()
    return [sum(x) / len(x) if x else float("nan") for x in (losses, [s[0] for s in scores], [s[1] for s in scores])]


def learn(a):
    random.seed(a.seed)
    train, val = Frames(a, "train", True), Frames(a, "val", False)
    net = Depth(a.kind, a.channels, (a.min_depth, a.max_depth), a.smoothness)
    if a.init:
        net.load_state_dict(torch.load(a.init))
    if a.init_pose:
        net.motion.load_state_dict({key[7:]: value for key, value in torch.load(a.init_pose).items() if key.startswith("motion.")})
    net = (net.cuda() if a.cuda else net).train().to(memory_format=torch.channels_last)
    opt, steps, spent = torch.optim.Adam(net.parameters(), lr=a.lr, fused=True), 0, 0.0
    loader = torch.utils.data.DataLoader(train, a.batch, shuffle=True, drop_last=True, num_workers=a.workers, persistent_workers=a.workers
                                         > 0)
    while steps < a.budget:
        start = time.perf_counter()
        for seen, color, cameras, _ in loader:
            for group in opt.param_groups:  # a third to begin with, half after half, and again after three quarters
                group["lr"] = a.lr * min(1, 1 / 3 + steps / a.budget * 20 * 2 / 3) * (0.5 if steps >= a.budget /
                                                                                      2 else 1) * (0.5 if steps >= a.budget * 3 / 4 else 1)
            loss = net(*placed(a, seen, color, cameras), train.ids)[0]
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 35)
            opt.step()
            steps += 1
            if steps % max(1, a.budget // 10) == 0:
                spent += time.perf_counter() - start  # scoring does not count
                print(
                    "depth steps=%d seconds=%.0f train=%.5f val=%.5f abs_rel=%.4f a1=%.4f" %
                    (steps, spent, loss.item(), *validate(net, val)), flush=True)
                start = time.perf_counter()
            if steps >= a.budget:
                break
        spent += time.perf_counter() - start
    if a.save:
        torch.save(net.state_dict(), a.save)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("step", "warp", "train"))
    p.add_argument("folder", nargs="?")
    for name, kind, default in (("threads", int, 2), ("width", int, 320), ("height", int, 192), ("batch", int, 4), ("steps", int, 5),
                                ("budget", int, 1000), ("lr", float, 1e-4), ("min-depth", float, LIMITS[0]),
                                ("max-depth", float, LIMITS[1]), ("smoothness", float, 1e-3), ("flip", float, 0.5), ("channels", float, 1),
                                ("workers", int, 0), ("seed", int, 1)):
        p.add_argument("--" + name, type=kind, default=default)
    p.add_argument("--layout", choices=("plain", "channels_last"), default="channels_last")
    p.add_argument("--kind", choices=("baseline", "joint"), default="baseline")
    for flag in ("compile", "cuda", "tf32", "bf16"):
        p.add_argument("--" + flag, action="store_true")
    p.add_argument("--sources", default="-1,1")
    for name in ("list", "init", "init-pose", "save"):
        p.add_argument("--" + name)
    a = p.parse_args()
    if (a.what == "train") != bool(a.folder):
        p.error("train needs a folder, nothing else does")
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    {"step": time_steps, "warp": time_warps, "train": learn}[a.what](a)


main()

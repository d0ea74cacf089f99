#!/usr/bin/env python3
"""Writes tests/golden/depth_views.json and frames.json anew: the results of PyTorch, in float64, and of Pillow for the
inputs in these files.

Formulas and names are those of specs featdepth (sections 1.7, 2, 3; warps align corners). Inputs (short decimals) are
kept as they are, every expected value is computed; a gradient is autograd's. Needs torch, numpy and Pillow. Run from
the repository root: tests/golden/make_depth_views.py"""  # SPDX-License-Identifier: Apache-2.0
import json
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance

EPS = 1e-7
DIGITS = 12
torch.set_default_dtype(torch.float64)


def read(of, grad=False):
    data = torch.tensor(of["data"] if isinstance(of, dict) else of, dtype=torch.float64)
    return (data.reshape(of["shape"]) if isinstance(of, dict) else data).requires_grad_(grad)


def number(v):
    return float(f"{v.item() if isinstance(v, torch.Tensor) else v:.{DIGITS}g}") + 0.0


def numbers(t):
    return [number(v) for v in t.detach().reshape(-1).tolist()]


def array(t):
    return {"shape": list(t.shape), "data": numbers(t)}


# Losses, section 3.

def ssim(x, y, c1=1e-4, c2=9e-4):
    def mean(v):
        return F.avg_pool2d(F.pad(v, (1, 1, 1, 1), "reflect"), 3, 1)
    mx, my = mean(x), mean(y)
    sx, sy, sxy = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    s = (2 * mx * my + c1) * (2 * sxy + c2) / ((mx * mx + my * my + c1) * (sx + sy + c2))
    return ((1 - s) / 2).clamp(0, 1)


def robust(a, b):
    return ((a - b) ** 2 + 1e-6).sqrt()


def photometric(a, b, l1=robust):
    return .85 * ssim(a, b).mean(1, True) + .15 * l1(a, b).mean(1, True)


def differences(f):
    return f[..., :, 1:] - f[..., :, :-1], f[..., 1:, :] - f[..., :-1, :]


def edges(f, image, factor):
    """Terms of the first and of the second order."""
    first = second = 0
    for df, di in zip(differences(f), differences(image)):
        first = first + (df.abs() * (-factor * di.abs().mean(1, True)).exp()).mean()
        for ddf, ddi in zip(differences(df), differences(di)):
            second = second + (ddf.abs() * (-factor * ddi.abs().mean(1, True)).exp()).mean()
    return first, second


def area(image, h, w):
    return F.interpolate(image, (h, w), mode="area")


def of_ssim(c):
    x, y = read(c["x"], True), read(c["y"], True)
    out = ssim(x, y)
    out.backward(read(c["upstream"]))
    c.update(out=array(out), grad_x=array(x.grad), grad_y=array(y.grad))
    flat = c["constant_pair"]
    flat["out"] = number(ssim(torch.full((1, 1, 4, 4), flat["x"]), torch.full((1, 1, 4, 4), flat["y"]))[0, 0, 1, 1])


def of_photometric(c):
    a, b = read(c["pred"], True), read(c["target"])
    out = photometric(a, b)
    out.mean().backward()
    plain = photometric(a, b, lambda p, q: (p - q).abs())
    c.update(map_robust=array(out), mean_robust=number(out.mean()), grad_pred_of_mean=array(a.grad), map_plain_l1=array(plain),
             mean_plain_l1=number(plain.mean()), perfect_match_value=number(photometric(b, b).mean()))


def of_automask(c):
    target, warped = read(c["target"]), [read(v, True) for v in c["warped"]]
    still = [photometric(read(s), target) + c["noise_scale"] * read(n) for s, n in zip(c["source"], c["noise_standard_normal"])]
    moved = [photometric(w, target) for w in warped]
    every = torch.cat(still + moved, 1)
    least, which = every.min(1)
    least.mean().backward()
    two = every.sort(1)[0]
    c.update(min_map=array(least), argmin=which.reshape(-1).tolist(), mean=number(least.mean()),
             grad_warped=[array(w.grad) for w in warped], smallest_gap=number((two[:, 1] - two[:, 0]).min()))
    c["no_automask"]["mean"] = number(torch.cat(moved, 1).min(1)[0].mean())


def of_features(c):
    target, sampled = read(c["target"], True), [read(v, True) for v in c["sampled"]]
    least, which = torch.cat([robust(s, target).mean(1, True) for s in sampled], 1).min(1)
    least.mean().backward()
    total = c["perception_weight"] * least.mean()
    c.update(min_map=array(least), argmin=which.reshape(-1).tolist(), mean=number(least.mean()), grad_target=array(target.grad),
             grad_sampled=[array(s.grad) for s in sampled], per_scale_term=number(total / 4), sum_over_4_scales=number(total))


def of_smoothness(c):
    image = read(c["image"])
    small = area(image, *c["disp"]["shape"][2:])
    c["image_area"] = array(small)
    for run in c["runs"]:
        d = read(c["disp"], True)
        first, second = edges(d / (d.mean((2, 3), True) + EPS) if run["disp_norm"] else d, small, c["edge_factor"])
        (first + second).backward()
        run.update(first=number(first), second=number(second), total=number(first + second), grad_disp=array(d.grad))
    d = read(c["disp"])
    c["monodepth2_first_order_normalised"] = number(edges(d / (d.mean((2, 3), True) + EPS), small, 1)[0])


def of_regularisation(c):
    f = read(c["feature"], True)
    first, second = edges(f, area(read(c["image"]), *f.shape[2:]), 1)
    value = -c["dis"] * first + c["cvt"] * second
    value.backward()
    c.update(first=number(first), second=number(second), value=number(value), grad_feature=array(f.grad),
             level_values=[number(value / 2 ** i / 5) for i in range(5)])


# Views, sections 1.7 and 2.

def depth_of(disp, least, most):
    scaled = 1 / most + (1 / least - 1 / most) * disp
    return scaled, 1 / scaled


def of_depth(c):
    for run in c:
        disp = read(run["disp"], True)
        scaled, depth = depth_of(disp, run["min_depth"], run["max_depth"])
        depth.sum().backward()
        run.update(scaled_disp=array(scaled), depth=array(depth), ddepth_ddisp=array(disp.grad))


def of_sampling(c):
    for run in c["variants"]:
        image, grid = read(c["image"], True), read(c["grid"], True)
        out = F.grid_sample(image, grid, padding_mode=run["padding"], align_corners=run["align_corners"])
        out.backward(read(c["upstream"]))
        run.update(out=array(out), grad_image=array(image.grad), grad_grid=array(grid.grad))


def pose(a, t, invert):
    """4 x 4; the unit axis is a / (|a| + 1e-7)."""
    angle = a.norm()
    k = a / (angle + EPS)
    none = torch.zeros(())
    cross = torch.stack([none, -k[2], k[1], k[2], none, -k[0], -k[1], k[0], none]).reshape(3, 3)
    r = angle.cos() * torch.eye(3) + (1 - angle.cos()) * torch.outer(k, k) + angle.sin() * cross
    top = torch.cat([r.T, -(r.T @ t)[:, None]], 1) if invert else torch.cat([r, t[:, None]], 1)
    return torch.cat([top, torch.tensor([[0., 0, 0, 1]])])


def of_poses(c):
    for run in c:
        made = {}
        for name, invert in ("forward", False), ("invert", True):
            a, t = read(run["axisangle"], True), read(run["translation"], True)
            made[name] = pose(a, t, invert)
            made[name].backward(read(run["upstream"]))
            run[name] = {"M": array(made[name]), "grad_axisangle": numbers(a.grad), "grad_translation": numbers(t.grad)}
        off = (made["invert"] @ made["forward"] - torch.eye(4)).abs().max()
        run["max_abs_invert_times_forward_minus_I"] = number(off)


def of_intrinsics(c):
    for size in c["sizes"]:
        full = read(c["normalized_K"])
        full[0] *= size["W"]
        full[1] *= size["H"]
        half = full.clone()
        half[:2] /= 2
        for name, k in ("K", full), ("K_half", half):
            size.update({name: array(k), f"inv_{name}": array(k.inverse())})


def of_stereo(c, baseline=.015):
    for run in c:
        run["T03"] = (-1 if run["side"] == "l" else 1) * (-1 if run["flip"] else 1) * baseline


def of_lanczos(c):
    picture = Image.fromarray(np.array(c["gray"]["data"], np.uint8).reshape(c["gray"]["shape"]))
    for run in c["runs"]:
        run["data"] = np.array(picture.resize((run["w"], run["h"]), Image.Resampling.LANCZOS)).reshape(-1).tolist()


def hue(picture, factor):
    h, s, v = picture.convert("HSV").split()
    turned = np.array(h, np.int64) + math.trunc(factor * 255)
    return Image.merge("HSV", (Image.fromarray((turned % 256).astype(np.uint8)), s, v)).convert("RGB")


def of_jitter(c):
    change = [
        lambda p, r: ImageEnhance.Brightness(p).enhance(r["brightness"]), lambda p, r: ImageEnhance.Contrast(p).enhance(r["contrast"]),
        lambda p, r: ImageEnhance.Color(p).enhance(r["saturation"]), lambda p, r: hue(p, r["hue"])
    ]
    for run in c["runs"]:
        picture = Image.fromarray(np.array(c["rgb_hwc"]["data"], np.uint8).reshape(c["rgb_hwc"]["shape"]))
        run["after_each_op"] = []
        for op in run["order"]:
            picture = change[op](picture, run)
            run["after_each_op"].append(np.array(picture).reshape(-1).tolist())


CASES = {
    "depth_views": {
        "ssim": of_ssim, "photometric": of_photometric, "min_reprojection_automask": of_automask, "grid_sample": of_sampling,
        "axis_angle": of_poses, "intrinsics": of_intrinsics, "stereo_T": of_stereo, "feature_metric": of_features,
        "disp_to_depth": of_depth, "smoothness": of_smoothness, "feature_regularisation": of_regularisation
    }, "frames": {"lanczos_u8": of_lanczos, "color_jitter_u8": of_jitter}
}


def main():
    for name, cases in CASES.items():
        path = pathlib.Path(__file__).parent / f"{name}.json"
        held = json.loads(path.read_text())
        for case, compute in cases.items():
            compute(held[case])
        lines = [f'"{case}": ' + json.dumps(held[case], separators=(",", ":")) for case in cases]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

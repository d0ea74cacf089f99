#!/usr/bin/env python3
"""Scores that a depth network can reach on a folder of frames without looking at them, and wrong motions that may
mislead its training. The folder has measured depth, poses.txt, train.txt and val.txt.

depth_bounds.py FOLDER [--gaps 1,2,3 --width 128 --sparse 101 --seen 6]
    records "prior": abs_rel and a1 on val, as validation scores them, of one depth (constant), of the median depth of
    all of train in each of 32 x 24 cells (train), of that of its --seen last frames alone (last); best is abs_rel of
    the best constant depth of each picture, without scaling to its median
    records "motion", a record for each distance between frames: medians over train of a residual, in pixels of a
    picture of --width. It is the root mean square, weighted by the picture's gradient, of the true movement of every
    --sparse-th measured point minus the best motion of each of these kinds:
    moved        nothing
    turn, shift  a rotation, a translation, each alone, of a scene of one depth; shift_wrong is the share of frames where that translation
                 goes the other way; flat_wrong is the same share for flat
    flat         both, of a scene of one depth
    inverted     both, of the scene whose near is far: inverse depth mirrored at its median
    half, twice  both, of the scene with half and with twice its differences of inverse depth
    and, NAME_grey, the mean difference of grey values, 0 to 255, between these points and the other picture where they
    are said to be; true_grey at their true places. If an inverted scene leaves less than flat does, it is a minimum of
    its own: a training that falls into it has to go uphill to leave it.

Needs numpy and Pillow."""  # SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os

import numpy as np
from PIL import Image

STEP = 1e-6  # of derivatives
CELLS = 24, 32


def listed(folder, split):
    with open(os.path.join(folder, split + ".txt"), encoding="ascii") as f:
        return [int(line) for line in f if line.strip()]


def measured(folder, about, i):
    with Image.open(os.path.join(folder, about["depth_pattern"] % i)) as f:
        return np.asarray(f).astype(float) * about["depth_unit_m"]


# ---- depth that is known without looking ----

def score(said, truth):
    """Returns abs_rel and a1, after scaling the prediction to the median of the truth."""
    there = truth > 0
    said, truth = said[there], truth[there]
    said = said * np.median(truth) / np.median(said)
    return (abs(said - truth) / truth).mean(), (np.maximum(said / truth, truth / said) < 1.25).mean()


def best_constant(truth):
    truth = truth[truth > 0]
    return min((abs(c - truth) / truth).mean() for c in np.quantile(truth, np.linspace(0.02, 0.98, 97)))


def usual(maps, shape):
    """Returns the median of each cell over the maps, at full size."""
    rows, columns = [np.array_split(np.arange(n), k) for n, k in zip(shape, CELLS)]
    cells, every = np.full(CELLS, np.nan), np.median(np.concatenate([m[m > 0] for m in maps]))
    for y, r in enumerate(rows):
        for x, c in enumerate(columns):
            there = np.concatenate([m[r[0]:r[-1] + 1, c[0]:c[-1] + 1].ravel() for m in maps])
            cells[y, x] = np.median(there[there > 0]) if (there > 0).any() else every
    return np.asarray(Image.fromarray(cells.astype(np.float32)).resize(shape[::-1], Image.BILINEAR)).astype(float)


def priors(a, about):
    train, val = [[measured(a.folder, about, i) for i in listed(a.folder, split)] for split in ("train", "val")]
    said = {"constant": np.ones(val[0].shape), "train": usual(train, val[0].shape), "last": usual(train[-a.seen:], val[0].shape)}
    for name, depth in said.items():
        print("prior what=%s abs_rel=%.4f a1=%.4f" % (name, *np.mean([score(depth, truth) for truth in val], 0)), flush=True)
    print("prior what=best abs_rel=%.4f" % np.mean([best_constant(truth) for truth in val]), flush=True)


# ---- motion that explains the visible movement ----


def turned(a):
    angle = np.linalg.norm(a) + 1e-12
    x, y, z = a / angle
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k


def bilinear(picture, x, y):
    """Points outside take the pixel at the border."""
    x, y = [np.clip(k, 0, n - 1.001) for k, n in ((x, picture.shape[1]), (y, picture.shape[0]))]
    i, j = x.astype(int), y.astype(int)
    return ((picture[j, i] * (1 - x + i) + picture[j, i + 1] * (x - i)) * (1 - y + j)
            + (picture[j + 1, i] * (1 - x + i) + picture[j + 1, i + 1] * (x - i)) * (y - j))


class Pair:
    """Returns the measured points of a frame: their rays, inverse depth, and their places in another frame."""

    def __init__(self, a, about, poses, i, gap):
        depth = measured(a.folder, about, i)
        y, x = [k[::a.sparse] for k in np.nonzero(depth)]
        scale = a.width / about["width"]
        height = round(about["height"] * scale)
        grey, self.other = [self.picture(a, about, k, height) for k in (i, i + gap)]
        slope = np.minimum(np.hypot(*np.gradient(grey)), 20)
        self.weight = slope[np.minimum((y * scale).astype(int), height - 1), np.minimum((x * scale).astype(int), a.width - 1)]
        self.points = np.stack([x, y]) * scale
        self.value = bilinear(grey, *self.points)
        self.focal = np.array([[about["fx"]], [about["fy"]]]) * scale
        self.rays = np.stack([(x - about["cx"]) / about["fx"], (y - about["cy"]) / about["fy"], np.ones(len(x))])
        self.inverse = 1 / depth[y, x]
        here, there = poses[i], poses[i + gap]
        turn = there[:, :3].T @ here[:, :3]
        self.motion = np.concatenate([self.axis(turn), there[:, :3].T @ (here[:, 3] - there[:, 3])])
        self.truth = self.moved(self.motion, self.inverse)

    @staticmethod
    def picture(a, about, i, height):
        with Image.open(os.path.join(a.folder, about["frame_pattern"] % i)) as f:
            return np.asarray(f.convert("L").resize((a.width, height), Image.LANCZOS)).astype(float)

    @staticmethod
    def axis(turn):
        a = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]]) / 2
        sine = np.linalg.norm(a)
        return a * (np.arcsin(min(1, sine)) / (sine + 1e-12))

    def moved(self, motion, inverse):
        q = turned(motion[:3]) @ self.rays + np.outer(motion[3:], inverse)
        return self.focal * (q[:2] / q[2] - self.rays[:2])

    def left(self, motion, inverse):
        """In pixels."""
        miss = self.moved(motion, inverse) - self.truth
        return np.sqrt((self.weight * miss ** 2).sum() / self.weight.sum())

    def grey(self, movement):
        return abs(bilinear(self.other, *(self.points + movement)) - self.value).mean()

    def fitted(self, inverse, free):
        """Gauss-Newton over the free ones of the six numbers of a motion."""
        motion, free = np.zeros(6), list(free)
        weight = np.concatenate([self.weight, self.weight])
        for _ in range(12):
            miss = (self.moved(motion, inverse) - self.truth).ravel()
            slopes = np.stack([((self.moved(motion + STEP * np.eye(6)[k], inverse) - self.truth).ravel() - miss) / STEP for k in free], 1)
            motion[free] -= np.linalg.lstsq((slopes * weight[:, None]).T @ slopes, (slopes * weight[:, None]).T @ miss, rcond=None)[0]
        return motion

    def row(self):
        middle = np.median(self.inverse)
        flat = np.full_like(self.inverse, middle)
        turn, shift, both = self.fitted(flat, range(3)), self.fitted(flat, range(3, 6)), self.fitted(flat, range(6))
        out = {
            "moved": self.left(np.zeros(6), flat), "turn": self.left(turn, flat), "shift": self.left(shift, flat),
            "shift_wrong": float(shift[3:] @ self.motion[3:] < 0), "flat": self.left(both, flat),
            "flat_wrong": float(both[3:] @ self.motion[3:] < 0)
        }
        grey = {"moved_grey": self.grey(0 * self.truth), "flat_grey": self.grey(self.moved(both, flat))}
        for name, factor in (("inverted", -1), ("half", 0.5), ("twice", 2)):
            inverse = np.maximum(middle + factor * (self.inverse - middle), 0.05 * middle)
            motion = self.fitted(inverse, range(6))
            out[name], grey[name + "_grey"] = self.left(motion, inverse), self.grey(self.moved(motion, inverse))
        return {**out, **grey, "true_grey": self.grey(self.truth)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    for name, kind, default in (("gaps", str, "1,2,3"), ("width", int, 128), ("sparse", int, 101), ("seen", int, 6)):
        p.add_argument("--" + name, type=kind, default=default)
    a = p.parse_args()
    with open(os.path.join(a.folder, "intrinsics.json"), encoding="utf-8") as f:
        about = json.load(f)
    priors(a, about)
    poses = np.loadtxt(os.path.join(a.folder, "poses.txt")).reshape(-1, 3, 4)
    for gap in map(int, a.gaps.split(",")):
        rows = [Pair(a, about, poses, i, gap).row() for i in listed(a.folder, "train") if i + gap < len(poses)]
        means = {k: np.mean([r[k] for r in rows]) if k.endswith("wrong") else np.median([r[k] for r in rows]) for k in rows[0]}
        print("motion gap=%d frames=%d " % (gap, len(rows)) + " ".join("%s=%.3f" % (k, v) for k, v in means.items()), flush=True)


main()

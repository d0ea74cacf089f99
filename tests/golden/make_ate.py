#!/usr/bin/env python3
"""Writes tests/golden/ate.json: NumPy's errors of predicted motions against true poses, over snippets of five frames.
Needs numpy.

  poses    [12 numbers each]: camera to world of each frame, the true ones
  motions  [12 numbers each]: predicted, from each frame to the next
  way      [12 numbers each]: camera to the first one's of each frame, from the inverse of the true motions, positions times 3
  quats    [x, y, z, w] of their rotations, and of some more (turns), from the eigenvector of Bar-Itzhack's matrix
  ate      the error of each snippet, of frames k .. k + 4
Run from the repository root: tests/golden/make_ate.py"""  # SPDX-License-Identifier: Apache-2.0
import json
import pathlib

import numpy as np

r = np.random.RandomState(7)


def turned(a):
    t = np.linalg.norm(a)
    k = a / t
    x = np.array([[0, -k[2], k[1]], [k[2], 0, -k[0]], [-k[1], k[0], 0]])
    return np.eye(3) + np.sin(t) * x + (1 - np.cos(t)) * x @ x


def motion(spread):
    m = np.eye(4)
    m[:3, :3] = turned(r.normal(size=3) * .1)
    m[:3, 3] = [.1, .05, 1.] + r.normal(size=3) * spread
    return m


def xyz(motions):
    at, out = np.eye(4), [np.zeros(3)]
    for m in motions:
        at = at @ m
        out.append(at[:3, 3])
    return np.array(out)


poses = [np.eye(4)]
for _ in range(11):
    poses.append(np.round(poses[-1] @ motion(.3), 9))
predicted = [np.round(motion(.2) * [1, 1, 1, .1], 5) for _ in range(11)]
for m in predicted:
    m[3, 3] = 1
true = [np.linalg.inv(np.linalg.inv(a) @ b) for a, b in zip(poses, poses[1:])]
ate = []
for k in range(len(true) - 3):
    g, p = xyz(true[k:k + 4]), xyz(predicted[k:k + 4])
    p = p + (g[0] - p[0])
    ate.append(float(np.sqrt(((p * (g * p).sum() / (p ** 2).sum() - g) ** 2).sum()) / g.shape[0]))


def quaternion(m):
    r = m[:3, :3]
    k = np.array([[r[0, 0] - r[1, 1] - r[2, 2], r[1, 0] + r[0, 1], r[2, 0] + r[0, 2], r[2, 1] - r[1, 2]],
                  [r[1, 0] + r[0, 1], r[1, 1] - r[0, 0] - r[2, 2], r[2, 1] + r[1, 2], r[0, 2] - r[2, 0]],
                  [r[2, 0] + r[0, 2], r[2, 1] + r[1, 2], r[2, 2] - r[0, 0] - r[1, 1], r[1, 0] - r[0, 1]],
                  [r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1], np.trace(r)]]) / 3
    q = np.linalg.eigh(k)[1][:, -1]
    return [float(x) for x in (q if q[3] >= 0 else -q)]


way = []
for m in poses:
    m = np.linalg.inv(poses[0]) @ m
    m[:3, 3] *= 3
    way.append(m)
turns = []
for axis in ([3, .1, .2], [.1, -3, .2], [.2, .1, 3], [-2, 2, .5], [.001, 0, 0]):
    turns.append(np.eye(4))
    turns[-1][:3, :3] = turned(np.array(axis))
flat = lambda m: [round(float(x), 9) for x in m[:3].ravel()]
pathlib.Path("tests/golden/ate.json").write_text(
    json.dumps(
        dict(poses=[flat(m) for m in poses], motions=[flat(m) for m in predicted], way=[flat(m) for m in way],
             turns=[flat(m) for m in turns], quats=[quaternion(m) for m in turns], ate=ate)) + "\n")

"""Hooks for training frameworks. A framework is imported when its hook is first used.

    from detd.hooks import DetectronHook, LightningCallback, TransformersCallback, SummaryWriter"""
# SPDX-License-Identifier: Apache-2.0
import importlib
import os
import sys

_FILES = {"DetectronHook": "detectron", "LightningCallback": "lightning", "TransformersCallback": "transformers",
          "SummaryWriter": "tensorboard"}
__all__ = list(_FILES)


def __getattr__(name):
    if name not in _FILES:
        raise AttributeError("detd.hooks has no %s" % name)
    return getattr(importlib.import_module("detd.hooks." + _FILES[name]), name)


def shares(losses, images):
    """Frameworks give the mean of a batch; a share is the sum over its images. losses: {NAME: mean}, numbers or
    tensors. images: size of the batch. Returns {NAME: (numerator, denominator)}."""
    return {name: ((mean.detach().double() if hasattr(mean, "detach") else mean) * images, images) for name, mean in losses.items()}


def report(run, step, sums):
    """Reports the sums of the batches since the last report."""
    terms = sums.take()
    run.loss(step, terms, images=terms["total"][1] if "total" in terms else None)


def folder():
    """Returns the folder of the job's checkpoints, where detd removes old ones (checkpoint.keep)."""
    path = os.path.join(os.environ.get("DETD_JOB_DIR", "."), "checkpoints")
    os.makedirs(path, exist_ok=True)
    return path


def save_if_wanted(run, step, save):
    """Saves and reports a checkpoint when detd asks for one. Ends the program with status 0 when detd asks for a pause.
    save() returns the path. All ranks must call this at the same steps."""
    pause = run.wants(step, "pause")
    if run.wants(step, "checkpoint") or pause:
        run.checkpoint(step, save())
    if pause:
        run.finish()
        sys.exit(0)

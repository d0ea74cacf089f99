"""Hugging Face's Trainer: losses of all ranks, checkpoints."""  # SPDX-License-Identifier: Apache-2.0
import os
import sys

from transformers import TrainerCallback

import detd
from detd.run import Sums


def labels_in(inputs):
    """Returns the number of labels of a batch: tokens that a causal language model has to guess, or its examples."""
    labels = inputs.get("labels")
    if labels is None or labels.dim() < 2:
        return len(next(iter(inputs.values())))
    return labels[..., 1:].ne(-100).sum()


class TransformersCallback(TrainerCallback):
    """Reports the loss of the model, and the metrics of evaluations.

    A job goes on from its checkpoint with `trainer.train(resume_from_checkpoint=detd.init().resume)`."""

    def __init__(self, every=10, items=labels_in):
        """every: steps between reports. items: a function of a batch, {NAME: tensor}; it returns the number of items
        over which the model takes the mean."""
        self._every, self._items = every, items
        self._run, self._sums, self._val, self._pause = detd.init(), Sums(), Sums(), False

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self._forward = model.register_forward_hook(self._after_forward, with_kwargs=True)

    def on_train_end(self, args, state, control, **kwargs):
        self._forward.remove()
        self._forward = None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self._every == 0:
            self._run.loss(state.global_step, self._sums.take())
        self._pause = self._run.wants(state.global_step, "pause")
        if self._run.wants(state.global_step, "checkpoint") or self._pause:
            control.should_save = True

    def on_save(self, args, state, control, **kwargs):
        self._run.checkpoint(state.global_step, os.path.join(args.output_dir, "checkpoint-%d" % state.global_step))
        if self._pause:
            self._run.finish()
            sys.exit(0)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if self._forward:  # during the training
            with self._run.validation(state.global_step) as val:
                val.add(self._val.take())
        self._run.metrics(state.global_step, metrics)

    def _after_forward(self, model, args, inputs, outputs):
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs[0]
        if loss is not None:
            items = self._items(inputs)
            mean_of = inputs.get("num_items_in_batch")  # of all batches of a step, where the model divides by them
            share = loss.detach().double() * (items if mean_of is None else mean_of), items
            (self._sums if model.training else self._val).add(total=share)

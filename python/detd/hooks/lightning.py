"""Lightning: losses of all ranks without a collective, checkpoints."""  # SPDX-License-Identifier: Apache-2.0
import os
import sys

import detd
from detd.hooks import folder, report, save_if_wanted, shares
from detd.run import Sums

if "pytorch_lightning" in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


def losses_of(outputs):
    """Returns {NAME: mean} of a step's result: a tensor, or a dictionary with `loss` and further scalars."""
    outputs = outputs if isinstance(outputs, dict) else {} if outputs is None else {"loss": outputs}
    scalars = {name: v for name, v in outputs.items() if getattr(v, "numel", lambda: 0)() == 1}
    return {"total" if name == "loss" else name: v for name, v in scalars.items()}


def first_length(batch):
    """Returns the length of the first tensor in a batch of tuples and dictionaries."""
    while not hasattr(batch, "shape"):
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    return batch.shape[0]


class LightningCallback(Callback):
    """Reports the results of training_step and validation_step, and the logged metrics.

    A job goes on from its checkpoint with `trainer.fit(..., ckpt_path=detd.init().resume)`."""

    def __init__(self, every=1, images=first_length):
        """every: steps between reports. images: a function that returns the number of images of a batch."""
        self._every, self._images = every, images
        self._run, self._sums, self._val, self._validated = detd.init(), Sums(), None, -1

    def on_train_start(self, trainer, pl_module):
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        losses = losses_of(outputs)
        if "total" in losses:  # Lightning has divided it
            losses["total"] = losses["total"] * trainer.accumulate_grad_batches
        self._sums.add(shares(losses, self._images(batch)))
        if trainer.global_step > self._step:  # otherwise gradients are being accumulated
            self._step = trainer.global_step
            if self._step % self._every == 0:
                report(self._run, self._step, self._sums)
            save_if_wanted(self._run, self._step, lambda: self._save(trainer))

    def on_validation_start(self, trainer, pl_module):
        fits = trainer.state.fn == "fit" and not trainer.sanity_checking
        self._val = self._run.validation(trainer.global_step) if fits and trainer.global_step > self._validated else None

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0):
        if self._val:
            self._val.add(shares(losses_of(outputs), self._images(batch)))

    def on_validation_end(self, trainer, pl_module):
        if self._val:
            self._validated, val, self._val = trainer.global_step, self._val, None
            val.report()
            self._run.metrics(trainer.global_step, trainer.callback_metrics)

    def _save(self, trainer):
        path = os.path.join(folder(), "step-%d.ckpt" % self._step)
        trainer.save_checkpoint(path)
        return path

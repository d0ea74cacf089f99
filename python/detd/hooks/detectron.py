"""detectron2: losses of all ranks, a validation loss over any loader, checkpoints."""
# SPDX-License-Identifier: Apache-2.0
import os

import torch
from detectron2.engine import HookBase
from detectron2.utils.events import EventStorage

import detd
from detd.hooks import folder, report, save_if_wanted, shares
from detd.run import Sums


class DetectronHook(HookBase):
    """Reports losses of training and validation, and the scores of EvalHook. Register it last, on every rank."""

    def __init__(self, val_loader=None, val_every=1000, every=20):
        """val_loader: batches with annotations, each picture on one rank; uneven parts are fine. val_every, every:
        steps between validations and between reports."""
        self._loader, self._val_every, self._every = val_loader, val_every, every
        self._run, self._sums = detd.init(), Sums()

    def resume(self, trainer):
        """Loads the checkpoint that detd gives, with optimizer and schedule. Call it before trainer.train()."""
        if self._run.resume:
            trainer.checkpointer.load(self._run.resume)
            trainer.start_iter = self._run.step

    def before_train(self):
        model = getattr(self.trainer, "_trainer", self.trainer).model
        self._model = getattr(model, "module", model)  # DDP around it would wait for other ranks in a validation
        self._forward = self._model.register_forward_hook(self._after_forward)

    def after_train(self):
        self._forward.remove()
        self._run.metrics(self.trainer.iter, self._scores())

    def after_step(self):
        step, last = self.trainer.iter + 1, self.trainer.iter + 1 == self.trainer.max_iter
        if step % self._every == 0 or last:
            report(self._run, step, self._sums)
        if self._loader is not None and (step % self._val_every == 0 or last):
            self._validate(step)
        self._run.metrics(step, self._scores())
        save_if_wanted(self._run, step, lambda: self._save(step))

    def _after_forward(self, model, inputs, losses):
        if model.training and isinstance(losses, dict):
            self._sums.add(shares(dict(losses, total=sum(losses.values())), len(inputs[0])))

    def _validate(self, step):
        """Losses in training mode, without gradients. Batch norm uses its running statistics."""
        kept, self._sums = self._sums, Sums()
        norms = [m for m in self._model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.training]
        for norm in norms:
            norm.eval()
        with torch.no_grad(), EventStorage(), self._run.validation(step) as val:
            for batch in self._loader:
                self._model(batch)
                val.add(self._sums.take())
        for norm in norms:
            norm.train()
        self._sums = kept

    def _scores(self):
        """Returns the scores of this step's evaluation, such as bbox/AP."""
        storage = self.trainer.storage
        new = {name: value for name, (value, step) in storage.latest().items() if step == self.trainer.iter}
        return {name: value for name, value in new.items() if "/" in name and not storage.smoothing_hints()[name]}

    def _save(self, step):
        checkpointer, name = self.trainer.checkpointer, "step-%d" % step
        kept, checkpointer.save_dir = checkpointer.save_dir, folder()
        checkpointer.save(name, iteration=self.trainer.iter)
        checkpointer.save_dir = kept
        return os.path.join(folder(), name + ".pth")

#!/usr/bin/env python3
"""Lightning under detd: one callback, and the checkpoint to go on from.

    detctl run --ranks 2 checkpoint.every=7 -- python3 lightning_fit.py"""  # SPDX-License-Identifier: Apache-2.0
import os

import torch

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl

import detd
from detd.hooks import LightningCallback

rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
torch.manual_seed(1)
x = torch.randn(97, 8, dtype=torch.float64)
y = x[:, :2].square()
train, val = range(0, 84), range(84, 97)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).double()

    def training_step(self, batch, batch_idx):
        error = self.net(batch[0]) - batch[1]
        return {"loss": error.square().sum() / len(error), "absolute": error.detach().abs().sum() / len(error)}

    def validation_step(self, batch, batch_idx):
        error = self.net(batch[0]) - batch[1]
        self.log("largest", error.abs().max(), reduce_fx="max")
        return {"loss": error.square().sum() / len(error)}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def loader(examples, batch):
    """Batches of this rank's part of the examples. Lightning's own sampler would repeat some to make parts equal."""
    mine = examples[rank::ranks]
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[mine], y[mine]), batch_size=batch)


trainer = pl.Trainer(
    accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto", max_epochs=5, use_distributed_sampler=False,
    logger=False, enable_checkpointing=False, enable_progress_bar=False, num_sanity_val_steps=0,
    callbacks=[LightningCallback()])
trainer.fit(Net(), loader(train, 12 // ranks), loader(val, 2), ckpt_path=detd.init().resume)

#!/usr/bin/env python3
"""Hugging Face's Trainer under detd: one callback, and the checkpoint to go on from.

    detctl run --ranks 2 checkpoint.every=10 -- python3 transformers_train.py"""  # SPDX-License-Identifier: Apache-2.0
import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import detd
from detd.hooks import TransformersCallback

ranks = int(os.environ.get("WORLD_SIZE", "1"))
torch.manual_seed(1)
text = torch.randint(0, 50, (112, 16))
text[:, 1::2] = text[:, ::2]  # each second token repeats the one before


class Lines(torch.utils.data.Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        return {"input_ids": self.lines[i], "labels": self.lines[i]}


model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=1, n_head=2, resid_pdrop=0.0,
                                   embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0))
trainer = Trainer(
    model=model, train_dataset=Lines(text[:80]), eval_dataset=Lines(text[80:]),
    args=TrainingArguments(
        output_dir=os.path.join(os.environ.get("DETD_JOB_DIR", "."), "checkpoints"), per_device_train_batch_size=8 // ranks, max_steps=20,
        logging_steps=5, eval_strategy="steps", eval_steps=10, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True),
    callbacks=[TransformersCallback(every=5)])
trainer.train(resume_from_checkpoint=detd.init().resume)

#!/usr/bin/env python3
"""detectron2 under detd: losses of all ranks in training and validation, on any number of GPUs.

    detctl run --gpus 4 checkpoint.every=5000 -- python3 detectron2_train.py my_config.yaml"""  # SPDX-License-Identifier: Apache-2.0
import os
import sys

import torch
from detectron2.config import get_cfg
from detectron2.data import DatasetMapper, build_detection_test_loader, get_detection_dataset_dicts
from detectron2.engine import DefaultTrainer, default_setup
from detectron2.utils import comm

import detd
from detd.hooks import DetectronHook

# Instead of detectron2's launch(), which would start processes of its own.
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
local, here = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
if torch.cuda.is_available():
    torch.cuda.set_device(local)
if ranks > 1:
    torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    comm.create_local_process_group(here)

cfg = get_cfg()
cfg.merge_from_file(sys.argv[1])
cfg.merge_from_list(sys.argv[2:])
default_setup(cfg, None)

trainer = DefaultTrainer(cfg)
trainer.resume_or_load(resume=False)
# Pictures of the validation with their annotations; detectron2 gives each of them to one rank.
pictures = get_detection_dataset_dicts(cfg.DATASETS.TEST, filter_empty=False)
mapper = DatasetMapper(cfg, is_train=True, augmentations=[])
hook = DetectronHook(build_detection_test_loader(pictures, mapper=mapper, num_workers=2), val_every=1000)
trainer.register_hooks([hook])
hook.resume(trainer)
trainer.train()

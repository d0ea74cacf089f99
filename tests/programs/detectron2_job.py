"""docs/examples/detectron2_train.py on made shapes, without a GPU: a small Faster R-CNN for 6 steps.

usage: detectron2_job.py CONFIG SHAPES"""  # SPDX-License-Identifier: Apache-2.0
import os
import runpy
import sys

import detectron2.engine.defaults as defaults
import torch
from detectron2.data.datasets import register_coco_instances
from detectron2.evaluation import COCOEvaluator

config, shapes = sys.argv[1:]
out = os.environ["DETD_JOB_DIR"] + "/out"
for split in "train", "val":
    register_coco_instances("shapes_" + split, {}, "%s/%s.json" % (shapes, split), shapes + "/images")
defaults.DefaultTrainer.build_evaluator = classmethod(lambda cls, cfg, name: COCOEvaluator(name, output_dir=out))
if os.environ["WORLD_SIZE"] != "1":  # detectron2 itself asks for a GPU here
    defaults.create_ddp_model = lambda model, **options: torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
keys = {
    "MODEL.DEVICE": "cpu", "MODEL.WEIGHTS": "", "MODEL.RESNETS.DEPTH": "18", "MODEL.RESNETS.RES2_OUT_CHANNELS": "64",
    "MODEL.ROI_HEADS.NUM_CLASSES": "3", "DATASETS.TRAIN": "('shapes_train',)", "DATASETS.TEST": "('shapes_val',)",
    "DATALOADER.NUM_WORKERS": "0", "INPUT.MIN_SIZE_TRAIN": "(64,)", "INPUT.MIN_SIZE_TEST": "64", "SOLVER.IMS_PER_BATCH": "4",
    "SOLVER.MAX_ITER": "6", "SOLVER.BASE_LR": "0.001", "SOLVER.CHECKPOINT_PERIOD": "1000", "TEST.EVAL_PERIOD": "3", "SEED": "7",
    "OUTPUT_DIR": out
}
example = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/examples/detectron2_train.py")
sys.argv = [example, config] + [word for pair in keys.items() for word in pair]
runpy.run_path(example, run_name="__main__")

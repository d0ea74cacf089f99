"""docs/examples/lightning_fit.py on Debian 12, whose PyTorch 1.13 cannot import its sharded tensors under Python 3.11."""
# SPDX-License-Identifier: Apache-2.0
import os
import runpy

import pytorch_lightning
import torch

if torch.__version__.startswith("1.13"):
    pytorch_lightning.LightningModule._register_sharded_tensor_state_dict_hooks_if_available = lambda self: None
runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/examples/lightning_fit.py"), run_name="__main__")

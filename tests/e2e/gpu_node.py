"""A private detd on a node with one GPU: the real GPU if DETD_REAL_GPU is set, else a GPU that a mock of NVML reports
and the plugin emulates. DETD_PLUGIN names the plugin; the default is the build's plugin on an emulated GPU.
"""  # SPDX-License-Identifier: Apache-2.0
import os
import shutil
import signal
import subprocess
import sys

from daemon import BUILD, HERE, Daemon

PLUGIN, REAL = os.path.abspath(os.environ.get("DETD_PLUGIN", BUILD + "/emu/libdetd-cuda.so")), "DETD_REAL_GPU" in os.environ
# each node has a GPU of its own, since the emulated plugin reports any UUID that it is asked for
EMULATED_UUID = "GPU-e0e1e2e3-e4e5-e6e7-e8e9-eaeb%08x" % os.getpid()


class Node(Daemon):
    def __init__(self, slots=8):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # past __exit__, so that no job keeps the GPU
        super().__init__(foreign=False, slots=slots)
        shutil.copy(PLUGIN, self.bin + "/libdetd-cuda.so")
        if not REAL:
            subprocess.run(["gcc", "-shared", "-fPIC", "-o", self.root + "/libnvidia-ml.so.1", HERE + "/../stand/mock/nvml.c"], check=True)
            with open(self.root + "/gpus", "w") as f:
                f.write("gpu %s Emulated_GPU 16384 0\n" % EMULATED_UUID)
            os.environ.update(LD_LIBRARY_PATH=self.root, MOCK_NVML=self.root + "/gpus")

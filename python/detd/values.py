"""Numbers from programs: Python's, NumPy's, or tensors of one element, on the CPU or on a GPU."""
# SPDX-License-Identifier: Apache-2.0
import math
import sys


def plain(number):
    """Returns a float of a number, or of a tensor or array of one element."""
    return float(number if type(number) in (int, float) or not hasattr(number, "item") else number.item())


def finite(number):
    """Returns a float, or None for a number that is not finite (JSON: null)."""
    number = plain(number)
    return number if math.isfinite(number) else None


def on_gpu(value):
    """Returns whether reading this number would wait for a GPU."""
    return type(value) not in (int, float) and getattr(getattr(value, "device", None), "type", "cpu") != "cpu"


def add(a, b):
    """Returns a + b in double precision. Tensors on a GPU stay there."""
    return a + (b.detach().double() if on_gpu(b) else plain(b))


class Values:
    """A list of numbers. Tensors on a GPU are copied as they are now, without waiting for the GPU; read() waits for
    that copy, and not for work that the program has queued since."""

    def __init__(self, values):
        tensors = [v for v in values if on_gpu(v)]
        self.ready = not tensors  # whether read() returns without waiting
        self._values = list(map(plain, values)) if self.ready else [None if on_gpu(v) else plain(v) for v in values]
        self._copy = _copy(tensors) if tensors else None

    def read(self):
        """Returns the numbers as floats, None for those that are not finite."""
        if self._copy:
            copied = iter(self._copy())
            self._values = [next(copied) if v is None else v for v in self._values]
        return self._values if math.isfinite(sum(self._values)) else [finite(v) for v in self._values]


def _copy(tensors):
    """Copies tensors of one element to the CPU. Returns a function that waits for the copy and returns a list."""
    device = tensors[0].device
    if device.type != "cuda":
        copies = [t.detach().clone() for t in tensors]
        return lambda: [float(t) for t in copies]
    torch = sys.modules["torch"]
    there = torch.stack([t.detach().reshape(()).to(device, torch.float64) for t in tensors])
    here = torch.empty(there.shape, dtype=torch.float64, pin_memory=True)
    here.copy_(there, non_blocking=True)
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(device))

    def read():
        done.synchronize()
        return here.tolist()

    return read

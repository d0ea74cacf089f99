"""Reports of a training program to detd: losses of all ranks, metrics, checkpoints.

    import detd
    run = detd.init()                    # outside detd it tells rank and ranks, and reports nothing
    for step in range(run.step, steps):
        ...
        run.loss(step + 1, total=(loss_sum, images))

docs/programs.md explains it; proto/PROTOCOL.md describes the messages. Needs nothing but Python 3.8."""
# SPDX-License-Identifier: Apache-2.0
import atexit
import contextlib
import os
import signal
import sys

from detd import crash
from detd.lines import Lines
from detd.page import Page
from detd.run import Run, Validation

__all__ = ["init", "Run", "Validation"]

_run = None


def _descriptor(name):
    """Returns the descriptor that a variable "NUMBER:INODE" names, or None if it is another file now: this process was
    started by a program that closed the descriptor."""
    try:
        fd, inode = map(int, os.environ[name].split(":"))
        return fd if os.fstat(fd).st_ino == inode else None
    except (KeyError, ValueError, OSError):
        return None


def _versions():
    """Returns {NAME: version} of Python and of the frameworks that are imported already."""
    modules = {name: sys.modules.get(name) for name in ("torch", "jax", "tensorflow", "numpy")}
    found = {name: str(m.__version__) for name, m in modules.items() if hasattr(m, "__version__")}
    return dict(found, python=sys.version.split()[0])


def _join(deterministic, stacks):
    """Returns the Run of a process that detd-job has started."""
    report, page = _descriptor("DETD_REPORT"), _descriptor("DETD_PAGE")
    for fd in filter(None, (report, page)):
        os.set_inheritable(fd, False)  # for DataLoader workers and other programs
    run = Run(Lines(report), Page(page), os.environ)
    os.environ.pop("DETD_REPORT")  # the descriptor is this process's alone
    crash.report_exception()
    run.hello(pid=os.getpid(), stacks=crash.dump_stacks_on(stacks), tier=deterministic, versions=_versions())
    os.register_at_fork(after_in_child=run.leave)
    atexit.register(_end, run)
    return run


def _end(run):
    with contextlib.suppress(Exception):  # a tensor of a GPU that has failed
        run.flush()


def init(deterministic="off", stacks=signal.SIGUSR2):
    """Returns the Run of this process, the same one at each call. It never waits for other ranks.

    deterministic: "off", "rerun" or "world", as the program declares itself; it becomes the tier of its losses. stacks:
    the signal on which the stacks of all threads go to standard error before detd restarts a hanging rank; None or 0:
    no signal. A handler that the program has set stays."""
    global _run
    if _run is None and _descriptor("DETD_REPORT"):
        _run = _join(deterministic, stacks)
    elif _run is None:  # torchrun may have started it
        if "DETD_REPORT" in os.environ:
            print("detd: reports of this process do not reach detd, because the program that started it has closed descriptor 3",
                  file=sys.stderr)
        _run = Run(Lines(), Page(), {name: os.environ[name] for name in ("RANK", "WORLD_SIZE") if name in os.environ})
    return _run

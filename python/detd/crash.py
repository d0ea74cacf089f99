"""Things that detd shows of a rank in trouble: its exception, and the stacks of its threads."""
# SPDX-License-Identifier: Apache-2.0
import contextlib
import faulthandler
import json
import os
import signal
import sys
import time
import traceback

MAX_TEXT = 20000  # characters of each of two texts in the error file, each up to six bytes; detd-job reads 256 KiB


def report_exception():
    """From now on an exception that ends the program is also written, as torch's `record` does, to the file that detd
    reads. A file that is there already stays."""
    path, before = os.environ.get("TORCHELASTIC_ERROR_FILE"), sys.excepthook

    def hook(kind, error, trace):
        text = "".join(traceback.format_exception_only(kind, error)).strip()
        extra = {"py_callstack": "".join(traceback.format_exception(kind, error, trace))[-MAX_TEXT:], "timestamp": time.time()}
        with contextlib.suppress(OSError), open(path, "x", encoding="utf-8", errors="replace") as f:
            json.dump({"message": {"message": text[-MAX_TEXT:], "extraInfo": extra}}, f)
        before(kind, error, trace)

    if path:
        sys.excepthook = hook


def dump_stacks_on(number):
    """From now on this signal prints the stacks of all threads to standard error. Returns the signal, or 0 if the
    program has a handler of its own for it."""
    if not number or signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):
        return 0
    faulthandler.register(number, file=2, all_threads=True)
    return int(number)

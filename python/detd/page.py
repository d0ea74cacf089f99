"""The progress page: 4096 bytes that this process shares with detd-job. proto/PROTOCOL.md describes its words."""
# SPDX-License-Identifier: Apache-2.0
import mmap
import time

BYTES = 4096
MAGIC = 0x0000000364657464  # "detd", version 3
CHANGES, STEP, ENTERED, ORDER, ANSWERED, DEADLINE, PHASE = 2, 3, 12, 13, 14, 15, 16  # numbers of 64-bit words
PHASE_BYTES = 64

WORDS = {"checkpoint": 1, "validate": 2, "pause": 3, "cancel": 4}
ORDER_STEP = (1 << 48) - 1  # bits of an order
ORDER_WORD, ORDER_RELEASED = 48, 1 << 52


class Page:
    """Writes progress and phase of this rank, and reads the words that detd has for it."""

    def __init__(self, fd=None):
        """fd: the open page, which stays the caller's. None: a page that no other process sees."""
        self._words = memoryview(bytearray(BYTES) if fd is None else mmap.mmap(fd, BYTES)).cast("Q")
        self._phase = ("", 0)
        self._words[0] = MAGIC

    def alive(self):
        """This rank makes progress, in the same step and phase."""
        self._words[CHANGES] += 1

    def done(self, step):
        """step: completed steps. A smaller number than before counts as a sign of life only."""
        self._words[STEP] = max(step, self._words[STEP])
        self.alive()

    def set_phase(self, name, deadline_s):
        """name: "" for none. deadline_s: seconds without progress that detd takes for a hang, 0 for none. Returns the
        name and deadline from before."""
        if not 0 <= deadline_s < 1e9:
            raise ValueError("a deadline is 0 (none) to 1e9 seconds, not %r" % deadline_s)
        before, self._phase = self._phase, (name, deadline_s)
        raw = name.encode("utf-8", "replace")[:PHASE_BYTES - 1].decode("utf-8", "ignore").encode().ljust(PHASE_BYTES, b"\0")
        for i, word in enumerate(memoryview(raw).cast("Q")):
            self._words[PHASE + i] = word
        self._words[DEADLINE] = int(deadline_s * 1000)
        self.alive()
        return before

    def wants(self, step, word):
        """Returns True once for each order of detd, on all ranks at the same step."""
        words, number = self._words, WORDS[word]
        words[ENTERED] = step  # comes before the order is read: detd-job relies on it
        order = words[ORDER]
        while order and not order & ORDER_RELEASED and order & ORDER_STEP <= step:
            time.sleep(0.001)  # detd-job is about to release or withdraw it
            order = words[ORDER]
        self.done(step)
        due = order & ORDER_RELEASED and order & ORDER_STEP <= step and order >> ORDER_WORD & 15 == number
        if not due or order == words[ANSWERED]:
            return False
        words[ANSWERED] = order
        return True

"""Lines of JSON for detd-job, sent over descriptor 3."""  # SPDX-License-Identifier: Apache-2.0
import collections
import json
import os
import select
import socket
import sys
import threading

MAX_LINE = 64 << 10  # bytes
MAX_WAITING = 16 << 20  # bytes of lines that wait for detd-job
PATIENCE_S = 10.0  # the longest wait for detd-job in one call
FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Lines:
    """A queue of lines in front of a stream socket.

    send() returns at once while at most MAX_WAITING bytes wait, for example while the disk of detd is full. With more
    it waits up to PATIENCE_S once, and then drops lines until detd-job reads again. When detd-job is gone, or the
    program has closed the descriptor, lines are dropped silently. Safe for threads and in signal handlers."""

    def __init__(self, fd=None):
        """fd: an open stream socket, which stays the caller's. None: all lines are dropped."""
        self._fd, self._socket = fd, None
        self._lines, self._waiting = collections.deque(), 0  # bytes
        self._slow = False  # detd-job has not read for PATIENCE_S
        self._sending = threading.Lock()
        if fd is not None:
            self._socket, self._inode = socket.socket(fileno=fd), os.fstat(fd).st_ino
            self._socket.settimeout(None)

    @property
    def is_open(self):
        return self._socket is not None

    def close(self):
        """Forgets all lines, and drops those of later calls. Leaves the descriptor open."""
        if self._socket:
            self._socket.detach()
        self._socket, self._waiting = None, 0
        self._lines.clear()

    def send(self, message):
        """Queues a message, a dict, and sends as much as detd-job takes now. An event takes the place of a line of more
        than MAX_LINE bytes."""
        line = _encode(message).encode("utf-8", "replace") + b"\n" if self.is_open else b""
        if len(line) > MAX_LINE:
            text = "a message '%s' of step %s is not sent: it has %d bytes, and detd-job takes %d at most" % (
                message["type"], message.get("step"), len(line), MAX_LINE)
            self.send({"type": "event", "level": "error", "kind": "program", "text": text})
        elif line and self._has_room(len(line)):
            self._waiting += len(line)
            self._lines.append(line)
            self.flush()

    def flush(self, patience_s=0.0):
        """Sends the lines that wait. Returns when detd-job takes no byte for patience_s seconds."""
        if not self._lines or not self._sending.acquire(blocking=False):
            return  # another thread, or the code under a signal handler, sends them
        try:
            while self._lines and (self._send_some() or self._wait(patience_s)):
                pass
        finally:
            self._sending.release()

    def _has_room(self, size):
        if self._waiting + size > MAX_WAITING:
            self.flush(0.0 if self._slow else PATIENCE_S)
        if self._waiting + size <= MAX_WAITING:
            return self.is_open
        if not self._slow:
            print("detd: detd-job does not read reports; some are lost", file=sys.stderr)
        self._slow = True
        return False

    def _send_some(self):
        """Sends the first line, or a part of it. Returns False when detd-job takes nothing now."""
        line = self._lines[0]
        try:
            if os.fstat(self._fd).st_ino != self._inode:
                raise OSError("the program has closed the descriptor, and has another file under its number")
            sent = self._socket.send(line, FLAGS)
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            return True
        self._waiting, self._slow = self._waiting - sent, False
        self._lines.popleft()
        if sent < len(line):
            self._lines.appendleft(line[sent:])
        return True

    def _wait(self, patience_s):
        """Returns whether the socket takes bytes again within that time."""
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return patience_s > 0 and bool(poll.poll(patience_s * 1000))

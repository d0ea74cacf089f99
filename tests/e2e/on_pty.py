"""Programs on a pseudo-terminal. Shared by tests of the text that a user sees there."""  # SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import pty
import struct
import subprocess
import termios


def shown(command, rows=0, columns=0, **options):
    """Returns the bytes that a command writes to a terminal of that size (0: unknown); options: Popen's. OSError: no
    pseudo-terminal can be opened."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    with subprocess.Popen(command, stdout=theirs, **dict({"stderr": theirs}, **options)):
        os.close(theirs)
        said = b""
        while True:
            try:
                said += os.read(ours, 65536)
            except OSError:  # no process has it open any more
                os.close(ours)
                return said

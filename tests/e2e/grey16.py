"""Returns measured and predicted depth as files have it."""  # SPDX-License-Identifier: Apache-2.0
import struct
import zlib


def grey16(path):
    """Returns the rows of a PNG of one channel of 16 bits."""
    packed, width, rows = b"", 0, []
    with open(path, "rb") as f:
        f.read(8)
        while head := f.read(8):
            n, kind = struct.unpack(">I4s", head)
            body = f.read(n + 4)[:n]
            if kind == b"IHDR":
                width, depth, colour, interlaced = struct.unpack(">I4xBBxxB", body)
                assert (depth, colour, interlaced) == (16, 0, 0)
            packed += body if kind == b"IDAT" else b""
    raw, above = zlib.decompress(packed), bytes(2 * width)
    for at in range(0, len(raw), 2 * width + 1):
        rule, row = raw[at], bytearray(raw[at + 1:at + 1 + 2 * width])
        for i in range(2 * width if rule else 0):
            left, up, corner = row[i - 2] if i > 1 else 0, above[i], above[i - 2] if i > 1 else 0
            by = min((abs(up - corner), 0, left), (abs(left - corner), 1, up), (abs(left + up - 2 * corner), 2, corner))[2]  # Paeth's
            row[i] = row[i] + (0, left, up, (left + up) // 2, by)[rule] & 255
        above = bytes(row)
        rows.append(struct.unpack(">%dH" % width, above))
    return rows

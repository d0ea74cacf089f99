#!/usr/bin/env python3
"""Makes images.json: SHA-256 of the RGB bytes that Pillow decodes from every picture in ../shared/data/odd_images that
it can read, and from small BMP and WebP files, which images.json contains. Grey is in all three, alpha is dropped
(Pillow's convert("RGB")); of grey of 16 bits the high byte counts, where Pillow itself would cut at 255. Needs Pillow
and numpy: make_images.py ODD_IMAGES > images.json"""  # SPDX-License-Identifier: Apache-2.0
import hashlib
import io
import json
import os
import struct
import sys

import numpy as np
import PIL
from PIL import Image, features

W, H = 13, 9


def rgb_of(image):
    image.load()
    if image.mode.startswith("I"):
        grey = (np.asarray(image).astype(np.int64) >> 8).astype(np.uint8)
        return np.repeat(grey[..., None], 3, 2)
    return np.asarray(image.convert("RGB"))


def entry(name, image):
    pixels = rgb_of(image)
    return {"file": name, "w": pixels.shape[1], "h": pixels.shape[0], "sha256": hashlib.sha256(pixels.tobytes()).hexdigest()}


def odd(root):
    for folder in ("broken", "jpeg", "png"):
        for file in sorted(os.listdir(os.path.join(root, folder))):
            try:
                yield entry(folder + "/" + file, Image.open(os.path.join(root, folder, file)))
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
                pass  # Pillow refuses it


def pattern():
    y, x = np.mgrid[0:H, 0:W]
    return np.stack([x * 19, y * 28, (x * y * 5) % 256, 255 - x * 11], 2).astype(np.uint8)


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def header(bits, compression, colours=0, tail=b"", more=b""):
    """Returns both headers of a BMP, and the bytes behind them."""
    size = 40 + len(tail)
    return (b"BM" + struct.pack("<IHHI", 0, 0, 0, 14 + size + len(more)) +
            struct.pack("<IiiHHIIiiII", size, W, H, 1, bits, compression, 0, 2835, 2835, colours, 0) + tail + more)


def rows(words, kind):
    """Rows of 16 or 32 bits, filled up to four bytes, the last first."""
    return b"".join((row.astype(kind).tobytes() + b"\0\0\0")[:(row.size * np.dtype(kind).itemsize + 3) // 4 * 4] for row in words[::-1])


def bmp():
    p = pattern().astype(np.int64)
    r, g, b = p[..., 0], p[..., 1], p[..., 2]
    word555, word565 = (r >> 3) << 10 | (g >> 3) << 5 | b >> 3, (r >> 3) << 11 | (g >> 2) << 5 | b >> 3
    yield "555", header(16, 0) + rows(word555, "<u2")
    yield "565", header(16, 3, more=struct.pack("<III", 0xf800, 0x7e0, 0x1f)) + rows(word565, "<u2")
    yield "32", header(32, 0) + rows(r << 16 | g << 8 | b, "<u4")
    yield "32-masks", header(32, 3, more=struct.pack("<III", 0xff000000, 0xff0000, 0xff00)) + rows(r << 24 | g << 16 | b << 8, "<u4")
    yield "32-alpha", header(32, 3, tail=struct.pack("<IIII", 0xff0000, 0xff00, 0xff, 0xff000000) + bytes(52)) \
        + rows(p[..., 3] << 24 | r << 16 | g << 8 | b, "<u4")
    whole = Image.fromarray(pattern()[..., :3])
    for mode in ("1", "L", "P", "RGB"):
        yield mode, saved(whole.convert(mode), "BMP")
    sixteen = whole.quantize(16)
    packed = np.asarray(sixteen).astype(np.uint8)
    packed = np.pad(packed, ((0, 0), (0, 3)))[:, :W + 1]
    nibbles = packed[:, 0::2] << 4 | packed[:, 1::2]
    palette = np.zeros((16, 4), np.uint8)
    table = np.frombuffer(bytes(sixteen.getpalette()[:48]), np.uint8).reshape(-1, 3)
    palette[:len(table), :3] = table[:, ::-1]
    yield "4", header(4, 0, colours=16, more=palette.tobytes()) + b"".join((row.tobytes() + b"\0" * 4)[:8] for row in nibbles[::-1])
    flipped = bytearray(saved(whole, "BMP"))
    struct.pack_into("<i", flipped, 22, -H)
    yield "top-down", bytes(flipped)
    core = b"BM" + struct.pack("<IHHI", 0, 0, 0, 26) + struct.pack("<IHHHH", 12, W, H, 1, 24)
    yield "core", core + saved(whole, "BMP")[54:]


def webp():
    whole = Image.fromarray(pattern())
    yield "lossless", saved(whole.convert("RGB"), "WEBP", lossless=True)
    yield "alpha", saved(whole, "WEBP", lossless=True, exact=True)
    yield "lossy", saved(whole.convert("RGB").resize((40, 30)), "WEBP", quality=60)
    exif = Image.Exif()
    exif[274] = 6
    yield "exif", saved(whole.convert("RGB"), "WEBP", lossless=True, exif=exif)


def main():
    made = []
    for kind, files in (("bmp", bmp()), ("webp", webp())):
        for name, data in files:
            made.append({**entry("%s/%s" % (kind, name), Image.open(io.BytesIO(data))), "bytes": data.hex()})
    versions = {"Pillow": PIL.__version__, "libjpeg_turbo": features.version("libjpeg_turbo"), "webp": features.version("webp")}
    json.dump({"versions": versions, "odd": list(odd(sys.argv[1])), "made": made}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()

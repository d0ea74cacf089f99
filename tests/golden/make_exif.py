#!/usr/bin/python3
"""Makes tests/golden/exif.json with Pillow: the result of ImageOps.exif_transpose() for a picture for each orientation
in its EXIF block.

  w, h    the picture as stored
  turned  by orientation: [w, h, places], where the pixel at each place of the turned picture stands in the stored one
  files   by orientation: a JPEG of it in hexadecimal; "0" and "9" have numbers that are no orientation
  pngs    the same as PNGs
  blocks  [description, hexadecimal, orientation]: blocks of one or two odd entries, and Pillow's reading of them
Run from the repository root: /usr/bin/python3 tests/golden/make_exif.py"""  # SPDX-License-Identifier: Apache-2.0
import io
import json
import struct
import warnings

from PIL import Image, ImageOps

W, H = 11, 6


def picture():
    """No two pixels are alike, and no two near each other are close."""
    return Image.frombytes("RGB", (W, H), bytes((i * 73 + i // 3 * 31) % 256 for i in range(3 * W * H)))


def saved(image, orientation, form, **options):
    exif, file = Image.Exif(), io.BytesIO()
    exif[274] = orientation
    image.save(file, form, exif=exif, **options)
    return file.getvalue()


def turned(orientation):
    """A PNG has the places themselves as its pixels."""
    places = Image.frombytes("L", (W, H), bytes(range(W * H)))
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(saved(places, orientation, "PNG"))))
    return [*image.size, list(image.getdata())]


def number_of(block):
    file = io.BytesIO()
    Image.new("RGB", (W, H)).save(file, "JPEG", exif=b"Exif\0\0" + block)
    found = Image.open(io.BytesIO(file.getvalue())).getexif().get(274)
    return found if found in range(1, 9) else 1


def blocks():
    short, long, odd = 3, 4, {}
    odd["two shorts"] = [(short, 2, struct.pack("<2H", 6, 3))], b""
    odd["no shorts"] = [(short, 0, struct.pack("<2H", 6, 0))], b""
    odd["three shorts elsewhere"] = [(short, 3, struct.pack("<I", 26))], struct.pack("<3H", 6, 3, 1)
    odd["three shorts, two there"] = [(short, 3, struct.pack("<I", 26))], struct.pack("<2H", 6, 3)
    odd["shorts outside"] = [(short, 3, struct.pack("<I", 2600))], struct.pack("<3H", 6, 3, 1)
    odd["more longs than numbers have bits"] = [(long, 0x40000001, struct.pack("<I", 6))], b""
    odd["two longs elsewhere"] = [(long, 2, struct.pack("<I", 26))], struct.pack("<2I", 8, 3)
    odd["two entries"] = [(short, 1, struct.pack("<2H", 6, 0)), (short, 1, struct.pack("<2H", 3, 0))], b""
    odd["an entry and an empty one"] = [(short, 1, struct.pack("<2H", 6, 0)), (short, 0, struct.pack("<2H", 3, 0))], b""
    odd["an entry and one that is none"] = [(short, 1, struct.pack("<2H", 6, 0)), (short, 1, struct.pack("<2H", 9, 0))], b""
    odd["bytes"] = [(1, 1, b"\6\0\0\0")], b""
    for what, (entries, rest) in odd.items():
        block = b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(struct.pack("<HHI", 274, *e[:2]) + e[2]
                                                                          for e in entries) + struct.pack("<I", 0) + rest
        yield what, block.hex(), number_of(block)


def main():
    with open("tests/golden/exif.json", "w", encoding="utf-8") as f:
        json.dump({"w": W, "h": H, "turned": {k: turned(k) for k in range(1, 9)},
                   "files": {k: saved(picture(), k, "JPEG", quality=95, subsampling=0).hex() for k in range(10)},
                   "pngs": {k: saved(picture(), k, "PNG").hex() for k in range(10)}, "blocks": list(blocks())}, f)
        f.write("\n")


warnings.simplefilter("ignore")  # of odd blocks
main()

#!/usr/bin/python3
"""Makes tests/golden/exif.json with Pillow: what ImageOps.exif_transpose() makes of a picture for each orientation in its EXIF block.

  w, h    the picture as stored
  turned  by orientation: [w, h, places], where the pixel at each place of the turned picture stands in the stored one
  files   by orientation: a JPEG of it in hexadecimal; "0" and "9" have numbers that are no orientation
Run from the repository root: /usr/bin/python3 tests/golden/make_exif.py"""
import io
import json

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


def main():
    with open("tests/golden/exif.json", "w", encoding="utf-8") as f:
        json.dump({"w": W, "h": H, "turned": {k: turned(k) for k in range(1, 9)},
                   "files": {k: saved(picture(), k, "JPEG", quality=95, subsampling=0).hex() for k in range(10)}}, f)
        f.write("\n")


main()

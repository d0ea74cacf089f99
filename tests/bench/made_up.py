"""Formulas that make the inputs of both sides of a comparison. bench.h and made_up.h have the same formulas.
"""  # SPDX-License-Identifier: Apache-2.0
import numpy

OBJECTS = 7  # of a picture: COCO's have about as many


def noise(i):
    """Returns noise for a whole number or an array of whole numbers."""
    i = (numpy.asarray(i, dtype=numpy.uint64) * 2654435761 + 1) & 0xffffffff
    i ^= i >> numpy.uint64(15)
    i = (i * 2246822519) & 0xffffffff
    return i ^ (i >> numpy.uint64(13))


def uniform(i):
    """In [0, 1)."""
    return int(noise(i) >> numpy.uint64(8)) / 16777216.0


def pictures(n, h, w):
    """[n][h][w][3] bytes."""
    return (noise(numpy.arange(n * h * w * 3)) >> numpy.uint64(24)).astype(numpy.uint8).reshape(n, h, w, 3)


def boxes(image, h, w, classes):
    """The objects of a picture: (x1, y1, x2, y2, class from 0), whole pixels; a side has a sixteenth of the height at
    least, half of the picture's at most."""
    ret, least = [], h // 16
    for k in range(image * OBJECTS, (image + 1) * OBJECTS):
        bw = least + int(uniform(5 * k) * (w // 2 - least + 1))
        bh = least + int(uniform(5 * k + 1) * (h // 2 - least + 1))
        x, y = int(uniform(5 * k + 2) * (w - bw + 1)), int(uniform(5 * k + 3) * (h - bh + 1))
        ret.append((x, y, x + bw, y + bh, int(uniform(5 * k + 4) * classes)))
    return ret

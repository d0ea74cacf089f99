#!/usr/bin/env python3
"""Writes a small detection data set: coloured circles, squares and triangles on noisy, textured ground, with COCO annotations.

    make_shapes.py OUTDIR [--train N] [--val M] [--seed S] [--size PIXELS] [--classes C] [--masks]

makes OUTDIR/{train,val}.json and OUTDIR/images/*.png. The same arguments give the same bytes. Standard library only; pixels are handled
a row at a time, and noise is added to a whole picture as one long number (no byte of the sum passes 255, so nothing
carries)."""  # SPDX-License-Identifier: Apache-2.0

import argparse
import json
import math
import pathlib
import random
import struct
import zlib

CLASSES = ["circle", "square", "triangle"]
NOISE = 40  # bytes of a picture stay below 256 - NOISE until the noise is added
BRIGHT, DARK = 210, 30


def stored(raw):
    """A zlib stream without compression: compressed bytes depend on zlib's version, and the bytes of a picture are part
    of a data set."""
    blocks = [raw[at:at + 65535] for at in range(0, len(raw), 65535)] or [b""]
    body = b"".join(struct.pack("<BHH", i == len(blocks) - 1, len(b), 65535 - len(b)) + b for i, b in enumerate(blocks))
    return b"\x78\x01" + body + struct.pack(">I", zlib.adler32(raw))


def png(width, height, rows):
    """An RGB PNG file of packed rows."""
    raw = b"".join(b"\0" + row for row in rows)

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", stored(raw)) + chunk(b"IEND", b"")


def ground(rng, size):
    """Rows of a dim texture: two waves of muted colour, different in every picture."""
    base = [rng.uniform(50, 130) for _ in range(3)]
    tint = [rng.uniform(-25, 25) for _ in range(3)]
    fx, fy, turn = rng.uniform(0.01, 0.12), rng.uniform(0.01, 0.12), rng.uniform(0, 6.28)
    columns = [math.sin(fx * x + turn) for x in range(size)]
    levels = []  # a few row patterns are enough; computing every pixel would take most of the time
    for k in range(16):
        row = bytearray()
        for c in columns:
            wave = 0.6 * c + 0.8 * (k / 7.5 - 1)
            row += bytes(int(b + t * wave) for b, t in zip(base, tint))
        levels.append(bytes(row))
    return [bytearray(levels[int(7.99 + 7.99 * math.sin(fy * y + turn))]) for y in range(size)]


def span(kind, radius, turn, dy):
    """Returns the left and right end of a shape's row, relative to its centre, or None outside the shape."""
    if kind == 0:
        inside = radius * radius - dy * dy
        return None if inside < 0 else (-math.sqrt(inside), math.sqrt(inside))
    sides = 4 if kind == 1 else 3
    corners = [(radius * math.cos(turn + 2 * math.pi * i / sides), radius * math.sin(turn + 2 * math.pi * i / sides)) for i in range(sides)]
    cuts = []
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1]):
        if min(ay, by) <= dy < max(ay, by):
            cuts.append(ax + (bx - ax) * (dy - ay) / (by - ay))
    return (min(cuts), max(cuts)) if len(cuts) >= 2 else None


def paint(rows, size, kind, cx, cy, radius, turn, color):
    """Fills the shape, edges blended, a little darker towards the bottom. Returns the box of the pixels it covers, and
    the left and right end of its rows."""
    left, right, top, bottom, spans = size, 0, size, 0, []
    for y in range(max(0, int(cy - radius)), min(size, int(cy + radius) + 1)):
        ends = span(kind, radius, turn, y + 0.5 - cy)
        if not ends:
            continue
        a, b = max(0.0, cx + ends[0]), min(float(size), cx + ends[1])
        if b - a < 0.5:
            continue
        shade = 1 - 0.25 * (y - cy + radius) / (2 * radius)
        pixel = bytes(int(c * shade) for c in color)
        first, last = math.ceil(a), math.floor(b)
        row = rows[y]
        for x, cover in ((first - 1, first - a), (last, b - last)):
            if 0 <= x < size and cover > 0:
                for k in range(3):
                    row[3 * x + k] = int(row[3 * x + k] * (1 - cover) + pixel[k] * cover)
        if last > first:
            row[3 * first : 3 * last] = pixel * (last - first)
        left, right = min(left, a), max(right, b)
        top, bottom = min(top, y), max(bottom, y + 1)
        spans.append((y, a, b))
    return [left, top, right - left, bottom - top], spans


def outline(spans):
    """A polygon through the ends of rows: down the left side, up the right one."""
    rows = [(spans[0][0] - 0.5, *spans[0][1:]), *spans, (spans[-1][0] + 0.5, *spans[-1][1:])]
    return [round(v, 2) for y, a, _ in rows for v in (a, y + 0.5)] + [round(v, 2) for y, _, b in reversed(rows) for v in (b, y + 0.5)]


def area(polygon):
    points = list(zip(polygon[::2], polygon[1::2]))
    return abs(sum(ax * by - bx * ay for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1]))) / 2


def covered(a, b):
    """Returns the share of box a's area that lies under box b."""
    w = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    h = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    return max(w, 0) * max(h, 0) / (a[2] * a[3])


def bright_color(rng):
    """Far from the muted ground: one channel high, one low."""
    color = [rng.randint(DARK, BRIGHT) for _ in range(3)]
    high, low = rng.sample(range(3), 2)
    color[high], color[low] = BRIGHT, DARK
    return color


def picture(rng, size, classes):
    """Returns a picture's PNG bytes and its objects as (class, box, rows)."""
    rows, objects = ground(rng, size), []
    wanted = rng.randint(1, 5)
    for _ in range(20):
        if len(objects) == wanted:
            break
        radius = size * rng.uniform(0.07, 0.2)
        cx, cy = rng.uniform(radius * 0.8, size - radius * 0.8), rng.uniform(radius * 0.8, size - radius * 0.8)
        around = [cx - radius, cy - radius, 2 * radius, 2 * radius]
        if any(covered(box, around) > 0.3 or covered(around, box) > 0.3 for _, box, _ in objects):
            continue
        kind = rng.randrange(classes)
        turn = rng.uniform(-0.35, 0.35) + (math.pi / 4 if kind == 1 else -math.pi / 2)
        objects.append((kind, *paint(rows, size, kind, cx, cy, radius, turn, bright_color(rng))))
    table = bytes(i * NOISE // 256 for i in range(256))
    pixels = b"".join(rows)
    noise = rng.randbytes(len(pixels)).translate(table)
    total = (int.from_bytes(pixels, "little") + int.from_bytes(noise, "little")).to_bytes(len(pixels), "little")
    return png(size, size, [total[i : i + 3 * size] for i in range(0, len(total), 3 * size)]), objects


def split(out, name, count, args):
    """Writes a split: pictures and their annotation file."""
    rng, size = random.Random(f"{name}:{args.seed}"), args.size
    images, annotations = [], []
    for i in range(1, count + 1):
        data, objects = picture(rng, size, args.classes)
        file = f"{name}-{i:04}.png"
        (out / "images" / file).write_bytes(data)
        images.append({"id": i, "file_name": file, "width": size, "height": size})
        for kind, box, spans in objects:
            box = [round(v, 2) for v in box]
            annotations.append({"id": len(annotations) + 1, "image_id": i, "category_id": kind + 1, "bbox": box,
                                "area": round(box[2] * box[3], 2), "iscrowd": 0})
            if args.masks:
                polygon = outline(spans)
                annotations[-1].update(area=round(area(polygon), 2), segmentation=[polygon])
    categories = [{"id": i + 1, "name": c} for i, c in enumerate(CLASSES[:args.classes])]
    text = json.dumps({"images": images, "annotations": annotations, "categories": categories}, indent=0)
    (out / f"{name}.json").write_text(text + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outdir", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=400, metavar="N", help="training pictures (400)")
    parser.add_argument("--val", type=int, default=60, metavar="M", help="validation pictures (60)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="another seed, other pictures (1)")
    parser.add_argument("--size", type=int, default=192, metavar="PIXELS", help="side of a picture (192)")
    parser.add_argument("--classes", type=int, default=3, metavar="C", choices=(1, 2, 3),
                        help="the first C of circle, square and triangle (3)")
    parser.add_argument("--masks", action="store_true", help="with the outlines of the shapes")
    args = parser.parse_args()
    if args.train < 0 or args.val < 0 or not 32 <= args.size <= 2048:
        parser.error("counts must be >= 0, --size 32 to 2048")
    (args.outdir / "images").mkdir(parents=True, exist_ok=True)
    split(args.outdir, "train", args.train, args)
    split(args.outdir, "val", args.val, args)


if __name__ == "__main__":
    main()

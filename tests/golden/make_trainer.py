#!/usr/bin/python3
"""Makes tests/golden/trainer/ with PyTorch (Debian: python3-torch), for tests/golden/test_trainer.c: pictures, annotations, job files and
first weights that detd's trainer reads, and PyTorch's results for them in fp64.
  train_*.png, train.json  pictures of exactly the network's size, one of them without boxes
  shard.json, sync.json    jobs with burn-in, rate steps, momentum, decay, clipping; one with batch statistics of each shard, waves and an
                           average of the weights, one with batch statistics of the whole batch
  init.safetensors         their first weights and running statistics, all of them other than 0 and 1
  steps.safetensors        JOB.raw.NAME, JOB.ema.NAME [steps][16]: how far each tensor, and its average, has moved after
                           each step, in the form of sketch(); JOB.loss [steps][terms][2]: the losses of each step in
                           the log
  val_*.png, val.json      pictures that are not square, one of them without boxes
  validate.json            a job that validates them with weights that do not move
  trained.safetensors      its weights: they find most of the boxes, at places that fit more or less
  validated.json           loss terms and scores of that
Run from the repository root: /usr/bin/python3 tests/golden/make_trainer.py"""  # SPDX-License-Identifier: Apache-2.0
import json
import math
import random
import struct
import zlib

import torch

import scores
import yolo

OUT = "tests/golden/trainer/"
SIZE, CLASSES, SKETCH = 64, 3, 16
COLOURS = [(220, 60, 40), (50, 200, 70), (60, 80, 230)]
IDS = [2, 5, 11]  # of the categories

# Keys that have other values in some of the jobs.
JOBS = {"shard": {"model": {"sync_bn": False}, "train": {"waves": 2, "ema": 0.35}},
        "sync": {"model": {"sync_bn": True}, "train": {"waves": 1, "ema": 0}}}
JOB = {"name": "golden",
       "model": {"cfg": "net.cfg", "init": "init.safetensors", "bn_momentum": 0.2, "box_gain": 1.5, "obj_gain": 0.75, "noobj_gain": 0.5,
                 "cls_gain": 1.25},
       "data": {"train": {"annotations": "train.json", "images": "."},
                "augment": {"flip": 0, "jitter": 0, "hue": 0, "saturation": 1, "exposure": 1}},
       "train": {"steps": 6, "batch": 8, "shards": 4, "seed": 5, "lr": 0.02, "momentum": 0.8, "weight_decay": 0.05, "burn_in": 3,
                 "burn_in_power": 1.5, "lr_steps": [4, 0.84], "lr_scale": 0.3, "clip_norm": 60.0, "log_every": 1},
       "checkpoint": {"every": 1, "keep": 6}, "run": {"device": "cpu", "threads": 1}}

VALIDATE = {"name": "golden", "model": {"cfg": "net.cfg", "init": "trained.safetensors", "freeze_bn": True},
            "data": {"train": {"annotations": "train.json", "images": "."}, "val": {"annotations": "val.json", "images": "."}},
            "train": {"steps": 1, "batch": 4, "shards": 2, "lr": 1e-300, "burn_in": 0},
            "val": {"every": 1, "batch": 4, "conf": 0.1, "nms": 0.3}, "run": {"device": "cpu", "threads": 1}}


def cfg():
    """Every kind of layer that YOLOv3 has. Smooth activations where the maps are large: a kink that flips between precisions would show."""
    anchors = "5,6, 8,14, 15,11, 14,28, 28,21, 40,44"

    def conv(filters, size, stride=1, activation="logistic"):
        return f"[convolutional]\nbatch_normalize=1\nfilters={filters}\nsize={size}\nstride={stride}\npad=1\nactivation={activation}\n"

    def block(filters):
        return conv(filters // 2, 1) + "\n" + conv(filters, 3) + "\n[shortcut]\nfrom=-3\nactivation=linear\n"

    def head(mask):
        return (f"[convolutional]\nfilters={3 * (5 + CLASSES)}\nsize=1\nstride=1\npad=1\nactivation=linear\n\n"
                f"[yolo]\nmask={mask}\nanchors={anchors}\nclasses={CLASSES}\nnum=6\nignore_thresh=.5\ntruth_thresh=1\n")

    return "\n".join([
        f"[net]\nbatch=1\nwidth={SIZE}\nheight={SIZE}\nchannels=3\n",
        conv(8, 3, 2),
        conv(12, 3, 2),
        block(12),
        conv(16, 3, 2),
        block(16),
        conv(24, 3, 2, "leaky"),
        head("3,4,5"), "[route]\nlayers=-3\n",
        conv(8, 1, 1, "leaky"), "[upsample]\nstride=2\n", "[route]\nlayers=-1,8\n",
        conv(16, 3, 1, "leaky"),
        head("0,1,2")
    ])


# ---- pictures ----

def draw(rng, w, h, boxes):
    """Rows of RGB bytes: shades, and a coloured rectangle for each box (class, x, y, width, height in pixels)."""
    sx, sy, base = rng.randint(1, 3), rng.randint(1, 3), [rng.randint(20, 120) for _ in range(3)]
    rows = [[[min(255, b + (sx * x + sy * y) // 4 % 64) for b in base] for x in range(w)] for y in range(h)]
    for (c, bx, by, bw, bh) in boxes:
        for y in range(by, by + bh):
            for x in range(bx, bx + bw):
                rows[y][x] = [max(0, v - 8 * ((x + y) % 4)) for v in COLOURS[c]]
    return rows


def write_png(name, rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    raw = b"".join(b"\0" + bytes(v for pixel in row for v in pixel) for row in rows)
    with open(OUT + name, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))


def write_split(name, pictures):
    """pictures: [(rows, boxes)]"""
    images, annotations = [], []
    for i, (rows, boxes) in enumerate(pictures):
        file = f"{name}_{i}.png"
        write_png(file, rows)
        images.append({"id": i + 1, "file_name": file, "width": len(rows[0]), "height": len(rows)})
        for (c, *box) in boxes:
            annotations.append({"id": len(annotations) + 1, "image_id": i + 1, "category_id": IDS[c], "bbox": box, "area": box[2] * box[3],
                                "iscrowd": 0})
    with open(OUT + name + ".json", "w") as f:
        json.dump({"images": images, "annotations": annotations, "categories": [{"id": k, "name": n} for k, n in zip(IDS, "abc")]}, f)
        f.write("\n")


def train_split(rng):
    pictures = []
    for i in range(10):
        boxes = []
        for _ in range(0 if i == 4 else rng.randint(1, 3)):
            w, h = rng.randint(6, 40), rng.randint(6, 40)
            boxes.append((rng.randrange(CLASSES), rng.randint(0, SIZE - w), rng.randint(0, SIZE - h), w, h))
        pictures.append((draw(rng, SIZE, SIZE, boxes), boxes))
    return pictures


def val_split(rng):
    """Wide and tall pictures; some boxes touch a border, so that detections there must be cut."""
    pictures = []
    for w, h, n in ((90, 60, 3), (60, 100, 3), (128, 48, 2), (50, 70, 0), (110, 80, 4)):
        boxes = []
        while len(boxes) < n:
            bw, bh = rng.randint(14, w // 2), rng.randint(14, h // 2)
            box = (rng.choice((0, rng.randint(0, w - bw))), rng.choice((0, rng.randint(0, h - bh))), bw, bh)
            if all(scores.iou(box, b[1:]) == 0 for b in boxes):
                boxes.append((rng.randrange(CLASSES), *box))
        pictures.append((draw(rng, w, h, boxes), boxes))
    return pictures


def mistaught(pictures):
    """Returns objects from which a network learns to find the boxes only more or less: two boxes of three are cut at a
    side, every seventh has another class."""
    taught, n = [], 0
    for rows, boxes in pictures:
        changed = []
        for c, x, y, w, h in boxes:
            n += 1
            dx, dy = (0, w * (n % 5) // 10)[n % 3 == 1], (0, h * (n % 7) // 14)[n % 3 == 2]
            changed.append(((c + (n % 7 == 0)) % CLASSES, x + dx, y, w - dx, h - dy))
        taught.append((rows, changed))
    return taught


def tensor_of(rows):
    return torch.tensor(rows, dtype=torch.float64).permute(2, 0, 1) / 255


# ---- the order of the samples: Fisher-Yates; words from Philox4x32-10 under the key (seed, epoch, "data.order") ----

def philox(counter, key):
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k0, b & 0xffffffff, a >> 32 ^ c[3] ^ k1, a & 0xffffffff]
        k0, k1 = (k0 + 0x9E3779B9) & 0xffffffff, (k1 + 0xBB67AE85) & 0xffffffff
    return c


def epoch_order(seed, epoch, n):
    purpose = 2166136261
    for byte in b"data.order":
        purpose = (purpose ^ byte) * 16777619 & 0xffffffff
    purpose = (purpose >> 16 ^ purpose) & 0xffff
    order = list(range(n))
    for q in range(n - 1, 0, -1):
        word = philox((q // 4, purpose << 16, 0, epoch), (seed & 0xffffffff, seed >> 32))[q % 4]
        k = word * (q + 1) >> 32
        order[q], order[k] = order[k], order[q]
    return order


def stream(seed, n, length):
    return [k for epoch in range(-(-length // n)) for k in epoch_order(seed, epoch, n)][:length]


# ---- training ----

def rate(t, o):
    if t < o["burn_in"]:
        return o["lr"] * (t / o["burn_in"]) ** o["burn_in_power"]
    passed = [s for s in o["lr_steps"] if (s if s >= 1 else round(s * o["steps"])) <= t]
    return o["lr"] * o["lr_scale"] ** len(passed)


def first_weights(seed):
    """Values other than the usual 0 and 1 of an initialisation, so that code which treats 0 and 1 as special is found."""
    rng = random.Random(seed)

    def start(name, shape, fan_in):
        lo, hi = ((-math.sqrt(6 / fan_in), math.sqrt(6 / fan_in)) if fan_in else (.5, 2) if "running_var" in name else
                  (.6, 1.4) if name.endswith("weight") else (-.5, .5))
        return torch.tensor([rng.uniform(lo, hi) for _ in range(math.prod(shape))], dtype=torch.float32)

    return start


def sketch(x):
    """Sixteen numbers for a tensor: every element is added to one of them, or taken from it, so its size shows in them."""
    e = torch.arange(x.numel(), dtype=torch.int64)
    signs = 1 - 2 * ((e * 2654435761 & 0xffffffff) >> 31)
    return torch.zeros(SKETCH, dtype=torch.float64).index_add_(0, e % SKETCH, x.detach().flatten() * signs)


def gradients(net, pictures, samples, parts, gains):
    """Computes gradients of the mean over the batch, which is cut into `parts`; each part is normalised by itself.
    Returns the sums of the loss terms and the batch statistics, a row per part."""
    per, sums, statistics = len(samples) // parts, {}, []
    for v in range(parts):
        part = [pictures[k] for k in samples[v * per:(v + 1) * per]]
        boxes = [[(c, (x + w / 2) / SIZE, (y + h / 2) / SIZE, w / SIZE, h / SIZE) for (c, x, y, w, h) in b] for _, b in part]
        terms = yolo.loss_terms(net, torch.stack([tensor_of(rows) for rows, _ in part]), boxes, True, gains)
        (terms["total"] / len(samples)).backward()
        statistics.append({n: s.detach() for n, s in net.batch.items()})
        sums = {t: sums.get(t, 0) + float(v) for t, v in terms.items()}
    return sums, statistics


def ratios(sums, images):
    """Returns {term: [numerator, denominator]} as in the log."""
    return {
        name: [float(sums[name]), float(sums[yolo.POSITIVES]) if name in ("iou", "recall50", "recall75") else images]
        for name in yolo.TERMS
    }


def train(text, pictures, job):
    """{array of steps.safetensors without the job's name}"""
    o, m = job["train"], job["model"]
    net = yolo.Net(text, torch.float64, first_weights(1))
    convs, rest = ([p for p in net.params.values() if (p.dim() == 4) == conv] for conv in (True, False))
    sgd = torch.optim.SGD([{"params": convs, "weight_decay": o["weight_decay"]}, {"params": rest}], lr=1, momentum=o["momentum"])
    order = stream(o["seed"], len(pictures), o["steps"] * o["batch"])
    everything = {**net.params, **net.running}
    first = {n: w.detach().clone() for n, w in everything.items()}
    average = {n: first[n].clone() for n in net.params} if o["ema"] else {}
    moved = {f"{kind}.{n}": [] for kind, names in (("raw", first), ("ema", average)) for n in names}
    losses, gains = [], [m[g + "_gain"] for g in ("box", "obj", "noobj", "cls")]
    for t in range(1, o["steps"] + 1):
        samples = order[(t - 1) * o["batch"]:t * o["batch"]]
        sgd.zero_grad()
        sums, statistics = gradients(net, pictures, samples, 1 if m["sync_bn"] else o["shards"], gains)
        norm = float(torch.nn.utils.clip_grad_norm_(net.params.values(), o["clip_norm"]))
        for group in sgd.param_groups:
            group["lr"] = rate(t, o)
        sgd.step()
        decay = min(o["ema"], (1 + t) / (10 + t))
        with torch.no_grad():
            for n, w in net.running.items():
                w.mul_(1 - m["bn_momentum"]).add_(m["bn_momentum"] * sum(s[n] for s in statistics) / len(statistics))
            for n, w in average.items():
                w.mul_(decay).add_((1 - decay) * net.params[n])
        for n in first:
            moved["raw." + n].append(sketch(everything[n] - first[n]))
        for n in average:
            moved["ema." + n].append(sketch(average[n] - first[n]))
        losses.append(list(ratios(sums, o["batch"]).values()))
        print(f"step {t}: samples {samples} rate {rate(t, o):.5f} norm of the gradient {norm:.3f} loss {sums['total'] / o['batch']:.4f}")
    return {**{n: torch.stack(rows) for n, rows in moved.items()}, "loss": losses}


# ---- validation ----

def letterbox(rows):
    """The picture, its aspect kept, in the middle of a grey square; and (x, y, width, height) of it there."""
    h, w = len(rows), len(rows[0])
    pw, ph = (SIZE, h * SIZE // w) if w > h else (w * SIZE // h, SIZE)
    x, y = (SIZE - pw) // 2, (SIZE - ph) // 2
    out = torch.full((3, SIZE, SIZE), .5, dtype=torch.float64)
    out[:, y:y + ph, x:x + pw] = torch.nn.functional.interpolate(tensor_of(rows)[None], (ph, pw), mode="bilinear", align_corners=False)[0]
    return out, (x, y, pw, ph)


def val_batch(pictures):
    """Inputs; boxes (class, centre x, centre y, width, height) in parts of the input's side; where each picture lies."""
    images, places = zip(*(letterbox(rows) for rows, _ in pictures))
    boxes = []
    for (rows, truths), (px, py, pw, ph) in zip(pictures, places):
        fx, fy = pw / len(rows[0]) / SIZE, ph / len(rows) / SIZE
        boxes.append([(c, (x + w / 2) * fx + px / SIZE, (y + h / 2) * fy + py / SIZE, w * fx, h * fy) for (c, x, y, w, h) in truths])
    return torch.stack(images), boxes, places


def fit(text, pictures, steps):
    """Weights that overfit the pictures; running statistics are those of the last batch."""
    images, boxes, _ = val_batch(pictures)
    net = yolo.Net(text, torch.float64, first_weights(2))
    adam = torch.optim.Adam(net.params.values(), lr=.01)
    for _ in range(steps):
        adam.zero_grad()
        loss = yolo.loss_terms(net, images, boxes)["total"]
        loss.backward()
        adam.step()
    net.forward(images)
    print(f"fitted to a loss of {float(loss):.3f}")
    return {n: w.detach().float() for n, w in {**net.params, **net.batch}.items()}


def apart(values, bounds, what, least=1e-4):
    """fp32 and fp64 must decide alike: no value is close to a bound or, without bounds, to its neighbour."""
    ordered = sorted(values)
    near = [abs(v - b) for v in values for b in bounds] if bounds else [b - a for a, b in zip(ordered, ordered[1:])]
    print(f"{what}: {min(near, default=1):.2g} apart")
    assert min(near, default=1) > least, what


def found(heads, image, o):
    """Returns the boxes of an image after suppression: (class, score, box [x1, y1, x2, y2] in pixels of the input)."""
    boxes = []
    for head in heads:
        x, y, w, h = (v[image].flatten() * SIZE for v in head.boxes())
        logits = head.z[image].reshape(-1, 5 + CLASSES)
        each = torch.sigmoid(logits[:, 4:5]) * torch.sigmoid(logits[:, 5:])
        for slot, k in (each > o["conf"]).nonzero().tolist():
            a, b, c, d = (float(v[slot]) for v in (x, y, w, h))
            boxes.append((k, float(each[slot, k]), (a - c / 2, b - d / 2, a + c / 2, b + d / 2)))
        apart(each.flatten().tolist(), [o["conf"]], "scores and the lowest", 2e-6)
    kept, overlaps = [], []
    for k, score, box in sorted(boxes, key=lambda b: -b[1]):
        rivals = [scores.iou(xywh(box), xywh(other)) for c, _, other in kept if c == k]
        overlaps += rivals
        if all(r <= o["nms"] for r in rivals):
            kept.append((k, score, box))
    apart(overlaps, [o["nms"]], "overlaps and suppression")
    return kept


def xywh(corners):
    return corners[0], corners[1], corners[2] - corners[0], corners[3] - corners[1]


def in_picture(box, rows, place):
    """A box of the input in pixels of the picture."""
    w, h = len(rows[0]), len(rows)
    across = [min(max((v - place[0]) * w / place[2], 0), w) for v in box[::2]]
    down = [min(max((v - place[1]) * h / place[3], 0), h) for v in box[1::2]]
    return across[0], down[0], across[1] - across[0], down[1] - down[0]


def validate(text, weights, pictures, o):
    """Returns the results of a validation: {"terms": {name: [num, den]}, "metrics": {name: value or None}}."""
    net = yolo.Net(text, torch.float64, lambda name, shape, fan_in: weights[name])
    images, boxes, places = val_batch(pictures)
    with torch.no_grad():
        heads = net.forward(images, False)
        sums = yolo.loss_terms(net, images, boxes, False)
    dets = [(i, k, score, in_picture(box, rows, places[i])) for i, (rows, _) in enumerate(pictures) for k, score, box in found(heads, i, o)]
    truths = [(i, c, tuple(box)) for i, (_, bs) in enumerate(pictures) for c, *box in bs]
    apart([d[2] for d in dets], [], "scores", 1e-6)
    apart([scores.iou(d[3], t[2]) for d in dets for t in truths if d[:2] == t[:2]], scores.THRESHOLDS, "overlaps")
    apart([d[3][2] * d[3][3] for d in dets], [32 ** 2, 96 ** 2], "areas", 1e-2)
    values, ap50 = scores.coco(dets, truths, CLASSES)
    values["voc_AP50"] = scores.voc(dets, truths, CLASSES)
    values.update({f"AP50:{name}": v for name, v in zip("abc", ap50)})
    terms = ratios(sums, len(pictures))
    print(len(dets), "detections of", len(truths), "boxes", values, terms)
    return {"terms": terms, "metrics": values}


def write_json(name, what):
    with open(OUT + name, "w") as f:
        json.dump(what, f, indent=1)
        f.write("\n")


def main():
    torch.set_num_threads(1)
    text, pictures = cfg(), train_split(random.Random(3))
    with open(OUT + "net.cfg", "w") as f:
        f.write(text)
    write_split("train", pictures)
    start = yolo.Net(text, torch.float32, first_weights(1))
    yolo.write(OUT + "init.safetensors", {**start.params, **start.running})
    arrays = {}
    for name, keys in JOBS.items():
        job = {group: {**JOB[group], **keys[group]} if group in keys else value for group, value in JOB.items()}
        write_json(name + ".json", job)
        arrays.update({f"{name}.{n}": a for n, a in train(text, pictures, job).items()})
    yolo.write(OUT + "steps.safetensors", arrays)

    pictures = val_split(random.Random(6))
    write_split("val", pictures)
    write_json("validate.json", VALIDATE)
    weights = fit(text, mistaught(pictures), 50)
    yolo.write(OUT + "trained.safetensors", weights)
    write_json("validated.json", validate(text, weights, pictures, VALIDATE["val"]))


if __name__ == "__main__":
    main()

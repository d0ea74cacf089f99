"""COCO's and VOC's scores of boxes, for the golden generators. A detection is (image, class, score, box), a truth
(image, class, box): boxes are x, y, width, height in pixels, the area of a truth is its box's. Crowds are not
treated."""  # SPDX-License-Identifier: Apache-2.0

AREAS = {"": (0, 1e10), "s": (0, 32 ** 2), "m": (32 ** 2, 96 ** 2), "l": (96 ** 2, 1e10)}
THRESHOLDS = [.5 + .05 * i for i in range(10)]
NAMES = ["AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl"]


def iou(a, b):
    w = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    h = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    both = max(w, 0) * max(h, 0)
    return both / (a[2] * a[3] + b[2] * b[3] - both)


def outside(box, area):
    return not area[0] <= box[2] * box[3] <= area[1]


def match(dets, truths, area, threshold):
    """Returns for an image and class: [(score, hit)] of the detections that count, best first, and the number of truths
    that count."""
    left, flags = list(truths), []
    for d in sorted(dets, key=lambda d: -d[2])[:100]:
        fits = [t for t in left if iou(d[3], t[2]) >= threshold]
        counted = [t for t in fits if not outside(t[2], area)]
        best = max(counted or fits, key=lambda t: iou(d[3], t[2]), default=None)
        if best:
            left.remove(best)
        if counted or not (best or outside(d[3], area)):
            flags.append((d[2], bool(best)))
    return flags, sum(not outside(t[2], area) for t in truths)


def curve(dets, truths, area, threshold, limit=100):
    """Returns for a class: precision (its envelope) and recall after each detection, best first, or None if no truth
    counts."""
    flags, positives = [], 0
    for image in {x[0] for x in dets + truths}:
        found = sorted((d for d in dets if d[0] == image), key=lambda d: -d[2])[:limit]
        f, n = match(found, [t for t in truths if t[0] == image], area, threshold)
        flags, positives = flags + f, positives + n
    if not positives:
        return None
    precision, recall, hits = [], [], 0
    for i, (_, hit) in enumerate(sorted(flags, reverse=True)):
        hits += hit
        precision.append(hits / (i + 1))
        recall.append(hits / positives)
    for i in range(len(precision) - 1, 0, -1):
        precision[i - 1] = max(precision[i - 1], precision[i])
    return precision, recall


def average_precision(c):
    """Mean of the envelope at the recalls 0, .01 .. 1."""
    return sum(next((p for p, r in zip(*c) if r >= k * .01), 0) for k in range(101)) / 101


def mean(values):
    values = [v for v in values if v is not None]
    return sum(values) / len(values) if values else None


def coco(dets, truths, classes):
    """Returns {score: value}, with None for a score without truths; and AP50 of each class."""
    def of_class(k, things):
        return [x for x in things if x[1] == k]

    def ap(area, thresholds, ks=range(classes)):
        curves = [curve(of_class(k, dets), of_class(k, truths), AREAS[area], t) for k in ks for t in thresholds]
        return mean([c and average_precision(c) for c in curves])

    def ar(area, limit):
        curves = [curve(of_class(k, dets), of_class(k, truths), AREAS[area], t, limit) for k in range(classes) for t in THRESHOLDS]
        return mean([c and (c[1] or [0])[-1] for c in curves])

    values = [ap("", THRESHOLDS), ap("", [.5]), ap("", [.75])] + [ap(a, THRESHOLDS) for a in "sml"]
    values += [ar("", n) for n in (1, 10, 100)] + [ar(a, 100) for a in "sml"]
    return dict(zip(NAMES, values)), [ap("", [.5], [k]) for k in range(classes)]


def voc(dets, truths, classes):
    """Mean over the classes of the area under the envelope at an overlap of .5; a detection stands or falls with the
    truth it overlaps most."""
    def of_class(k):
        mine, taken, hits, points = [t for t in truths if t[1] == k], set(), 0, []
        for i, d in enumerate(sorted((d for d in dets if d[1] == k), key=lambda d: -d[2])):
            overlaps = [(iou(d[3], t[2]), -n) for n, t in enumerate(mine) if t[0] == d[0]]
            best, n = max(overlaps, default=(0, 0))
            hit = best >= .5 and n not in taken
            if hit:
                taken.add(n)
            hits += hit
            points.append((hits / (i + 1), hit))
        envelope = [max(p for p, _ in points[i:]) for i in range(len(points))]
        return sum(p for p, (_, hit) in zip(envelope, points) if hit) / len(mine) if mine else None

    return mean([of_class(k) for k in range(classes)])

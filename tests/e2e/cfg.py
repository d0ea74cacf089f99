#!/usr/bin/env python3
"""Jobs of networks with a darknet .cfg that has keys of its own."""  # SPDX-License-Identifier: Apache-2.0
import json
import struct
import sys

from daemon import HERE, Daemon, tensors_of
from ranks import merged
from worker import STILL, alone, flat_images, of_type, safetensors, write

sys.path.insert(0, HERE + "/../golden")
import make_yolo_coords as darknet  # noqa: E402

NET = "[net]\nwidth=32\nheight=32\nchannels=3\nbatch=64\nmosaic=1\nuse_cuda_graph=1\n"
CONV = "[convolutional]\nbatch_normalize=1\nfilters=%d\nsize=3\nstride=%d\npad=1\nactivation=leaky\n%s"
HEAD = "[convolutional]\nfilters=21\nsize=1\nactivation=%s\n%s[yolo]\nmask=0,1,2\nanchors=10,14, 23,27, 37,58\nnum=3\nclasses=2\n%s"


def cfg(keys=("", "", "", ""), activation="linear", yolo=""):
    """Convolutions 0, 1, 2 and the head's, 5, each with keys of its own; layer 4 adds layer 0, which is wider, to layer 3."""
    return (NET + CONV % (8, 1, keys[0]) + CONV % (8, 2, keys[1]) + CONV % (6, 1, keys[2]) +
            "[upsample]\nstride=2\n[shortcut]\nfrom=0\nactivation=leaky\n" + HEAD % (activation, keys[3], yolo))


def job(root, name, text, steps=1, **model):
    return {"name": name, "model": merged({"cfg": write("%s/%s.cfg" % (root, name), text)}, model),
            "data": {"train": flat_images(root, "data", 32, [40, 200], 2), "augment": STILL},
            "train": {"steps": steps, "batch": 2, "shards": 1, "burn_in": 0, "lr": 0.01}, "run": {"device": "cpu", "threads": 1}}


def weights(root, name, step):
    """{layer: {array: numbers}}"""
    found = {}
    for array, (_, _, raw) in tensors_of("%s/%s/checkpoints/step-%d/model.safetensors" % (root, name, step)).items():
        found.setdefault(int(array.split(".")[1]), {})[array] = struct.unpack("<%df" % (len(raw) // 4), raw)
    return found


def trained(root, name, text, steps=1, **model):
    status, said = alone(root, name, job(root, name, text, steps, **model))
    assert status == 0 and of_type(said, "end")[0]["outcome"] == "completed", said
    return weights(root, name, steps)


def moves(before, after):
    return {array: [b - a for a, b in zip(before[array], after[array])] for array in after if "running" not in array}


def close(some, others, factor):
    return all(abs(a - factor * b) <= 1e-6 + 1e-4 * abs(b) for array in some for a, b in zip(some[array], others[array]))


def rates(root):
    """A layer's learning_rate is a factor of the job's; the gradient goes through to the layers in front."""
    still = trained(root, "still", cfg(("learning_rate=0\n",) * 4))
    whole = trained(root, "whole", cfg())
    some = trained(root, "some", cfg(("", "learning_rate=0\n", "learning_rate=.5\n", "learning_rate=3\n")))
    assert all(not any(x for array in moves(still[i], still[i]).values() for x in array) for i in still)
    for layer, factor in ((0, 1), (1, 0), (2, .5), (5, 3)):
        full = moves(still[layer], whole[layer])
        assert any(abs(x) > 1e-5 for array in full.values() for x in array), (layer, full)
        assert close(moves(still[layer], some[layer]), full, factor), layer


def stops(root):
    """Nothing moves up to the layer with stopbackward, its running statistics included, and all behind it does: darknet
    ends its way back there."""
    first = trained(root, "whole2", cfg(), 2)
    init = "%s/whole2/checkpoints/step-2/model.safetensors" % root
    after = trained(root, "stopped", cfg(("", "stopbackward=1\n", "", "")), 3, init=init)
    for layer in 0, 1:
        assert after[layer] == first[layer], layer
    for layer in 2, 5:
        assert after[layer] != first[layer], layer
    status, said = alone(root, "nothing", job(root, "nothing", cfg(("", "", "", "stopbackward=1\n"))))
    assert status == 1 and "stopbackward=1: no convolution behind it is left to train" in of_type(said, "end")[0]["reason"], said


def heads(root):
    """Other coordinates are other boxes and another loss: every one trains to other weights, in both precisions."""
    for precision in "fp32", "bf16":
        kinds = {"plain": ("linear", ""), "scaled": ("linear", "scale_x_y=1.2\n"), "new": ("logistic", "new_coords=1\n"),
                 "both": ("logistic", "new_coords=1\nscale_x_y=2\n")}
        seen = {}
        for name, (activation, keys) in kinds.items():
            spec = merged(job(root, name, cfg(activation=activation, yolo=keys), 4),
                          {"run": {"precision": precision}, "name": name + precision})
            status, said = alone(root, name + precision, spec)
            assert status == 0, said
            seen[name] = json.dumps(weights(root, name + precision, 4))
        assert len(set(seen.values())) == len(kinds), precision


def one_step(root, name, biases, activation, keys, precision):
    """Trains a step of a network that is only a head. Its weights are 0, so every cell has the biases as logits. Returns
    the change of the biases, and the boxes in parts of the input."""
    side, numbers = darknet.SIDE, ", ".join("%d,%d" % a for a in darknet.ANCHORS)
    text = ("[net]\nwidth=%d\nheight=%d\nchannels=3\n[convolutional]\nfilters=21\nsize=32\nstride=32\nactivation=%s\n[yolo]\nmask=1,2,4\n"
            "anchors=%s\nnum=5\nclasses=2\nignore_thresh=%g\n%s" % (side, side, activation, numbers, darknet.IGNORE_THRESH, keys))
    data = flat_images(root, "head", side, [128], 2)
    with open(data["annotations"], encoding="utf-8") as f:
        coco = json.load(f)
    boxes = [(1, 36, 30, 42, 36), (0, 60, 6, 30, 64)]  # class, then corner and sides in pixels
    coco["annotations"] = [{"id": i + 1, "image_id": 1, "category_id": c + 1, "iscrowd": 0, "area": w * h, "bbox": [x, y, w, h]}
                           for i, (c, x, y, w, h) in enumerate(boxes)]
    write(data["annotations"], json.dumps(coco))
    init = safetensors(root + "/head.safetensors", {"module_list.0.conv_0.weight": ((21, 3, 32, 32), [0.0] * (21 * 3 * 32 * 32)),
                                                    "module_list.0.conv_0.bias": ((21,), biases)})
    spec = merged(job(root, name, text, init=init),
                  {"data": {"train": data}, "train": {"batch": 1, "lr": 1, "schedule": "constant"}, "run": {"precision": precision}})
    status, said = alone(root, name, spec)
    assert status == 0, said
    after = weights(root, name, 1)[0]["module_list.0.conv_0.bias"]
    return [a - b for a, b in zip(after, biases)], [[c, (x + w / 2) / side, (y + h / 2) / side, w / side, h / side]
                                                    for c, x, y, w, h in boxes]


def of_darknet(root):
    """A step of a whole network moves its biases as darknet's own deltas say, for every kind of coordinates and
    precision."""
    biases = [((37 * i) % 21 - 10) / 8 for i in range(21)]  # exact in bf16 too
    darknet.BATCH, cells = 1, darknet.GRID * darknet.GRID
    for scale, new in ((1, False), (1.5, False), (1, True), (2, True)):
        for precision, tolerance in ("fp32", 1e-5), ("bf16", 2e-2):
            keys = "scale_x_y=%g\nnew_coords=%d\n" % (scale, new)
            moved, truths = one_step(root, "head-%g-%d-%s" % (scale, new, precision), biases, "logistic" if new else "linear", keys,
                                     precision)
            layer = darknet.Layer([b for b in biases for _ in range(cells)], 2, scale, new)
            layer.train([truths])
            grad = layer.gradients()
            want = [-sum(grad[k * cells:(k + 1) * cells]) for k in range(21)]
            assert max(abs(w) for w in want) > .1
            for k, (m, w) in enumerate(zip(moved, want)):
                assert abs(m - w) <= tolerance * max(1, abs(w)), (scale, new, precision, k, m, w)


def told(d):
    """Check, layers and the job's events report ignored keys once. The job's network is exported as the .cfg that it
    came from."""
    spec = job(
        d.root, "told",
        cfg(("", "", "learning_rate=.5\n", ""), "logistic", "new_coords=1\nscale_x_y=1.5\niou_thresh=.4\nrandom=1\ndets_for_show=1\n"))
    lines = ["%s/told.cfg: ignored, because the job's keys say how to train: batch, mosaic, random" % d.root,
             "%s/told.cfg: ignored, because they change no result here: use_cuda_graph, dets_for_show" % d.root]
    write(d.root + "/told.json", json.dumps(spec))
    check, layers = d.detctl("check", "told.json"), d.detctl("layers", "told.cfg", "--json")
    assert check.returncode == 0 and all((check.stdout + check.stderr).count(line) == 1 for line in lines), check
    assert layers.returncode == 0 and all(layers.stderr.count(line) == 1 for line in lines), layers
    listed = {row["name"]: row for row in json.loads(layers.stdout)}
    assert listed["module_list.5.conv_5.weight"]["shape"] == [21, 6, 1, 1], listed  # the file's two classes
    assert d.detctl("layers", "told.cfg", "--classes", "3").stdout.count("[24, 6, 1, 1]") == 1
    number = d.call("job.submit", spec=spec, token="told")["id"]
    d.wait(number, "completed")
    assert d.events("model", number) == lines[::-1], d.events("model", number)
    done = d.detctl("export", str(number), "-f", "weights", "-o", "left.weights")
    assert done.returncode == 0, done
    with open(d.root + "/left.cfg", encoding="utf-8") as f:
        left = f.read()
    for key in "new_coords=1", "scale_x_y=1.5", "learning_rate=0.5", "activation=logistic", "iou_thresh=0.400000006":
        assert left.count(key + "\n") == 1, (key, left)
    for name, content, said in (("net.pth", b"PK\3\4" + bytes(40), "it is an archive, as PyTorch's .pth"), ("net.cfg", b"<html></html>\n",
                                                                                                            "it is a web page"),
                                ("net.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "it is a Git LFS pointer")):
        listed = d.detctl("layers", write("%s/%s" % (d.root, name), content))
        assert listed.returncode == 1 and said in listed.stderr, listed
    misspelt = d.detctl("check", "told.json", "model.cfg=" + write(d.root + "/wrong.cfg", cfg(("filter=9\n", "", "", ""))))
    assert misspelt.returncode == 1, misspelt
    assert "/wrong.cfg:15: unknown key 'filter' in [convolutional]; did you mean filters" in misspelt.stderr, misspelt


def main():
    with Daemon(foreign=False) as d:
        rates(d.root)
        stops(d.root)
        heads(d.root)
        of_darknet(d.root)
        told(d)


if __name__ == "__main__":
    main()

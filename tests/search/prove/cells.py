"""The matrix of the proof: models and cells (specs determinism section 10.1). A cell says how a run differs from the
reference, which a single rank with a single thread trained undisturbed; no difference may change a bit.
"""  # SPDX-License-Identifier: Apache-2.0
import subprocess

from micro import Kill

STEPS, SAVED = 20, 4


def merged(spec, more):
    """A copy of spec with the keys of `more`, which may be nested, put in."""
    out = dict(spec)
    for key, value in more.items():
        out[key] = merged(spec.get(key, {}), value) if isinstance(value, dict) else value
    return out


def isas():
    """Returns the ISAs of this CPU, the best first."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        flags = next((line.split() for line in f if line.startswith("flags")), [])
    needs = {"avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}, "avx2": {"avx2", "fma", "bmi2"}, "generic": set()}
    return [name for name, need in needs.items() if need <= set(flags)]


# ---- models ----

def split(data, name, model):
    if model == "depth":
        return {"annotations": "%s/%s.txt" % (data, name), "images": data}
    return {"annotations": "%s/%s.json" % (data, name), "images": data + "/images"}


def base(data, model):
    """Log windows are open across checkpoints, an epoch is no multiple of the batch, the last validation shard is smaller."""
    return {"name": "prove", "data": {"train": split(data, "train", model), "val": split(data, "val", model)},
            "train": {"steps": STEPS, "batch": 8, "shards": 8, "log_every": 3, "lr_steps": [], "burn_in": 4},
            "val": {"every": 7, "batch": 4}, "checkpoint": {"every": SAVED, "keep": 2},
            "run": {"device": "cpu", "threads": 1, "ranks": 1, "deterministic": "world"}}


TINY = {"model": {"preset": "yolov3_tiny", "size": 64, "width": 0.125},
        "data": {"augment": {"scale": 0.2, "multiscale": True, "size_min": 32, "size_max": 64}}}
# Layers that the tiny one lacks: activations that compute, a short cut, no batch norm.
CFG = """[net]
width=64
height=64
channels=3
[convolutional]
filters=16
size=3
stride=2
pad=1
activation=logistic
[convolutional]
batch_normalize=1
filters=16
size=3
stride=1
pad=1
activation=leaky
[shortcut]
from=-2
activation=linear
[maxpool]
size=2
stride=2
[convolutional]
filters=32
size=3
stride=2
pad=1
activation=logistic
[convolutional]
filters=24
size=1
stride=1
pad=1
activation=linear
[yolo]
mask=0,1,2
anchors=10,14, 23,27, 37,58
num=3
classes=3
"""
# Few channels and few proposals, but each draw of them, every level and both sizes of a picture occur.
MASKS = {
    "model": {
        "preset": "mask_rcnn_r18_fpn", "width": 0.125, "fpn_channels": 16, "head_channels": 32, "mask_channels": 8, "min_size": [48, 64],
        "max_size": 96, "anchors": [8, 16, 32, 48, 64], "rpn_batch": 64, "rpn_pre_nms": 100, "rpn_pre_nms_val": 100, "rpn_post_nms": 50,
        "rpn_post_nms_val": 50, "roi_batch": 32
    }
}
SPARSE = {
    "model": {
        "preset": "sparse_rcnn_r18_fpn", "width": 0.125, "fpn_channels": 16, "proposals": 12, "stages": 2, "heads": 4,
        "dynamic_channels": 8, "ffn_channels": 32, "min_size": [48, 64], "max_size": 96
    }, "data": {"augment": {"crop": 0.5}}
}
MODELS = {
    "tiny sgd": merged(TINY, {"train": {"lr": 0.004, "clip_norm": 30, "ema": 0.9}}),
    "tiny sync_bn": merged(TINY, {"model": {"sync_bn": True}, "train": {"lr": 0.004, "nesterov": True, "clip_norm": 30}}),
    "tiny adamw": merged(TINY, {"train": {"optimizer": "adamw", "lr": 0.002, "weight_decay": 0.05, "schedule": "cosine", "ema": 0.9}}),
    "cfg": {"model": {"cfg": "net.cfg"}, "data": {"augment": {"scale": 0.2}}, "train": {"lr": 0.01, "momentum": 0.9}},
    "mask rcnn": merged(MASKS, {"train": {"lr": 0.005}}),
    "sparse rcnn": merged(SPARSE, {"train": {"lr": 0.001, "clip_norm": 0}}),  # a clipped gradient hides the number of objects
    "depth": {"model": {"preset": "featdepth_joint_r18", "width": 0.125, "size": [96, 96], "pose_size": [64, 64]}, "train": {"lr": 0.001}},
    "toy": {"model": {"preset": "toy"}, "train": {"optimizer": "adamw", "lr": 0.01, "batch": 8, "shards": 8}},
}
# Tensors without a gradient: a result that no loss reads, and levels for larger boxes than these pictures have in each
# step.
UNUSED = {
    "toy": ("depth",), "sparse rcnn": ["backbone.fpn_output%d.%s" % (level, kind) for level in (3, 4, 5) for kind in ("weight", "bias")]
}


# ---- cells: name -> how a run differs, by random numbers of its own ----

class Run:
    """keys: of the job; env: more variables; ranks: of each attempt; folder: to run in; hog: processes that keep every
    core busy meanwhile."""

    def __init__(self, keys=None, env=None, kills=(), ranks=(), folder=None, hog=False):
        self.keys, self.env, self.kills, self.ranks, self.folder, self.hog = keys or {}, env or {}, kills, ranks, folder, hog


def ranks_of(n):
    return lambda rng, model: Run(ranks=[n])


def some_ranks(rng):
    return rng.choice((1, 2, 3, 4, 5, 7, 8))


def kills(rng, phases, n):
    """Kills come at rising steps, so that each attempt comes further than the one before."""
    steps = sorted(rng.sample(range(1, STEPS - SAVED), n))
    return [Kill(s, rng.choice(phases), rng.uniform(0, 0.004 if phases != (None,) else 0.03)) for s in steps]


def killed(phases, n):
    def cell(rng, model):
        return Run(kills=kills(rng, phases, rng.randint(1, n)), ranks=[some_ranks(rng) for _ in range(n + 1)])
    return cell


def waves(rng, model):
    return Run({"train": {"waves": rng.choice((2, 3, 4))}}, ranks=[rng.choice((1, 2, 3))])


def threads(rng, model):
    return Run({"run": {"threads": rng.choice((2, 3, 4))}}, ranks=[rng.choice((1, 2))])


def isa(name):
    return lambda rng, model: Run({"run": {"isa": name, "threads": rng.choice((1, 2))}}, ranks=[rng.choice((1, 3))])


def stress(rng, model):
    return Run({"errand": {"stress": rng.getrandbits(40)}, "data": {"workers": rng.choice((1, 2, 4))}}, ranks=[rng.choice((1, 2, 3))])


def malloc(rng, model):
    return Run({"run": {"threads": rng.choice((1, 2))}}, env={"MALLOC_PERTURB_": str(rng.randint(1, 255))}, ranks=[rng.choice((1, 2))])


def workers(rng, model):
    return Run({"data": {"workers": rng.choice((2, 3, 5, 8))}}, ranks=[rng.choice((1, 2))])


def busy(rng, model):
    return Run({"run": {"threads": rng.choice((1, 2))}}, ranks=[rng.choice((1, 2, 3))], hog=True)


def tiers(rng, model):
    return Run({"run": {"deterministic": rng.choice(("off", "rerun"))}}, ranks=[some_ranks(rng)])


def languages():
    """Returns locales; a locale that writes a comma in numbers could do harm."""
    have = subprocess.run(["locale", "-a"], stdout=subprocess.PIPE, text=True, check=False).stdout.split()
    return sorted(x for x in have if x.startswith(("de_", "fr_"))) or ["C", "C.utf8"]


def surroundings(rng, model):
    lang = rng.choice(languages())
    return Run(env={"LANG": lang, "LC_ALL": lang, "TZ": rng.choice(("Pacific/Kiritimati", "America/St_Johns", "UTC")), "HOME": "/nowhere",
                    "OMP_NUM_THREADS": "3", "X" * rng.randint(1, 4000): "1"}, folder=rng.choice(("/", "/tmp")), ranks=[rng.choice((1, 2))])


def gpu(n, **keys):
    return lambda rng, model: Run({"run": keys}, env={"EMU_SEED": str(rng.getrandbits(30))}, ranks=[n])


def gpu_stress(rng, model):
    return Run({"errand": {"stress": rng.getrandbits(40)}}, env={"EMU_SEED": str(rng.getrandbits(30))}, ranks=[rng.choice((1, 2, 3))])


def gpu_killed(rng, model):
    return Run(kills=kills(rng, (None, "publish", "validate"), 2), env={"EMU_SEED": str(rng.getrandbits(30))},
               ranks=[rng.choice((1, 2, 3)) for _ in range(3)])


ON_CPU = {"again": ranks_of(1)}
ON_CPU.update(("%d ranks" % n, ranks_of(n)) for n in (2, 3, 4, 5, 7, 8))
ON_CPU.update({"waves": waves, "threads": threads})
ON_CPU.update((name, isa(name)) for name in isas()[1:])
ON_CPU.update({
    "tiers": tiers, "loader threads": workers, "stress": stress, "malloc fills": malloc, "all cores busy": busy,
    "surroundings": surroundings, "killed": killed((None,), 3), "killed in checkpoints": killed(
        ("checkpoint", "publish", "published"), 3), "killed in validation": killed(("validate",), 2)
})
ON_GPU = {"gpu again": gpu(1), "gpu 2 ranks": gpu(2), "gpu 3 ranks": gpu(3), "gpu 4 ranks": gpu(4), "gpu stress": gpu_stress,
          "gpu killed": gpu_killed}
CELLS = dict(ON_CPU, **ON_GPU)


def fits(cell, model):
    """SyncBN needs all shards at once; the toy family computes its loss on the host."""
    return not (cell == "waves" and model == "tiny sync_bn") and not (cell in ON_GPU and model == "toy")

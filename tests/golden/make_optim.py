#!/usr/bin/python3
"""Makes tests/golden/optim.safetensors with PyTorch (Debian: python3-torch): two parameters after each of seven steps
of torch.optim, and the rates of its schedulers, in fp64.

Weights and gradients are formulas that tests/golden/test_optim.c has too. "w" decays and learns at the job's rate, "b"
does not decay and learns at half of it. The gradient of both together is cut to MAX_NORM if it is longer. Step SKIPPED
has no finite gradient: nothing moves, but Adam counts it.
  NAME.w, NAME.b   [STEPS][numbers] after each step
  lr.NAME          [RATES] of step 1, 2, ...
Run from the repository root: /usr/bin/python3 tests/golden/make_optim.py"""  # SPDX-License-Identifier: Apache-2.0
import torch
from torch.optim import lr_scheduler as sched

from make_yolov3 import noise
from yolo import write

STEPS, SKIPPED, COUNTS = 7, 4, {"w": 40, "b": 7}
LR, DECAY, MAX_NORM = 0.05, 0.1, 3.0
RATES, WARM, MILESTONES, FACTOR, END, POWER = 60, 11, [30, 45], 0.05, 0.1, 2.0


def numbers(step, name):
    """Uniform in [-1, 1], of fp32; step 0: weights."""
    at = (step * 2 + (name == "b")) * 64
    return torch.tensor([((noise(at + i) >> 8) / 16777216.0 - 0.5) * 2 for i in range(COUNTS[name])], dtype=torch.float32).double()


def train(kind, **options):
    params = {name: torch.nn.Parameter(numbers(0, name)) for name in COUNTS}
    opt = kind([{"params": [params["w"]], "lr": LR, "weight_decay": DECAY}, {"params": [params["b"]], "lr": LR / 2, "weight_decay": 0}],
               lr=LR, **options)
    after = {name: [] for name in COUNTS}
    for step in range(1, STEPS + 1):
        grads = {name: numbers(step, name) * (0.2 if step == 2 else 1) for name in COUNTS}  # the gradient of step 2 is short
        norm = torch.sqrt(sum((g * g).sum() for g in grads.values()))
        for name, p in params.items():
            p.grad = grads[name] * min(1, MAX_NORM / norm)
        if step != SKIPPED:
            opt.step()
        for state in opt.state.values():
            if step == SKIPPED and "step" in state:
                state["step"] += 1
        for name, p in params.items():
            after[name].append(p.detach().clone())
    return {name: torch.stack(a).flatten() for name, a in after.items()}


def rates(make):
    """Returns the rates of steps 1 .. RATES; a scheduler counts from 0."""
    opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler, found = make(opt), []
    for _ in range(RATES):
        found.append(opt.param_groups[0]["lr"])
        opt.step()
        scheduler.step()
    return torch.tensor(found, dtype=torch.float64)


def linear(opt):
    """The rate of step t is (t - 1) / WARM of the way from FACTOR to 1."""
    return sched.LinearLR(opt, start_factor=FACTOR, total_iters=WARM)


def after_warm_up(make):
    return lambda opt: sched.SequentialLR(opt, [linear(opt), make(opt)], milestones=[WARM])


SCHEDULES = {
    "steps": lambda opt: sched.MultiStepLR(opt, [m - 1 for m in MILESTONES], gamma=0.1),
    "linear_steps": after_warm_up(lambda opt: sched.MultiStepLR(opt, [m - WARM for m in MILESTONES], gamma=0.1)),
    "cosine": lambda opt: sched.CosineAnnealingLR(opt, T_max=RATES),
    "poly": lambda opt: sched.PolynomialLR(opt, total_iters=RATES, power=POWER),
    "linear_cosine": after_warm_up(lambda opt: sched.CosineAnnealingLR(opt, T_max=RATES - WARM, eta_min=LR * END)),
    "linear_poly": after_warm_up(lambda opt: sched.PolynomialLR(opt, total_iters=RATES - WARM, power=POWER)),
    "linear_constant": linear,
}


def main():
    torch.set_num_threads(1)
    arrays = {}
    for name, found in {"sgd": train(torch.optim.SGD, momentum=0.8), "plain": train(torch.optim.SGD),
                        "nesterov": train(torch.optim.SGD, momentum=0.8, nesterov=True),
                        "adam": train(torch.optim.Adam, betas=(0.8, 0.95), eps=1e-3),
                        "adamw": train(torch.optim.AdamW, betas=(0.8, 0.95), eps=1e-3)}.items():
        arrays.update(("%s.%s" % (name, p), a) for p, a in found.items())
    arrays.update(("lr." + name, rates(make)) for name, make in SCHEDULES.items())
    write("tests/golden/optim.safetensors", arrays)


main()

"""The job of this process, as the program sees it."""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import os

from detd import values
from detd.lines import PATIENCE_S
from detd.page import Page

METRICS_A_LINE = 100


class Run:
    """This rank of a job. Outside detd its methods do nothing.

    step: the completed steps of the checkpoint to go on from; 0 at the beginning. resume: the path of that checkpoint,
    or None. steps: program.steps of the job file, or None. rank, ranks: the number of this process, and of all
    processes. A step is always a number of completed steps, 1 after the first one. The steps of a split must rise."""

    def __init__(self, lines, page, environ):
        """environ: the variables that detd-job has set; outside detd, none."""
        self.rank, self.ranks = int(environ.get("RANK", 0)), int(environ.get("WORLD_SIZE", 1))
        self.step, self.resume = int(environ.get("DETD_RESUME_STEP", 0)), environ.get("DETD_RESUME")
        self.steps = int(environ["DETD_STEPS"]) if "DETD_STEPS" in environ else None
        self._save_every = int(environ.get("DETD_CHECKPOINT_EVERY", 0))
        self._lines, self._page = lines, page
        self._share = None  # the newest share, while its numbers are still on a GPU
        self._hello = {"type": "hello", "words": []}

    @property
    def active(self):
        """Whether detd hears this process."""
        return self._lines.is_open

    def hello(self, **members):
        """Introduces this rank, with these members of the message and those of earlier calls."""
        self._hello.update(members)
        self._send(self._hello)

    def loss(self, step, terms=None, /, *, epoch=None, images=None, **more):
        """Reports this rank's share of the training losses of a step, or of the steps since its last report.

        terms, more: {NAME: (numerator, denominator)}, for example total=(sum of the losses of all images, number of
        images). detd adds the numerators and the denominators of all ranks, and divides once. Numbers may be tensors of
        one element; on a GPU they are copied now and read at the next call. epoch: the epoch, with a fraction. images:
        the images that this rank has trained since its last report."""
        self._page.done(int(step))
        self._report("train", step, {**(terms or {}), **more}, epoch=epoch, images=images)

    def validation(self, step):
        """Returns a Validation, to be used as `with run.validation(step) as val:`."""
        return Validation(self, step)

    def metrics(self, step, numbers=None, /, **more):
        """Stores numbers of rank 0 in `eval`, {NAME: number}. On other ranks this does nothing."""
        if self.active and self.rank == 0:
            rows = [(str(name), values.finite(v)) for name, v in {**(numbers or {}), **more}.items()]
            for i in range(0, len(rows), METRICS_A_LINE):
                self._send({"type": "eval", "step": int(step), "metrics": dict(rows[i:i + METRICS_A_LINE])})

    def wants(self, step, word):
        """Returns whether detd asks for something: word is "checkpoint", "validate", "pause" or "cancel". A checkpoint
        is asked for every checkpoint.every steps, and when the user wants one.

        All ranks get the same answer at the same step, so all must ask for the same words at the same steps. After
        "pause" or "cancel" the program must save, call checkpoint() and finish(), and exit with 0."""
        if word not in self._hello["words"]:
            self.hello(words=self._hello["words"] + [word])
        self._send_share()
        due = word == "checkpoint" and self._save_every > 0 and step % self._save_every == 0
        return self._page.wants(int(step), word) or due

    def checkpoint(self, step, path=None):
        """Tells detd that this rank's part of a checkpoint is written. All ranks must call it.

        path: the file or folder; rank 0 must give it. It is synced to the disk. The checkpoint holds when all ranks
        have called this, and the next attempt of the job then gets it in `resume`."""
        message = {"type": "checkpoint", "step": int(step), "phase": "ready"}
        if path is not None and self.active:
            with self.phase("sync checkpoint"):
                there = sync(os.path.abspath(path))
            if self.rank == 0 and not there:
                return self.event("the checkpoint of step %d is not there: %s" % (step, path), "error")
            if self.rank == 0:
                message["path"] = os.path.abspath(path)
        self._send(message)

    def phase(self, name, deadline=0):
        """Names what this rank does from now on, for hang verdicts. deadline: seconds; without progress for so long,
        detd takes the rank for hung (0: never). In a `with` statement the phase ends with the block; otherwise with
        phase("")."""
        ended = contextlib.ExitStack()
        ended.callback(self._page.set_phase, *self._page.set_phase(name, deadline))
        return ended

    def alive(self):
        """This rank makes progress. Long work that reports no step may call this."""
        self._page.alive()

    def event(self, text, level="info"):
        """Tells the user something, in `detctl events`. level: info, warning or error."""
        self._send({"type": "event", "level": level, "kind": "program", "text": str(text)[:4000]})

    def finish(self):
        """This rank reports no more losses and asks for no more words; the others may go on."""
        self._send({"type": "finish"})
        self.flush()

    def flush(self):
        """Sends all that waits. Returns when detd-job has not read for some seconds."""
        self._send_share()
        self._lines.flush(PATIENCE_S)

    def leave(self):
        """From now on all calls do nothing. For processes that the program has forked."""
        self._lines.close()
        self._page, self._share = Page(), None

    def _send(self, message):
        self._send_share()
        self._lines.send(message)

    def _report(self, split, step, terms, **more):
        if not self.active:
            return
        self._send_share()
        message = {"type": "share", "split": split, "step": int(step)}
        for name, number in more.items():
            if number is not None:
                message[name] = values.finite(number)
        numbers = values.Values([number for name, pair in terms.items() for number in two(name, pair)])
        self._share = message, list(terms), numbers
        if numbers.ready:
            self._send_share()

    def _send_share(self):
        """Sends the newest share, if it was not sent yet."""
        share, self._share = self._share, None
        if share:
            message, names, numbers = share
            flat = numbers.read()
            message["terms"] = dict(zip(names, zip(flat[::2], flat[1::2])))
            self._lines.send(message)


def two(name, pair):
    """Returns the pair of a term, which may be any sequence of two numbers."""
    if len(pair) != 2:
        raise ValueError("%s: not a numerator and a denominator: %r" % (name, pair))
    return pair


class Sums:
    """Sums of shares: this rank's batches since the last report, or of one validation."""

    def __init__(self):
        self._sums = {}

    def add(self, terms=None, /, **more):
        """Adds a batch: {NAME: (numerator, denominator)}, as in Run.loss()."""
        for name, (numerator, denominator) in {**(terms or {}), **more}.items():
            a, b = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = values.add(a, numerator), values.add(b, denominator)

    def take(self):
        """Returns the sums, and begins anew."""
        sums, self._sums = self._sums, {}
        return sums


class Validation(Sums):
    """One validation on this rank. Ranks may add any number of batches, none at all included."""

    def __init__(self, run, step):
        super().__init__()
        self._run, self._step = run, step

    def add(self, terms=None, /, **more):
        if self._run.active:
            super().add(terms, **more)
            self._run.alive()

    def report(self):
        """Reports the sums. A `with` block does that at its end, unless an exception leaves it."""
        self._run._report("val", self._step, self.take())

    def __enter__(self):
        self._phase = self._run.phase("validate")
        return self

    def __exit__(self, kind, error, trace):
        self._phase.close()
        if kind is None:
            self.report()


def sync(path):
    """Syncs a file, or a folder with all files in it, to the disk, and the name in its folder. Returns whether it is
    there. Files that another rank is still writing or removing are left to that rank."""
    files = [os.path.join(folder, f) for folder, _, names in os.walk(path) for f in names + ["."]] or [path]
    for name in files + [os.path.dirname(path)]:
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(name, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
    return os.path.exists(path)

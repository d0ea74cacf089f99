#!/usr/bin/env python3
"""The module detd in a program of its own, with a socket and a page as detd-job gives them. Each line that the program
writes is checked against proto/PROTOCOL.md."""  # SPDX-License-Identifier: Apache-2.0
import ast
import fcntl
import glob
import json
import math
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(HERE, "..", "..", "..", "python")
WAIT_S = 60

NUMBER, TEXT = (int, float), (str,)
MESSAGES = {  # members of each message: (types, whether it must be there)
    "hello": {"pid": ((int,), False), "stacks": ((int,), False), "words": ((list,), False), "tier": (TEXT, False), "device": (TEXT, False),
              "versions": ((dict,), False)},
    "share": {"split": (TEXT, True), "step": ((int,), True), "terms": ((dict,), True), "epoch": (NUMBER, False), "images": (NUMBER, False)},
    "finish": {},
    "eval": {"step": ((int,), True), "metrics": ((dict,), True)},
    "checkpoint": {"step": ((int,), True), "phase": (TEXT, True), "path": (TEXT, False)},
    "event": {"level": (TEXT, True), "kind": (TEXT, True), "text": (TEXT, True)},
}


PLACE = """
import os, sys
for number, fd in (3, int(sys.argv[1])), (4, int(sys.argv[2])):
    os.dup2(fd, number)
    os.close(fd)
os.execv(sys.argv[3], [sys.argv[3], "-c", sys.argv[4]])
"""  # gives a program its descriptors


def refuse(name):
    raise AssertionError("%s is no JSON" % name)


def check(line):
    """Returns the message of a line that follows the protocol."""
    assert len(line) <= 64 << 10 and line.endswith(b"\n")
    message = json.loads(line, parse_constant=refuse)
    members = MESSAGES[message["type"]]
    for name, (types, needed) in members.items():
        assert (name in message) >= needed and isinstance(message.get(name, types[0]()), types), (name, message)
    assert set(message) <= set(members) | {"type"}, message
    if message["type"] == "share":
        assert message["split"] in ("train", "val")
        for pair in message["terms"].values():
            assert len(pair) == 2 and all(n is None or math.isfinite(n) for n in pair), pair
    if message["type"] == "eval":
        assert len(message["metrics"]) <= 256 and all(n is None or math.isfinite(n) for n in message["metrics"].values())
    return message


def without_hello(messages):
    return [m for m in messages if m["type"] != "hello"]


class Rank:
    """A program that detd-job would have started."""

    def __init__(self, program, told=True, **variables):
        self.near, far = socket.socketpair()
        self.near.settimeout(WAIT_S)
        page = os.memfd_create("page")
        os.truncate(page, 4096)
        self.page = memoryview(mmap.mmap(page, 4096)).cast("Q")
        env = {**os.environ, "PYTHONPATH": PYTHON, "RANK": "0", "WORLD_SIZE": "2", **variables}
        if told:
            env.update(DETD_REPORT="3:%d" % os.fstat(far.fileno()).st_ino, DETD_PAGE="4:%d" % os.fstat(page).st_ino)
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (far.fileno(), page)]
        start = [sys.executable, "-I", "-S", "-c", PLACE, *map(str, high)]
        self.process = subprocess.Popen(start + [sys.executable, textwrap.dedent(program)], env=env, pass_fds=high,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        far.close()
        for fd in high + [page]:
            os.close(fd)
        self.file = self.near.makefile("rb")

    def read(self):
        """Returns the next message."""
        return check(self.file.readline())

    def end(self, status=0):
        """Returns the messages up to the end, and what the program has printed."""
        messages = [check(line) for line in self.file]
        out, self.err = (b.decode() for b in self.process.communicate(timeout=WAIT_S))
        assert self.process.returncode == status, self.err
        return messages, out

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        for f in self.file, self.near, self.process.stdout, self.process.stderr:
            f.close()


class Test(unittest.TestCase):
    def start(self, program, **more):
        rank = Rank(program, **more)
        self.addCleanup(rank.close)
        return rank

    def lines(self, program, **more):
        """Returns what a program reports besides hello."""
        return without_hello(self.start(program, **more).end()[0])

    def test_losses(self):
        said = self.lines("""
            import detd
            run = detd.init()
            assert run.active and run is detd.init() and (run.rank, run.ranks) == (0, 2)
            run.loss(1, total=(0.1, 3), box=(1 / 3, 3), epoch=0.5, images=3)
            run.loss(2, {"odd name": (float("nan"), 1), "total": (float("inf"), 0)})
            for odd in (1,), (1, 2, 3):
                try:
                    run.loss(3, box=odd, total=(1, 1))
                    raise SystemExit("%r is a pair" % (odd,))
                except ValueError as e:
                    assert str(e).startswith("box: not a numerator and a denominator: "), e
        """)
        self.assertEqual(said, [
            {"type": "share", "split": "train", "step": 1, "terms": {"total": [0.1, 3], "box": [1 / 3, 3]}, "epoch": 0.5, "images": 3},
            {"type": "share", "split": "train", "step": 2, "terms": {"odd name": [None, 1], "total": [None, 0]}}])

    def test_hello_names_the_signal_for_stacks(self):
        rank = self.start("""
            import detd, time
            run = detd.init(deterministic="rerun")
            time.sleep(60)
        """)
        hello = rank.read()
        self.assertEqual((hello["type"], hello["tier"], hello["stacks"]), ("hello", "rerun", signal.SIGUSR2))
        os.kill(hello["pid"], hello["stacks"])
        self.assertIn(b"most recent call first", rank.process.stderr.readline())

    def test_a_handler_of_the_program_stays(self):
        hello = self.start("""
            import signal, detd
            signal.signal(signal.SIGUSR2, print)
            detd.init()
            assert signal.getsignal(signal.SIGUSR2) is print
        """).end()[0][0]
        self.assertEqual(hello["stacks"], 0)

    def test_validation(self):
        said = self.lines("""
            import detd
            run = detd.init()
            with run.validation(5) as val:
                for n in 1, 2, 4:
                    val.add(total=(n / 10, n), box=(n, n))
            with run.validation(6) as val:
                pass
            try:
                with run.validation(7) as val:
                    val.add(total=(1, 1))
                    raise KeyError
            except KeyError:
                pass
        """)
        self.assertEqual([(m["split"], m["step"], m["terms"]) for m in said],
                         [("val", 5, {"total": [0.1 + 0.2 + 0.4, 7], "box": [7, 7]}), ("val", 6, {})])

    def test_metrics_are_of_rank_0_and_come_in_pieces(self):
        program = """
            import detd
            detd.init().metrics(3, {"m%d" % i: i for i in range(250)}, AP=float("nan"))
        """
        self.assertEqual(self.lines(program, RANK="1"), [])
        said = self.lines(program)
        self.assertEqual({k: v for m in said for k, v in m["metrics"].items()}, dict({"m%d" % i: i for i in range(250)}, AP=None))

    def test_resume(self):
        out = self.start("import detd; run = detd.init(); print(run.step, run.resume, run.steps)", DETD_RESUME_STEP="40",
                         DETD_RESUME="/c/step-40", DETD_STEPS="100").end()[1]
        self.assertEqual(out, "40 /c/step-40 100\n")

    def test_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(folder + "/step-2/part")
            open(folder + "/step-2/part/weights", "w", encoding="utf-8").close()
            said = self.lines("""
                import os, detd
                os.chdir(%r)
                run = detd.init()
                run.checkpoint(2, "step-2")
                run.checkpoint(3, "step-3")
                run.checkpoint(4)
                run.finish()
            """ % folder)
            self.assertEqual(said[0], {"type": "checkpoint", "step": 2, "phase": "ready", "path": os.path.realpath(folder) + "/step-2"})
            self.assertEqual((said[1]["type"], said[1]["level"]), ("event", "error"))
            self.assertIn("step 3", said[1]["text"])
            self.assertEqual(said[2:], [{"type": "checkpoint", "step": 4, "phase": "ready"}, {"type": "finish"}])

    def test_page(self):
        rank = self.start("""
            import detd
            run = detd.init()
            run.loss(7, total=(1, 1))
            run.loss(6, total=(1, 1))
            run.phase("load " + "\\u00e4" * 40, deadline=1.5)
            with run.phase("eval"):
                pass
            for odd in -5, float("inf"), float("nan"):
                try:
                    run.phase("odd", deadline=odd)
                    raise SystemExit("%r is a deadline" % odd)
                except ValueError as e:
                    assert str(e).startswith("a deadline is 0 (none) to 1e9 seconds, not "), e
        """)
        rank.end()
        page = rank.page
        self.assertEqual((page[0], page[3], page[15]), (0x0000000364657464, 7, 1500))
        self.assertEqual(page[16:24].tobytes().rstrip(b"\0").decode(), "load " + "\u00e4" * 29)
        self.assertEqual(page[2], 5)

    def test_words(self):
        def order(step, word, released, number):
            return step | word << 48 | released << 52 | number << 53

        rank = self.start("""
            import detd, time
            run = detd.init()
            heard = {}
            for step in range(1, 8):
                run.wants(step, "checkpoint")
                while run._page._words[30] < step:
                    time.sleep(0.001)
                heard[step] = [w for w in ("checkpoint", "pause") if run.wants(step, w)]
            print(heard)
        """)
        page, checkpoint, pause = rank.page, 1, 3

        def at(step):
            deadline = time.monotonic() + WAIT_S
            while page[12] < step and time.monotonic() < deadline:
                time.sleep(0.001)
            self.assertEqual(page[12], step)
        at(1)
        page[13] = order(3, checkpoint, True, 1)  # not yet
        page[30] = 1
        at(2)
        page[30] = 2
        at(3)
        page[30] = 3
        self.assertEqual(page[14], page[13])  # answered by the first wants() of step 3
        at(4)
        page[13] = order(4, pause, False, 2)
        page[30] = 4  # waits until the order is released
        page[13] = order(4, pause, True, 2)
        at(5)
        self.assertEqual(page[14], page[13])
        page[13] = order(9, pause, True, 3)
        page[30] = 7
        self.assertEqual(rank.end()[1], "{1: [], 2: [], 3: [], 4: ['pause'], 5: [], 6: [], 7: []}\n")

    def test_a_checkpoint_is_due_every_so_many_steps(self):
        out = self.start("""
            import detd
            run = detd.init()
            print([s for s in range(1, 10) if run.wants(s, "checkpoint")], run.wants(4, "pause"))
        """, DETD_CHECKPOINT_EVERY="4").end()[1]
        self.assertEqual(out, "[4, 8] False\n")

    def test_each_word_is_named_in_hello(self):
        said = self.start("""
            import detd
            run = detd.init()
            run.wants(1, "checkpoint")
            run.wants(1, "pause")
            run.wants(2, "pause")
        """).end()[0]
        self.assertEqual([m["words"] for m in said], [[], ["checkpoint"], ["checkpoint", "pause"]])

    def test_outside_detd(self):
        program = """
            import detd
            run = detd.init()
            assert not run.active and run.step == 0 and run.resume is None and not run.wants(1, "pause")
            assert (run.rank, run.ranks) == (0, 2)  # of torchrun
            run.loss(1, total=(1, 1)); run.metrics(1, AP=1); run.checkpoint(1, "nowhere"); run.event("x"); run.finish()
            with run.phase("x"), run.validation(1) as val:
                val.add(total=(1, 1))
        """
        by_hand = self.start(program, told=False)
        self.assertEqual(by_hand.end()[0], [])
        self.assertEqual(by_hand.err, "")
        other = {"DETD_REPORT": "3:1", "DETD_PAGE": "4:1", "DETD_RESUME_STEP": "5"}  # a program in between has closed them
        closed = self.start(program, told=False, **other)
        self.assertEqual(closed.end()[0], [])
        self.assertEqual(closed.err, "detd: reports of this process do not reach detd, because the program that started it has closed "
                                     "descriptor 3\n")

    def test_children_say_nothing(self):
        said = self.lines("""
            import os, subprocess, sys, detd
            run = detd.init()
            if os.fork() == 0:
                run.loss(1, total=(1, 1))
                sys.exit(0)
            os.wait()
            subprocess.run([sys.executable, "-c", "import os; print(os.path.exists('/proc/self/fd/3'))"], close_fds=False, check=True)
        """)
        self.assertEqual(said, [])

    def test_a_child_that_calls_init_is_told_nothing(self):
        rank = self.start("""
            import subprocess, sys, detd
            detd.init()
            subprocess.run([sys.executable, "-c", "import detd; assert not detd.init().active"], close_fds=False, check=True)
        """)
        rank.end()
        self.assertEqual(rank.err, "")

    def test_descriptor_3_becomes_another_file(self):
        with tempfile.NamedTemporaryFile() as f:
            said = self.lines("""
                import os, detd
                run = detd.init()
                os.dup2(os.open(%r, os.O_WRONLY), 3)
                run.loss(1, total=(1, 1))
                os.close(3)
                run.loss(2, total=(1, 1))
            """ % f.name)
            self.assertEqual((said, os.path.getsize(f.name)), ([], 0))

    def test_detd_job_goes_away(self):
        rank = self.start("import detd; run = detd.init(); [run.loss(i, total=(i, 1)) for i in range(1, 10000)]")
        rank.read()
        rank.near.shutdown(socket.SHUT_RDWR)
        rank.end()

    def test_slow_reader(self):
        """All lines wait while nobody reads, and none is lost below the limit."""
        rank = self.start("""
            import detd
            run = detd.init()
            for step in range(1, 20001):
                run.loss(step, total=(step, 1))
            print("done", flush=True)
        """)
        self.assertEqual(rank.process.stdout.readline(), b"done\n")
        said = without_hello(rank.end()[0])
        self.assertEqual([m["step"] for m in said], list(range(1, 20001)))

    def test_lines_are_dropped_when_too_many_wait(self):
        rank = self.start("""
            import detd.lines
            detd.lines.MAX_WAITING, detd.lines.PATIENCE_S = 100000, 0.1
            run = detd.init()
            for step in range(1, 20001):
                run.loss(step, total=(step, 1))
            print("done", flush=True)
        """)
        self.assertEqual(rank.process.stdout.readline(), b"done\n")
        steps = [m["step"] for m in without_hello(rank.end()[0])]
        self.assertEqual(steps, sorted(steps))
        self.assertLess(len(steps), 20000)
        self.assertEqual(rank.err.count("some are lost"), 1)

    def test_a_signal_handler_reports_too(self):
        said = self.lines("""
            import signal, detd
            run = detd.init()
            signal.signal(signal.SIGALRM, lambda number, frame: run.event("alarm"))
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            for step in range(1, 3000):
                run.loss(step, total=(step, 1))
            signal.setitimer(signal.ITIMER_REAL, 0)
        """)
        self.assertEqual([m["step"] for m in said if m["type"] == "share"], list(range(1, 3000)))

    def test_the_error_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/error.json"
            rank = self.start("import detd; detd.init(); raise ValueError('no such picture: a.jpg')", TORCHELASTIC_ERROR_FILE=path)
            rank.end(1)
            with open(path, encoding="utf-8") as f:
                message = json.load(f)["message"]
            self.assertEqual(message["message"], "ValueError: no such picture: a.jpg")
            self.assertIn("Traceback", message["extraInfo"]["py_callstack"])
            self.assertIn("Traceback", rank.err)
            os.unlink(path)
            self.start("import detd; detd.init(); raise ValueError('\u00fc' * 30000)", TORCHELASTIC_ERROR_FILE=path).end(1)
            self.assertLess(os.path.getsize(path), 256 << 10)  # detd-job reads no more

    def test_names_and_texts_of_any_kind(self):
        said = self.lines("""
            import detd
            run = detd.init()
            run.metrics(1, {"caf\\u00e9/\\udc80": 1, 5: 2})
            run.event("x" * 100000, "warning")
        """)
        self.assertEqual(said[0]["metrics"], {"caf\u00e9/?": 1, "5": 2})
        self.assertEqual(len(said[1]["text"]), 4000)

    def test_a_line_that_is_too_long_is_told(self):
        event, share = self.lines("""
            import detd
            run = detd.init()
            run.loss(1, {"t%d" % i: (0.5, 3) for i in range(10000)})
            run.loss(2, total=(1, 1))
        """)
        self.assertEqual((event["type"], event["level"]), ("event", "error"))
        self.assertRegex(event["text"], "^a message 'share' of step 1 is not sent: it has [0-9]+ bytes, and detd-job takes 65536 at most$")
        self.assertEqual((share["step"], share["terms"]), (2, {"total": [1, 1]}))

    def test_summary_writer(self):
        said = self.lines("""
            from detd.hooks import SummaryWriter
            with SummaryWriter("folder", flush_secs=3) as writer:
                writer.add_scalar("loss/x", 1.5, 10)
                writer.add_scalar("lr", 0.1)
                writer.add_scalars("a", {"b": 1, "c": 2}, 11)
                writer.add_image("picture", None, 11)
                writer.flush()
        """)
        self.assertEqual([(m["step"], m["metrics"]) for m in said],
                         [(10, {"loss/x": 1.5}), (10, {"lr": 0.1}), (11, {"a/b": 1}), (11, {"a/c": 2})])

    def test_tensors_of_one_element(self):
        said = self.lines("""
            import detd

            class Tensor:
                def item(self):
                    return 2.5
                def __float__(self):
                    raise TypeError("PyTorch warns, and NumPy refuses an array of shape (1,)")
            run = detd.init()
            run.loss(1, total=(Tensor(), 2))
            with run.validation(1) as val:
                val.add(total=(Tensor(), Tensor()))
            run.metrics(1, AP=Tensor())
        """)
        self.assertEqual([m.get("terms", m.get("metrics")) for m in said], [{"total": [2.5, 2]}, {"total": [2.5, 2.5]}, {"AP": 2.5}])

    def test_numbers_of_a_gpu_are_copied_at_once_and_read_at_the_next_call(self):
        said = self.lines("""
            import detd

            class Tensor:
                \"\"\"A tensor of another device than CUDA's. Reading it is told.\"\"\"
                class device:
                    type = "xpu"
                def __init__(self, value):
                    self.value = value
                def detach(self):
                    return self
                def clone(self):
                    return Tensor(self.value)
                def __float__(self):
                    run._lines.send({"type": "event", "level": "info", "kind": "read", "text": ""})
                    return self.value
            run = detd.init()
            loss = Tensor(2.5)
            run.loss(1, total=(loss, 2))
            loss.value = 100.0
            run.event("next")
            run.loss(2, total=(loss, 2))
        """)
        self.assertEqual([m.get("terms", m.get("kind")) for m in said],
                         ["read", {"total": [2.5, 2]}, "program", "read", {"total": [100, 2]}])

    def test_the_code_is_python_3_8(self):
        for path in glob.glob(PYTHON + "/detd/**/*.py", recursive=True):
            with open(path, encoding="utf-8") as f:
                ast.parse(f.read(), path, feature_version=(3, 8))


if __name__ == "__main__":
    unittest.main()

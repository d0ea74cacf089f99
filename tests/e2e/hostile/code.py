#!/usr/bin/env python3
"""bob writes code into his jobs: run.env, run.on_end, and files that a parser reads. Neither root nor ann runs it for
him, nothing of a system daemon runs as root, and what he prints moves nobody's terminal."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import resource
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import on_pty  # noqa: E402
from daemon import BUILD  # noqa: E402
from launch import ANN, BOB, DETD, Node, as_user, main, of_uid  # noqa: E402

RAN = "/run/ran"  # a line of each program that was run: its uid and its words
WORKER = '#!/bin/sh\necho "$(id -u) $* fds $(ls /proc/self/fd | wc -l) $(env | sort | tr "\\n" " ")" >>%s\n' % RAN
SECRET = "swordfish"


class Tools(Node):
    """A node, and a detctl with a worker that only tells that it was run."""

    def __init__(self, **more):
        if os.stat("/tmp").st_mode & 0o777 != 0o777:  # detctl writes there as ann, too
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "none", "/tmp"], check=True)
        super().__init__(**more)
        self.tools = self.root + "/tools"
        os.mkdir(self.tools)
        shutil.copy(BUILD + "/detctl", self.tools + "/detctl")
        for path, text, mode in ((self.tools + "/detd-worker", WORKER, 0o755), (RAN, "", 0o666), ("/home/ann/data.json", "{}", 0o644)):
            with open(path, "w") as f:
                f.write(text)
            os.chmod(path, mode)
        os.chmod("/home/ann", 0o711)
        for name in ("ann", "bob"):
            with open("/home/%s/job.json" % name, "w") as f:
                json.dump({"model": {"preset": "yolov3_tiny"}, "data": {"train": {"annotations": "/home/ann/data.json", "images": "/tmp"}},
                           "train": {"steps": 10, "batch": 8}}, f)
            os.chown("/home/%s/job.json" % name, *[{"ann": ANN, "bob": BOB}[name]] * 2)
            os.chmod("/home/%s/job.json" % name, 0o600)

    def ctl(self, uid, *words, groups=(), **more):
        return subprocess.run([self.tools + "/detctl", "--socket", self.path, *map(str, words)], user=uid, group=uid, extra_groups=groups,
                              cwd="/tmp", capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL, **more)

    def refuses(self, uid, *words, groups=(), says):
        done = self.ctl(uid, *words, groups=groups)
        assert done.returncode == 1 and says in done.stderr and not done.stdout, (words, done)

    @staticmethod
    def ran():
        with open(RAN) as f:
            return f.read()


def code_in_a_job_is_its_owners():
    """Neither root nor an admin nor ann sees it or submits it again; bob does, and root as bob."""
    with Tools(conf="user_running = 9\n") as d:
        job = d.submit_as(BOB, 20, on_end="id -u >/home/bob/ended", STEP_S="0", PASSWORD=SECRET)
        ends = d.submit_as(BOB, 20, on_end=": " + SECRET, STEP_S="0")
        for j in (job, ends):
            d.wait(j, "completed")
        d.until(lambda: not of_uid(BOB), "it does not leave")
        os.unlink("/home/bob/ended")
        for uid, groups in ((0, ()), (ANN, ()), (ANN, (DETD,)), (DETD, ())):
            got = d.of(uid, groups=groups).call("job.get", id=job)
            assert got["hidden"] == ["run.on_end", "run.env"
                                     ] and SECRET not in json.dumps(got) and got["spec"]["run"]["env"]["PASSWORD"] is None, got
            assert SECRET not in d.ctl(uid, "show", job, "--json", groups=groups).stdout
        assert d.of(BOB).call("job.get", id=job)["hidden"] == [] and SECRET in d.ctl(BOB, "show", job, "--json").stdout
        for words in (["clone", job], ["clone", job, "run.env={}",
                                       "run.on_end="], ["clone", ends], ["verify", job], ["eval", job, "--on", "/home/ann/data.json"]):
            for uid, groups in ((ANN, ()), (ANN, (DETD,))):
                d.refuses(uid, *words, groups=groups, says="which is code: only its owner, bob")
            d.refuses(0, *words, says="root submits for a user with --as NAME")
            d.refuses(0, *words, "--as", "ann", says="which is code: only its owner, bob")
        d.refuses(0, "evidence", "export", job, "/tmp/copy", says="")
        assert len(d.call("job.list")["jobs"]) == 2 and not os.path.exists("/home/bob/ended") and not d.ran(), d.ran()
        done = d.ctl(0, "clone", job, "--as", "bob", "--no-check", "data.train.annotations=/home/ann/data.json", "data.train.images=/tmp",
                     "run.device=cpu")
        assert done.returncode == 0, done
        d.wait(int(done.stdout), "completed")
        d.until(lambda: os.path.exists("/home/bob/ended") and open("/home/bob/ended").read() == "%d\n" % BOB,
                "its command was not run as bob")


def root_runs_nothing_on_files_of_others():
    with Tools() as d:
        job = d.submit_as(BOB, 20, STEP_S="0")
        d.wait(job, "completed")
        d.until(lambda: not of_uid(BOB), "it does not leave")
        with open(d.root + "/picture.png", "w"):
            pass
        on_jobs = (["extend", job, "--steps", 99], ["predict", job, d.root + "/picture.png", "-o",
                                                    "/tmp/o"], ["export", job, "-f", "safetensors", "-o",
                                                                "/tmp/o"], ["sample", job, "-o", "/tmp/o"], ["layers",
                                                                                                             job], ["anchors", job])
        for words in on_jobs:
            d.refuses(
                0, *words,
                says="detctl: job %d belongs to user bob, and root runs nothing on it: use sudo -u bob detctl %s ..." % (job, words[0]))
        os.symlink(d.root + "/conf", "/home/bob/link.json")
        os.lchown("/home/bob/link.json", BOB, BOB)
        for name in ("job.json", "job", "link"):
            for words in (["check"], ["sample", "-o", "/tmp/o"], ["layers"], ["anchors"]):
                done = d.ctl(0, words[0], "/home/bob/" + name, *words[1:])
                assert words[0] == "check" and name == "link" or done.returncode == 1 and "belongs to user bob" in done.stderr, (words,
                                                                                                                                 done)
        assert not d.ran(), d.ran()
        assert d.job(job)["steps"] == 20
        assert d.ctl(BOB, "layers", job).returncode == 0 and d.ran().startswith("%d --layers " % BOB)


def root_submits_as_somebody():
    """detctl becomes the user before it opens a file: it reads what the user can read, and nothing of root goes along."""
    with Tools(conf="user_running = 9\n") as d:
        with open(d.root + "/secret.json", "w") as f:
            f.write("{}")
        os.chmod(d.root + "/secret.json", 0o600)
        for words in (["submit", "/home/ann/job.json"], ["submit", "/home/ann/job.json", "--as", "root"]):
            d.refuses(0, *words, says="no job of the system's daemon runs as root: root submits for a user with --as NAME")
        d.refuses(0, "submit", d.root + "/secret.json", "--as", "ann", says="Permission denied")
        d.refuses(0, "submit", "/home/ann/job.json", "--as", "bob", says="Permission denied")
        d.refuses(0, "submit", "/home/ann/job.json", "--as", "nobody-of-that-name", says="there is no user")
        d.refuses(ANN, "submit", "/home/ann/job.json", "--as", "bob", says="--as is for root")
        assert d.ctl(0, "ls", "--as", "ann").returncode == 2 and not d.ran(), d.ran()
        kept = os.open(d.root + "/secret.json", os.O_RDONLY)
        done = d.ctl(0, "--as=ann", "submit", "/home/ann/job.json", env=dict(os.environ, MINE=SECRET, XDG_CACHE_HOME="/somewhere/cache"),
                     pass_fds=[kept])
        os.close(kept)
        assert done.returncode == 0, done
        ran = d.ran()
        assert ran.startswith(
            "%d --check " % ANN) and SECRET not in ran and "HOME=/home/ann" in ran and "XDG_CACHE_HOME" not in ran and " fds 4 " in ran, ran
        assert d.job(int(done.stdout))["user"] == "ann"


def on_terminal(d, *words, detctl=BUILD + "/detctl", **options):
    try:
        return on_pty.shown([detctl, "--socket", d.path, *map(str, words)], **dict({"stdin": subprocess.DEVNULL}, **options))
    except OSError:
        print("skip: no pseudo-terminal", flush=True)
        sys.exit()


def a_terminal_of_roots_stays_roots():
    """A program that runs as bob, who may trace it, has no terminal of root's, and moves none."""
    with Tools() as d:
        with open(d.tools + "/detd-worker", "w") as f:
            f.write("#!/bin/sh\nreadlink /proc/$$/fd/* >%s\ncut -d' ' -f7 </proc/$$/stat >>%s\nprintf '\\033[2J\\302'\n"
                    "printf '\\2332J\\303\\251\\n' >&2\nexit 1\n" % (RAN, RAN))
        ours, theirs = os.openpty()
        said = on_terminal(d, "submit", "/home/bob/job.json", "--as", "bob", "data.train.annotations=/home/ann/data.json",
                           detctl=d.tools + "/detctl", stdin=theirs)
        os.close(ours)
        os.close(theirs)
        ran = d.ran().split("\n")
        assert not any("/dev/pts/" in line or "/dev/tty" in line for line in ran) and ran[-2] == "0", ran
        assert b"^[[2J" in said and b"<U+009B>2J\xc3\xa9" in said and b"nothing is queued" in said and b"\x1b" not in said, said


def a_log_without_an_end_of_line():
    """A line of a log that is longer than memory is printed, piece by piece."""
    size, most = 160 << 20, 128 << 20
    with Node() as d:
        job = d.submit_as(BOB, 3, STEP_S="0")
        d.wait(job, "completed")
        d.until(lambda: not of_uid(BOB), "it does not leave")

        def write():
            with open(d.folder(job) + "/log/rank-0.log", "wb") as f:
                f.write("\u00e9".encode() * 100000)
                f.truncate(size)
        as_user(BOB, write)
        command = [BUILD + "/detctl", "--socket", d.path, "logs", str(job), "--rank", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most))) as logs:
            printed = 0
            while piece := logs.stdout.read(1 << 20):
                printed += len(piece)
        assert printed == size + 1 and logs.returncode == 0, (printed, logs.returncode)
        as_user(BOB, lambda: os.truncate(d.folder(job) + "/log/rank-0.log", 200000))
        said = on_terminal(d, "logs", job, "--rank", 0)
        assert said == "\u00e9".encode() * 100000 + b"\r\n", said[-100:]


def words_that_move_a_terminal():
    """bob's log shows its control characters on root's terminal, and is as it is in a pipe."""
    log = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[8mhidden\u202e\u009b2J\r\n".encode()
    with Node() as d:
        job = d.submit_as(BOB, 3, STEP_S="0")
        d.wait(job, "completed")
        d.until(lambda: not of_uid(BOB), "it does not leave")

        def write():
            with open(d.folder(job) + "/log/rank-0.log", "wb") as f:
                f.write(log)
        as_user(BOB, write)
        assert on_terminal(d, "logs", job, "--rank",
                           0) == b"^[]0;owned^G^[[2J\x1b[31mred\x1b[8mhidden<U+202E><U+009B>2J^M\r\n\x1b[0m", on_terminal(d, "logs", job)
        done = subprocess.run([BUILD + "/detctl", "--socket", d.path, "logs", str(job), "--rank", "0"], capture_output=True, check=True)
        assert done.stdout == log, done


if __name__ == "__main__":
    main([code_in_a_job_is_its_owners, root_runs_nothing_on_files_of_others, root_submits_as_somebody, a_terminal_of_roots_stays_roots,
          a_log_without_an_end_of_line, words_that_move_a_terminal])

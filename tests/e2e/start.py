#!/usr/bin/env python3
"""Conditions at the start of programs, each with each program: closed descriptors, ignored and blocked signals, limits,
an output that takes nothing, an unread log; and requests without an answer, or without a waiting client.
"""  # SPDX-License-Identifier: Apache-2.0
import fcntl
import itertools
import json
import os
import pty
import re
import resource
import shutil
import signal
import socket
import subprocess
import termios

from daemon import BUILD, SANITIZED, Daemon, make_shapes, run_scenarios

PROGRAMS = ("detd", "detctl", "detd-job", "detd-worker", "detd-launch")
SETS = [closed for n in range(4) for closed in itertools.combinations((0, 1, 2), n)]


def run(program, *args, closed=(), before=lambda: None, out=subprocess.PIPE, cwd=None, env=None):
    def prepare():
        before()
        for fd in closed:
            os.close(fd)

    return subprocess.run([BUILD + "/" + program, *args], preexec_fn=prepare, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE,
                          cwd=cwd, text=True, env=dict(os.environ, **(env or {})), check=False, timeout=600)


class Node:
    """A daemon, real jobs of a few steps, and commands with its socket."""

    def __init__(self, d):
        self.d = d
        make_shapes(d.root + "/shapes", 4, 2, 64)
        data = {split: {"annotations": "shapes/%s.json" % split, "images": "shapes/images"} for split in ("train", "val")}
        with open(d.root + "/job.json", "w", encoding="utf-8") as f:
            json.dump(
                {
                    "name": "tiny", "model": {"preset": "yolov3_tiny", "size": 64, "width": 0.05}, "data": data,
                    "train": {"steps": 2, "batch": 2}, "val": {"every": 2}, "run": {"device": "cpu"}
                }, f)

    def ctl(self, *args, **more):
        return run("detctl", *args, cwd=self.d.root, env={"DETD_SOCKET": self.d.path}, **more)

    def good(self, *args, **more):
        done = self.ctl(*args, **more)
        assert done.returncode == 0, done
        return done.stdout


def closed_descriptors():
    """With any descriptors closed, the output is either written or reported as lost, and never goes into a socket or a
    file of the program's own."""
    for program, closed in itertools.product(PROGRAMS, SETS):
        done = run(program, "--help", closed=closed)
        assert done.returncode == (1 if 1 in closed else 0), (program, closed, done)
        assert (1 in closed or "detd" in done.stdout) and (2 in closed or
                                                           ("standard output" in done.stderr) == (1 in closed)), (program, closed, done)


def daemon_without_descriptors():
    for closed in SETS[1:]:
        with Daemon(foreign=False) as d:
            d.prepare = lambda gone=closed: [os.close(fd) for fd in gone]
            d.kill()
            d.start()
            for fd in closed:
                assert os.readlink("/proc/%d/fd/%d" % (d.proc.pid, fd)) == "/dev/null", (closed, fd)
            node = Node(d)
            node.good("submit", "job.json")
            node.good("wait", "1")
            # the process that asks the GPU driver can print
            gpus = node.good("gpus") + node.ctl("gpus").stderr
            assert "has ended" not in gpus, (closed, gpus)
            d.stop()


def client_without_descriptors():
    """The output of a trainer is never taken for a request by the program that reads it."""
    with Daemon(foreign=False) as d:
        node = Node(d)
        node.good("submit", "job.json", "--wait")
        node.good("submit", "job.json", "train.steps=100000", "val.every=50000")
        d.wait(2, "running")
        with open(d.state + "/jobs/1/log/rank-0.log", "a", encoding="utf-8") as f:
            f.write('{"jsonrpc":"2.0","id":77,"method":"job.cancel","params":{"id":2}}\n' * 50)
        for closed in SETS:
            if 1 not in closed:
                continue
            for command in (["logs", "1", "--rank",
                             "0"], ["loss", "1", "--csv"], ["ls"], ["show", "1", "--json"], ["layers",
                                                                                             "yolov3_tiny"], ["check", "job.json"]):
                done = node.ctl(*command, closed=closed)
                assert done.returncode == 1 and (2 in closed or "standard output" in done.stderr), (command, closed, done)
        assert d.job(2)["state"] == "running", d.job(2)
        done = node.ctl("submit", "job.json", closed=(1,))
        assert done.returncode == 1 and "job 3 is queued" in done.stderr, done
        done = node.ctl("clone", "33", closed=(1,))  # there is no job 33: nothing is queued or printed
        assert done.returncode == 1 and "is queued;" not in done.stderr, done
        done = node.ctl("clone", "1", closed=(1,))
        assert done.returncode == 1 and "job 4 is queued" in done.stderr, done
        node.good("cancel", "2")


def trainer_without_descriptors():
    with Daemon(foreign=False) as d:
        node = Node(d)
        for closed in SETS:
            done = run("detd-worker", "--dir", "alone%s" % "".join(map(str, closed)), "job.json", closed=closed, cwd=d.root)
            assert done.returncode == (1 if 1 in closed else 0), (closed, done)
            if 1 in closed and 2 not in closed:
                assert "Bad file descriptor" in done.stderr, done
        first = node.good("layers", "yolov3_tiny")
        assert run("detd-worker", "--layers", "yolov3_tiny", closed=(0, 2)).stdout == first


def leads_nowhere(d, closed, path, *words):
    """A program runs, and makes that path, though these are closed: they are /dev/null in it."""
    with subprocess.Popen([BUILD + "/" + words[0], *words[1:]], preexec_fn=lambda: [os.close(fd) for fd in closed],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        d.until(lambda: os.path.exists(path) or program.poll() is not None, "it does not begin")
        assert program.poll() is None, closed
        for fd in closed:
            assert os.readlink("/proc/%d/fd/%d" % (program.pid, fd)) == "/dev/null", (closed, fd)
        program.terminate()
    assert program.returncode == 0, (closed, program.returncode)


def supervisor_without_descriptors():
    with Daemon(foreign=False) as d:
        for closed in SETS:
            folder = d.root + "/job" + "".join(map(str, closed))
            os.mkdir(folder)
            leads_nowhere(d, closed, folder + "/spool.0", "detd-job", "--job-dir", folder, "--job", "1")


def launcher_without_descriptors():
    if os.geteuid() != 0:
        print("skip: only root may become other users", flush=True)
        return
    with Daemon(foreign=False) as d:
        os.mkdir(d.root + "/key")
        path = d.root + "/launch"
        for closed in SETS:
            leads_nowhere(d, closed, path, "detd-launch", "--socket", path, "--state", d.state, "--user", "root", "--key",
                          d.root + "/key/key")
            os.unlink(path)


def ignore_and_block():
    for sig in set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGHUP}:
        signal.signal(sig, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def ignored_signals():
    """SIGCHLD is ignored, SIGTERM is blocked, and then all other signals are."""
    for program in PROGRAMS:
        assert run(program, "--help", before=ignore_and_block).returncode == 0, program
    with Daemon(foreign=False) as d:
        d.prepare = ignore_and_block
        d.kill()
        d.start()
        node = Node(d)
        node.good("submit", "job.json", "run.on_end=kill -PIPE $$")
        node.good("wait", "1", before=ignore_and_block)
        # ranks and the user's command begin with signals as they are by default
        d.until(lambda: "was killed by signal 13" in open(d.state + "/jobs/1/log/supervisor.log", encoding="utf-8").read(),
                "the command ignores SIGPIPE")
        node.good("layers", "yolov3_tiny", before=ignore_and_block)
        with subprocess.Popen([BUILD + "/detctl", "--help"], stdout=subprocess.PIPE, preexec_fn=ignore_and_block) as child:
            child.stdout.close()  # as of `| head`
        assert child.returncode in (0, -signal.SIGPIPE), child.returncode
        d.stop()


def no_environment():
    """Without HOME, TERM and PATH; the folder in which the programs are started is gone."""
    with Daemon(foreign=False) as d:
        node = Node(d)
        node.good("submit", "job.json", "--wait")
        gone = d.root + "/gone"

        def prepare():
            os.mkdir(gone)
            os.chdir(gone)
            os.rmdir(gone)

        for program, *args in [[p, "--help"]
                               for p in PROGRAMS] + [["detctl", "--socket", d.path, "ls"], ["detctl", "--socket", d.path, "wait", "1"],
                                                     ["detctl", "layers", "yolov3_tiny"]]:
            done = subprocess.run([BUILD + "/" + program, *args], preexec_fn=prepare, env={}, capture_output=True, text=True, check=False,
                                  timeout=60)
            assert done.returncode == 0, (program, args, done)
        for program, *args in [["detctl", "check", "job.json"], ["detd", "--state", "here", "--socket", "s"], ["detd-worker", "job.json"],
                               ["detctl", "sample", "job.json", "-o", "here"]]:
            done = subprocess.run([BUILD + "/" + program, *args], preexec_fn=prepare, env={}, capture_output=True, text=True, check=False,
                                  timeout=60)
            assert done.returncode in (1, 2) and done.stderr.startswith("det"), (program, args, done)


def full_output():
    """Each command reports an output that takes nothing."""
    if not os.path.exists("/dev/full"):
        print("skip: no /dev/full", flush=True)
        return
    with Daemon(foreign=False) as d, open("/dev/full", "w", encoding="utf-8") as full:
        node = Node(d)
        node.good("submit", "job.json", "--wait")
        for program in PROGRAMS:
            done = run(program, "--help", out=full)
            assert done.returncode == 1 and done.stderr == "%s: standard output: No space left on device\n" % program, done
        for program in ("detd", "detctl", "detd-launch"):
            assert run(program, "--version", out=full).returncode == 1, program
        # a file of names from the one list of commands
        for command in re.findall(r"^  (\w+) +\S", run("detctl", "--help").stdout.split("exit codes")[0], re.M):
            done = node.ctl(command, "--help", out=full)
            assert done.returncode == 1 and "standard output: No space left on device" in done.stderr, done
        for command in ("ls", "show 1", "why 1", "loss 1", "loss 1 --csv", "eval 1", "events", "usage 1", "gpus --json", "info", "doctor",
                        "logs 1", "compare 1 1", "diff 1 1", "queue --json", "ls --json", "show 1 --json", "watch 1", "deterministic",
                        "completion", "submit --help-keys", "layers yolov3_tiny", "layers yolov3_tiny --json", "check job.json",
                        "anchors job.json", "sample job.json -o seen", "export 1 -f safetensors -o x.st", "tag 1 +a", "note 1 x",
                        "drain why", "undrain", "prune --older 0s --dry-run", "verify 1", "predict 1 shapes/images -o found"):
            done = node.ctl(*command.split(), out=full)
            assert done.returncode == 1 and "No space left on device" in done.stderr, (command, done)
        done = node.ctl("submit", "job.json", out=full)
        assert done.returncode == 1 and "is queued; its id cannot be written" in done.stderr, done
        done = run("detd-worker", "--dir", "alone", "job.json", out=full, cwd=d.root)
        assert done.returncode == 1 and "No space left on device" in done.stderr, done


def drain_often(node, times=400):
    """detd tells of each on a line of about 240 bytes; a pipe holds 65536."""
    client = node.d.client()
    for _ in range(times):
        client.call("daemon.drain", reason="x" * 190)
    client.call("daemon.undrain")
    client.close()


def submit_one(d):
    node = Node(d)
    node.good("submit", "job.json", "--wait")
    return node


def pipe_in(folder):
    os.mkfifo(folder + "/fifo")
    return os.open(folder + "/fifo", os.O_RDWR), os.open(folder + "/fifo", os.O_WRONLY)


def journal_in(_):
    """The journal reads a service's output from a stream socket."""
    return [end.detach() for end in socket.socketpair()]


def unread_log():
    """detd's standard error is not read: detd continues, and says later how many lines are missing. The descriptor,
    which other processes share, stays as it was."""
    for make in pipe_in, journal_in:
        with Daemon(foreign=False) as d:
            d.kill()
            reader, d.log_to = make(d.root)
            d.start()
            node = submit_one(d)
            drain_often(node)
            node.good("submit", "job.json", "--wait")
            assert not fcntl.fcntl(d.log_to, fcntl.F_GETFL) & os.O_NONBLOCK
            os.set_blocking(reader, False)
            said = b""
            while b"lines before this one were not written" not in said:  # audit lines come a moment after the answer
                drain_often(node, 1)
                try:
                    said += os.read(reader, 1 << 20)
                except BlockingIOError:
                    pass
            assert said.count(b"drain (") > 50 and all(line.startswith(b"detd: ") for line in said.splitlines()), said[-1000:]
            drain_often(node)
            d.stop()  # it stops, too
            os.close(reader)
            os.close(d.log_to)


def stopped_terminal():
    """Ctrl-S."""
    try:
        master, slave = pty.openpty()
    except OSError:
        print("skip: no pseudo-terminal", flush=True)
        return
    with Daemon(foreign=False) as d:
        d.kill()
        d.log_to = slave
        d.start()
        node = submit_one(d)
        termios.tcflow(slave, termios.TCOOFF)
        drain_often(node)
        termios.tcflow(slave, termios.TCOON)
        said = b""
        while b"lines before this one were not written" not in said:
            drain_often(node, 1)
            said += os.read(master, 1 << 16)
        os.set_blocking(master, False)
        drain_often(node)  # and the output is not read
        d.stop()
        os.close(master)
        os.close(slave)


def limit_files(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def limited_files():
    """A limit of file sizes, as on login nodes, is reported like a full disk, and kills no program."""
    with Daemon(foreign=False) as d:
        node = Node(d)
        node.good("submit", "job.json", "--wait")
        done = node.ctl("export", "1", "-f", "safetensors", "-o", "x.st", before=limit_files(50 << 10))
        assert done.returncode == 1 and "File too large" in done.stderr and not [n
                                                                                 for n in os.listdir(d.root) if n.startswith("x.st")], done
        done = run("detd-worker", "--dir", "alone", "job.json", before=limit_files(50 << 10), cwd=d.root)
        assert done.returncode == 1 and "File too large" in done.stderr, done
        for kib in 0, 1, 4, 8, 32:
            done = node.ctl("export", "--sqlite", "x.db", before=limit_files(kib << 10))
            assert done.returncode == 1, (kib, done)
            assert done.stderr == "detctl export: write 'x.db': the limit of file sizes (ulimit -f) is reached\n", (kib, done)
            assert not os.path.exists(d.root + "/x.db")
        named = set()
        for size in range(100, 20000, 300):  # the files have different sizes
            done = node.ctl("evidence", "export", "1", "there", before=limit_files(size))
            if done.returncode == 0:
                break
            said = re.fullmatch(r"detctl: write 'there\.\w+/(\w+\.\w+)': File too large\n", done.stderr)
            assert done.returncode == 1 and said and not [n for n in os.listdir(d.root) if n.startswith("there")], done
            named.add(said[1])
        assert len(named) > 1, named
        with open(d.root + "/out", "w", encoding="utf-8") as out:
            done = node.ctl("submit", "--help-keys", before=limit_files(1000), out=out)
        assert done.returncode == 1 and "File too large" in done.stderr, done
        d.kill()
        d.prepare = limit_files(8 << 20)  # the spool has more
        d.start()
        node.good("submit", "job.json")
        d.until(lambda: any("File too large" in text for text in d.events("waits", 2)), "nobody says it")
        d.kill()
        for kib in 0, 1, 4, 8, 32, 64:  # detd.db has more
            done = run("detd", "--state", d.root + "/other", "--socket", d.path, before=limit_files(kib << 10))
            assert done.returncode == 1, (kib, done)
            limit = "detd: '%s/other/detd.db': the limit of file sizes (ulimit -f) is reached\n" % d.root
            assert done.stderr == limit, (kib, done)
        d.prepare = None
        d.start()
        node.good("wait", "2")  # it has waited for room


def limited_processes():
    """A thread or process over the limit is not reported as a lack of memory: the message names the limit. Root has no
    limit, so the test runs as another user."""
    if SANITIZED:
        print("skip: a sanitizer starts threads of its own", flush=True)
        return
    limits = r"a limit of processes \(ulimit -u, or TasksMax of systemd\) is reached"
    with Daemon(foreign=False) as d:
        Node(d)  # makes shapes and job.json
        shutil.copy(BUILD + "/detctl", d.bin)
        os.mkdir(d.root + "/home")
        os.chmod(d.root + "/home", 0o777)
        os.chmod(d.root, 0o755)

        def tried(limit, *words, seconds=60):
            def prepare():
                resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
                if os.getuid() == 0:
                    os.setgroups([])
                    os.setgid(65534)
                    os.setuid(65534)

            with subprocess.Popen([d.bin + "/" + words[0], *words[1:]], preexec_fn=prepare, cwd=d.root + "/home",
                                  env={"PATH": "/usr/bin:/bin"}, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
                try:
                    return child.wait(seconds), child.stderr.read()
                except subprocess.TimeoutExpired:
                    child.terminate()
                    return None, child.stderr.read()

        for words in (["detctl", "layers", "yolov3_tiny"], ["detd-worker", "--check", d.root + "/job.json", "run.threads=3"],
                      ["detd-worker", "--dir", "alone", d.root + "/job.json"]):
            status, said = tried(1, *words)
            assert status == 1 and re.search(limits + "$", said, re.M), (words, status, said)
        for limit in range(1, 12):
            status, said = tried(limit, "detd", "--state", "state", "--socket", "socket", seconds=2)
            assert "address space" not in said, said
            if status is None:
                break
            assert status == 1 and re.fullmatch("detd: start [a-z0-9 ]+: " + limits + "\n", said), (limit, status, said)
        assert limit > 3, limit


def limited_memory():
    """Under each limit of the address space and of open files detd serves, or ends with a message; no program is ended
    by a signal."""
    if SANITIZED:
        print("skip: a sanitizer needs all of the address space", flush=True)
        return
    with Daemon(foreign=False) as d:
        node = Node(d)
        node.good("submit", "job.json", "--wait")

        def limit(kind, value):
            return lambda: resource.setrlimit(kind, (value, value))

        limits = [limit(resource.RLIMIT_AS, kib << 10)
                  for kib in range(10000, 90000, 8000)] + [limit(resource.RLIMIT_NOFILE, n) for n in (5, 7, 20, 63)]
        for prepare in limits:
            for program, *args in (["detd-worker", "--check",
                                    "job.json"], ["detctl", "--socket", d.path,
                                                  "ls"], ["detctl", "--socket", d.path, "loss",
                                                          "1"], ["detctl", "layers",
                                                                 "yolov3_tiny"], ["detd", "--version"], ["detd-launch", "--version"]):
                done = run(program, *args, before=prepare, cwd=d.root)
                assert done.returncode in (0, 1, 3) and (done.returncode == 0 or program in done.stderr), (program, args, done)
            d.kill()
            d.prepare = prepare
            d.start(wait=False)
            d.until(lambda: d.proc.poll() is not None or node.ctl("ls").returncode == 0, "it neither serves nor leaves")
            if d.proc.poll() is None:
                done = node.ctl("submit", "job.json", "--no-check")
                assert done.returncode == 0 or (done.returncode == 1 and "out of memory" in done.stderr), done
                d.stop()
                d.prepare = None
                d.start()
            else:
                with open(d.root + "/log", encoding="utf-8") as log:
                    said = log.read().splitlines()[-1]
                assert d.proc.returncode == 1 and said.startswith("detd: ") and "serves" not in said, (d.proc.returncode, said)
                d.prepare = None
                d.start()


def full_sockets():
    """A supervisor of services that does not read, and a daemon at the same socket that is stopped, hold up no start and no stop."""
    with Daemon(foreign=False) as d:
        d.kill()
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        told.bind(d.root + "/notify")
        fills = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        fills.setblocking(False)
        try:
            while True:
                fills.sendto(b"x", d.root + "/notify")
        except BlockingIOError:
            pass
        d.env = {"NOTIFY_SOCKET": d.root + "/notify"}
        d.start()
        d.stop()
        told.close()
        fills.close()
        d.env = {}
        d.start()
        os.kill(d.proc.pid, signal.SIGSTOP)
        waiting = []
        try:
            while True:
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect(d.path)
        except BlockingIOError:
            pass
        done = run("detd", "--state", d.root + "/other", "--socket", d.path)
        assert done.returncode == 1 and "another daemon serves it" in done.stderr, done
        for client in waiting:
            client.close()
        os.kill(d.proc.pid, signal.SIGCONT)
        d.stop()


def named_signal():
    """The message that a supervisor has left names the signal that ended it."""
    with Daemon(foreign=False) as d:
        node = Node(d)
        with open(d.bin + "/new", "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\nkill -XFSZ $$\n")
        os.chmod(d.bin + "/new", 0o755)
        os.rename(d.bin + "/new", d.bin + "/detd-job")
        node.good("submit", "job.json")
        assert "signal 25, File size limit exceeded" in d.wait_event("waits", 1)[0]
        node.good("cancel", "1")


def word_of(client):
    """Reads up to the line which says that the command waits."""
    line = client.stderr.readline()
    assert "has not answered for 2 s; still waiting" in line, line


def gone_before_it_is_read():
    """A request that changes something is not carried out if its client has left before detd reads it. A client that
    only closes its sending side gets its answer."""
    with Daemon(foreign=False) as d:
        node = Node(d)
        node.good("submit", "job.json", "--wait")
        os.kill(d.proc.pid, signal.SIGSTOP)
        clients = [
            subprocess.Popen([BUILD + "/detctl", *line.split()], cwd=d.root, env=dict(os.environ, DETD_SOCKET=d.path),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for line in ("submit job.json --no-check", "clone 1", "tag 1 +lost", "rm 1", "drain why", "prune --older 0s", "watch 1",
                         "submit job.json --no-check")
        ]
        half = socket.socket(socket.AF_UNIX)
        half.connect(d.path)
        half.sendall(b'{"jsonrpc":"2.0","id":1,"method":"job.label","params":{"id":1,"tags":"+half"}}\n')
        half.shutdown(socket.SHUT_WR)
        for client in clients:
            word_of(client)
        for client in clients[:-1]:
            client.kill()
            client.communicate()
        os.kill(d.proc.pid, signal.SIGCONT)
        assert clients[-1].communicate(timeout=120)[0] == "2\n" and clients[-1].returncode == 0
        assert json.loads(half.makefile().readline())["result"], "no answer"
        half.close()
        node.good("wait", "2")
        jobs = d.call("job.list")["jobs"]
        assert [j["id"] for j in jobs] == [2, 1] and jobs[1]["tags"] == ["half"] and not d.call("daemon.info")["drained"], jobs
        d.stop()


def no_answer_in_time():
    """After a minute detctl leaves, like without a detd, and says that its request may have been carried out; `wait`
    continues to wait."""
    with Daemon(foreign=False) as d:
        node = Node(d)
        node.good("submit", "job.json", "--wait")
        node.good("submit", "job.json", "train.steps=100000", "val.every=50000")
        d.wait(2, "running")
        os.kill(d.proc.pid, signal.SIGSTOP)
        waits = subprocess.Popen([BUILD + "/detctl", "--socket", d.path, "wait", "2"], stderr=subprocess.PIPE, text=True)
        word_of(waits)
        commands = ["submit job.json --no-check", "cancel 2", "clone 1", "ls"]
        asking = ["clone 1", "ls"] + commands[:1] * (os.geteuid() == 0)  # clone asks for job 1 first, and root whose daemon it is
        asked = [
            subprocess.Popen([BUILD + "/detctl", "--socket", d.path, *line.split()], cwd=d.root, stderr=subprocess.PIPE, text=True)
            for line in commands
        ]
        for line, client in zip(commands, asked):
            said = client.communicate(timeout=300)[1]
            assert client.returncode == 3 and "gives no answer within 60 s" in said, (line, said)
            assert ("was sent, but no reply came" in said) == (line not in asking), (line, said)
        assert waits.poll() is None
        os.kill(d.proc.pid, signal.SIGCONT)
        assert d.job(2)["state"] == "running" and d.job(1)["id"] == 1 and len(d.call("job.list")["jobs"]) == 2
        node.good("cancel", "2")
        assert waits.wait(120) == 5 and "cancelled" in waits.stderr.read()
        waits.stderr.close()
        d.stop()


run_scenarios([
    no_answer_in_time, full_output, client_without_descriptors, daemon_without_descriptors, trainer_without_descriptors, unread_log,
    stopped_terminal, ignored_signals, limited_memory, limited_processes, limited_files, full_sockets, named_signal,
    launcher_without_descriptors, supervisor_without_descriptors, gone_before_it_is_read, closed_descriptors, no_environment
])

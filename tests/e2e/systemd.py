#!/usr/bin/env python3
"""A systemd of our own, pid 1 of namespaces of its own, on the machine's programs: /etc is a copy, /usr/local holds the
files of `make install`, and the distribution's units are reduced to those that a bare node needs. detd, as user detd
under the shipped unit, trains with rank.py, which reports the parts of the machine that it can see.

usage: systemd.py TMP     TMP/root has the installed files; run by systemd.sh"""  # SPDX-License-Identifier: Apache-2.0
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TMP = sys.argv[1]
ROOT = TMP + "/root"
UNITS = """basic.target sysinit.target shutdown.target umount.target final.target sockets.target multi-user.target local-fs.target
remote-fs.target nss-user-lookup.target poweroff.target systemd-poweroff.service systemd-journald.service systemd-journald.socket
systemd-journald-dev-log.socket""".split()
NODE = "/sys/fs/cgroup"

# Runs as the first process of the namespaces, in a control group of its own, which systemd uses as the root of its
# hierarchy.
BOOT = r"""
set -e
cd "$1" # it stays in reach when its own place is covered
cp -a /etc "./etc"
rm -rf "./etc/systemd/system" "./etc/detd.conf" "./etc/fstab"
mkdir -p "./etc/systemd/system/multi-user.target.wants" "./etc/systemd/system/sockets.target.wants"
printf 'ann:x:2001:2001::/home/ann:/bin/sh\nbob:x:2002:2002::/home/bob:/bin/sh\n' >>./etc/passwd
printf 'ann:x:2001:\nbob:x:2002:\n' >>./etc/group
echo 'slots = 8' >./etc/detd.conf
cp mounted.service ./etc/systemd/system/
mkdir ./etc/systemd/system/detd-launch.service.d
printf '[Service]\nNice=7\n' >./etc/systemd/system/detd-launch.service.d/nice.conf
ln -s ../mounted.service /usr/lib/systemd/system/remote-fs.target "./etc/systemd/system/multi-user.target.wants/"
ln -s /usr/local/lib/systemd/system/detd.service "./etc/systemd/system/multi-user.target.wants/"
ln -s /usr/lib/systemd/system/systemd-journald.socket "./etc/systemd/system/sockets.target.wants/"
ln -s /usr/local/lib/systemd/system/detd.socket "./etc/systemd/system/sockets.target.wants/"
ln -s /usr/local/lib/systemd/system/detd-admin.socket "./etc/systemd/system/sockets.target.wants/"
ln -s /usr/local/lib/systemd/system/detd-launch.socket "./etc/systemd/system/sockets.target.wants/"
: >>"./console"
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t proc proc /proc
mount -t tmpfs dev "./dev"
for d in null zero full random urandom; do : >"./dev/$d"; mount --bind "/dev/$d" "./dev/$d"; done
mknod -m 666 "./dev/nvidiactl" c 195 255
ln -s /proc/self/fd "./dev/fd"; ln -s /proc/self/fd/0 "./dev/stdin"
ln -s /proc/self/fd/1 "./dev/stdout"; ln -s /proc/self/fd/2 "./dev/stderr"
: >"./dev/console"; mount --bind "./console" "./dev/console"
mkdir "./dev/shm"; mount -t tmpfs -o mode=1777 shm "./dev/shm"
mount --bind "./units" /usr/lib/systemd/system
mount --bind "./etc" /etc
mount --bind "./root/usr/local" /usr/local
mount --bind "./home" /home
mount --bind "./var" /var
mount --rbind "./dev" /dev
mount -t tmpfs run /run
mount -t tmpfs -o mode=1777 tmp /tmp
mkdir -p /run/lock /var/tmp /var/lib && chmod 1777 /run/lock /var/tmp
hostname node
systemd-sysusers /usr/local/lib/sysusers.d/detd.conf
systemd-tmpfiles --create /usr/local/lib/tmpfiles.d/detd.conf
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=detd-e2e /lib/systemd/systemd --system --unit=multi-user.target \
    --show-status=no --log-target=journal
"""

# Replaces the mount of another machine's folder: lists the existing checkpoints when it is stopped.
MOUNTED = """[Unit]
Before=remote-fs.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/bin/sh -c 'ls /var/lib/detd/jobs/*/checkpoints >/var/seen'
"""

# The trainer: reports the parts of the machine that the unit lets it see, then trains.
TRAINER = r"""#!/usr/bin/python3
import json, os, resource, socket, subprocess, sys, time
CONTAINER = ["unshare", "--user", "--map-root-user", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "sh", "-c",
             "hostname c && mount -t tmpfs t /mnt && touch /mnt/f && chmod 4755 /mnt/f && stat -c %a /mnt/f"]
status = dict(line.rstrip().split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
def tried(what):
    try:
        return what() or "done"
    except OSError as e:
        return e.strerror
facts = {"data": tried(lambda: open("/home/ann/data.json").read()),
         "interfaces": tried(lambda: [name for _, name in socket.if_nameindex()]),
         "oom": int(open("/proc/self/oom_score_adj").read()), "oom_detd_job": int(open("/proc/%d/oom_score_adj" % os.getppid()).read()),
         "capabilities": int(status["CapBnd"], 16) | int(status["CapEff"], 16),
         "seccomp": status["Seccomp"], "new_privileges": status["NoNewPrivs"],
         "lock": tried(lambda: os.close(os.open("/run/detd/gpus/GPU-test.lock", os.O_RDWR | os.O_CREAT))),
         "tmp": tried(lambda: os.close(os.open("/tmp/x", os.O_RDWR | os.O_CREAT))), "usr": tried(lambda: os.mkdir("/usr/local/x")),
         "affinity": tried(lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))), "hostname": tried(lambda: socket.sethostname("x")),
         "nvidiactl": tried(lambda: os.close(os.open("/dev/nvidiactl", os.O_RDWR))), "session": tried(lambda: os.getsid(1)),
         "container": subprocess.run(CONTAINER, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True).stdout,
         "clock": tried(lambda: time.clock_settime(time.CLOCK_REALTIME, time.time())),
         "umask": os.umask(0o77), "locked": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]}
with open("facts.new", "w") as f:
    json.dump(facts, f)
os.rename("facts.new", "facts")
os.execv("/usr/local/bin/rank.py", ["/usr/local/bin/rank.py"] + sys.argv[1:])
"""


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, mode)


def lay_out():
    """The node's files in TMP, which the namespaces see where they belong."""
    os.chmod(TMP, 0o755)
    for name in ("var", "home/ann", "units", "dev"):
        os.makedirs(TMP + "/" + name)
    write(TMP + "/home/ann/data.json", "of ann")
    write(TMP + "/mounted.service", MOUNTED)
    write(ROOT + "/usr/local/bin/detd-worker", TRAINER, 0o755)
    write(ROOT + "/usr/local/bin/nvidia-modprobe", '#!/bin/sh\necho "$(id -u) $*" >>/var/modprobe\n', 0o755)
    shutil.copy(HERE + "/rank.py", ROOT + "/usr/local/bin/rank.py")
    os.chmod(ROOT + "/usr/local/bin/rank.py", 0o755)
    if os.path.exists(ROOT + "/usr/local/bin/libdetd-cuda.so"):
        os.unlink(ROOT + "/usr/local/bin/libdetd-cuda.so")  # rank.py would look for words in it
    for unit in UNITS:
        shutil.copy("/usr/lib/systemd/system/" + unit, TMP + "/units/" + unit)


def hierarchy():
    """Returns the folder where control groups of version 2 are mounted."""
    for line in open("/proc/self/mounts"):
        _, where, kind = line.split()[:3]
        if kind == "cgroup2":
            return where
    return None


class Node:
    """A boot. Its processes are in a control group of their own, below which systemd makes its tree."""

    def __init__(self):
        self.group = "%s/detd-e2e-%d" % (hierarchy(), os.getpid())
        os.mkdir(self.group)
        join = "echo $$ >'%s/cgroup.procs'; exec unshare --mount --pid --cgroup --ipc --uts --fork --kill-child sh -c '%s' boot '%s'" % (
            self.group, BOOT.replace("'", "'\\''"), TMP)
        shutil.rmtree(TMP + "/etc", ignore_errors=True)
        self.outer = subprocess.Popen(["sh", "-c", join], stdin=subprocess.DEVNULL, stdout=open(TMP + "/boot", "a"),
                                      stderr=subprocess.STDOUT)

    def await_socket(self):
        self.until(lambda: self.outer.poll() is not None or self.inside("test", "-S", "/run/detd/detd.sock").returncode == 0, "no socket")
        assert self.outer.poll() is None, "it does not boot"

    def init(self):
        with open("/proc/%d/task/%d/children" % (self.outer.pid, self.outer.pid)) as f:
            return f.read().split()[0]

    def inside(self, *command, check=False):
        """Runs a command as root in the node's namespaces, outside every unit."""
        try:
            enter = ["nsenter", "--target", self.init(), "--root", "--wd=/", "--mount", "--pid", "--ipc", "--uts", "--cgroup"]
        except (OSError, IndexError):
            enter = ["false"]
        return subprocess.run(enter + list(command), capture_output=True, text=True, timeout=120, check=check)

    def ctl(self, *words):
        return self.inside("/usr/local/bin/detctl", "--socket", "/run/detd/detd.sock", *words)

    def show(self, job):
        got = self.ctl("show", str(job), "--json")
        return json.loads(got.stdout) if got.returncode == 0 else {"state": got.stderr, "step": 0}

    def property(self, name, unit="detd.service"):
        return self.inside("systemctl", "show", "-p", name, "--value", unit).stdout.strip()

    def limit(self, unit, name, file, value):
        """Checks a limit of a unit, and that the kernel has it. Returns False if the hierarchy has not the controller."""
        assert self.property(name, unit) == str(value), (unit, name, self.property(name, unit))
        path = self.group + self.property("ControlGroup", unit) + "/" + file
        if not os.path.exists(path):
            return False
        with open(path, encoding="ascii") as f:
            assert f.read().strip() == str(value), path
        return True

    @staticmethod
    def until(test, what, seconds=120):
        until = time.monotonic() + seconds
        while not test():
            assert time.monotonic() < until, what
            time.sleep(0.1)

    def wait(self, job, test, seconds=120):
        self.until(lambda: test(self.show(job)), "job %d: %s" % (job, self.show(job)["state"]), seconds)
        return self.show(job)

    @staticmethod
    def ranks(job):
        """Returns the job's ranks, by their process numbers outside the node."""
        found = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue
            if b"/usr/local/bin/rank.py" in words and b"/var/lib/detd/jobs/%d" % job in words:
                found.append(path)
        return found

    def submit(self, steps, user=None):
        """Submits a job as the user, or as root for ann."""
        spec = {"model": {"preset": "yolov3_tiny"}, "data": {"train": {"annotations": "/home/ann/data.json", "images": "/home/ann"}},
                "train": {"steps": steps, "batch": 8, "shards": 4, "log_every": 1}, "checkpoint": {"every": 1000000},
                "run": {"device": "cpu", "ranks": 1, "threads": 1, "env": {"STEP_S": "0.05"}}}
        write(TMP + "/home/ann/job.json", json.dumps(spec))
        become = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"] if user else []
        return int(
            self.inside(*become, "/usr/local/bin/detctl", "--socket", "/run/detd/detd.sock", "submit", "--no-check", "/home/ann/job.json",
                        *([] if user else ["--as", "ann"]), check=True).stdout)

    def journal(self):
        """[(level, line)] of detd"""
        lines = self.inside("journalctl", "--no-pager", "-u", "detd.service", "-o", "json", check=True).stdout.splitlines()
        # the entry of an ended process has no _COMM
        return [(int(e["PRIORITY"]), e["MESSAGE"]) for e in map(json.loads, lines) if e.get("SYSLOG_IDENTIFIER") == "detd"]

    def close(self):
        if self.outer.poll() is None:
            self.outer.send_signal(signal.SIGKILL)
        self.outer.wait()
        until = time.monotonic() + 60
        for folder, _, _ in os.walk(self.group, topdown=False):
            while True:
                try:
                    os.rmdir(folder)
                    break
                except OSError:
                    assert time.monotonic() < until, "processes stay in " + folder
                    time.sleep(0.05)


def limits(node):
    """All jobs together have at most 90% of the memory, and a tenth of detd's weight."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = int(node.property("MemoryMax", "detd-launch.service"))
    assert most < memory, (most, memory)
    seen = [
        node.limit("detd-launch.service", "MemoryMax", "memory.max", most),
        node.limit("detd-launch.service", "CPUWeight", "cpu.weight", 100),
        node.limit("detd.service", "CPUWeight", "cpu.weight", 1000),
        node.limit("detd.service", "MemoryHigh", "memory.high", 1 << 30)
    ]
    if not all(seen):
        print("skip: limits of the units in the kernel: no controllers of cgroup version 2 here")


def check_facts(path):
    """Checks which settings of detd-launch.service ranks inherit, and which they do not."""
    with open(path, encoding="utf-8") as f:
        facts = json.load(f)
    assert facts["data"] == "of ann" and "lo" in facts["interfaces"], facts
    assert facts["oom"] > 0 >= facts["oom_detd_job"], facts
    assert facts["capabilities"] == 0 and facts["seccomp"] == "2" and facts["new_privileges"] == "1", facts
    assert facts["lock"] == "Permission denied" and facts["tmp"] == facts["affinity"] == "done", facts  # detd alone takes locks of GPUs
    assert facts["usr"] in ("Read-only file system",
                            "Permission denied") and facts["hostname"] == facts["clock"] == "Operation not permitted", facts
    assert isinstance(facts["session"], int) and facts["container"] == "4755\n" and facts["umask"] == 0o77, facts
    assert facts["nvidiactl"] in ("done",
                                  "No such device or address"), facts  # the unit lets ranks open it; most often there is no driver here
    with open(TMP + "/var/modprobe", encoding="utf-8") as f:
        assert f.read().splitlines()[0] == "0 -u", "files of devices are not made by root"


def restarts(node):
    """Stopped, killed again and again, restarted: the job's rank stays the same process all the time."""
    job = node.submit(1000000, "ann")
    node.wait(job, lambda j: j["step"] > 3)
    node.inside("touch", "/run/detd/gpus/GPU-test.lock", check=True)
    check_facts(TMP + "/var/lib/detd/jobs/%d/facts" % job)
    rank = node.ranks(job)
    assert len(rank) == 1, rank
    node.inside("touch", "/run/detd/gpus/GPU-test.lock", check=True)
    node.inside("systemctl", "restart", "detd.service", check=True)
    for _ in range(7):  # more often than a start limit would allow
        before = node.property("MainPID")
        node.inside("kill", "-KILL", before, check=True)
        node.until(lambda: node.property("MainPID") not in (before, "0") and node.property("ActiveState") == "active",
                   "detd is not started again")
    at = node.show(job)["step"]
    node.wait(job, lambda j: j["step"] > at)
    assert node.ranks(job) == rank, "the rank was %s and is %s" % (rank, node.ranks(job))
    assert node.show(job)["attempt"] == 1
    assert int(node.property("NRestarts")) >= 7, node.property("NRestarts")
    node.until(lambda: sum("serves '/run/detd/detd.sock'" in line for level, line in node.journal() if level == 6) == 9,
               "it is not told of each start")
    assert (6, "stops; jobs run on") in node.journal(), node.journal()
    assert node.inside("test", "-e", "/run/detd/gpus/GPU-test.lock").returncode == 0, "locks of GPUs went with detd"
    return job


def users(node):
    """Jobs as their submitters: detd-launch is started by its socket, killed and restarted while they run; each job in
    a scope of its own."""
    jobs = {user: node.submit(1000000, user) for user in ("ann", "bob")}
    for user, job in jobs.items():
        node.wait(job, lambda j: j["step"] > 3)
        rank = node.ranks(job)
        assert len(rank) == 1, rank
        with open(rank[0].replace("cmdline", "status"), encoding="utf-8") as f:
            status = dict(line.rstrip().split(":\t", 1) for line in f if ":\t" in line)
        assert status["Uid"].split() == [{"ann": "2001", "bob": "2002"}[user]] * 4 and int(status["CapBnd"],
                                                                                           16) == 0 and status["NoNewPrivs"] == "1", status
        assert os.getpriority(os.PRIO_PROCESS, int(rank[0].split("/")[2])) == 7, "jobs are not as nice as their service"
        with open(rank[0].replace("cmdline", "cgroup"), encoding="utf-8") as f:
            assert "/detd-launch.service/job-" in f.read()
    ranks = [node.ranks(job) for job in jobs.values()]
    node.inside("systemctl", "restart", "detd-launch.service", check=True)
    pid = node.inside("systemctl", "show", "-p", "MainPID", "--value", "detd-launch.service").stdout.strip()
    node.inside("kill", "-KILL", pid, check=True)
    node.until(lambda: node.inside("systemctl", "show", "-p", "MainPID", "--value", "detd-launch.service").stdout.strip() not in (pid, "0"),
               "not started again")
    assert [node.ranks(job) for job in jobs.values()] == ranks
    node.ctl("cancel", str(jobs["bob"]))
    node.wait(jobs["bob"], lambda j: j["state"] == "cancelled")
    node.until(lambda: not node.ranks(jobs["bob"]), "it does not leave")
    return jobs["ann"]


def shutdown(node, job, theirs):
    """The node shuts down while the job runs: it writes a checkpoint first, while its data is still there."""
    node.inside("systemctl", "--no-block", "poweroff", check=True)
    node.outer.wait(110)
    saved = os.listdir(TMP + "/var/lib/detd/jobs/%d/checkpoints" % job)
    assert len(saved) == 1 and saved[0].startswith("step-"), saved
    with open(TMP + "/var/seen", encoding="utf-8") as f:
        seen = f.read()
    assert saved[0] in seen, "folders of other machines went before the job had left"
    assert os.listdir(TMP + "/var/lib/detd/jobs/%d/checkpoints" % theirs)[0] in seen, "the job of a user wrote no checkpoint in time"
    return int(saved[0][5:])


def tell(node):
    print(node.inside("journalctl", "--no-pager", "-n", "60").stdout)
    for path in [TMP + "/boot", TMP + "/console"] + glob.glob(TMP + "/var/lib/detd/jobs/*/log/*"):
        with open(path, encoding="utf-8", errors="replace") as f:
            print(path, ":\n", f.read()[-2000:])


def main():
    if os.geteuid() != 0 or not hierarchy() or not os.access(hierarchy(), os.W_OK):
        print("skip: no systemd of our own can run here")
        return
    lay_out()
    node = Node()
    try:
        node.await_socket()
        job = restarts(node)
        limits(node)
        theirs = users(node)
        saved = shutdown(node, job, theirs)
        node.close()
        node = Node()
        node.await_socket()
        done = node.wait(job, lambda j: j["step"] > saved + 3)
        assert [a["resume_step"] for a in done["attempts"]] == [saved, 0], (saved, done["attempts"])
        node.wait(theirs, lambda j: j.get("attempts") and 0 < j["attempts"][0]["resume_step"] < j["step"] - 3)
        for one in (job, theirs):
            node.ctl("cancel", str(one))
            node.wait(one, lambda j: j["state"] == "cancelled")
    except BaseException:
        tell(node)
        raise
    finally:
        node.close()
    print("ok")


main()

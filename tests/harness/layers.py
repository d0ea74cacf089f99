#!/usr/bin/env python3
"""layers.py - checks how the product's files depend on each other; DETD_BUILD is the build folder, which must be complete.

1. A file includes only headers of its own folder and of the folders below it (FLOORS).
2. No two files include each other, and no two objects call each other, directly or through others. CIRCLES names the
ones that stay, with the reason.
3. No function of ours has the name of a function of a library that we link.
4. detd-worker calls no function of libm that rounds differently from version to version.
5. Only the files of LOOKS, of daemon/, call a function that takes a path: detd must not look into a folder of a user.
Prints each violation and exits with 1.
"""  # SPDX-License-Identifier: Apache-2.0
import collections
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BUILD = os.environ.get("DETD_BUILD", "build")
# A line per program, its folders from the ground up. Folders joined by "+" stand on one floor and may not include each
# other; folders joined by "~" may. detd parses no evidence: that is its user's.
PROTO = "proto/hash proto proto/host proto/job+proto/evidence"
DEVICE = PROTO + " worker/core~worker/kernels worker/ops"
FLOORS = (
    PROTO.replace("+proto/evidence", "")
    + " daemon/base daemon/job daemon/store+daemon/gpu daemon/launch daemon/jobs daemon/socket daemon/run daemon~daemon/methods",
    PROTO + " client/base client/jobs client/results+client/proof+client/model+client/node client",
    PROTO + " supervisor/spool supervisor/ranks supervisor/program supervisor",
    PROTO + " launch",
    "worker/ops worker/kernels",  # a kernel is the body of an operation and reads its structs
    DEVICE + " worker/cpu",
    DEVICE + " worker/comm cuda",
    DEVICE + " worker/comm worker/backend worker/gradients worker/mask worker/eval worker/eval/masks+worker/eval/depth worker/eval/boxes"
    " worker/data/text worker/data/image worker/data/set worker/data/read/coco+worker/data/read/labels+worker/data/read/frames "
    "worker/data/read"
    " worker/data/make worker/data/sample worker/data worker/layers worker/optim "
    "worker/models~worker/models/yolo~worker/models/rcnn~worker/models/sparse~worker/models/depth"
    " worker/report worker/checkpoint worker/evidence worker/train worker/predict worker/modes worker",
)
# Circles of calls that stay: their files without folder and ending -> the reason.
CIRCLES = {
    "commands completion": "detctl completion lists all commands, and is one of them",
}
# Files of daemon/ that may call a function that takes a path, a folder or a file without its ending -> the paths.
LOOKS = {
    "daemon/base": "detd.conf, the reserve of the disk, /proc, the disk itself",
    "daemon/daemon": "the state folder, at the start",
    "daemon/gpu": "the driver's devices",
    "daemon/launch": "held/ID, and jobs/ID of a job without a ticket",
    "daemon/run/ingest": "sup.sock",
    "daemon/run/spent": "the names in jobs/",
    "daemon/socket/gate": "the control socket",
    "daemon/socket/conn": "the control socket",
}
TAKES_PATH = re.compile(
    r"_*(open(at2?|dir)?|f(re)?open|creat|l?stat(x|fs|vfs)?|fstatat|(e|euid)?access|faccessat2?|scandir(at)?|n?ftw|glob"
    r"|readlink(at)?|realpath|canonicalize_file_name|(mk|rm)dir(at)?|mkfifo(at)?|mknod(at)?|unlink(at)?|remove"
    r"|rename(at2?)?|(sym)?link(at)?|l?chown|fchownat|chmod|fchmodat|utimensat|utimes?|truncate|chdir|chroot|mount|inotify_add_watch"
    r"|l?[gs]etxattr|exec[lv][pe]*|posix_spawnp?|popen|system|dlopen|json_(load|dump)_file|uv_fs_\w+|uv_spawn"
    r"|uv_pipe_(bind|connect)2?)(64)?(_chk|_2)?")
INEXACT = re.compile(
    r"(exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sin|cos|sincos|tan|asin|acos|atan|atan2|sinh|cosh|tanh|asinh|acosh|atanh|cbrt"
    r"|hypot)f?")
LIBRARIES = re.compile(r"jansson|libuv|sqlite|jpeg|png|libz|webp|expat|yaml")
bad = []


def sources():
    for pattern in ("*/**/*.[ch]", "*/**/*.cu"):
        for path in glob.glob(pattern, root_dir=ROOT, recursive=True):
            if path.split("/")[0] in ("proto", "daemon", "client", "supervisor", "launch", "worker", "cuda"):
                yield path


def includes():
    found = {}
    for path in sorted(sources()):
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            found[path] = re.findall(r'^#include "([^"]+)"', f.read(), re.M)
    return found


def allowed():
    """Returns {folder: the folders with headers that its files may include}."""
    may = {}
    for line in FLOORS:
        below = set()
        for floor in line.split():
            for folder in re.split(r"[+~]", floor):
                may[folder] = may.get(folder, set()) | below | set(floor.split("~") if "~" in floor else (folder,))
            below |= set(re.split(r"[+~]", floor))
    return may


def check_floors(files):
    may = allowed()
    for path, names in files.items():
        folder = os.path.dirname(path)
        if folder not in may:
            bad.append("%s: FLOORS of layers.py does not name its folder" % path)
            continue
        for name in names:
            if os.path.dirname(name) not in may[folder]:
                bad.append("%s: includes %s, which is not below it" % (path, name))


def circles(graph):
    """The strongly connected components with more than one member (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            members = []
            while not members or members[-1] != node:
                members.append(stack.pop())
            if len(members) > 1:
                found.append(sorted(members))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def symbols(paths, which):
    """{path: its names}: "T" are defined functions and variables, "U" are names that it needs."""
    found = {path: set() for path in paths}
    flag = "--defined-only" if which == "T" else "--undefined-only"
    for line in subprocess.run(["nm", "-A", flag, "-f", "posix", *paths], capture_output=True, text=True, check=True).stdout.splitlines():
        path, row = line.split(": ", 1)
        name, kind = row.split()[:2]
        if kind == "U" if which == "U" else kind in "TDBRV":
            found[path].add(name)
    return found


def objects():
    """{source without ending: its object}, of the CPU device of one instruction set."""
    found = {}
    for path in sources():
        stem = os.path.splitext(path)[0]
        name = stem
        if stem.startswith("worker/cpu/"):
            name = "cpu-avx2/" + os.path.basename(stem)
        if not path.endswith(".h") and os.path.exists(os.path.join(BUILD, name + ".o")):
            found[stem] = os.path.join(BUILD, name + ".o")
    return found


def check_calls():
    graph, owner, objects_of = collections.defaultdict(set), {}, objects()
    defined, needed = (symbols(objects_of.values(), which) for which in "TU")
    for stem, path in objects_of.items():
        for name in defined[path]:
            owner.setdefault((stem.split("/")[0], name), stem)
    for stem, path in objects_of.items():
        for name in needed[path]:
            other = owner.get((stem.split("/")[0], name))
            if other and other != stem:
                graph[stem].add(other)
    known = {tuple(sorted(names.split())) for names in CIRCLES}
    for members in circles(graph):
        key = tuple(sorted(os.path.basename(m) for m in members))
        if key in known:
            known.remove(key)
            continue
        edges = ["%s -> %s" % (a, b) for a in members for b in sorted(graph[a]) if b in members]
        bad.append("a circle of calls: %s\n    %s" % (" ".join(members), "\n    ".join(edges[:40])))
    for key in known:
        bad.append("CIRCLES of layers.py names a circle that is gone: %s" % " ".join(key))


def check_looks():
    needed = symbols({stem: path for stem, path in objects().items() if stem.startswith("daemon/")}.values(), "U")
    unused = set(LOOKS)
    for stem, path in objects().items():
        calls = sorted(name for name in needed.get(path, ()) if TAKES_PATH.fullmatch(name))
        places = {stem, os.path.dirname(stem)} & set(LOOKS)
        if calls:
            unused -= places
            if not places:
                bad.append("%s: calls %s: only the files of LOOKS may open or look at a path" % (stem, ", ".join(calls)))
    for place in sorted(unused):
        bad.append("LOOKS of layers.py names %s, which looks at no path" % place)


def check_libraries():
    programs = [os.path.join(BUILD, p) for p in ("detd", "detctl", "detd-job", "detd-worker")]
    ours = set().union(*symbols(programs, "T").values())
    linked = subprocess.run(["ldd", programs[0], programs[3]], capture_output=True, text=True, check=True).stdout
    for library in sorted(set(re.findall(r"=> (/\S+)", linked))):
        if LIBRARIES.search(library):
            said = subprocess.run(["nm", "-D", "--defined-only", "-f", "posix", library], capture_output=True, text=True, check=True).stdout
            theirs = {line.split()[0].split("@")[0] for line in said.splitlines() if line.split()[1] == "T"}
            bad.extend("%s: defined here and in %s" % (name, library) for name in sorted(ours & theirs - {"_init", "_fini"}))
    said = subprocess.run(["nm", "-D", "--undefined-only", "-f", "posix", programs[3]], capture_output=True, text=True, check=True).stdout
    for line in said.splitlines():
        name = line.split()[0].split("@")[0]
        if INEXACT.fullmatch(name):
            bad.append("detd-worker calls %s() of libm, whose bits depend on its version" % name)


FILES = includes()
check_floors(FILES)
bad.extend("a circle of includes: " + " ".join(members) for members in circles(FILES))
check_calls()
check_looks()
check_libraries()
for line in bad:
    print(line, file=sys.stderr)
print("layers: %s" % ("%d violations" % len(bad) if bad else "every include points down, no circle of calls, paths only in LOOKS"))
sys.exit(bool(bad))

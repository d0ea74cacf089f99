"""Which test programs reach a line: gcov's answer, from a copy of the tree in which the files at hand are compiled with
--coverage."""  # SPDX-License-Identifier: Apache-2.0
import collections
import glob
import gzip
import json
import os
import subprocess

# A header of more objects than this is not looked at: building them all anew would take longer than running the tests
# that include it.
MOST_OBJECTS = 60


def objects_of(build, paths):
    """Returns the objects under the folder `build` with a .d file that names any of these paths; paths that too many
    objects use are left out."""
    found = collections.defaultdict(set)
    for name in glob.glob("**/*.d", root_dir=build, recursive=True):
        if name.startswith("tests/"):
            continue
        with open(os.path.join(build, name), encoding="utf-8") as f:
            for word in f.read().split("\n\n")[0].replace("\\\n", " ").split()[1:]:
                found[os.path.normpath(word)].add(name[:-2] + ".o")
    return set().union(*(found[p] for p in paths if len(found[p]) <= MOST_OBJECTS), set())


def lines_of(folder, objects_at):
    """Returns {path: {line: count}}, which a test left under `folder`. Its objects were compiled in the folder
    `objects_at`."""
    counts = collections.defaultdict(dict)
    where = folder + objects_at
    left = sorted(glob.glob("**/*.gcda", root_dir=where, recursive=True))
    for name in left:
        os.symlink(os.path.join(objects_at, name[:-5] + ".gcno"), os.path.join(where, name[:-5] + ".gcno"))
    if not left:
        return counts
    done = subprocess.run(["gcov", "--json-format", "--stdout"] + left, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=True)
    said = gzip.decompress(done.stdout) if done.stdout[:2] == b"\x1f\x8b" else done.stdout
    for report in said.splitlines():
        for file in json.loads(report)["files"] if report.startswith(b"{") else ():
            known = counts[os.path.normpath(file["file"])]
            for line in file["lines"]:
                known[line["line_number"]] = max(line["count"], known.get(line["line_number"], 0))
    return counts


def reached(counts, path, line):
    """Returns whether a line was reached. For a line without code of its own, the line with code before it counts.
    None: the file has no counts."""
    if path not in counts:
        return None
    before = [n for n in counts[path] if n <= line]
    return bool(before) and counts[path][max(before)] > 0

"""Draws one-line faults in the code as it is: the same code, seed and number give the same faults.

Lines that can be given a fault are put in a row, file after file, and cut into as many equal parts as there are faults;
one line of each part is drawn, then the kind of fault: a number, a comparison, a call left out, two arguments swapped.
The rules below leave out faults that no test of behaviour could find. Then the compiler decides: a fault must compile
without a warning, and the code it makes must differ.
"""  # SPDX-License-Identifier: Apache-2.0
import glob
import hashlib
import os
import random
import re
import subprocess

import faults

TRIES = 60
PRODUCT = ("proto", "daemon", "launch", "supervisor", "client", "worker", "cuda")

# Files that are left out.
LEFT_OUT = {
    # code that needs a real GPU and its libraries: choice and call of algorithms of cuDNN and cuBLASLt, and the search
    # for these libraries
    r"cuda/(plan|cudnn|lt|libs|engine|search|versions)\w*\.[ch]$",
    # pictures of letters
    r"worker/eval/font\.c$",
}

# Lines that are left out.
QUIET = re.compile(
    r"""
    \b(err_\w+|\w+_check_shapes|assert|static_assert|_Static_assert|abort|perror|note|warn|usage|strerror)\s*\(  # texts of errors
  | ^\s*(\#|//|\*|/\*|case\b|default\b|goto\b|static\s+_?\w*\s*assert)             # preprocessor, labels
  | \b(__attribute__|__builtin_expect|alignas|_Alignas|aligned|restrict_)\b
  | \b(pthread_(mutex_lock|sigmask)|sig\w+set)\s*\(                                            # shows under SAN=thread, if at all
  | \bva_\w+\s*\(
  | atomic_fetch_add | \bversion\b                                                 # beats, versions: that they change is all that counts
  | \bh\s=\s\(h\s\^                                                               # hashes: any other mixes as well
  | \w+\s-\s\(\w+\s<\s\w+\)                                                      # orders of sort functions, which never meet themselves
  | \bpthread_\w+_init\s*\( | sleep | \bwake\(                                   # all zeros is as good; speed
  | \b(posix_fadvise|madvise|readahead|sched_yield|prctl|setlocale|signal|umask)\b
  | \b(free|close|fclose|closedir|munmap|dlclose|unlink|unlinkat|fflush|setvbuf|json_decref)\s*\(  # shows under a sanitizer only
  | \b\w+_(free|unref|destroy|close|release)\s*\(
  | \b\w*(destroy|Destroy|Free|Close)\w*\s*\(
  | \b(fsync|fdatasync|sync_\w+|\w+_sync_folder)\b                                 # durability: no kill shows it
  | \b(malloc|calloc|realloc|reserve|grow|room|strdup|asprintf)\w*\b                               # sizes of memory
""", re.X)
# Numbers that stand for speed or room: how work is cut, how much is kept, how long is waited.
SIZES = re.compile(
    r"block|thread|chunk|cache|prefetch|ahead|tile|panel|grain|capacity|bucket|buffer|lane|warp|slab|grid|align|unroll|pack|batch_|scratch"
    r"|room|limit|timeout|_ms\b|_ns\b|_us\b|nsec|sleep|poll|backoff|width_bytes|depth|MAX|sizeof|0666|0644|0600|0755|0700|O_\w+|fd\b|errno",
    re.I)
DECLARED_ARRAY = re.compile(r"^\s*(?:static\s+|const\s+|unsigned\s+|signed\s+|struct\s+|__shared__\s+)*\w+\s+\**\w+\[")


def code_of(text):
    """The text with comments, strings and characters blanked, every other byte at its place."""
    def blank(m):
        return "".join(c if c == "\n" else (c if m[0][0] in "\"'" and i in (0, len(m[0]) - 1) else " ") for i, c in enumerate(m[0]))
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', blank, text, flags=re.S)


def inside_functions(lines):
    """For each line: is it in the body of a function? Enumerations, structs and tables are not."""
    depth, inside, started = 0, [], False
    for i, line in enumerate(lines):
        if depth == 0 and line.startswith("{"):
            started = True
        inside.append(depth > 0 and started)
        depth += line.count("{") - line.count("}")
        if re.match(r"(extern\s+)?\"?\s*C?\"?\s*namespace\b|extern \"", line):
            depth -= line.count("{")
        if depth <= 0:
            depth, started = 0, False
    return inside


# ---- the kinds: each yields (start, end, text) for a line of code ----

def numbers(line):
    if SIZES.search(line) or DECLARED_ARRAY.match(line) or re.search(r"\benum\b|(=|return) -1\b", line):
        return
    for m in re.finditer(r"(?<![\w.])(0[xX][0-9a-fA-F]+[uUlL]*|\d+\.\d*(?:[eE][-+]?\d+)?[fF]?|\.\d+[fF]?|\d+[uUlL]*)(?![\w.])", line):
        text, before = m[0], line[:m.start()].rstrip()
        if re.search(r"\? -1 :$", before):
            continue  # of a sort function: the sign counts
        if text.lower().startswith("0x"):
            digits = re.match(r"0[xX][0-9a-fA-F]+", text)[0]
            yield m.start(), m.end(), "0x%X%s" % (int(digits, 16) ^ 1 << 4, text[len(digits):])
        elif "." in text:
            tail = "f" if text[-1] in "fF" else ""
            yield m.start(), m.end(), repr(float(text.rstrip("fF")) * 2 or 1.0) + tail
        elif text in "01" and re.search(r"(return|[<>]|[<>=!]=|rc =)$", before):
            continue  # `rc < 0`, `return 0`: the form of errors; comparisons have a kind of their own
        else:
            value = int(re.match(r"\d+", text)[0])
            tail = text[len(str(value)):]
            yield m.start(), m.end(), "%d%s" % (value + 1 if value < 2 else value - 1 if value < 100 else 2 * value, tail)


# Negative or 0: the form of errors. Turning such a comparison around breaks the program at once.
RESULT = re.compile(r"(\b(rc|fd|status|pid|n|got|used)|\))$")


def comparisons(line):
    """A border moved, a test of equality turned, "and" for "or". To turn < into >= would break most programs at once,
    so it is not drawn."""
    line = line.replace("->", "..")
    for m in re.finditer(r"(?<![<>=!\-+*/&|^])(<=|>=|==|!=|&&|\|\||<|>)(?![<>=])", line):
        op, left, right = m[0], re.search(r"[^<>=!&|(,;]*$", line[:m.start()])[0], re.match(r"[^<>=!&|;]*", line[m.end():])[0]
        if op in "<>" and (line[m.end():m.end() + 1] != " " or line[m.start() - 1] != " "):
            continue  # templates, includes
        if re.search(r"threads|workers", left + right) or RESULT.search(left.rstrip()) and re.match(r"\s*-?[01]\b", right):
            continue  # how many threads there are is a matter of speed
        choice = re.match(r"\s*(.+?) \? (?:\([\w ]+\))?(.+?) : ([\w.]+)", line[m.end():])
        if choice and {choice[2], choice[3]} == {choice[1], re.search(r"[\w.]*$", left.rstrip())[0]}:
            continue  # the smaller or larger of two: equal ones are the same
        if op in ("<", ">", "<=", ">="):
            if not SIZES.search(left + right):
                yield m.start(), m.end(), {"<": "<=", ">": ">=", "<=": "<", ">=": ">"}[op]
        else:
            yield m.start(), m.end(), {"==": "!=", "!=": "==", "&&": "||", "||": "&&"}[op]


def balanced(text):
    depth = 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if depth < 0:
            return False
    return depth == 0


def calls_left_out(line):
    m = re.match(r"\s*((?:\w+(?:->|\.))*\w+\s*\(.*\));\s*$", line)
    if m and balanced(m[1]) and not re.match(r"(if|for|while|switch|return|sizeof|printf|fprintf|puts|fputs|print)\b", m[1].lstrip("(")):
        yield m.start(1), m.end(1), "(void)0"
    m = re.match(r"\s*rc = ((?:\w+(?:->|\.))*\w+\(.*\));\s*$", line)
    if m and balanced(m[1]):
        yield m.start(1), m.end(1), "0"


def swapped(line):
    for m in re.finditer(r"\b(?!if\b|for\b|while\b|switch\b|return\b|sizeof\b)\w+\(", line):
        args, start, depth = [], m.end(), 1
        for i in range(m.end(), len(line)):
            c = line[i]
            depth += (c in "([{") - (c in ")]}")
            if depth == 0 or (c == "," and depth == 1):
                args.append((start, i))
                start = i + 1
            if depth == 0:
                break
        if depth != 0:
            continue
        for (a, b), (c, d) in zip(args, args[1:]):
            one, two = line[a:b], line[c:d]
            if re.search(r"[\"']", one + two) or re.search(r"\b(min|max|fmin|fmax|fminf|fmaxf|add|mul|pair_add|mem_min)\w*\($",
                                                           line[:m.end()]):
                continue
            if one.strip() and two.strip() and one.strip() != two.strip() and not re.match(
                    r"\s*(const|int|float|double|struct|void|size_t|u?int\d+_t|bool)\b", one):
                yield a, d, one[:len(one) - len(one.lstrip())] + two.strip() + ", " + one.strip()


KINDS = (("another number", numbers), ("another comparison", comparisons), ("a call left out", calls_left_out), ("arguments swapped",
                                                                                                                 swapped))


# ---- where ----

def sources():
    found = []
    for folder in PRODUCT:
        for ending in ("c", "h", "cu"):
            found += glob.glob("%s/**/*.%s" % (folder, ending), root_dir=faults.ROOT, recursive=True)
    return sorted(p for p in found if not any(re.match(rule, p) for rule in LEFT_OUT))


def skipped_by_preprocessor(lines):
    """Lines between #if and #endif: another build may not see them. A header's own guard is not used here."""
    depth, out = 0, []
    for line in lines:
        depth += bool(re.match(r"\s*#\s*if", line)) - bool(re.match(r"\s*#\s*endif", line))
        out.append(depth > 0)
    return out


def candidates(path):
    """(index of the line, {kind: [(start, end, text)]}) of each line that can be given a fault."""
    text = "\n".join(faults.read(faults.ROOT, path))
    code = code_of(text).split("\n")
    inside, cut = inside_functions(code), skipped_by_preprocessor(code)
    for i, line in enumerate(code):
        if not inside[i] or cut[i] or QUIET.search(line) or (i and QUIET.search(code[i - 1]) and not code[i - 1].rstrip().endswith(
            (";", "{", "}"))):
            continue
        if i + 1 < len(code) and "ENOMEM" in code[i + 1]:
            continue  # memory that is not there: tests/unit/test_*alloc*
        kinds = {name: list(find(line)) for name, find in KINDS}
        if re.match(r"\s*(u?int\w*|size_t|long|double|float) \w+ = 0", line) and re.search(r"&%s\b" % re.search(r"(\w+) = 0", line)[1],
                                                                                           "".join(code[i + 1:i + 8])):
            kinds.pop("another number", None)  # an argument that a call fills in
        start = re.match(r"\s*\w+ (\w+) = 0;", line)
        if start and re.search(r"> %s\)" % start[1], "".join(code[i + 1:i + 8])):
            kinds.pop("another number", None)  # where the search for a largest begins
        kinds = {name: places for name, places in kinds.items() if places}
        if kinds:
            yield i, kinds


# ---- the compiler's verdict ----

# A fault with a compiler warning does not count. But warnings about unused or unwritten variables after a left out
# call, and about && beside ||, are switched off.
FLAGS = [
    "-O1", "-Wall", "-Werror", "-Wno-unused", "-Wno-maybe-uninitialized", "-Wno-uninitialized", "-Wno-parentheses", "-Wno-empty-body",
    "-Wno-format-truncation", "-ffp-contract=off", "-fno-math-errno", "-D_GNU_SOURCE", "-I.", "-S", "-o", "-"
]


def command(path):
    if path.endswith(".cu"):
        return ["g++", "-x", "c++", "-std=c++17", "-fno-exceptions", "-fno-rtti", "-Wno-unknown-pragmas", "-Itests/stand/emu"] + FLAGS
    more = ["-march=x86-64-v3", '-DISA_NAME="avx2"'] if path.startswith("worker/cpu/") else []
    return ["gcc", "-std=c17", "-DDEVICE_ABI=1u"] + FLAGS + more + (["-Itests/stand/emu"] if path.startswith("cuda/") else [])


def users(path):
    """The files that are compiled to see the code of a file: the file itself or, for a header, some files that include
    it, perhaps through another header."""
    if not path.endswith(".h"):
        return [path]
    found, seen, headers = [], {path}, [path]
    while headers:
        wanted = '#include "%s"' % headers.pop()
        for p in sources():
            if p not in seen and wanted in faults.read(faults.ROOT, p):
                seen.add(p)
                (headers if p.endswith(".h") else found).append(p)
    return sorted(found)[:6]


def compiled(path, text, where):
    """The assembly of every user of a file if the file had this text, or None if it does not compile."""
    out = []
    for user in users(path):
        # an include folder before the tree's own, which holds the changed file alone
        os.makedirs(os.path.join(where, os.path.dirname(path)), exist_ok=True)
        changed = os.path.join(where, path)
        with open(changed, "w", encoding="utf-8") as f:
            f.write(text)
        source = changed if user == path else user
        done = subprocess.run(
            command(user)[:1] + ["-I" + where] + command(user)[1:] + [source], cwd=faults.ROOT, capture_output=True, check=False)
        os.unlink(changed)
        if done.returncode != 0:
            return None
        out.append(re.sub(rb"\n\t\.file[^\n]*", b"", done.stdout))
    return out


class Drawing:
    """Draws from the files that `only` names (files or folders; all if it is empty). where: an empty folder to compile
    in."""

    def __init__(self, where, only):
        self.where, self.same = where, {}
        self.row = [(path, i, kinds) for path in sources() if chosen(path, only) for i, kinds in candidates(path)]

    def plain(self, path):
        if path not in self.same:
            self.same[path] = compiled(path, "\n".join(faults.read(faults.ROOT, path)) + "\n", self.where)
        return self.same[path]

    def made(self, number, entry, rng):
        """Returns a fault at this line, or None if the drawn fault is not usable."""
        path, i, kinds = entry
        source = faults.read(faults.ROOT, path)
        kind = rng.choice(sorted(kinds))
        start, end, text = rng.choice(kinds[kind])
        changed = source[i][:start] + text + source[i][end:]
        fault = faults.Fault(number, path, kind)
        fault.lines = [("-", source[i]), ("+", changed)]
        for above in range(1, 5):
            try:
                fault.place(source)
                break
            except ValueError:
                fault.lines.insert(0, (" ", source[i - above]))
        else:
            return None
        plain = self.plain(path)
        if not plain:
            raise SystemExit("%s does not compile by itself: %s" % (path, " ".join(command(path))))
        got = compiled(path, "\n".join(source[:i] + [changed] + source[i + 1:]) + "\n", self.where)
        return fault if got and got != plain else None

    def one(self, number, seed, count):
        """Returns fault `number` of `count`, 1 the first: a fault of that part of the row. It depends on the code,
        seed, number and count alone."""
        rng = random.Random(hashlib.sha256(b"%d %d" % (seed, number)).digest())
        part = self.row[len(self.row) * (number - 1) // count:len(self.row) * number // count]
        for _ in range(TRIES if part else 0):
            fault = self.made(number, rng.choice(part), rng)
            if fault:
                return fault
        raise SystemExit("fault %d: nothing to be found in %d tries among %d lines" % (number, TRIES, len(part)))


def chosen(path, only):
    return not only or any(path == o or path.startswith(o.rstrip("/") + "/") for o in only)

#!/usr/bin/env python3
"""plain.py [--check] [--list N] [--only KIND] [--changed COMMIT] [PATH...] - counts words that turn sentences into
riddles, per 10,000 words of each kind of text, and lists the N worst places (12 by default). PATHs are files and
folders of the tree; the default is all of it.

--changed COMMIT counts only lines that were added since COMMIT. --check fails if a kind is over its goal, and lists the
ten worst places of that kind.

Kinds: texts (string literals of the product that are sentences), docs (Markdown and man pages), headers (comments of .h
and .cuh), code (comments of .c and .cu), scripts (comments and docstrings of .py, .sh, .js, .mk and .sql files and of
units). A riddle is a word that paraphrases a thing instead of naming it, or a sentence that begins with such a word.
The count shows where to read; it does not judge a sentence.
"""  # SPDX-License-Identifier: Apache-2.0
import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize

GOALS = {"texts": 15, "docs": 40, "headers": 40, "code": 60, "scripts": 60}  # riddles per 10,000 words
RIDDLE = re.compile(r"""\b(?:what(?:ever)?|who(?:ever)?|whose|whom|none|nobody|anybody|somebody|of\ which|that\ which
    |one\ that|those\ that|as\ such|likewise|is\ no\ (?:more|such)|is\ told|are\ told
    |goes\ on|comes\ to\ be|has\ it\ that)\b""", re.I | re.X)
OPENING = re.compile(r"(?:^|(?<=[.:;!?]\s))(?:Of|What|One|Where|As|Whoever|Who|Likewise|Those|Neither|Nor|So many|That of|None|Nobody)\b")
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]+")
C_COMMENT = re.compile(r"/\*(.*?)\*/|//([^\n]*)", re.S)
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
UNITS = (".service", ".socket", ".sysusers", ".tmpfiles", ".conf")


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def c_comments(text):
    for m in C_COMMENT.finditer(text):
        yield line_of(text, m.start()), re.sub(r"\n\s*\*?", " ", m[1] or m[2] or "")


def c_sentences(text):
    text = C_COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    for m in STRING.finditer(text):
        if len(WORD.findall(m[1])) >= 4:
            yield line_of(text, m.start()), m[1]


def prose(text):
    fenced = False
    for i, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("    ", '.\\"', "|--", "<!--")):
            yield i, re.sub(r"`[^`]*`|\\f[BIRP]|^\.\w+", " ", line)


def joined(lines):
    """Comments on consecutive lines of their own are one piece. lines: (number, whether it is alone there, comment)."""
    first, last, pieces = 0, -1, []
    for i, alone, comment in lines:
        if pieces and not (alone and i == last + 1):
            yield first, " ".join(pieces)
            pieces = []
        first = first if pieces else i
        last = i if alone else -1
        pieces.append(comment)
    if pieces:
        yield first, " ".join(pieces)


def line_comments(text, mark):
    """The comments that begin with mark and a space. A string that contains such a mark counts as a comment, too."""
    found = re.compile(r"(^|(?<=\s))%s(?:\s+(.*)|$)" % mark)
    hits = ((i, line, found.search(line)) for i, line in enumerate(text.split("\n"), 1))
    return joined((i, not line[:m.start()].strip(), m[2] or "") for i, line, m in hits if m)


def python(text):
    tokens = (t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT)
    yield from joined((t.start[0], not t.line[:t.start[1]].strip(), t.string[1:]) for t in tokens)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            yield node.body[0].lineno, " ".join(ast.get_docstring(node).split())


def kinds(path, text):
    """Yields pairs of a kind and its pieces of text: (line, text)."""
    if path.endswith((".md", ".1", ".5", ".7", ".8")):
        yield "docs", prose(text)
    elif path.endswith((".h", ".cuh", ".c", ".cu")):
        yield "headers" if path.endswith("h") else "code", c_comments(text)
        if path.endswith("h") or not path.startswith("tests/"):
            yield "texts", c_sentences(text)
    elif path.endswith(".py"):
        yield "scripts", python(text)
    elif path.endswith(".js"):
        yield "scripts", c_comments(text)
    elif path.endswith((".sh", ".mk", "Makefile", *UNITS)):
        yield "scripts", line_comments(text, "#")
    elif path.endswith(".sql"):
        yield "scripts", line_comments(text, "--")


def riddles(piece):
    return len(RIDDLE.findall(piece)) + len(OPENING.findall(piece.strip()))


def git(*args):
    return subprocess.run(["git", *args], stdout=subprocess.PIPE, check=True).stdout.decode(errors="replace")


def added(commit):
    """Returns {path: lines that were added since the commit}."""
    lines, path = {}, None
    for line in git("diff", "-U0", commit, "--").split("\n"):
        m = re.match(r"@@ \S+ \+(\d+)(?:,(\d+))?", line)
        if line.startswith("+++ "):
            path = line[6:]
        elif m:
            lines.setdefault(path, set()).update(range(int(m[1]), int(m[1]) + int(m[2] or 1)))
    return lines


def count(files, keep=None):
    """Returns {kind: (words, riddles, places with riddles, the worst first)}. files: pairs of a path and its text. keep:
    {path: lines that count}; None: all."""
    found = {}
    for path, text in files:
        for kind, pieces in kinds(path, text):
            total = found.setdefault(kind, [0, 0, []])
            for line, piece in pieces:
                if keep is not None and line not in keep.get(path, ()):
                    continue
                words, n = len(WORD.findall(piece)), riddles(piece)
                total[0] += words
                total[1] += n
                if n:
                    total[2].append((-n, -n / max(words, 8), path, line, " ".join(piece.split())[:150]))
    return {kind: (words, n, sorted(places)) for kind, (words, n, places) in sorted(found.items())}


def per_10000(words, n):
    return 1e4 * n / max(words, 1)


def show(places):
    for _, _, path, line, piece in places:
        print("%s:%d: %s" % (path, line, piece))


def checked(found):
    """Prints each kind with its goal, and the ten worst places of each kind over its goal. Returns 1 if there is such a
    kind, else 0."""
    over = [kind for kind, (words, n, _) in found.items() if per_10000(words, n) > GOALS[kind]]
    for kind, (words, n, _) in found.items():
        verdict = ": too many" if kind in over else ""
        print("%-8s %6.1f riddles per 10,000 words, goal %d%s" % (kind, per_10000(words, n), GOALS[kind], verdict))
    for kind in over:
        print("the worst places of %s:" % kind)
        show(found[kind][2][:10])
    return 1 if over else 0


def texts_of(paths):
    for path in git("ls-files", "-z", "--", *paths).split("\0"):
        try:
            with open(path, encoding="utf-8") as f:
                yield path, f.read()
        except (OSError, UnicodeDecodeError):
            pass  # removed, or a binary file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", type=int, default=12)
    parser.add_argument("--only", choices=GOALS)
    parser.add_argument("--changed")
    parser.add_argument("paths", nargs="*")
    args = parser.parse_args()
    found = count(texts_of(args.paths), added(args.changed) if args.changed else None)
    found = {kind: row for kind, row in found.items() if args.only in (None, kind)}
    if args.check:
        return checked(found)
    for kind, (words, n, _) in found.items():
        print("%-8s %7d words, %5d riddles: %6.1f per 10,000" % (kind, words, n, per_10000(words, n)))
    show(sorted(place for row in found.values() for place in row[2])[:args.list])
    return 0


if __name__ == "__main__":
    sys.exit(main())

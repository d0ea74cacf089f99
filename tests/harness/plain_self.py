#!/usr/bin/env python3
"""plain.py finds each riddle in each kind of file, none in plain sentences or code, and fails over a goal.
"""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import sys

sys.dont_write_bytecode = True
import plain  # pylint: disable=wrong-import-position

# Files with two places of riddles each, and words beside them that do not count: kind, lines of the two places, text.
FILES = {
    "a/b.c": ("code", (1, 5), '/* Whose turn it is. */\nint what; /* a turn */\nint f(void)\n{\n'
            '    return who("none"); // Of these, the last.\n}\n'),
    "a/b.h": ("headers", (1, 3), "/* What it is. */\nint none(void);\n/* The last\n * one that is left. */\n"),
    "a/b.cu": ("code", (1, 4), "// the thread, whose lane is 0\nint nobody;\n\n/* Where it began. */\n"),
    "a/c.c": ("texts", (1, 2), 'const char *t[] = { "nobody asked for this job", "none", "the job ended",\n'
            '    "tell whoever waits: no" }; /* a text */\n'),
    "docs/a.md": ("docs", (1, 6), "Whose page it is, `what` is.\n\n```\nnobody types none of which\n```\nA page. As it was said.\n"),
    "man/a.1": ("docs", (2, 5), '.\\" Nobody reads this\nOf the job.\n.B job\nA\n\\fBjob\\fR, who ran.\n'),
    "t/a.py": ("scripts", (2, 4), '#!/usr/bin/env python3\n"""Whose test it is."""\nwhat = "nobody"  # the sum\n'
            '# It is\n# the last. Of these.\nnone = "# whose"\n'),
    "t/a.sh": ("scripts", (3, 5), '#!/bin/sh -e\nnone=${#what} # a count\n# Nobody\n# is here.\nwho "$#" # What it is\n'),
    "t/a.js": ("scripts", (1, 3), "/* Those are\n * rows. */\nlet what = 1; // nobody\n"),
    "mk/a.mk": ("scripts", (1, 3), "# The one that\nwho := none # a rule\nall: # As ever\n"),
    "s/001.sql": ("scripts", (1, 2), "-- None is here.\nCREATE TABLE who (what TEXT); -- whom it serves\n"),
    "s/a.service": ("scripts", (1, 4), "# Who starts it.\n[Unit]\nAfter=none\n# It is told to nobody.\n"),
}
PLAIN = "The caller frees the list. It may be NULL. Returns 0, or -ENOMEM if there is no memory."


def main():
    for path, (kind, lines, text) in FILES.items():
        found = plain.count([(path, text)])
        assert sorted(line for *_, line, _ in found[kind][2]) == list(lines), (path, found)
        assert all(n == 0 for k, (_, n, _) in found.items() if k != kind), (path, found)
        assert len(plain.count([(path, text)], {path: {lines[1]}})[kind][2]) == 1, path
    marks = {"a.c": "/* %s */", "a.h": "// %s", "a.md": "%s", "a.py": '"""%s"""', "a.sh": "# %s", "a.js": "// %s", "a.sql": "-- %s"}
    for path, text in marks.items():
        (_, (words, n, _)), *_ = plain.count([(path, text % PLAIN)]).items()
        assert words > 10 and n == 0, path
    assert plain.riddles("Returns None, or `what`, of which none is no more than one that") == 6
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        over = plain.checked(plain.count([(path, text) for path, (*_, text) in FILES.items()]))
        under = plain.checked(plain.count([("a.c", "/* %s */" % PLAIN)]))
    assert over == 1 and under == 0 and "a/c.c:1: nobody asked for this job" in said.getvalue(), said.getvalue()
    print("plain.py: %d kinds of files" % len(FILES))


main()

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/states_dot.h - draws a table of states as Graphviz text, and
 * compares it with the file that docs/ holds; DETD_GENERATE=1 rewrites that file. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Draws an arrow; the words are in capitals, as in the enums. within: "60 s", or "" if the phase has no time limit. */
static void states_arrow(FILE *f, const char *phase, const char *fact, const char *next, const char *action, const char *within)
{
    char text[160], *p;

    snprintf(text, sizeof text, "%s -> %s [label=\"%s%s%s%s%s\"];", phase, next, fact, strcmp(action, "NOTHING") ? " / " : "",
             strcmp(action, "NOTHING") ? action : "", within[0] ? "\\n" : "", within);
    for (p = text; *p; p++)
        *p = (char)(*p >= 'A' && *p <= 'Z' ? *p + 'a' - 'A' : *p == '_' ? ' ' : *p);
    fprintf(f, "    %s\n", text);
}

static void states_compare(const char *path, const char *want)
{
    char *have = calloc(1, 1 << 16);
    FILE *f;

    if (getenv("DETD_GENERATE")) {
        f = fopen(path, "w");
        assert_non_null(f);
        assert_true(fputs(want, f) >= 0);
        assert_int_equal(fclose(f), 0);
    }
    f = fopen(path, "r");
    assert_non_null(f);
    have[fread(have, 1, (1 << 16) - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(have, want);
    free(have);
}

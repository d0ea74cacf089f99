/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/program/test_silence.c - when a rank of a program
 * hangs, and which. uses: proto supervisor */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "supervisor/program/silence.h"
#include "supervisor/ranks/watch.h"

enum { RANKS = 2, LONGEST_S = 4000 };
enum { CHANGES = 1, LINES = 2, OUTPUT = 4 }; /* advance with every look */

static const struct {
    const char *name;
    double silent_after_s;
    struct {
        int does;
        uint64_t step, deadline_ms;
        const char *phase;
        bool gone, held;
        uint64_t lines; /* so many at first */
    } rank[RANKS];
    int verdict_s; /* 0: never */
    int culprit;
    const char *text;
} table[] = {
    { "nobody has reported", NAN, { { .does = 0 }, { .does = OUTPUT } }, 0, -1, NULL },
    { "both report", NAN, { { .does = LINES, .step = 9 }, { .does = CHANGES, .step = 9 } }, 0, -1, NULL },
    { "one fell silent", NAN, { { .does = LINES, .step = 9 }, { .step = 8 } }, 1800, 1, "rank 1 hangs at step 8: no report for 1800 s" },
    { "output is no report by default", NAN, { { .does = OUTPUT, .step = 9 }, { .does = LINES, .step = 9 } }, 1800, 0, "rank 0 hangs" },
    { "all are silent: the hindmost",
      60,
      { { .step = 9, .phase = "train" }, { .step = 8, .phase = "val" } },
      60,
      1,
      "rank 1 hangs in phase val at step 8: no report for 60 s; 1 other rank is silent, too" },
    { "a program that does not speak, with output", 60, { { .does = OUTPUT }, { .does = OUTPUT } }, 0, -1, NULL },
    { "the same without output", 60, { { .does = OUTPUT }, { 0 } }, 60, 1, "rank 1 hangs at step 0: no report for 60 s" },
    { "it has spoken, and trains no step yet", 60, { { .does = LINES, .step = 9 }, { .lines = 1 } }, 0, -1, NULL },
    { "never", 0, { { .step = 9 }, { .step = 9 } }, 0, -1, NULL },
    { "it is done", 60, { { .does = LINES, .step = 9 }, { .step = 8, .gone = true } }, 0, -1, NULL },
    { "its lines are not read", 60, { { .does = LINES, .step = 9 }, { .step = 8, .held = true } }, 0, -1, NULL },
    { "a deadline of its own",
      NAN,
      { { .does = LINES, .step = 9 }, { .does = LINES, .step = 8, .deadline_ms = 5000, .phase = "load" } },
      5,
      1,
      "rank 1 hangs in phase load at step 8: no progress for 5 s, the deadline of this phase" },
    { "progress in the phase", NAN, { { .does = LINES, .step = 9 }, { .does = CHANGES, .step = 8, .deadline_ms = 5000 } }, 0, -1, NULL },
};

static void situations(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct silence s;
        struct silence_page pages[RANKS] = { 0 };
        struct watch_verdict v = { .rank = -1 };
        int second = 0;

        silence_begin(&s, RANKS, table[i].silent_after_s);
        for (; second <= LONGEST_S && v.rank < 0; second++) {
            for (int k = 0; k < RANKS; k++) {
                pages[k].step = table[i].rank[k].step;
                pages[k].deadline_ms = table[i].rank[k].deadline_ms;
                pages[k].lines = second == 0 ? table[i].rank[k].lines : pages[k].lines;
                pages[k].gone = table[i].rank[k].gone;
                pages[k].held = table[i].rank[k].held;
                pages[k].changes += (table[i].rank[k].does & CHANGES) != 0;
                pages[k].lines += (table[i].rank[k].does & LINES) != 0;
                pages[k].output += (table[i].rank[k].does & OUTPUT) != 0;
                if (table[i].rank[k].phase)
                    strcpy(pages[k].phase, table[i].rank[k].phase);
            }
            silence_look(&s, pages, second, &v);
        }
        if (v.rank != table[i].culprit || (v.rank >= 0 && second - 1 != table[i].verdict_s) ||
            (table[i].text && strncmp(v.text, table[i].text, strlen(table[i].text)) != 0))
            fail_msg("%s: rank %d after %d s: %s", table[i].name, v.rank, second - 1, v.text);
    }
}

/* A machine that slept for an hour blames nobody. */
static void a_late_look_blames_nobody(void **state)
{
    struct silence s;
    struct silence_page page = { .step = 1 };
    struct watch_verdict v;

    (void)state;
    silence_begin(&s, 1, 60);
    silence_look(&s, &page, 0, &v);
    silence_look(&s, &page, 3600, &v);
    assert_int_equal(v.rank, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(situations), cmocka_unit_test(a_late_look_blames_nobody) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

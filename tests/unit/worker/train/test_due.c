/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/train/test_due.c - uses: proto trainer cpu
 * The actions due after a training step, as a table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/job/jobspec.h"
#include "worker/train/due.h"

enum { LOG = 1, VALIDATE = 2, COUNTS = 4, SAVE = 8, ENDS = 16 };

static int flags(const struct due *d)
{
    return (d->log ? LOG : 0) | (d->validate ? VALIDATE : 0) | (d->counts ? COUNTS : 0) | (d->save ? SAVE : 0) | (d->ends ? ENDS : 0);
}

/* Logs after 5 steps each, validates after 4, saves after 6. */
static const struct jobspec spec = { .train_log_every = 5, .val_every = 4, .checkpoint_every = 6, .train_steps = 22 };

static void after_each_step(void **state)
{
    static const struct {
        int64_t step, last;
        bool validates;
        enum report_word word;
        int want;
        const char *outcome;
    } cases[] = {
        { 1, 22, true, WORD_NONE, 0, NULL },
        { 5, 22, true, WORD_NONE, LOG, NULL },
        { 4, 22, true, WORD_NONE, VALIDATE | COUNTS, NULL },
        { 4, 22, false, WORD_NONE, 0, NULL },
        { 6, 22, true, WORD_NONE, SAVE, NULL },
        { 12, 22, true, WORD_NONE, VALIDATE | COUNTS | SAVE, NULL },
        { 20, 22, true, WORD_NONE, LOG | VALIDATE | COUNTS, NULL },
        { 22, 22, true, WORD_NONE, LOG | VALIDATE | COUNTS | SAVE | ENDS, "completed" },
        { 22, 22, false, WORD_NONE, LOG | SAVE | ENDS, "completed" },
        { 7, 7, true, WORD_NONE, SAVE | ENDS, "completed" }, /* a run that is to end before the job's last step */

        { 1, 22, true, WORD_EVAL, VALIDATE, NULL }, /* as a user asked: the next run has no such validation */
        { 1, 22, false, WORD_EVAL, 0, NULL },
        { 4, 22, true, WORD_EVAL, VALIDATE | COUNTS, NULL },
        { 1, 22, true, WORD_CHECKPOINT, SAVE, NULL },
        { 1, 22, true, WORD_TIER, 0, NULL },
        { 1, 22, true, WORD_PAUSE, SAVE, "paused" },
        { 4, 22, true, WORD_PAUSE, VALIDATE | COUNTS | SAVE, "paused" },
        { 1, 22, true, WORD_CANCEL, 0, "cancelled" },
        { 22, 22, true, WORD_PAUSE, LOG | VALIDATE | COUNTS | SAVE | ENDS, "completed" },
        { 22, 22, true, WORD_CANCEL, LOG | VALIDATE | COUNTS | SAVE | ENDS, "completed" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct due d = due_after(&spec, cases[i].step, cases[i].last, cases[i].validates, cases[i].word);
        const char *outcome = due_outcome(&d), *want = cases[i].outcome;

        if (flags(&d) != cases[i].want || (outcome ? !want || strcmp(outcome, want) != 0 : want != NULL))
            fail_msg("case %zu: %d, %s", i, flags(&d), outcome ? outcome : "goes on");
        assert_int_equal(due_is_any(&d), cases[i].want != 0 || cases[i].word != WORD_NONE);
    }
}

static void after_a_validation(void **state)
{
    static const struct {
        bool counts, stale, best;
        int64_t checkpoint_every;
        int want;
    } cases[] = {
        { true, false, false, 6, VALIDATE | COUNTS },
        { true, true, false, 6, VALIDATE | COUNTS | SAVE | ENDS },
        { true, true, false, 0, VALIDATE | COUNTS | SAVE | ENDS },
        { false, true, false, 6, VALIDATE },
        { false, false, true, 6, VALIDATE | SAVE },
        { true, false, true, 6, VALIDATE | COUNTS | SAVE },
        { true, false, true, 0, VALIDATE | COUNTS },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct jobspec s = { .checkpoint_every = cases[i].checkpoint_every };
        struct due d = { .validate = true, .counts = cases[i].counts };

        due_validated(&d, &s, cases[i].stale, cases[i].best);
        assert_int_equal(flags(&d), cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_each_step),
        cmocka_unit_test(after_a_validation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

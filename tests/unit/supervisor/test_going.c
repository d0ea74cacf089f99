/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/test_going.c - the states of a supervisor: each cell
 * of the table, and how attempts are judged. uses: proto supervisor */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "supervisor/going.h"
#include "tests/stand/states_dot.h"

enum { BACKOFF = -2 };
#define CELL(phase, fact, next, action, within)                                                               \
    {                                                                                                         \
        GOING_##phase, GOING_FACT_##fact, GOING_##next, GOING_##action, within, #phase, #fact, #next, #action \
    }
#define WISH(phase, next, action, within)                                                                                          \
    CELL(phase, CANCEL, next, action, within), CELL(phase, PAUSE, next, action, within), CELL(phase, LEAVE, next, action, within), \
        CELL(phase, LIMIT, next, action, within)

/* The meaning of each fact in each phase; a fact without an entry means nothing. Milliseconds; 0: no timer. */
static const struct {
    enum going_phase phase;
    enum going_fact fact;
    enum going_phase next;
    enum going_action action;
    int within_ms;
    const char *phase_name, *fact_name, *next_name, *action_name;
} cells[] = {
    CELL(NEW, RECORDED, ENDED, AWAIT, 10000),
    CELL(NEW, BEGUN, READING, READ, 0),
    CELL(NEW, CONCLUDED, ENDING, END, 0),
    CELL(NEW, FATAL, OVER, DIE, 0),

    CELL(READING, READ, LOCKING, LOCK, 0),
    CELL(READING, REFUSED, READING, TELL_REFUSED, BACKOFF),
    CELL(READING, DUE, READING, READ, 0),
    CELL(READING, CONCLUDED, ENDING, END, 0),
    WISH(READING, ENDING, END_STOPPED, 0),
    CELL(READING, FATAL, OVER, DIE, 0),

    CELL(LOCKING, LOCKED, LAUNCHING, START, 0),
    CELL(LOCKING, REFUSED, LOCKING, TELL_REFUSED, BACKOFF),
    CELL(LOCKING, DUE, LOCKING, LOCK, 0),
    CELL(LOCKING, CONCLUDED, ENDING, END, 0),
    WISH(LOCKING, ENDING, END_STOPPED, 0),
    CELL(LOCKING, FATAL, OVER, DIE, 0),

    CELL(WAITING, DUE, LAUNCHING, START, 0),
    CELL(WAITING, HELD, WAITING, NOTHING, 1000),
    WISH(WAITING, ENDING, END_STOPPED, 0),
    CELL(WAITING, FATAL, OVER, DIE, 0),

    CELL(LAUNCHING, STARTED, GREETING, NOTHING, 120000),
    CELL(LAUNCHING, REFUSED, WAITING, TELL_REFUSED, BACKOFF),
    CELL(LAUNCHING, AGAIN, WAITING, NOTHING, BACKOFF),
    CELL(LAUNCHING, CONCLUDED, ENDING, END, 0),
    WISH(LAUNCHING, KILLED, KILL, 20000),
    CELL(LAUNCHING, FATAL, OVER, DIE, 0),

    CELL(GREETING, GREETED, RUNNING, GO, 0),
    CELL(GREETING, DUE, KILLED, TELL_UNHEARD, 20000),
    CELL(GREETING, HELD, GREETING, NOTHING, 120000),
    CELL(GREETING, BROKEN, KILLED, KILL, 20000),
    CELL(GREETING, HUNG, KILLED, KILL, 20000),
    CELL(GREETING, FAILED, STOPPING, NOTHING, 3000),
    CELL(GREETING, DONE, STOPPING, NOTHING, 30000),
    CELL(GREETING, GONE, CLEANING, CLEAN, 0),
    WISH(GREETING, KILLED, KILL, 20000),
    CELL(GREETING, FATAL, OVER, DIE, 0),

    CELL(RUNNING, BROKEN, KILLED, KILL, 20000),
    CELL(RUNNING, HUNG, KILLED, KILL, 20000),
    CELL(RUNNING, TRACED, STOPPING, NOTHING, 2000),
    CELL(RUNNING, FAILED, STOPPING, NOTHING, 3000),
    CELL(RUNNING, DONE, STOPPING, NOTHING, 30000),
    CELL(RUNNING, GONE, CLEANING, CLEAN, 0),
    WISH(RUNNING, RUNNING, PASS, 0),
    CELL(RUNNING, DISOBEYED, STOPPING, TERM, 5000),
    CELL(RUNNING, FATAL, OVER, DIE, 0),

    CELL(STOPPING, DUE, KILLED, KILL, 20000),
    CELL(STOPPING, GONE, CLEANING, CLEAN, 0),
    CELL(STOPPING, DISOBEYED, STOPPING, TERM, GOING_KEEP),
    CELL(STOPPING, FATAL, OVER, DIE, 0),

    CELL(KILLED, DUE, KILLED, TELL_STUCK, 20000),
    CELL(KILLED, GONE, CLEANING, CLEAN, 0),
    CELL(KILLED, FATAL, OVER, DIE, 0),

    CELL(CLEANING, REMAIN, CLEANING, NOTHING, 50),
    CELL(CLEANING, DUE, CLEANING, CLEAN, 0),
    CELL(CLEANING, AGAIN, WAITING, NOTHING, BACKOFF),
    CELL(CLEANING, CONCLUDED, ENDING, END, 0),
    CELL(CLEANING, FATAL, OVER, DIE, 0),

    CELL(ENDING, WRITTEN, ENDED, CONFIRM, 10000),
    CELL(ENDING, LEAVE, OVER, QUIT, 0),
    CELL(ENDING, FATAL, OVER, DIE, 0),

    CELL(ENDED, ACKED, OVER, QUIT, 0),
    CELL(ENDED, DUE, OVER, TELL_UNACKED, 0),
    CELL(ENDED, LEAVE, OVER, QUIT, 0),
    CELL(ENDED, FATAL, OVER, DIE, 0),
};
enum { CELLS = sizeof cells / sizeof *cells };

/* The wish that belongs to a fact; 0: no wish. */
static unsigned wish(int fact)
{
    return fact == GOING_FACT_CANCEL  ? GOING_WISH_CANCEL
           : fact == GOING_FACT_PAUSE ? GOING_WISH_PAUSE
           : fact == GOING_FACT_LEAVE ? GOING_WISH_LEAVE
           : fact == GOING_FACT_LIMIT ? GOING_WISH_LIMIT
                                      : 0;
}

static void every_fact_in_every_phase(void **state)
{
    int met = 0;

    (void)state;
    for (int p = 0; p < GOING_PHASE_COUNT; p++)
        for (int f = 0; f < GOING_FACT_COUNT; f++) {
            struct going g = { .phase = (enum going_phase)p, .wait_ms = 77 };
            enum going_action action = going_next(&g, (enum going_fact)f), want = GOING_NOTHING;
            enum going_phase next = (enum going_phase)p;
            int wait_ms = GOING_KEEP;

            for (int i = 0; i < CELLS; i++)
                if (cells[i].phase == (enum going_phase)p && cells[i].fact == (enum going_fact)f) {
                    next = cells[i].next;
                    want = cells[i].action;
                    wait_ms = cells[i].within_ms == BACKOFF ? 1000 : cells[i].within_ms;
                    met++;
                }
            if (g.phase != next || action != want || g.wait_ms != wait_ms || g.wishes != wish(f))
                fail_msg("phase %d, fact %d: phase %d, action %d, %d ms, wishes %u", p, f, (int)g.phase, (int)action, g.wait_ms, g.wishes);
        }
    assert_int_equal(met, CELLS);
}

static void it_is_drawn(void **state)
{
    char *text = NULL, within[32];
    size_t len;
    FILE *f = open_memstream(&text, &len);

    (void)state;
    fputs("// The states of detd-job (supervisor/going.c): fact / action, and the time limit of the next state. Written by "
          "tests/unit/supervisor/test_going.c.\n"
          "// Every state but over also goes to over by the fact fatal / die.\ndigraph going {\n",
          f);
    for (int i = 0; i < CELLS; i++) {
        int ms = cells[i].within_ms;

        if (cells[i].fact == GOING_FACT_FATAL)
            continue;
        snprintf(within, sizeof within, ms % 1000 ? "%d ms" : "%.0d s", ms % 1000 ? ms : ms / 1000);
        states_arrow(f, cells[i].phase_name, cells[i].fact_name, cells[i].next_name, cells[i].action_name,
                     ms > 0             ? within
                     : ms == BACKOFF    ? "1, 2, 4 ... 30 s"
                     : ms == GOING_KEEP ? "time limit stays"
                                        : "");
    }
    fputs("}\n", f);
    fclose(f);
    states_compare("docs/internals/states/going.dot", text);
    free(text);
}

/* ---- how attempts are judged ---- */

static struct outcome failed(const char *class)
{
    struct outcome o = { .outcome = "failed", .reason = "rank 1 was lost" };

    strcpy(o.class, class);
    o.missing = strcmp(class, "missing") == 0;
    o.retry = o.missing || strcmp(class, "fault") == 0;
    return o;
}

/* An attempt from its start to its judgement. */
static enum going_fact attempt(struct going *g, enum going_fact end, const struct outcome *o, struct going_end *ret)
{
    enum going_fact fact;

    if (g->phase == GOING_LOCKING)
        assert_int_equal(going_next(g, GOING_FACT_LOCKED), GOING_START);
    else
        assert_int_equal(going_next(g, GOING_FACT_DUE), GOING_START);
    going_next(g, GOING_FACT_STARTED);
    assert_int_equal(going_next(g, GOING_FACT_GREETED), GOING_GO);
    going_next(g, end);
    assert_int_equal(going_next(g, GOING_FACT_GONE), GOING_CLEAN);
    fact = going_judge(g, o, ret);
    going_next(g, fact);
    return fact;
}

static void failures_without_a_newer_checkpoint_end_it(void **state)
{
    static const int pauses_s[] = { 1, 2, 4, 8, 16, 30, 30 };
    struct going g = { .phase = GOING_LOCKING, .attempt = 5, .restarts = 7 };
    struct outcome o = failed("fault");
    struct going_end end;

    (void)state;
    for (int i = 0; i < 7; i++) {
        assert_int_equal(attempt(&g, GOING_FACT_FAILED, &o, &end), GOING_FACT_AGAIN);
        assert_true(g.phase == GOING_WAITING && g.wait_ms == 1000 * pauses_s[i] && g.attempt == 6 + i);
    }
    going_saved(&g, 10);
    going_saved(&g, 10); /* said again: no progress */
    assert_int_equal(g.failures, 0);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(attempt(&g, GOING_FACT_FAILED, &o, &end), GOING_FACT_AGAIN);
        going_saved(&g, 10);
    }
    assert_int_equal(attempt(&g, GOING_FACT_FAILED, &o, &end), GOING_FACT_CONCLUDED);
    assert_int_equal(g.phase, GOING_ENDING);
    assert_string_equal(end.outcome, "failed");
    assert_string_equal(end.reason, "rank 1 was lost (failure 8 in a row without a newer checkpoint)");
}

static void some_failures_are_final(void **state)
{
    struct going g = { .phase = GOING_LOCKING, .restarts = 7 };
    struct outcome o = failed("user");
    struct going_end end;

    (void)state;
    assert_int_equal(attempt(&g, GOING_FACT_FAILED, &o, &end), GOING_FACT_CONCLUDED);
    assert_string_equal(end.reason, "rank 1 was lost");
    assert_string_equal(end.class, "user");
    g = (struct going){ .phase = GOING_LOCKING, .restarts = 7, .fail_on_hang = true };
    o = failed("fault");
    assert_int_equal(attempt(&g, GOING_FACT_FAILED, &o, &end), GOING_FACT_AGAIN);
    assert_int_equal(attempt(&g, GOING_FACT_HUNG, &o, &end), GOING_FACT_CONCLUDED);
    g = (struct going){ .phase = GOING_LOCKING, .restarts = 7 };
    assert_int_equal(attempt(&g, GOING_FACT_HUNG, &o, &end), GOING_FACT_AGAIN);
    assert_true(g.hung);
    going_next(&g, GOING_FACT_DUE);
    assert_false(g.hung); /* the next attempt has its own */
}

static void a_hello_that_does_not_come_is_a_hang(void **state)
{
    struct going g = { .phase = GOING_GREETING, .restarts = 7, .fail_on_hang = true };
    struct outcome o = failed("fault");
    struct going_end end;

    (void)state;
    assert_int_equal(going_next(&g, GOING_FACT_HELD), GOING_NOTHING);
    assert_false(g.hung); /* the hello may wait for room in the spool */
    assert_int_equal(going_next(&g, GOING_FACT_DUE), GOING_TELL_UNHEARD);
    assert_true(g.hung);
    assert_int_equal(going_judge(&g, &o, &end), GOING_FACT_CONCLUDED);
    g = (struct going){ .phase = GOING_STOPPING, .restarts = 7, .fail_on_hang = true };
    assert_int_equal(going_next(&g, GOING_FACT_DUE), GOING_KILL); /* it was slow to leave */
    assert_int_equal(going_next(&g, GOING_FACT_DUE), GOING_TELL_STUCK);
    assert_int_equal(going_judge(&g, &o, &end), GOING_FACT_AGAIN);
}

static void a_reason_counts_failures_that_another_attempt_might_mend(void **state)
{
    struct going g = { .phase = GOING_LOCKING, .restarts = 7, .failures = 2, .fail_on_hang = true };
    struct outcome o = failed("user");
    struct going_end end;

    (void)state;
    assert_int_equal(going_judge(&g, &o, &end), GOING_FACT_CONCLUDED);
    assert_string_equal(end.reason, "rank 1 was lost");
    o = failed("fault");
    assert_int_equal(attempt(&g, GOING_FACT_HUNG, &o, &end), GOING_FACT_CONCLUDED);
    assert_string_equal(end.reason, "rank 1 was lost (failure 4 in a row without a newer checkpoint)");
    o = (struct outcome){ .outcome = "completed", .class = "fault", .reason = "all done" };
    assert_int_equal(going_judge(&g, &o, &end), GOING_FACT_CONCLUDED);
    assert_true(strcmp(end.outcome, "completed") == 0 && strcmp(end.reason, "all done") == 0 && !end.class[0]);
}

static void a_missing_file_gives_the_slots_back(void **state)
{
    struct going g = { .phase = GOING_LOCKING };
    struct outcome o = failed("missing");
    struct going_end end;

    (void)state;
    for (int i = 1; i < GOING_MISSING_TRIES; i++) {
        assert_int_equal(attempt(&g, GOING_FACT_FAILED, &o, &end), GOING_FACT_AGAIN);
        assert_int_equal(g.wait_ms, 1000 << (i - 1));
    }
    assert_int_equal(attempt(&g, GOING_FACT_FAILED, &o, &end), GOING_FACT_CONCLUDED);
    assert_string_equal(end.outcome, "paused");
    assert_string_equal(end.reason, "it waits for a file that is missing: rank 1 was lost");
    assert_int_equal(g.failures, 0);
    assert_string_equal(end.class, "missing");
    g = (struct going){ .phase = GOING_LOCKING, .restarts = 7, .failures = 4 };
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(attempt(&g, GOING_FACT_FAILED, &o, &end), GOING_FACT_AGAIN);
        assert_int_equal(g.wait_ms, 1000 << (i - 1));
    }
    g.failures = 0;
    o = failed("fault");
    assert_int_equal(attempt(&g, GOING_FACT_FAILED, &o, &end), GOING_FACT_AGAIN);
    assert_int_equal(g.wait_ms, 1000); /* the first failure for another reason */
    assert_int_equal(g.missing, 2);
    going_saved(&g, 10);
    assert_true(g.missing == 0 && g.failures == 0);
}

static void a_refusal_is_no_failure(void **state)
{
    struct going g = { .phase = GOING_NEW, .attempt = 1 };

    (void)state;
    assert_int_equal(going_next(&g, GOING_FACT_BEGUN), GOING_READ);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(going_next(&g, GOING_FACT_REFUSED), GOING_TELL_REFUSED);
        assert_int_equal(g.wait_ms, 1000 << i);
        assert_int_equal(going_next(&g, GOING_FACT_DUE), GOING_READ);
    }
    assert_int_equal(going_next(&g, GOING_FACT_READ), GOING_LOCK);
    assert_int_equal(going_next(&g, GOING_FACT_LOCKED), GOING_START);
    going_next(&g, GOING_FACT_REFUSED);
    assert_int_equal(g.wait_ms, 8000);
    going_next(&g, GOING_FACT_DUE);
    going_next(&g, GOING_FACT_STARTED);
    assert_true(g.refusals == 0 && g.failures == 0 && g.attempt == 1);
}

static void wishes_are_granted(void **state)
{
    static const struct {
        unsigned wishes;
        const char *outcome, *reason;
    } cases[] = {
        { GOING_WISH_CANCEL, "cancelled", "as said" },
        { GOING_WISH_PAUSE, "paused", "as said" },
        { GOING_WISH_LEAVE, "paused", "detd-job was told to stop" },
        { GOING_WISH_LEAVE | GOING_WISH_PAUSE, "paused", "as said" },
        { GOING_WISH_LEAVE | GOING_WISH_CANCEL, "cancelled", "as said" },
        { GOING_WISH_LIMIT, "cancelled", "it ran for 60 s, its run.time_limit; its newest checkpoint is of step 8" },
        { GOING_WISH_LIMIT | GOING_WISH_CANCEL, "cancelled", "as said" },
    };
    struct outcome o = failed("fault"), user = failed("user"), missing = failed("missing");
    struct outcome paused = { .outcome = "paused", .reason = "as said" };
    struct going_end end;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct going g = { .phase = GOING_LOCKING, .wishes = cases[i].wishes, .limit_s = 60, .saved = 8 };

        assert_int_equal(attempt(&g, GOING_FACT_DONE, &paused, &end), GOING_FACT_CONCLUDED);
        assert_string_equal(end.outcome, cases[i].outcome);
        assert_string_equal(end.reason, cases[i].reason);
        assert_true(going_grants(&g, &o) && going_grants(&g, &missing) && !going_grants(&g, &user) && !going_grants(&g, &paused));
        assert_int_equal(going_judge(&g, &o, &end), GOING_FACT_CONCLUDED); /* it failed on the way */
        assert_string_equal(end.outcome, cases[i].outcome);
        assert_int_equal(going_judge(&g, &user, &end), GOING_FACT_CONCLUDED);
        assert_string_equal(end.outcome, "failed");
        assert_false(going_is_overtime(&g, 1000));
    }
    going_stopped(&(struct going){ .wishes = GOING_WISH_LIMIT, .limit_s = 60 }, "as said", &end);
    assert_string_equal(end.reason, "it ran for 60 s, its run.time_limit; it has no checkpoint");
    assert_true(going_is_overtime(&(struct going){ .limit_s = 60 }, 60));
    assert_false(going_is_overtime(&(struct going){ .limit_s = 60 }, 59));
    assert_false(going_is_overtime(&(struct going){ .limit_s = 0 }, 60));
}

/* ---- records from before ---- */

static void recall(struct going *g, enum going_record type, uint64_t seq, int n, int64_t step, const char *outcome, const char *class)
{
    going_recall(g, &(struct going_past){ type, seq, n, step, outcome, class }, 100);
}

static void the_spool_tells_what_was(void **state)
{
    struct going g = { .attempt = 1 };
    struct going_end end;

    (void)state;
    recall(&g, GOING_RECORD_ATTEMPT, 1, 4, 0, "", "");
    recall(&g, GOING_RECORD_ENDED, 2, 4, 0, "failed", "fault");
    recall(&g, GOING_RECORD_ATTEMPT, 3, 5, 0, "", "");
    assert_true(g.attempt == 6 && g.lost == 5 && g.failures == 1 && g.end_seq == 0);
    recall(&g, GOING_RECORD_ENDED, 4, 5, 0, "stopped", "");
    assert_true(g.attempt == 6 && g.lost == 0 && g.failures == 1); /* its stop was wished */
    recall(&g, GOING_RECORD_CHECKPOINT, 5, 0, 20, "", "");
    assert_true(g.failures == 0 && g.saved == 20 && !g.unheard);
    recall(&g, GOING_RECORD_ENDED, 6, 3, 0, "failed", "fault");
    assert_int_equal(g.attempt, 6); /* numbers are not used again */
    recall(&g, GOING_RECORD_ATTEMPT, 7, 6, 20, "", "");
    assert_true(g.attempt == 7 && g.failures == 1); /* a start from what was there is no progress */
    recall(&g, GOING_RECORD_ATTEMPT, 8, 7, 21, "", "");
    assert_true(g.attempt == 8 && g.failures == 0 && g.saved == 21); /* a checkpoint was there that no record tells of */
    recall(&g, GOING_RECORD_ENDED, 9, 7, 0, "failed", "fault");
    recall(&g, GOING_RECORD_END, 10, 7, 0, "failed", "fault");
    assert_true(g.failures == 0 && g.end_seq == 0 && !g.final); /* detd has it: the job goes on anew */
    recall(&g, GOING_RECORD_END, 101, 7, 0, "completed", "");
    assert_true(g.end_seq == 101 && g.final && g.lost == 0);
    recall(&g, GOING_RECORD_OTHER, 102, 0, 0, "", ""); /* an end counts as the last record only */
    assert_int_equal(g.end_seq, 0);
    assert_true(going_is_drained(&g, "failed") && going_is_drained(&g, "cancelled") && !going_is_drained(&g, NULL));
    recall(&g, GOING_RECORD_CHECKPOINT, 103, 0, 30, "", "");
    assert_true(!going_is_drained(&g, "failed") && going_is_drained(&g, "cancelled"));
    recall(&g, GOING_RECORD_END, 104, 6, 0, "paused", "missing");
    assert_true(!g.final && g.missing == GOING_MISSING_TRIES - 1);
    g.lost = 3; /* it was not closed yet */
    g.failures = g.restarts = 2;
    assert_int_equal(going_ready(&g, &end), GOING_FACT_LOCKED);
    g.failures++;
    assert_int_equal(going_ready(&g, &end), GOING_FACT_CONCLUDED);
    assert_string_equal(end.reason, "detd-job was lost (failure 3 in a row without a newer checkpoint)");
    g.lost = 0;
    assert_int_equal(going_ready(&g, &end), GOING_FACT_LOCKED);
}

/* ---- programs of other people, and ranks on other nodes ---- */

static void ranks_need_not_say_hello(void **state)
{
    struct going g = { .phase = GOING_WAITING };

    (void)state;
    assert_int_equal(going_next(&g, GOING_FACT_DUE), GOING_START);
    going_next(&g, GOING_FACT_STARTED);
    assert_int_equal(going_next(&g, GOING_FACT_GREETED), GOING_GO);
    assert_true(g.phase == GOING_RUNNING && g.wait_ms == 0);
    assert_int_equal(going_next(&g, GOING_FACT_GONE), GOING_CLEAN); /* all left, and no rank said how it ended */
}

static void ranks_may_be_stopped_by_a_signal(void **state)
{
    struct going g = { .phase = GOING_RUNNING };
    struct outcome signalled = failed("fault");
    struct going_end end;

    (void)state;
    assert_int_equal(going_next(&g, GOING_FACT_PAUSE), GOING_PASS);
    assert_int_equal(going_next(&g, GOING_FACT_DISOBEYED), GOING_TERM); /* the word was not obeyed in time */
    assert_int_equal(going_next(&g, GOING_FACT_GONE), GOING_CLEAN);
    assert_int_equal(going_judge(&g, &signalled, &end), GOING_FACT_CONCLUDED);
    assert_string_equal(end.outcome, "paused");
}

/* Starting, killing and leaving take their time there, and a wish may come in the midst of it. */
static void ranks_may_be_behind_a_second_process(void **state)
{
    struct going g = { .phase = GOING_WAITING };

    (void)state;
    assert_int_equal(going_next(&g, GOING_FACT_DUE), GOING_START);
    assert_true(going_has_attempt(&g));
    assert_int_equal(going_next(&g, GOING_FACT_CANCEL), GOING_KILL);
    assert_int_equal(going_next(&g, GOING_FACT_STARTED), GOING_NOTHING);
    assert_int_equal(g.phase, GOING_KILLED);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(going_next(&g, GOING_FACT_DUE), GOING_TELL_STUCK);
        assert_int_equal(g.looks, i);
    }
    assert_int_equal(going_next(&g, GOING_FACT_GONE), GOING_CLEAN);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(going_next(&g, GOING_FACT_REMAIN), GOING_NOTHING);
        assert_int_equal(going_next(&g, GOING_FACT_DUE), GOING_CLEAN);
        assert_int_equal(g.looks, i);
    }
    going_next(&g, GOING_FACT_AGAIN);
    going_next(&g, GOING_FACT_DUE);
    going_next(&g, GOING_FACT_STARTED);
    assert_int_equal(g.looks, 0); /* else a rank of this attempt that does not die would not be told */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fact_in_every_phase),
        cmocka_unit_test(it_is_drawn),
        cmocka_unit_test(failures_without_a_newer_checkpoint_end_it),
        cmocka_unit_test(some_failures_are_final),
        cmocka_unit_test(a_hello_that_does_not_come_is_a_hang),
        cmocka_unit_test(a_reason_counts_failures_that_another_attempt_might_mend),
        cmocka_unit_test(a_missing_file_gives_the_slots_back),
        cmocka_unit_test(a_refusal_is_no_failure),
        cmocka_unit_test(wishes_are_granted),
        cmocka_unit_test(the_spool_tells_what_was),
        cmocka_unit_test(ranks_need_not_say_hello),
        cmocka_unit_test(ranks_may_be_stopped_by_a_signal),
        cmocka_unit_test(ranks_may_be_behind_a_second_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

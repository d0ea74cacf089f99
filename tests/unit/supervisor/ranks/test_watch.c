/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/ranks/test_watch.c - uses: proto supervisor */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "supervisor/ranks/watch.h"

enum { MAX = 4 };
enum { BEATS = 1, MOVES = 2, WORKS = 4 }; /* heartbeat, changes and done_in_phase advance */

/* The behaviour of each rank from the first look on. Then the verdict: the second when it comes (0: never within 1000
 * s), the blamed rank, and the text. */
struct situation {
    const char *name;
    int nranks;
    struct {
        int does, phase, step; /* step 0: 5 */
        uint32_t sync, grad, sync_hash, grad_hash;
        bool absent, gone, held;
    } rank[MAX];
    int verdict_s, culprit;
    const char *text;
};

static const struct situation table[] = {
    { "all well",
      2,
      { { .does = BEATS | MOVES, .phase = PHASE_FORWARD }, { .does = BEATS | MOVES, .phase = PHASE_BACKWARD } },
      0,
      -1,
      NULL },
    { "stopped in data",
      2,
      { { .does = BEATS, .phase = PHASE_REDUCE, .sync = 7 }, { .does = 0, .phase = PHASE_DATA } },
      20,
      1,
      "rank 1 hangs in phase data at step 5: no sign of life for 20 s; rank 0 waits in reduce (sync 7)" },
    { "stopped where there is no deadline", 1, { { .does = 0, .phase = PHASE_REPORT_WAIT } }, 20, 0, "rank 0 hangs in phase report_wait" },
    { "everybody is stopped", 2, { { .does = 0, .phase = PHASE_FORWARD }, { .does = 0, .phase = PHASE_FORWARD } }, 20, 0, "rank 0" },
    { "dead-locked while the other waits",
      2,
      { { .does = BEATS, .phase = PHASE_REDUCE, .sync = 9 }, { .does = BEATS, .phase = PHASE_FORWARD } },
      45,
      1,
      "rank 1 hangs in phase forward at step 5: no progress for 45 s; rank 0 waits in reduce (sync 9)" },
    { "dead-locked alone", 1, { { .does = BEATS, .phase = PHASE_FORWARD } }, 300, 0, "phase forward" },
    { "all wait, one is behind",
      3,
      { { .does = BEATS, .phase = PHASE_REDUCE, .sync = 9 },
        { .does = BEATS, .phase = PHASE_SYNC, .sync = 8 },
        { .does = BEATS, .phase = PHASE_REDUCE, .sync = 9 } },
      45,
      1,
      "rank 1 hangs in phase sync_bn at step 5: no progress for 45 s (sync 8); 2 ranks wait, rank 0 in reduce (sync 9)" },
    { "all wait, one is a step behind",
      3,
      { { .does = BEATS, .phase = PHASE_REDUCE, .step = 7, .sync = 8, .grad = 1 },
        { .does = BEATS, .phase = PHASE_REDUCE, .step = 6, .sync = 9, .grad = 2 },
        { .does = BEATS, .phase = PHASE_REDUCE, .step = 7, .sync = 8, .grad = 1 } },
      45,
      1,
      "rank 1 hangs in phase reduce at step 6" },
    { "all wait, one has entered fewer gradients",
      2,
      { { .does = BEATS, .phase = PHASE_REDUCE, .sync = 9, .grad = 41 }, { .does = BEATS, .phase = PHASE_REDUCE, .sync = 9, .grad = 40 } },
      45,
      1,
      "no progress for 45 s (grad 40, sync 9); rank 0 waits in reduce (grad 41, sync 9)" },
    { "numbers of two channels are not compared", /* rank 0 has not entered gradients: its main thread first waits for rank 1 */
      2,
      { { .does = BEATS, .phase = PHASE_SYNC, .sync = 9, .grad = 3 }, { .does = BEATS, .phase = PHASE_SYNC, .sync = 8, .grad = 4 } },
      45,
      1,
      "rank 1 hangs" },
    { "another collective of the same number",
      3,
      { { .does = BEATS, .phase = PHASE_REDUCE, .sync = 9, .sync_hash = 0xabc, .grad = 2, .grad_hash = 5 },
        { .does = BEATS, .phase = PHASE_SYNC, .step = 6, .sync = 9, .sync_hash = 0xdef, .grad = 3, .grad_hash = 6 },
        { .does = BEATS, .phase = PHASE_REDUCE, .sync = 9, .sync_hash = 0xabc, .grad = 2, .grad_hash = 5 } },
      1,
      1,
      "ranks 0 and 1 are in different collectives: number 9 of channel sync is 00000abc on rank 0 (reduce, step 5) and 00000def on rank 1 "
      "(sync_bn, step 6)" },
    { "another collective of the gradients",
      2,
      { { .does = BEATS, .phase = PHASE_REDUCE, .grad = 9, .grad_hash = 1 },
        { .does = BEATS, .phase = PHASE_REDUCE, .grad = 9, .grad_hash = 2 } },
      1,
      1,
      "number 9 of channel grad is 00000001 on rank 0" },
    { "who moves finds that out himself",
      2,
      { { .does = BEATS | MOVES, .phase = PHASE_REDUCE, .grad = 9, .grad_hash = 1 },
        { .does = BEATS | MOVES, .phase = PHASE_REDUCE, .grad = 9, .grad_hash = 2 } },
      0,
      -1,
      NULL },
    { "who is gone is in no collective",
      2,
      { { .does = BEATS, .phase = PHASE_ENDING, .grad = 9, .grad_hash = 1, .gone = true },
        { .does = BEATS, .phase = PHASE_ENDING, .grad = 9, .grad_hash = 2 } },
      120,
      1,
      "rank 1 hangs in phase ending" },
    { "nobody reads what one says", /* a rank that waits to report may stand anywhere */
      2,
      { { .does = BEATS, .phase = PHASE_REDUCE, .sync = 9 }, { .does = BEATS, .phase = PHASE_CHECKPOINT, .held = true } },
      0,
      -1,
      NULL },
    { "stopped while nobody reads what it says", 1, { { .does = 0, .phase = PHASE_CHECKPOINT, .held = true } }, 20, 0, "no sign of life" },
    { "slow but moving",
      2,
      { { .does = BEATS, .phase = PHASE_REDUCE, .sync = 9 }, { .does = BEATS | MOVES, .phase = PHASE_DATA } },
      0,
      -1,
      NULL },
    { "rank 0 waits for detd",
      2,
      { { .does = BEATS, .phase = PHASE_REPORT_WAIT }, { .does = BEATS, .phase = PHASE_REDUCE, .sync = 9 } },
      0,
      -1,
      NULL },
    { "rank 0 writes a checkpoint",
      2,
      { { .does = BEATS, .phase = PHASE_CHECKPOINT }, { .does = BEATS, .phase = PHASE_REDUCE, .sync = 9 } },
      600,
      0,
      "phase checkpoint" },
    { "validation shards are progress", 1, { { .does = BEATS | WORKS, .phase = PHASE_VALIDATE } }, 0, -1, NULL },
    { "validation stands", 1, { { .does = BEATS, .phase = PHASE_VALIDATE } }, 600, 0, "phase validate" },
    { "checking data takes long",
      2,
      { { .does = BEATS, .phase = PHASE_CHECK_DATA }, { .does = BEATS, .phase = PHASE_WAIT_GO } },
      0,
      -1,
      NULL },
    { "no page at all", 1, { { .absent = true } }, 0, -1, NULL },
    { "one without a page is not blamed", 2, { { .does = BEATS, .phase = PHASE_REDUCE, .sync = 1 }, { .absent = true } }, 0, -1, NULL },
    { "gone ranks are not judged",
      2,
      { { .does = 0, .phase = PHASE_ENDING, .gone = true }, { .does = BEATS | MOVES, .phase = PHASE_ENDING } },
      0,
      -1,
      NULL },
};

static int run(const struct situation *s, double look_s, struct watch_verdict *ret)
{
    struct watch *w = watch_new(s->nranks);
    struct watch_page pages[MAX] = { 0 };
    double t;

    ret->rank = -1;
    for (t = 0; t <= 1000 && ret->rank < 0; t += look_s) {
        for (int i = 0; i < s->nranks; i++) {
            pages[i].there = !s->rank[i].absent;
            pages[i].gone = s->rank[i].gone;
            pages[i].held = s->rank[i].held;
            pages[i].phase = (uint32_t)s->rank[i].phase;
            pages[i].collective[CHANNEL_SYNC] = (struct watch_collective){ s->rank[i].sync, s->rank[i].sync_hash };
            pages[i].collective[CHANNEL_GRAD] = (struct watch_collective){ s->rank[i].grad, s->rank[i].grad_hash };
            pages[i].step = s->rank[i].step ? (uint64_t)s->rank[i].step : 5;
            pages[i].heartbeat += s->rank[i].does & BEATS ? 1 : 0;
            pages[i].changes += s->rank[i].does & MOVES ? 1 : 0;
            pages[i].done_in_phase += s->rank[i].does & WORKS ? 1 : 0;
        }
        watch_look(w, pages, 100 + t, ret);
    }
    watch_free(w);
    return ret->rank < 0 ? 0 : (int)(t - look_s);
}

static void situations(void **state)
{
    struct watch_verdict v;

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int at = run(&table[i], 1, &v);

        if (at != table[i].verdict_s || v.rank != table[i].culprit || (table[i].text && !strstr(v.text, table[i].text)) ||
            (v.rank >= 0 && (strcmp(v.kind, "mismatch") == 0) != (strstr(v.text, "different collectives") != NULL)))
            fail_msg("%s: after %d s rank %d: %s", table[i].name, at, v.rank, v.text);
    }
}

/* The supervisor itself was stopped for an hour: ranks get their 20 s again in looks, so no rank is blamed at the first
 * look. */
static void a_long_gap_blames_nobody(void **state)
{
    struct watch *w = watch_new(1);
    struct watch_page p = { .there = true, .phase = PHASE_FORWARD };
    struct watch_verdict v;

    (void)state;
    watch_look(w, &p, 10, &v);
    for (int i = 0; i < 9; i++) {
        watch_look(w, &p, 10 + 3600.0 * (i + 1), &v);
        assert_int_equal(v.rank, -1);
    }
    p.heartbeat++;
    watch_look(w, &p, 1e6, &v);
    assert_int_equal(v.rank, -1);
    watch_free(w);
}

static void a_page_is_not_trusted(void **state)
{
    struct progress *page = calloc(1, PROGRESS_BYTES);
    struct watch_page p;

    (void)state;
    atomic_store(&page->phase, 4000000000u);
    watch_read(page, &p);
    assert_false(p.there);
    assert_int_equal(p.phase, PHASE_STARTING);
    atomic_store(&page->phase, PHASE_REDUCE);
    atomic_store(&page->step, 3);
    atomic_store(&page->collective[CHANNEL_SYNC], 0x700000abc);
    atomic_store(&page->magic, PROGRESS_MAGIC);
    watch_read(page, &p); /* no version yet */
    assert_false(p.there);
    atomic_store(&page->version, PROGRESS_VERSION - 1);
    watch_read(page, &p);
    assert_false(p.there);
    atomic_store(&page->version, PROGRESS_VERSION + 1); /* which appends */
    watch_read(page, &p);
    assert_true(p.there && p.step == 3 && p.phase == PHASE_REDUCE);
    assert_int_equal(p.collective[CHANNEL_SYNC].number, 7);
    assert_int_equal(p.collective[CHANNEL_SYNC].hash, 0xabc);
    assert_int_equal(p.collective[CHANNEL_GRAD].number, 0);
    assert_string_equal(progress_phase_name(PHASE_SYNC), "sync_bn");
    assert_string_equal(progress_phase_name(99), "?");
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(situations), cmocka_unit_test(a_long_gap_blames_nobody),
                                        cmocka_unit_test(a_page_is_not_trusted) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

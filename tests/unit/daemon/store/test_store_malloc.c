/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/store/test_store_malloc.c - uses: proto daemon
 * An accepted report is stored even if memory runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include <cmocka.h>

#include "daemon/job/report.h"
#include "daemon/store/store.h"
#include "proto/err.h"
#include "tests/unit/daemon/database.h"
#include "tests/unit/daemon/no_memory.h"

struct outcome {
    int answers, rc;
    int64_t job;
};

static void done(void *arg, int rc, int64_t value, const struct err *err)
{
    struct outcome *o = arg;

    (void)err;
    o->answers++;
    o->rc = rc;
    o->job = value;
}

static void wait_for(uv_loop_t *loop, const struct outcome *o, int answers)
{
    while (o->answers < answers)
        uv_run(loop, UV_RUN_ONCE);
}

static struct report *loss_of_step(int64_t seq)
{
    json_t *rec = json_pack("{s:s, s:s, s:I, s:s, s:f, s:{s:[f,f]}}", "type", "loss", "split", "train", "step", (json_int_t)seq, "tier",
                            "rerun", "time", 5.0, "terms", "total", 8.0, 2.0);
    struct report *rep = NULL;
    struct err err;

    assert_int_equal(report_parse(rec, 1, seq, 5, &rep, &err), 0);
    json_decref(rec);
    return rep;
}

/* Any other allocation may fail: a reserved report is stored, with or without the job's row. A failed reservation is
 * reported before. */
static void a_report_has_its_memory(void **state)
{
    struct job_row row = { .state = JOB_RUNNING, .want_tier = -1, .tier = 1, .ranks = 1, .steps = 100, .submitted = 5 };
    struct outcome o = { 0 };
    char folder[TEMP_MAX], command[128];
    struct store *s;
    struct err err;
    uv_loop_t loop;
    uv_timer_t awake; /* the store alone keeps no loop alive */

    (void)state;
    NEEDS_ALLOCATOR();
    assert_non_null(mkdtemp(temp_path(folder, sizeof folder, "detd-store-XXXXXX")));
    uv_loop_init(&loop);
    uv_timer_init(&loop, &awake);
    uv_timer_start(&awake, nothing, 1000, 1000);
    assert_int_equal(store_open(folder, &loop, &s, &err), 0);
    store_submit(s, &row, "t", "{}", done, &o);
    wait_for(&loop, &o, 1);
    row.id = o.job;
    for (int seq = 1; seq <= 4; seq++) {
        struct report *rep = loss_of_step(seq);

        for (int n = 0; allocations_left = n, store_reserve(s, &err) < 0; n++) /* it takes two */
            assert_int_equal(err.code, -ENOMEM);
        row.last_seq = row.step = seq;
        allocations_left = 0;
        store_report(s, rep, seq % 2 ? &row : NULL, done, &o);
        allocations_left = -1;
        wait_for(&loop, &o, seq + 1);
        assert_int_equal(o.rc, 0);
    }
    store_report(s, loss_of_step(5), NULL, done, &o);
    wait_for(&loop, &o, 6);
    assert_int_equal(store_get_job(s, row.id, &row, &err), 0);
    assert_int_equal(row.last_seq, 5);
    assert_int_equal(store_reserve(s, &err), 0); /* and is given back */
    store_close(s);
    uv_close((uv_handle_t *)&awake, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_report_has_its_memory) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/store/store_fixture.h - a test's own database with the
 * store open on it; helpers that store and read rows. Include it after cmocka.h. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>

#include "daemon/job/report.h"
#include "daemon/store/store.h"
#include "daemon/base/text.h"
#include "proto/err.h"
#include "tests/unit/daemon/database.h"

struct fixture {
    char folder[TEMP_MAX];
    uv_loop_t loop;
    uv_timer_t awake; /* the store alone keeps no loop alive */
    struct store *s;
    int waiting;
    int rc;
    char said[sizeof((struct err *)NULL)->msg]; /* of the last failure */
    int64_t value;
};

static inline void open_again(struct fixture *f)
{
    struct err err;
    int rc = store_open(f->folder, &f->loop, &f->s, &err);

    if (rc < 0)
        print_error("%s\n", err.msg);
    assert_int_equal(rc, 0);
}

static inline void close_store(struct fixture *f)
{
    store_close(f->s);
    f->s = NULL;
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static inline int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(mkdtemp(temp_path(f->folder, sizeof f->folder, "detd-store-XXXXXX")));
    uv_loop_init(&f->loop);
    uv_timer_init(&f->loop, &f->awake);
    uv_timer_start(&f->awake, nothing, 1000, 1000);
    open_again(f);
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    char command[128];

    store_close(f->s);
    uv_close((uv_handle_t *)&f->awake, NULL);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    uv_loop_close(&f->loop);
    snprintf(command, sizeof command, "rm -rf '%s'", f->folder);
    if (system(command) != 0)
        print_error("cannot remove %s\n", f->folder);
    free(f);
    return 0;
}

static inline void done(void *arg, int rc, int64_t value, const struct err *err)
{
    struct fixture *f = arg;

    f->waiting--;
    f->rc = rc;
    snprintf(f->said, sizeof f->said, "%s", rc < 0 ? err->msg : "");
    f->value = value;
}

static inline void wait_all(struct fixture *f)
{
    while (f->waiting > 0)
        uv_run(&f->loop, UV_RUN_ONCE);
}

static inline int64_t submit(struct fixture *f, const char *token, uint32_t uid)
{
    struct job_row row = { .state = JOB_QUEUED, .want_tier = -1, .tier = 1, .ranks = 2, .steps = 100, .submitted = 50, .uid = uid };

    strcpy(row.name, "n");
    strcpy(row.user, "u");
    f->waiting++;
    store_submit(f->s, &row, token, "{\"a\":1}", done, f);
    wait_all(f);
    assert_true(f->rc >= 0);
    return f->value;
}

static inline void report(struct fixture *f, int64_t job, int64_t seq, const struct job_row *row, const char *text)
{
    json_t *rec = json_loads(text, 0, NULL);
    struct report *r = NULL;
    struct err err;
    int rc = report_parse(rec, job, seq, 1000, &r, &err);

    json_decref(rec);
    if (rc < 0)
        print_error("%s\n", err.msg);
    assert_int_equal(rc, 0);
    f->waiting++;
    store_report(f->s, r, row, done, f);
}

static inline void loss(struct fixture *f, int64_t job, int64_t seq, const char *split, int step)
{
    char text[256];

    snprintf(text, sizeof text,
             "{\"type\":\"loss\",\"split\":\"%s\",\"step\":%d,\"tier\":\"rerun\",\"time\":5,\"terms\":{\"total\":[%d,4],\"box\":[1,2]}}",
             split, step, step);
    report(f, job, seq, NULL, text);
}

/* Removes rows of later steps, as for a new attempt. Returns the number of pieces. */
static inline int rewind_to(struct fixture *f, int64_t job, int64_t step, struct store_rewind *r)
{
    int pieces = 0;

    for (*r = (struct store_rewind){ .job = job, .step = step }; r->at.table < STORE_REWOUND; pieces++) {
        int64_t before = r->at.removed;

        f->waiting++;
        store_rewind(f->s, r, done, f);
        wait_all(f);
        assert_int_equal(f->rc, 0);
        r->at = r->next;
        assert_in_range(r->at.removed - before, 0, 1000);
    }
    return pieces;
}

static inline const char *sql(struct fixture *f, const char *query)
{
    return sql_in(f->folder, query);
}

/* Runs statements without results, on a connection beside the store's own. */
static inline void sql_all(struct fixture *f, const char *statements)
{
    char path[128];
    sqlite3 *db;

    snprintf(path, sizeof path, "%s/detd.db", f->folder);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, statements, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static inline json_t *json_of(struct text *t)
{
    json_t *root = json_loads(t->p, 0, NULL);

    assert_non_null(root);
    text_free(t);
    return root;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

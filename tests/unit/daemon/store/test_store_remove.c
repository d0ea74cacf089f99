/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/store/test_store_remove.c - uses: proto daemon
 * Jobs that are removed from the database: at once for readers, piece by piece on the disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/daemon/store/store_fixture.h"

enum { DAY = 24 * 3600, POINTS = 3000, USAGE_ROWS = 3 };

/* A job with rows in every table, which ended at 100. */
static int64_t a_job(struct fixture *f, const char *token, int points, enum job_state state)
{
    struct job_row row;
    int64_t id = submit(f, token, 7), seq = 0;
    char text[200];

    report(f, id, ++seq, NULL, "{\"type\":\"attempt\",\"attempt\":1,\"resume_step\":0,\"time\":5,\"ranks\":1,\"device\":\"cpu\"}");
    for (int i = 1; i <= points; i++)
        loss(f, id, ++seq, i % 2 ? "train" : "val", i);
    report(f, id, ++seq, NULL, "{\"type\":\"eval\",\"step\":4,\"time\":5,\"metrics\":{\"AP\":0.5,\"AP50\":0.5}}");
    for (int step = 10; step < 40; step += 10) {
        snprintf(text, sizeof text,
                 "{\"type\":\"checkpoint\",\"step\":%d,\"phase\":\"published\",\"path\":\"c\",\"bytes\":1,\"val_loss\":1,\"best\":%s}",
                 step, step == 20 ? "true" : "false");
        report(f, id, ++seq, NULL, text);
    }
    for (int i = 0; i < USAGE_ROWS; i++)
        store_usage(f->s, &(struct store_usage){ id, 1000 + i, 1.5, 100, i ? 50 : -1, i ? 7 : -1 });
    report(f, id, ++seq, NULL, "{\"type\":\"tier\",\"step\":4,\"tier\":\"world\",\"time\":5}");
    wait_all(f);
    snprintf(text, sizeof text, "INSERT INTO evaluations VALUES (%lld, %lld, 4, 'by itself'), (%lld, %lld, 4, 'by another')", (long long)id,
             (long long)id, (long long)id + 1000, (long long)id);
    sql_all(f, text);
    assert_int_equal(store_get_job(f->s, id, &row, NULL), 0);
    row.state = state;
    row.ended = 100;
    f->waiting++;
    store_save(f->s, &row, done, f);
    wait_all(f);
    return id;
}

static int remove_job(struct fixture *f, int64_t id)
{
    f->waiting++;
    store_remove(f->s, id, "it was removed", 1000, done, f);
    wait_all(f);
    return f->rc;
}

static int sweep(struct fixture *f, int64_t id, double now)
{
    f->waiting++;
    store_sweep(f->s, id, now, done, f);
    wait_all(f);
    assert_int_equal(f->rc, 0);
    return (int)f->value;
}

/* Counts the points of its curves, and the job's rows in every table with a column for a job's number. The table
 * `removed` does not count: it remembers the job for a week. */
static int rows_of(struct fixture *f, int64_t id)
{
    char query[300], column[64];
    int rows, k;

    snprintf(query, sizeof query, "SELECT count(*) FROM loss WHERE job=%lld", (long long)id);
    rows = atoi(sql(f, query));
    for (k = 0;; k++) {
        snprintf(query, sizeof query,
                 "SELECT m.name || ' WHERE ' || c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type='table' AND "
                 "m.name<>'removed' AND "
                 "(c.name IN ('job', 'by') OR (m.name='jobs' AND c.name='id')) ORDER BY 1 LIMIT 1 OFFSET %d",
                 k);
        snprintf(column, sizeof column, "%s", sql(f, query));
        if (!column[0])
            break;
        snprintf(query, sizeof query, "SELECT count(*) FROM %s=%lld", column, (long long)id);
        rows += atoi(sql(f, query));
    }
    assert_true(k > 9);
    return rows;
}

static void a_job_goes_and_its_neighbours_stay(void **state)
{
    struct fixture *f = *state;
    int64_t before = a_job(f, "a", 20, JOB_FAILED), id = a_job(f, "b", POINTS, JOB_COMPLETED), after = a_job(f, "c", 20, JOB_CANCELLED);
    int rows = rows_of(f, before), pieces = 1;
    struct job_row row, was, next;
    char *spec;

    assert_true(rows > 50 && rows_of(f, id) > 2 * POINTS);
    assert_int_equal(store_get_job(f->s, id, &was, NULL), 0);
    assert_int_equal(remove_job(f, id), 0);
    assert_int_equal(store_get_job(f->s, id, &row, NULL), ERR_NOTFOUND);
    assert_int_equal(store_get_spec(f->s, id, &spec, NULL), ERR_NOTFOUND);
    assert_string_equal(sql(f, "SELECT text FROM events WHERE job IS NULL AND kind='removed'"), "it was removed");
    while (sweep(f, id, 1000)) {
        pieces++;
        assert_int_equal(store_next_removed(f->s, 0, &next, NULL), 0);
        assert_int_equal(next.id, id);
        assert_true(next.submitted == was.submitted && next.attempt == was.attempt); /* they identify the job's folder */
    }
    assert_in_range(pieces, 2 * POINTS / 1000, 2 * POINTS / 1000 + 3);
    assert_int_equal(store_next_removed(f->s, 0, &next, NULL), 0);
    assert_int_equal(next.id, 0);
    assert_int_equal(rows_of(f, id), 0);
    assert_string_equal(sql(f, "SELECT count(*) FROM point WHERE series NOT IN (SELECT id FROM series)"), "0");
    assert_int_equal(rows_of(f, before), rows);
    assert_int_equal(rows_of(f, after), rows);
}

/* An event that arrives after the removal is dropped: nothing would ever remove it. An example is the audit of a
 * request with a pending name lookup. */
static void what_comes_behind_it_is_not_stored(void **state)
{
    struct fixture *f = *state;
    int64_t id = a_job(f, "a", 20, JOB_CANCELLED), stays = a_job(f, "b", 20, JOB_CANCELLED);
    int rows = rows_of(f, stays);

    assert_int_equal(remove_job(f, id), 0);
    while (sweep(f, id, 1000))
        ;
    for (int i = 0; i < 2; i++) {
        store_event(f->s, i ? stays : id, "info", "audit", "cancel by ann", 1001);
        store_usage(f->s, &(struct store_usage){ i ? stays : id, 2000, 1.5, 100, 50, 7 });
    }
    store_event(f->s, 0, "info", "audit", "drain by ann", 1001);
    assert_int_equal(sweep(f, stays + 1, 1000), 0); /* an empty sweep, behind them in the queue */
    assert_int_equal(rows_of(f, id), 0);
    assert_int_equal(rows_of(f, stays), rows + 2);
    assert_string_equal(sql(f, "SELECT text FROM events WHERE job IS NULL AND kind='audit'"), "drain by ann");
}

/* detd may be killed at any time: the job is gone, its remaining rows are known, and the next detd removes them. */
static void the_next_detd_goes_on(void **state)
{
    struct fixture *f = *state;
    int64_t id = a_job(f, "a", POINTS, JOB_COMPLETED), other = a_job(f, "b", 2, JOB_COMPLETED);
    struct job_row next;

    remove_job(f, id);
    remove_job(f, other);
    assert_int_equal(sweep(f, id, 1000), 1);
    close_store(f);
    open_again(f);
    assert_int_equal(store_next_removed(f->s, 0, &next, NULL), 0);
    assert_int_equal(next.id, id);
    assert_int_equal(store_next_removed(f->s, id, &next, NULL), 0);
    assert_int_equal(next.id, other);
    while (sweep(f, id, 1000))
        ;
    assert_int_equal(rows_of(f, id), 0);
}

static void what_lives_is_refused(void **state)
{
    struct fixture *f = *state;

    for (int s = 0; s < JOB_STATE_COUNT; s++) {
        char token[8];
        int64_t id;

        snprintf(token, sizeof token, "t%d", s);
        id = a_job(f, token, 1, (enum job_state)s);
        assert_int_equal(remove_job(f, id), job_is_done((enum job_state)s) ? 0 : ERR_STATE);
        assert_true(job_is_done((enum job_state)s) || rows_of(f, id) > 5);
        assert_int_equal(remove_job(f, id), job_is_done((enum job_state)s) ? ERR_NOTFOUND : ERR_STATE);
    }
}

/* The number is never used for another job. For a week, a repeated submission returns the removed job. */
static void numbers_and_tokens_are_not_used_again(void **state)
{
    struct fixture *f = *state;
    int64_t id = a_job(f, "a", 1, JOB_COMPLETED);

    remove_job(f, id);
    while (sweep(f, id, 1000))
        ;
    assert_int_equal(submit(f, "a", 7), id);
    assert_int_equal(f->rc, STORE_REPEATED);
    assert_true(submit(f, "a", 8) > id);
    assert_int_equal(sweep(f, id, 1000 + 6 * DAY), 0);
    assert_int_equal(submit(f, "a", 7), id);
    assert_int_equal(sweep(f, id, 1000 + 8 * DAY), 0);
    assert_true(submit(f, "a", 7) > id);
}

struct found {
    int count;
    int64_t last;
};

static void note(void *arg, const struct job_row *row)
{
    struct found *found = arg;

    assert_true(row->id > found->last);
    found->last = row->id;
    found->count++;
}

static int ended(struct fixture *f, struct store_ended_query q)
{
    struct found found = { 0 };

    assert_int_equal(store_ended_jobs(f->s, &q, note, &found, NULL), 0);
    return found.count;
}

static void what_ended_is_found(void **state)
{
    struct fixture *f = *state;
    struct store_ended_query q = { .before = 100.5, .limit = 100, .uid = -1 };
    int64_t first = a_job(f, "t0", 1, JOB_COMPLETED), best = 0;

    for (int s = 1; s < JOB_STATE_COUNT; s++) {
        char token[8];

        snprintf(token, sizeof token, "t%d", s);
        a_job(f, token, 1, (enum job_state)s);
    }
    assert_int_equal(ended(f, q), 4);
    q.limit = 2;
    assert_int_equal(ended(f, q), 2);
    q = (struct store_ended_query){ .before = 100.5, .limit = 100, .uid = -1, .after = first };
    assert_int_equal(ended(f, q), 3);
    q.uid = 8;
    assert_int_equal(ended(f, q), 0);
    q.uid = 7;
    strcpy(q.user, "u");
    assert_int_equal(ended(f, q), 3);
    strcpy(q.user, "other");
    assert_int_equal(ended(f, q), 0);
    q = (struct store_ended_query){ .before = 99, .limit = 100, .uid = -1 };
    assert_int_equal(ended(f, q), 0);
    assert_int_equal(store_best_checkpoint(f->s, first, &best, NULL), 0);
    assert_int_equal(best, 20);
    sql_all(f, "UPDATE checkpoints SET best=0");
    assert_int_equal(store_best_checkpoint(f->s, first, &best, NULL), 0);
    assert_int_equal(best, 30);
}

static int thin(struct fixture *f, int64_t id)
{
    f->waiting++;
    store_thin_points(f->s, id, done, f);
    wait_all(f);
    assert_int_equal(f->rc, 0);
    return (int)f->value;
}

static const char *usage_rows(struct fixture *f, int64_t id, int64_t cursor, int64_t limit)
{
    static char page[400];
    struct text out = { 0 };

    assert_int_equal(store_usage_rows(f->s, id, &(struct store_page){ limit, cursor }, &out, NULL), 0);
    snprintf(page, sizeof page, "%s", out.p);
    text_free(&out);
    return page;
}

static void what_a_job_used(void **state)
{
    struct fixture *f = *state;
    int64_t id = a_job(f, "a", 2, JOB_COMPLETED);

    assert_string_equal(usage_rows(f, id, 0, 2),
                        "{\"rows\":[{\"time\":1002,\"cpu\":1.5,\"memory\":100,\"gpu\":50.0,\"gpu_memory\":7},"
                        "{\"time\":1001,\"cpu\":1.5,\"memory\":100,\"gpu\":50.0,\"gpu_memory\":7}],\"cursor\":1001}");
    assert_string_equal(usage_rows(f, id, 1001, 2),
                        "{\"rows\":[{\"time\":1000,\"cpu\":1.5,\"memory\":100,\"gpu\":null,\"gpu_memory\":null}],\"cursor\":null}");
    assert_string_equal(usage_rows(f, id + 1, 0, 2), "{\"rows\":[],\"cursor\":null}");
    store_usage(f->s, &(struct store_usage){ id, 1000, 2.5, 100, -1, -1 }); /* of the same second, as after the clock was set */
    close_store(f);
    open_again(f);
    assert_string_equal(usage_rows(f, id, 1001, 2),
                        "{\"rows\":[{\"time\":1000,\"cpu\":2.5,\"memory\":100,\"gpu\":null,\"gpu_memory\":null}],\"cursor\":null}");
}

/* The columns of a list stay. */
static void curves_are_thinned(void **state)
{
    struct fixture *f = *state;
    int64_t id = a_job(f, "a", POINTS, JOB_COMPLETED), other = a_job(f, "b", 20, JOB_COMPLETED);
    struct store_ended_query q = { .before = 200, .limit = 9, .uid = -1, .not_cleared = STORE_CLEARED_POINTS };
    int rows = rows_of(f, other), pieces = 1;

    assert_int_equal(ended(f, q), 2);
    while (thin(f, id)) {
        pieces++;
        assert_int_equal(ended(f, q), 2);
    }
    assert_in_range(pieces, 2 * POINTS / 1000, 2 * POINTS / 1000 + 1);
    assert_int_equal(ended(f, q), 1);
    assert_string_equal(sql(f, "SELECT group_concat(split || term || step) FROM (SELECT * FROM loss WHERE job=1 ORDER BY split, term)"),
                        "trainbox2999,traintotal2999,valbox3000,valtotal3000");
    assert_string_equal(usage_rows(f, id, 0, 9), "{\"rows\":[],\"cursor\":null}");
    assert_int_equal(rows_of(f, other), rows);
    q.not_cleared = STORE_CLEARED_LOGS;
    f->waiting++;
    store_clear_logs(f->s, id, done, f);
    wait_all(f);
    assert_int_equal(ended(f, q), 1);
    assert_string_equal(sql(f, "SELECT group_concat(cleared) FROM (SELECT * FROM jobs ORDER BY id)"), "3,0");
}

/* It had ended when the sweep found it, and was extended meanwhile. */
static void what_trains_on_keeps_its_points(void **state)
{
    struct fixture *f = *state;
    int64_t id = a_job(f, "a", 20, JOB_RUNNING);
    int rows = rows_of(f, id);

    f->waiting += 2;
    store_thin_points(f->s, id, done, f);
    store_clear_logs(f->s, id, done, f);
    wait_all(f);
    assert_int_equal(f->rc, ERR_STATE);
    assert_int_equal(f->value, 0);
    assert_int_equal(rows_of(f, id), rows);
    assert_string_equal(sql(f, "SELECT cleared FROM jobs"), "0");
}

static int forget(struct fixture *f, double before)
{
    f->waiting++;
    store_forget_events(f->s, before, done, f);
    wait_all(f);
    return (int)f->value;
}

static void old_events_are_forgotten(void **state)
{
    struct fixture *f = *state;
    int64_t job[3] = { 0, submit(f, "a", 7), submit(f, "b", 7) };
    int pieces = 1;

    for (int i = 0; i < 2500; i++) {
        if (i == 2400)
            store_running(f->s, 3 * 86400 + 7);
        store_event(f->s, job[i % 3], "info", "k", "t", i);
    }
    forget(f, 3 * 86400 - 1);
    assert_string_equal(sql(f, "SELECT count(*) FROM events"), "2500");
    while (forget(f, 3 * 86400))
        pieces++;
    assert_int_equal(pieces, 3);
    assert_string_equal(sql(f, "SELECT count(*) || ' ' || min(time) FROM events"), "100 2400.0");
}

/* The number of a job is never given again while a trace of the job is left. */
static void numbers_are_above_all_traces(void **state)
{
    static const char *const traces[] = {
        "INSERT INTO removed (job, name, user, uid, token, time, submitted, attempt) VALUES (%d, '', '', 1, 'x', 1, 1, 1)",
        "INSERT INTO attempts (job, attempt, node, resume_step, started) VALUES (%d, 1, '', 0, 1)",
        "INSERT INTO series (job, split, term) VALUES (%d, '', '')",
        "INSERT INTO eval VALUES (%d, '', 1, 1, 1)",
        "INSERT INTO events (job, time, level, kind, text) VALUES (%d, 1, '', '', '')",
        "INSERT INTO checkpoints VALUES (%d, 1, '', 1, 1, 1, 1)",
        "INSERT INTO tiers VALUES (%d, 1, '')",
        "INSERT INTO usage VALUES (%d, 1, 1, 1, 1, 1)",
        "INSERT INTO evaluations VALUES (%d, 1, 1, '')",
        "INSERT INTO specs VALUES (%d, '')"
    };
    struct fixture *f = *state;
    char text[200], token[8];
    int n = 0;

    for (size_t i = 0; i <= sizeof traces / sizeof *traces; i++) {
        n += 100;
        if (i > 0) {
            snprintf(text, sizeof text, traces[i - 1], n);
            close_store(f);
            sql(f, text);
            open_again(f);
        }
        store_skip_ids(f->s, i > 0 ? 1 : n);
        snprintf(token, sizeof token, "t%zu", i);
        assert_int_equal(submit(f, token, 7), n + 1);
    }
}

/* Rows of each kind are more than a piece takes, in one curve and in many. Those of other jobs and of earlier steps
 * stay. */
static void a_long_rewind_goes_in_pieces(void **state)
{
    struct fixture *f = *state;
    struct store_rewind r;
    char text[200], eval[200];

    submit(f, "a", 1);
    submit(f, "b", 1);
    for (int job = 1, seq[3] = { 0 }; job <= 2; job++)
        for (int i = 1; i <= 2500; i++) {
            loss(f, job, ++seq[job], "train", i);
            snprintf(eval, sizeof eval, "{\"type\":\"eval\",\"step\":%d,\"metrics\":{\"m%d\":0.5}}", i, i % 3);
            report(f, job, ++seq[job], NULL, eval);
            snprintf(text, sizeof text,
                     "{\"type\":\"checkpoint\",\"step\":%d,\"phase\":\"published\",\"path\":\"p\",\"bytes\":7,\"val_loss\":null,"
                     "\"best\":false}",
                     i);
            report(f, job, ++seq[job], NULL, text);
        }
    for (int i = 1; i <= 1200; i++) {
        snprintf(text, sizeof text,
                 "{\"type\":\"loss\",\"split\":\"val\",\"step\":%d,\"epoch\":1,\"tier\":\"rerun\",\"time\":5,\"terms\":{\"t%d\":[1,1]}}", i,
                 i);
        report(f, 1, 7500 + i, NULL, text);
    }
    wait_all(f);
    assert_in_range(rewind_to(f, 1, 100, &r), 10, 20);
    assert_string_equal(sql(f, "SELECT group_concat(n) FROM (SELECT count(*) AS n FROM loss WHERE job=1 AND split='train' GROUP BY term)"),
                        "100,100");
    assert_string_equal(sql(f, "SELECT count(*) || ' ' || max(step) FROM loss WHERE job=1 AND split='val'"), "100 100");
    assert_string_equal(sql(f, "SELECT count(*) || ' ' || max(step) FROM eval WHERE job=1"), "100 100");
    assert_string_equal(sql(f, "SELECT count(*) || ' ' || max(step) FROM checkpoints WHERE job=1"), "100 100");
    assert_int_equal(r.at.removed, 2 * 2400 + 1100 + 2400);
    assert_string_equal(sql(f, "SELECT count(*) FROM loss WHERE job=2"), "5000");
    assert_string_equal(sql(f, "SELECT (SELECT count(*) FROM eval WHERE job=2) || ' ' || (SELECT count(*) FROM checkpoints WHERE job=2)"),
                        "2500 2500");
    assert_in_range(rewind_to(f, 1, 100, &r), 3, 6);
    assert_int_equal(r.at.removed, 0);
}

/* Curves of ever new terms do not stay when a new attempt begins before their points. The writer's cache does not keep
 * them: their numbers are given to other curves, and their terms may be reported again. */
static void a_rewound_curve_goes_with_its_last_point(void **state)
{
    struct fixture *f = *state;
    struct store_rewind r;
    char text[200];

    submit(f, "a", 1);
    submit(f, "b", 1);
    loss(f, 1, 1, "train", 10);
    for (int i = 1; i <= 2100; i++) {
        snprintf(text, sizeof text,
                 "{\"type\":\"loss\",\"split\":\"val\",\"step\":50,\"epoch\":1,\"tier\":\"rerun\",\"time\":5,\"terms\":{\"t%d\":[1,1]}}",
                 i);
        report(f, 1, 1 + i, NULL, text);
    }
    wait_all(f);
    assert_int_equal(rewind_to(f, 1, 10, &r), 2100 * 2 / 1000 + 3);
    assert_string_equal(sql(f, "SELECT group_concat(job || split || term) FROM (SELECT * FROM series ORDER BY term)"),
                        "1trainbox,1traintotal");
    loss(f, 2, 1, "val", 7);
    report(f, 1, 2102, NULL,
           "{\"type\":\"loss\",\"split\":\"val\",\"step\":20,\"epoch\":1,\"tier\":\"rerun\",\"time\":5,\"terms\":{\"t1\":[6,2]}}");
    wait_all(f);
    assert_string_equal(sql(f, "SELECT group_concat(job || split || term || step) FROM (SELECT * FROM loss ORDER BY job, split, term)"),
                        "1trainbox10,1traintotal10,1valt120,2valbox7,2valtotal7");
    assert_int_equal(rewind_to(f, 1, 0, &r), 3);
    assert_string_equal(sql(f, "SELECT group_concat(DISTINCT job) FROM series"), "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_long_rewind_goes_in_pieces),
        TEST(a_rewound_curve_goes_with_its_last_point),
        TEST(a_job_goes_and_its_neighbours_stay),
        TEST(numbers_are_above_all_traces),
        TEST(what_comes_behind_it_is_not_stored),
        TEST(the_next_detd_goes_on),
        TEST(what_lives_is_refused),
        TEST(numbers_and_tokens_are_not_used_again),
        TEST(what_ended_is_found),
        TEST(what_a_job_used),
        TEST(curves_are_thinned),
        TEST(what_trains_on_keeps_its_points),
        TEST(old_events_are_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

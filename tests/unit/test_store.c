/* tests/unit/test_store.c - the database: migrations, exactly-once reports, rewinds, queries, kill -9 in mid-commit. uses: proto daemon */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <jansson.h>
#include <cmocka.h>

#include "daemon/report.h"
#include "daemon/schema.h"
#include "daemon/store.h"
#include "daemon/text.h"
#include "proto/err.h"
#include "tests/harness.h"

struct fixture {
    char folder[TEMP_MAX];
    uv_loop_t loop;
    uv_timer_t awake; /* the store alone keeps no loop alive */
    struct store *s;
    int waiting;
    int rc;
    int64_t value;
};

static void nothing(uv_timer_t *t)
{
    (void)t;
}

static void open_again(struct fixture *f)
{
    struct err err;
    int rc = store_open(f->folder, &f->loop, &f->s, &err);

    if (rc < 0)
        print_error("%s\n", err.msg);
    assert_int_equal(rc, 0);
}

static void close_store(struct fixture *f)
{
    store_close(f->s);
    f->s = NULL;
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static int setup(void **state)
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

static int teardown(void **state)
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

static void done(void *arg, int rc, int64_t value, const struct err *err)
{
    struct fixture *f = arg;

    (void)err;
    f->waiting--;
    f->rc = rc;
    f->value = value;
}

static void wait_all(struct fixture *f)
{
    while (f->waiting > 0)
        uv_run(&f->loop, UV_RUN_ONCE);
}

static int64_t submit(struct fixture *f, const char *token, uint32_t uid)
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

static void report(struct fixture *f, int64_t job, int64_t seq, const struct job_row *row, const char *text)
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

static void loss(struct fixture *f, int64_t job, int64_t seq, const char *split, int step)
{
    char text[256];

    snprintf(text, sizeof text,
             "{\"type\":\"loss\",\"split\":\"%s\",\"step\":%d,\"tier\":\"rerun\",\"time\":5,\"terms\":{\"total\":[%d,4],\"box\":[1,2]}}",
             split, step, step);
    report(f, job, seq, NULL, text);
}

/* The first column of the first row, as text; "" for none. */
static const char *sql(struct fixture *f, const char *query)
{
    static char ret[256];
    char path[128];
    sqlite3 *db;
    sqlite3_stmt *st;

    snprintf(path, sizeof path, "%s/detd.db", f->folder);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, query, -1, &st, NULL), SQLITE_OK);
    ret[0] = '\0';
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_text(st, 0))
        snprintf(ret, sizeof ret, "%s", (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    sqlite3_close(db);
    return ret;
}

/* Statements that return nothing, beside the store's own connection. */
static void sql_all(struct fixture *f, const char *statements)
{
    char path[128];
    sqlite3 *db;

    snprintf(path, sizeof path, "%s/detd.db", f->folder);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, statements, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static json_t *json_of(struct text *t)
{
    json_t *root = json_loads(t->p, 0, NULL);

    assert_non_null(root);
    text_free(t);
    return root;
}

static void a_token_is_one_job(void **state)
{
    struct fixture *f = *state;
    struct job_row row;
    char *spec;

    assert_int_equal(submit(f, "a", 1), 1);
    assert_int_equal(submit(f, "b", 1), 2);
    assert_int_equal(f->rc, 0);
    assert_int_equal(submit(f, "a", 1), 1);
    assert_int_equal(f->rc, STORE_REPEATED);
    assert_int_equal(submit(f, "a", 2), 3); /* another user's token */
    assert_int_equal(f->rc, 0);
    assert_int_equal(store_get_job(f->s, 2, &row, NULL), 0);
    assert_true(row.state == JOB_QUEUED && row.ranks == 2 && row.tier == 1 && row.want_tier == -1 && row.submitted == 50);
    assert_int_equal(store_get_job(f->s, 4, &row, NULL), ERR_NOTFOUND);
    assert_int_equal(store_get_spec(f->s, 2, &spec, NULL), 0);
    assert_string_equal(spec, "{\"a\":1}");
    free(spec);
}

static void rows_survive_and_ids_are_not_reused(void **state)
{
    struct fixture *f = *state;
    struct job_row row, back;
    char id[33];

    submit(f, "a", 1);
    strcpy(id, store_id(f->s));
    store_get_job(f->s, 1, &row, NULL);
    row.state = JOB_RUNNING;
    row.want = JOB_WANT_PAUSE;
    row.want_tier = 2;
    row.want_eval = true;
    row.attempt = 3;
    row.last_seq = 44;
    row.started = 1.5;
    row.cpu_before = 2.5;
    strcpy(row.nonce, "abc");
    strcpy(row.gpus, "GPU-1,GPU-2");
    strcpy(row.reason, "because");
    f->waiting++;
    store_save(f->s, &row, done, f);
    wait_all(f);
    close_store(f);
    assert_string_equal(sql(f, "DELETE FROM jobs WHERE id=1 RETURNING name"), "n");
    open_again(f);
    assert_string_equal(store_id(f->s), id);
    assert_int_equal(submit(f, "z", 1), 2);
    store_get_job(f->s, 2, &back, NULL);
    row.id = 2;
    f->waiting++;
    store_save(f->s, &row, done, f);
    wait_all(f);
    store_get_job(f->s, 2, &back, NULL);
    assert_memory_equal(&back, &row, sizeof row);
}

static void losses_come_out_as_they_went_in(void **state)
{
    struct fixture *f = *state;
    struct store_loss_query q = { .job = 1, .to = INT64_MAX, .limit = 5 };
    struct text t = { 0 };
    json_t *root, *rows;
    const char *cursor;

    submit(f, "a", 1);
    for (int i = 1; i <= 8; i++)
        loss(f, 1, i, i % 4 ? "train" : "val", i);
    wait_all(f);
    assert_string_equal(sql(f, "SELECT count(*) || ' ' || sum(value) FROM loss WHERE job=1 AND split='train' AND term='total'"), "6 6.0");
    assert_string_equal(sql(f, "SELECT last_seq || ' ' || step FROM jobs"), "8 7");
    assert_string_equal(sql(f, "SELECT val_total FROM loss_wide WHERE step=8"), "2.0");
    assert_string_equal(sql(f, "SELECT train_total FROM job_summary"), "1.75");
    assert_int_equal(store_loss_rows(f->s, &q, &t, NULL), 0);
    root = json_of(&t);
    rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 5);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "term")), "box");
    cursor = json_string_value(json_object_get(root, "cursor"));
    assert_non_null(cursor);
    q.cursor = cursor;
    q.limit = 100;
    assert_int_equal(store_loss_rows(f->s, &q, &t, NULL), 0);
    json_t *rest = json_of(&t);
    assert_int_equal(json_array_size(json_object_get(rest, "rows")), 11);
    assert_true(json_is_null(json_object_get(rest, "cursor")));
    json_decref(root);
    json_decref(rest);
    q = (struct store_loss_query){ .job = 1, .from = 2, .to = 6, .limit = 100, .split = "train", .term = "total" };
    store_loss_rows(f->s, &q, &t, NULL);
    root = json_of(&t);
    assert_int_equal(json_array_size(json_object_get(root, "rows")), 4);
    json_decref(root);
    q.cursor = "nonsense";
    assert_int_equal(store_loss_rows(f->s, &q, &t, NULL), ERR_INPUT);
    text_free(&t);
    assert_int_equal(store_losses(f->s, 1, &t, NULL), 0);
    assert_string_equal(t.p, "{\"train\":{\"box\":0.5,\"total\":1.75},\"val\":{\"box\":0.5,\"total\":2.0}}");
    text_free(&t);
    assert_int_equal(store_losses(f->s, 77, &t, NULL), 0);
    assert_string_equal(t.p, "{\"train\":{},\"val\":{}}");
    text_free(&t);
}

static void a_curve_is_thinned_by_seeks(void **state)
{
    struct fixture *f = *state;
    struct store_loss_query q = { .job = 1, .to = INT64_MAX, .limit = 5000, .points = 10, .term = "total" };
    struct text t = { 0 };
    json_t *root, *rows;

    submit(f, "a", 1);
    for (int i = 1; i <= 1000; i++)
        loss(f, 1, i, "train", 10 * i);
    wait_all(f);
    assert_int_equal(store_loss_rows(f->s, &q, &t, NULL), 0);
    root = json_of(&t);
    rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 10);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 0), "step")), 10);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 9), "step")), 10000);
    json_decref(root);
    q.points = 5000;
    store_loss_rows(f->s, &q, &t, NULL);
    root = json_of(&t);
    assert_int_equal(json_array_size(json_object_get(root, "rows")), 1000); /* never more than there are */
    json_decref(root);
    q.points = 1;
    store_loss_rows(f->s, &q, &t, NULL);
    root = json_of(&t);
    rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 0), "step")), 10000);
    json_decref(root);
}

static void an_attempt_rewinds(void **state)
{
    struct fixture *f = *state;
    struct job_row row;

    submit(f, "a", 1);
    store_get_job(f->s, 1, &row, NULL);
    row.attempt = 1;
    row.last_seq = 1;
    report(f, 1, 1, &row, "{\"type\":\"attempt\",\"attempt\":1,\"resume_step\":0,\"time\":1}");
    for (int i = 1; i <= 9; i++)
        loss(f, 1, 1 + i, "train", i);
    report(f, 1, 11, NULL, "{\"type\":\"eval\",\"step\":8,\"metrics\":{\"AP\":0.5,\"AR\":null}}");
    report(f, 1, 12, NULL,
           "{\"type\":\"checkpoint\",\"step\":4,\"phase\":\"published\",\"path\":\"p\",\"bytes\":7,\"val_loss\":null,\"best\":true}");
    row.attempt = 2;
    row.last_seq = 13;
    row.step = 4;
    report(f, 1, 13, &row, "{\"type\":\"attempt\",\"attempt\":2,\"resume_step\":4,\"time\":2}");
    for (int i = 5; i <= 9; i++)
        loss(f, 1, 9 + i, "train", i);
    row.last_seq = 19;
    row.state = JOB_COMPLETED;
    row.step = 9;
    report(f, 1, 19, &row, "{\"type\":\"end\",\"outcome\":\"completed\",\"reason\":\"\"}");
    wait_all(f);
    assert_string_equal(sql(f, "SELECT count(*) || ' ' || sum(step) FROM loss WHERE term='total'"), "9 45");
    assert_string_equal(sql(f, "SELECT count(*) FROM eval"), "0");
    assert_string_equal(sql(f, "SELECT step FROM checkpoints"), "4");
    assert_string_equal(sql(f, "SELECT text FROM events WHERE kind='rewound'"),
                        "attempt 2 goes on after step 4; 12 rows of later steps were removed");
    assert_string_equal(sql(f, "SELECT outcome FROM attempts WHERE attempt=2"), "completed");
    assert_string_equal(sql(f, "SELECT state || last_seq FROM jobs"), "completed19");
    assert_string_equal(sql(f, "SELECT step || tier FROM tiers"), "1rerun");
}

/* What was reported of the step that an attempt goes on from was reported before, and is not again. An end counts once: detd and the next supervisor may both
 * find that an attempt is lost. */
static void the_step_itself_stays(void **state)
{
    struct fixture *f = *state;
    struct job_row row;
    char text[160];

    submit(f, "a", 1);
    store_get_job(f->s, 1, &row, NULL);
    row.attempt = 1;
    report(f, 1, 1, &row, "{\"type\":\"attempt\",\"attempt\":1,\"resume_step\":0,\"time\":1}");
    for (int i = 1; i <= 2; i++) {
        loss(f, 1, 3 * i - 1, "val", 4 * i);
        snprintf(text, sizeof text, "{\"type\":\"eval\",\"step\":%d,\"metrics\":{\"AP\":0.5}}", 4 * i);
        report(f, 1, 3 * i, NULL, text);
        snprintf(text, sizeof text,
                 "{\"type\":\"checkpoint\",\"step\":%d,\"phase\":\"published\",\"path\":\"p\",\"bytes\":7,\"val_loss\":1,\"best\":true}",
                 4 * i);
        report(f, 1, 3 * i + 1, NULL, text);
    }
    report(f, 1, 8, NULL, "{\"type\":\"ended\",\"attempt\":1,\"outcome\":\"failed\",\"reason\":\"the first\",\"time\":2}");
    report(f, 1, 9, NULL, "{\"type\":\"ended\",\"attempt\":1,\"outcome\":\"failed\",\"reason\":\"the second\",\"time\":3}");
    row.attempt = 2;
    report(f, 1, 10, &row, "{\"type\":\"attempt\",\"attempt\":2,\"resume_step\":4,\"time\":4}");
    wait_all(f);
    assert_string_equal(sql(f, "SELECT group_concat(step) FROM eval"), "4");
    assert_string_equal(sql(f, "SELECT group_concat(step) FROM checkpoints"), "4");
    assert_string_equal(sql(f, "SELECT group_concat(step) FROM loss WHERE split='val' AND term='total'"), "4");
    assert_string_equal(sql(f, "SELECT reason || ended FROM attempts WHERE attempt=1"), "the first2.0");
}

/* A job that is saved after reports of one batch is as it was saved. */
static void what_is_saved_last_holds(void **state)
{
    struct fixture *f = *state;
    struct job_row row;

    submit(f, "a", 1);
    store_get_job(f->s, 1, &row, NULL);
    for (int i = 1; i <= 9; i++)
        loss(f, 1, i, "train", i);
    row.last_seq = 9;
    row.step = 4; /* it went back there */
    f->waiting++;
    store_save(f->s, &row, done, f);
    wait_all(f);
    assert_string_equal(sql(f, "SELECT step || ' ' || last_seq FROM jobs"), "4 9");
}

/* Each attempt has its own; what it tells later replaces what it told first. */
static void identities_are_kept(void **state)
{
    static const char want[] = "\"outcome\":\"\",\"reason\":\"\",\"identity\":null},{\"attempt\":1,",
                      first[] = "\"outcome\":\"\",\"reason\":\"\",\"identity\":{\"hash\":\"02\",\"versions\":{}}}]";
    struct fixture *f = *state;
    struct text t = { 0 };
    struct job_row row;

    submit(f, "a", 1);
    store_get_job(f->s, 1, &row, NULL);
    for (int i = 1; i <= 2; i++) {
        row.attempt = i;
        row.last_seq = 3 * i - 2;
        report(f, 1, row.last_seq, &row,
               i == 1 ? "{\"type\":\"attempt\",\"attempt\":1,\"resume_step\":0}"
                      : "{\"type\":\"attempt\",\"attempt\":2,\"resume_step\":0}");
        if (i == 2)
            break;
        report(f, 1, 2, NULL, "{\"type\":\"identity\",\"attempt\":1,\"identity\":{\"hash\":\"01\"}}");
        report(f, 1, 3, NULL, "{\"type\":\"identity\",\"attempt\":1,\"identity\":{\"hash\":\"02\",\"versions\":{}}}");
    }
    wait_all(f);
    assert_int_equal(store_job_details(f->s, 1, &t, NULL), 0);
    if (!strstr(t.p, want) || !strstr(t.p, first))
        fail_msg("%s", t.p);
    text_free(&t);
    assert_string_equal(sql(f, "SELECT group_concat(identity, ';') FROM attempts"), "{\"hash\":\"02\",\"versions\":{}};");
}

static void a_number_told_twice_is_refused_and_noted(void **state)
{
    struct fixture *f = *state;

    submit(f, "a", 1);
    loss(f, 1, 1, "train", 5);
    loss(f, 1, 2, "train", 5);
    loss(f, 1, 3, "train", 6);
    wait_all(f);
    assert_int_equal(f->rc, 0);
    assert_string_equal(sql(f, "SELECT count(*) FROM loss"), "4");
    assert_string_equal(sql(f, "SELECT count(*) FROM events WHERE kind='conflict'"), "2");
    assert_string_equal(sql(f, "SELECT last_seq FROM jobs"), "3");
}

/* The first value stays, the event says so, and the rest of the record is kept. */
static void a_metric_told_twice_is_refused_and_noted(void **state)
{
    struct fixture *f = *state;

    submit(f, "a", 1);
    report(f, 1, 1, NULL, "{\"type\":\"eval\",\"step\":4,\"time\":5,\"metrics\":{\"AP\":0.5}}");
    report(f, 1, 2, NULL, "{\"type\":\"eval\",\"step\":4,\"time\":6,\"metrics\":{\"A\":1,\"AP\":0.75,\"Z\":2}}");
    wait_all(f);
    assert_int_equal(f->rc, 0);
    assert_string_equal(sql(f, "SELECT group_concat(metric || value) FROM (SELECT * FROM eval ORDER BY metric)"), "A1.0,AP0.5,Z2.0");
    assert_string_equal(sql(f, "SELECT job || level || kind || text FROM events"),
                        "1errorconflicta second value of AP at step 4 was refused: the trainer reported it twice");
    assert_string_equal(sql(f, "SELECT last_seq FROM jobs"), "2");
}

static void not_finite_is_null(void **state)
{
    struct fixture *f = *state;

    submit(f, "a", 1);
    report(f, 1, 1, NULL,
           "{\"type\":\"loss\",\"split\":\"train\",\"step\":1,\"tier\":\"off\",\"terms\":{\"total\":[null,4],\"none\":[0,0]}}");
    wait_all(f);
    assert_string_equal(sql(f, "SELECT count(*) FROM loss WHERE value IS NULL"), "2");
}

static void events_and_pages(void **state)
{
    struct fixture *f = *state;
    struct store_page page = { .limit = 3 };
    struct text t = { 0 };
    json_t *root;

    submit(f, "a", 1);
    for (int i = 0; i < 5; i++)
        store_event(f->s, i % 2, "info", "k", "a \"text\"", i);
    f->waiting++;
    store_setting(f->s, "tier", "world", done, f);
    wait_all(f);
    assert_int_equal(store_events(f->s, 0, &page, &t, NULL), 0);
    root = json_of(&t);
    assert_int_equal(json_array_size(json_object_get(root, "events")), 3);
    page.cursor = json_integer_value(json_object_get(root, "cursor"));
    json_decref(root);
    store_events(f->s, 0, &page, &t, NULL);
    root = json_of(&t);
    assert_int_equal(json_array_size(json_object_get(root, "events")), 2);
    assert_true(json_is_null(json_object_get(root, "cursor")));
    json_decref(root);
    page.cursor = 0;
    store_events(f->s, 1, &page, &t, NULL);
    root = json_of(&t);
    assert_int_equal(json_array_size(json_object_get(root, "events")), 2);
    json_decref(root);
}

static void make_database(const struct fixture *f, const char *statements)
{
    char path[128];
    sqlite3 *db;

    snprintf(path, sizeof path, "%s/detd.db", f->folder);
    unlink(path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL); /* as after a kill */
    assert_int_equal(sqlite3_exec(db, statements, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* All bytes of database and WAL, as a number. */
static uint64_t sum_of_files(const struct fixture *f)
{
    uint64_t sum = 14695981039346656037u;

    for (int i = 0; i < 2; i++) {
        char path[128];
        FILE *file;

        snprintf(path, sizeof path, "%s/detd.db%s", f->folder, i ? "-wal" : "");
        file = fopen(path, "rb");
        for (int c; file && (c = getc(file)) != EOF;)
            sum = (sum ^ (uint64_t)c) * 1099511628211u;
        sum += file ? 1 : 0;
        if (file)
            fclose(file);
    }
    return sum;
}

static void assert_refused(struct fixture *f, const char *word)
{
    uint64_t before = sum_of_files(f);
    struct store *s;
    struct err err;

    assert_int_equal(store_open(f->folder, &f->loop, &s, &err), ERR_CORRUPT);
    if (!strstr(err.msg, word))
        print_error("%s\n", err.msg);
    assert_non_null(strstr(err.msg, word));
    assert_non_null(strstr(err.msg, "--state"));
    assert_true(sum_of_files(f) == before);
}

static void refuses_what_it_does_not_know(void **state)
{
    struct fixture *f = *state;
    char text[160], newer[32];
    FILE *file;

    close_store(f);
    snprintf(newer, sizeof newer, "schema %d", SCHEMA_VERSION + 1);
    snprintf(text, sizeof text, "PRAGMA journal_mode=WAL; PRAGMA application_id=%d; PRAGMA user_version=%d; CREATE TABLE t(a)",
             SCHEMA_APPLICATION, SCHEMA_VERSION + 1);
    make_database(f, text);
    assert_refused(f, newer);
    unlink(strcat(strcat(strcpy(text, f->folder), "/detd.db"), "-wal"));
    make_database(f, "CREATE TABLE photos(a)");
    assert_refused(f, "another program");
    snprintf(text, sizeof text, "%s/detd.db", f->folder);
    file = fopen(text, "w");
    for (int i = 0; i < 10000; i++)
        fputs("this is no database ", file);
    fclose(file);
    assert_refused(f, "damaged");
    unlink(text);
    open_again(f);
}

/* Files as those of a file system on which no memory can be shared. */
static sqlite3_io_methods without_shared_memory;

static int open_without(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
    sqlite3_vfs *usual = vfs->pAppData;
    int rc = usual->xOpen(usual, name, file, flags, ret_flags);

    if (rc == SQLITE_OK && (flags & SQLITE_OPEN_MAIN_DB)) {
        without_shared_memory = *file->pMethods;
        without_shared_memory.iVersion = 1; /* which has none of it */
        file->pMethods = &without_shared_memory;
    }
    return rc;
}

/* SQLite says in a row, not with an error, that the mode of the journal stays as it was. */
static void refuses_a_database_without_a_log(void **state)
{
    struct fixture *f = *state;
    sqlite3_vfs *usual = sqlite3_vfs_find(NULL), vfs = *usual;

    close_store(f);
    make_database(f, "");
    vfs.zName = "without";
    vfs.pAppData = usual;
    vfs.xOpen = open_without;
    sqlite3_vfs_register(&vfs, 1);
    assert_refused(f, "delete");
    sqlite3_vfs_unregister(&vfs);
    sqlite3_vfs_register(usual, 1);
    open_again(f);
}

static char *any_spec(int i)
{
    static char spec[4096];

    snprintf(spec, sizeof spec, "{\"name\":\"%0*d\"}", 3000, i);
    return spec;
}

/* A database as the schema before this one left it, with a job of each state: nothing of it is lost, but that spec has a table of its own. */
static void the_schema_before_is_brought_up(void **state)
{
    struct fixture *f = *state;
    struct text all = { 0 };
    struct job_row row;
    char *spec;

    close_store(f);
    text_addf(&all, "PRAGMA journal_mode=WAL;");
    for (int v = 1; v < SCHEMA_VERSION; v++)
        text_add(&all, schema_migration(v));
    text_addf(&all, "PRAGMA application_id=%d; PRAGMA user_version=%d; INSERT INTO meta VALUES ('store_id', '%032d');", SCHEMA_APPLICATION,
              SCHEMA_VERSION - 1, 7);
    for (int i = 0; i < JOB_STATE_COUNT; i++) {
        text_addf(
            &all,
            "INSERT INTO jobs (id, name, user, uid, token, state, want, tier, device, ranks, steps, step, submitted, gpus, spec) VALUES ");
        text_addf(&all, "(%d, 'j%d', 'u', %d, 't%d', '%s', 'pause', 'world', 'cuda', 2, 9, %d, 5, 'GPU-1', '", 10 * i + 3, i, i, i,
                  job_state_name((enum job_state)i), i);
        text_add(&all, any_spec(i));
        text_addf(&all, "'); INSERT INTO attempts (job, attempt, node, resume_step, started, identity) VALUES (%d, 1, 'n', 0, 5, '{}');",
                  10 * i + 3);
    }
    text_add(&all, "INSERT INTO series VALUES (1, 3, 'train', 'total'); INSERT INTO point VALUES (1, 4, 0.5, 8, 2, 1, 6);");
    make_database(f, all.p);
    text_free(&all);
    open_again(f);
    assert_string_equal(store_id(f->s), "00000000000000000000000000000007");
    for (int i = 0; i < JOB_STATE_COUNT; i++) {
        assert_int_equal(store_get_job(f->s, 10 * i + 3, &row, NULL), 0);
        assert_true((int)row.state == i && row.step == i && row.uid == (uint32_t)i && row.tier == 2 && row.want == JOB_WANT_PAUSE);
        assert_int_equal(store_get_spec(f->s, row.id, &spec, NULL), 0);
        assert_string_equal(spec, any_spec(i));
        free(spec);
    }
    assert_string_equal(sql(f, "SELECT value FROM loss WHERE job=3"), "4.0");
    assert_string_equal(sql(f, "SELECT count(*) FROM attempts WHERE identity='{}'"), "8");
    assert_string_equal(sql(f, "PRAGMA integrity_check"), "ok");
    assert_int_equal(submit(f, "t0", 0), 3); /* its token is known still */
    assert_int_equal(f->rc, STORE_REPEATED);
    assert_int_equal(submit(f, "new", 0), 10 * (JOB_STATE_COUNT - 1) + 4);
}

/* A database of the first release: its jobs had one rank a GPU, its GPUs were healthy, and its attempts told nothing of themselves. */
static void an_older_schema_is_brought_up(void **state)
{
    struct fixture *f = *state;
    struct text t = { 0 };
    struct job_row row;
    char *statements;

    close_store(f);
    assert_true(asprintf(&statements,
                         "PRAGMA journal_mode=WAL; %s PRAGMA application_id=%d; PRAGMA user_version=1;"
                         "INSERT INTO jobs (name, user, uid, token, spec, state, tier, device, ranks, steps, submitted) "
                         "VALUES ('j', 'u', 1, 't', '{}', 'queued', 'rerun', 'cuda', 2, 9, 5);"
                         "INSERT INTO attempts (job, attempt, node, resume_step, started) VALUES (1, 1, 'n', 0, 5);"
                         "INSERT INTO gpus VALUES ('GPU-1', 'N', 7, 5)",
                         schema_migration(1), SCHEMA_APPLICATION) > 0);
    make_database(f, statements);
    free(statements);
    open_again(f);
    assert_int_equal(store_get_job(f->s, 1, &row, NULL), 0);
    assert_true(row.cuda && row.ranks == 2 && row.ranks_per_gpu == 1);
    assert_string_equal(sql(f, "SELECT uuid || quarantine || ecc_errors FROM gpus WHERE quarantined IS NULL"), "GPU-1-1");
    assert_int_equal(store_job_details(f->s, 1, &t, NULL), 0);
    assert_non_null(strstr(t.p, "\"reason\":\"\",\"identity\":null}]"));
    text_free(&t);
}

static void keep_gpu(void *arg, const struct store_gpu *gpu)
{
    struct store_gpu *kept = arg;

    kept[gpu->uuid[4] == '2'] = *gpu;
}

static void gpus_are_kept(void **state)
{
    struct fixture *f = *state;
    struct store_gpu gpus[] = {
        { .uuid = "GPU-1", .name = "A", .memory_bytes = 80, .ecc_errors = -1 },
        { .uuid = "GPU-2", .name = "B", .memory_bytes = 96, .ecc_errors = 3, .quarantine = "Xid 79", .quarantined = 7 }
    };
    struct store_gpu kept[2] = { 0 };
    struct err err;

    for (int i = 0; i < 2; i++) {
        f->waiting++;
        store_gpu(f->s, &gpus[i], 9, done, f);
    }
    wait_all(f);
    close_store(f);
    open_again(f);
    assert_int_equal(store_load_gpus(f->s, keep_gpu, kept, &err), 0);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(kept[i].name, gpus[i].name);
        assert_string_equal(kept[i].quarantine, gpus[i].quarantine);
        assert_true(kept[i].memory_bytes == gpus[i].memory_bytes && kept[i].ecc_errors == gpus[i].ecc_errors);
        assert_true(kept[i].quarantined == gpus[i].quarantined);
    }
    gpus[1].quarantine[0] = '\0';
    gpus[1].quarantined = 0;
    f->waiting++;
    store_gpu(f->s, &gpus[1], 10, done, f);
    wait_all(f);
    assert_string_equal(sql(f, "SELECT group_concat(uuid) FROM gpus WHERE quarantine='' AND quarantined IS NULL"), "GPU-1,GPU-2");
}

/* SQLite's writes: the one that comes when none is left is carried out by half, and nothing after it. */
static int writes_left;

static size_t survive(size_t bytes)
{
    return --writes_left == 0 ? bytes / 2 : bytes;
}

static ssize_t die(ssize_t written)
{
    if (writes_left == 0)
        raise(SIGKILL);
    return written;
}

static ssize_t mortal_write(int fd, const void *buf, size_t n)
{
    return die(write(fd, buf, survive(n)));
}

static ssize_t mortal_pwrite(int fd, const void *buf, size_t n, off_t at)
{
    return die(pwrite(fd, buf, survive(n), at));
}

static void limit_writes(int writes)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

    writes_left = writes;
    vfs->xSetSystemCall(vfs, "write", (sqlite3_syscall_ptr)(void *)mortal_write);
    vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)(void *)mortal_pwrite);
    vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)(void *)mortal_pwrite);
}

/* The child reports and says which seq the store has acknowledged, till one of its writes kills it. */
static void report_for_ever(struct fixture *f, int to_parent, int64_t from, int writes)
{
    open_again(f);
    limit_writes(writes);
    for (int64_t seq = from;; seq++) {
        loss(f, 1, seq, "train", (int)seq);
        if (seq % 50 == 0) {
            f->waiting++;
            store_setting(f->s, "k", "v", done, f); /* somebody waits: what came before is committed at once */
            wait_all(f);
            if (write(to_parent, &seq, sizeof seq) != sizeof seq)
                _exit(1);
        }
    }
}

static void kill_in_mid_commit(void **state)
{
    struct fixture *f = *state;
    int64_t acked = 0;
    char query[200];

    submit(f, "a", 1);
    close_store(f);
    for (int writes = 1; writes < 160; writes += 13) {
        int fds[2], status;
        int64_t seq;
        struct job_row row;
        pid_t child;

        assert_int_equal(pipe(fds), 0);
        child = fork();
        if (child == 0) {
            close(fds[0]);
            report_for_ever(f, fds[1], acked + 1, writes);
        }
        close(fds[1]);
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        while (read(fds[0], &seq, sizeof seq) == sizeof seq)
            acked = seq;
        close(fds[0]);
        open_again(f);
        store_get_job(f->s, 1, &row, NULL);
        assert_true(row.last_seq >= acked);
        snprintf(query, sizeof query, "SELECT count(*)=%lld AND coalesce(max(step), 0)=%lld FROM loss WHERE term='total'",
                 (long long)row.last_seq, (long long)row.last_seq);
        assert_string_equal(sql(f, query), "1");
        acked = row.last_seq;
        close_store(f);
    }
    assert_true(acked > 0);
    open_again(f);
}

static void list_and_load(void **state)
{
    struct fixture *f = *state;
    struct job_row row;
    char token[16];

    for (int i = 1; i <= 20; i++) {
        snprintf(token, sizeof token, "t%d", i);
        submit(f, token, 1);
        store_get_job(f->s, i, &row, NULL);
        if (i != 2) {
            row.state = JOB_COMPLETED;
            f->waiting++;
            store_save(f->s, &row, done, f);
        }
    }
    wait_all(f);
    assert_string_equal(sql(f, "SELECT group_concat(id) FROM (SELECT id FROM jobs WHERE state='queued')"), "2");
}

static void count_row(void *arg, const struct job_row *row)
{
    int64_t *sum = arg;

    *sum += row->id;
}

static void count_listed(void *arg, const struct job_row *row, const char *losses)
{
    assert_string_equal(losses, "{\"train\":{},\"val\":{}}");
    count_row(arg, row);
}

static void live_and_newest_jobs(void **state)
{
    struct fixture *f = *state;
    struct store_page page = { .limit = 3, .cursor = 11 };
    int64_t sum = 0;

    list_and_load(state);
    assert_int_equal(store_load_jobs(f->s, 3, count_row, &sum, NULL), 0);
    assert_int_equal(sum, 20 + 19 + 18 + 2);
    sum = 0;
    assert_int_equal(store_list_jobs(f->s, &page, -1, count_listed, &sum, NULL), 0);
    assert_int_equal(sum, 10 + 9 + 8);
    sum = 0;
    assert_int_equal(store_list_jobs(f->s, &page, JOB_QUEUED, count_listed, &sum, NULL), 0);
    assert_int_equal(sum, 2);
}

static void keep_listed(void *arg, const struct job_row *row, const char *losses)
{
    int64_t *last = arg;

    assert_string_equal(losses, "{\"train\":{\"total\":2.0},\"val\":{}}");
    assert_true(*last == 0 || row->id < *last);
    *last = row->id;
}

/* What a page costs, in steps of SQLite's machine. */
static int64_t cost_of_page(struct fixture *f, int64_t cursor, int state, int64_t *ret_last)
{
    struct store_page page = { .limit = 50, .cursor = cursor };
    struct store_effort before, after;

    *ret_last = 0;
    store_effort(f->s, &before);
    assert_int_equal(store_list_jobs(f->s, &page, state, keep_listed, ret_last, NULL), 0);
    store_effort(f->s, &after);
    assert_int_equal(after.rows_scanned, before.rows_scanned);
    return after.steps - before.steps;
}

/* A page of a list costs the same whether a thousand or a hundred thousand jobs lie in between. */
static void a_page_costs_what_it_shows(void **state)
{
    static const int counts[] = { 1000, 100000 };
    struct fixture *f = *state;
    int64_t cost[2][3], last;
    char text[1200];

    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
                 "INSERT INTO jobs (name, user, uid, token, state, tier, device, ranks, steps, submitted) "
                 "SELECT 'n', 'u', 1, 't%d-' || i, iif(i %% (%d / 60) = 1, 'failed', 'completed'), 'rerun', 'cpu', 1, 9, 5 FROM n; "
                 "INSERT INTO series (job, split, term) SELECT id, 'train', 'total' FROM jobs WHERE id > (SELECT coalesce(max(job), 0) "
                 "FROM series); "
                 "INSERT INTO point SELECT id, 5, 0, 4, 2, 1, 5 FROM series WHERE id > (SELECT coalesce(max(series), 0) FROM point);",
                 counts[i], i, counts[i]);
        sql_all(f, text);
        cost[i][0] = cost_of_page(f, 0, -1, &last);
        cost[i][1] = cost_of_page(f, last, -1, &last);
        cost[i][2] = cost_of_page(f, 0, JOB_FAILED, &last);
        assert_true(last > 0);
        assert_true(cost_of_page(f, last, JOB_FAILED, &last) > 0 && last > 0);
        assert_true(cost_of_page(f, 0, JOB_QUEUED, &last) < 100 && last == 0);
    }
    for (int k = 0; k < 3; k++) {
        assert_true(cost[0][k] > 50 && cost[0][k] < 10000);
        assert_int_equal(cost[1][k], cost[0][k]);
    }
}

/* Nothing may grow past a byte, as on a disk that is full. */
static void what_cannot_be_written_says_why(void **state)
{
    struct fixture *f = *state;
    struct job_row row = { .state = JOB_QUEUED, .want_tier = -1, .tier = 1, .ranks = 2, .steps = 100, .submitted = 50 };
    struct rlimit before, none = { 1, 0 };
    char text[256] = "";

    strcpy(row.name, "n");
    strcpy(row.user, "u");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    f->waiting++;
    store_submit(f->s, &row, "late", "{}", done, f);
    while (!text[0]) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        store_trouble(f->s, text, sizeof text);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    wait_all(f); /* nothing is lost */
    assert_int_equal(f->rc, 0);
    assert_string_equal(text, "detd.db cannot be written: disk I/O error; trying again");
    store_trouble(f->s, text, sizeof text);
    assert_string_equal(text, "");
}

static atomic_int failures; /* of the next writes; < 0: of all */

static ssize_t failing_pwrite(int fd, const void *buf, size_t n, off_t at)
{
    if (failures == 0)
        return pwrite(fd, buf, n, at);
    if (failures > 0)
        failures--;
    errno = EIO;
    return -1;
}

static void replace_pwrite(sqlite3_syscall_ptr fn)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

    vfs->xSetSystemCall(vfs, "pwrite", fn);
    vfs->xSetSystemCall(vfs, "pwrite64", fn);
}

/* A stop tries three times more, four where one was under way, and then gives the first batch up. The next, which could be written, may not be: its
 * numbers would say that the reports before it are stored, and nobody would send them again. */
static void nothing_is_written_behind_what_was_given_up(void **state)
{
    struct fixture *f = *state;
    int64_t job = submit(f, "a", 1), seq = 1;
    char text[256] = "";

    replace_pwrite((sqlite3_syscall_ptr)(void *)failing_pwrite);
    failures = -1;
    for (; seq <= 10; seq++)
        loss(f, job, seq, "train", (int)seq);
    f->waiting++;
    store_setting(f->s, "k", "v", done, f);
    while (!text[0])
        store_trouble(f->s, text, sizeof text);
    for (; seq <= 20; seq++)
        loss(f, job, seq, "train", (int)seq);
    failures = 5;
    close_store(f);
    failures = 0;
    replace_pwrite(NULL);
    assert_int_equal(f->waiting, 0);
    assert_true(f->rc < 0);
    assert_string_equal(sql(f, "SELECT last_seq || ' ' || (SELECT count(*) FROM loss) FROM jobs"), "0 0");
    open_again(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_token_is_one_job),
        TEST(rows_survive_and_ids_are_not_reused),
        TEST(losses_come_out_as_they_went_in),
        TEST(a_curve_is_thinned_by_seeks),
        TEST(an_attempt_rewinds),
        TEST(the_step_itself_stays),
        TEST(what_is_saved_last_holds),
        TEST(identities_are_kept),
        TEST(a_number_told_twice_is_refused_and_noted),
        TEST(a_metric_told_twice_is_refused_and_noted),
        TEST(not_finite_is_null),
        TEST(events_and_pages),
        TEST(refuses_what_it_does_not_know),
        TEST(refuses_a_database_without_a_log),
        TEST(an_older_schema_is_brought_up),
        TEST(the_schema_before_is_brought_up),
        TEST(gpus_are_kept),
        TEST(kill_in_mid_commit),
        TEST(what_cannot_be_written_says_why),
        TEST(nothing_is_written_behind_what_was_given_up),
        TEST(live_and_newest_jobs),
        TEST(a_page_costs_what_it_shows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

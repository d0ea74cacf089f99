/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/store/test_store_open.c - uses: proto daemon
 * The owner of a database, the upgrade of a schema to the next, and databases that are refused and left unchanged. */
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/store/schema.h"
#include "tests/unit/daemon/store/store_fixture.h"

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
    snprintf(newer, sizeof newer, "schema %d", schema_version() + 1);
    snprintf(text, sizeof text, "PRAGMA journal_mode=WAL; PRAGMA application_id=%d; PRAGMA user_version=%d; CREATE TABLE t(a)",
             SCHEMA_APPLICATION, schema_version() + 1);
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

/* A file system without shared memory. */
static sqlite3_io_methods without_shared_memory;

static int open_without(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
    sqlite3_vfs *usual = vfs->pAppData;
    int rc = usual->xOpen(usual, name, file, flags, ret_flags);

    if (rc == SQLITE_OK && (flags & SQLITE_OPEN_MAIN_DB)) {
        without_shared_memory = *file->pMethods;
        without_shared_memory.iVersion = 1; /* version 1 has no shared memory */
        file->pMethods = &without_shared_memory;
    }
    return rc;
}

/* SQLite reports in a row, not with an error, that the journal mode is unchanged. */
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

/* ---- the next version ---- */

int __real_schema_version(void);
const char *__real_schema_step(int n);
static const char *next; /* the text of an additional step; NULL: no such step */

int __wrap_schema_version(void);
const char *__wrap_schema_step(int n);

int __wrap_schema_version(void)
{
    return __real_schema_version() + (next != NULL);
}

const char *__wrap_schema_step(int n)
{
    return n <= __real_schema_version() ? __real_schema_step(n) : next;
}

/* Rows of everything that the database knows: values that are not finite, of the node, with characters of all kinds. */
static const char rows[] =
    "INSERT INTO meta VALUES ('store_id', '00000000000000000000000000000007'), ('tier', 'world');"
    "INSERT INTO jobs (id, name, user, uid, token, state, reason, want, want_tier, want_checkpoint, want_eval, tier, device, ranks, "
    "threads, "
    "priority, restarts, deaths, attempt, nonce, gpus, last_seq, step, steps, images_per_s, cpu_seconds, cpu_before, max_rss, submitted, "
    "started, ended) VALUES "
    "(1, 'j', 'u', 1, 't', 'queued', '', 'run', '', 0, 0, 'rerun', 'cuda', 2, 0, 0, 3, 0, 0, '', '', 0, 0, 9, 0, 0, 0, 0, 5, NULL, NULL),"
    "(4, 'Bäume ''93', 'ann', 1000, 't', 'failed', 'rank 1: \"no\" 中', 'pause', 'off', 1, 2, 'world', 'cpu', 3, 4, -5, 6, 1, 2, "
    "'nonce', 'GPU-1,GPU-2', 4123456789012, 7, 8, 2.5, 1234.25, 0.1, 9876543210, 1700000000.25, 1700000001.5, 1700000002.75);"
    "INSERT INTO specs VALUES (1, '{\"name\":\"j\"}'), (4, '{\"name\":\"b\"}');"
    "INSERT INTO attempts (job, attempt, node, resume_step, started, ended, outcome, reason) VALUES (1, 1, 'n', 0, 5, NULL, '', ''), (4, "
    "1, 'n', 0, 6, 7, 'failed', 'a \"reason\"'), (4, 2, 'm', 4, 8.5, 9.5, "
    "'ended', '');"
    "INSERT INTO series VALUES (1, 4, 'train', 'total'), (2, 4, 'val', 'total'), (7, 4, 'train', 'bóx');"
    "INSERT INTO point VALUES (1, 1, 0.25, 8, 2, 0, 6), (1, 2, 0.5, NULL, 2, 1, 7), (1, 7, 1.5, 0.1, 3, 2, 8), (2, 2, NULL, 1e300, 1e-300, "
    "1, 9),"
    " (7, 1, 0.25, 5, 0, 1, 9.25);"
    "INSERT INTO eval VALUES (4, 'AP', 2, 0.1, 10), (4, 'AP', 4, NULL, 11), (4, 'AP50/tree', 4, 1, 11.5);"
    "INSERT INTO events VALUES (1, NULL, 1, 'info', 'gpus', 'of the node'), (9, 4, 2, 'error', 'end', 'failed: \"so\"');"
    "INSERT INTO checkpoints VALUES (4, 2, 'checkpoints/step-2', 123456789012, 0.5, 1, 12), (4, 4, '/etc', 1, NULL, 0, 13);"
    "INSERT INTO tiers VALUES (4, 1, 'rerun'), (4, 5, 'off');"
    "INSERT INTO gpus (uuid, name, memory_bytes, seen) VALUES ('GPU-1', 'N', 7, 5), ('GPU-2', '', 150754820096, 6.5);";

/* The queries for all rows, column by column. */
static const char *const of_them[] = {
    "SELECT key, value FROM meta ORDER BY key",
    "SELECT id, name, user, uid, token, state, reason, want, want_tier, want_checkpoint, want_eval, tier, device, ranks, threads, "
    "priority, restarts, deaths,"
    " attempt, nonce, gpus, last_seq, step, steps, images_per_s, cpu_seconds, cpu_before, max_rss, submitted, started, ended FROM jobs "
    "ORDER BY id",
    "SELECT job, attempt, node, resume_step, started, ended, outcome, reason FROM attempts ORDER BY job, attempt",
    "SELECT id, job, split, term FROM series ORDER BY id",
    "SELECT series, step, epoch, num, den, tier, time FROM point ORDER BY series, step",
    "SELECT job, metric, step, value, time FROM eval ORDER BY metric, step",
    "SELECT id, job, time, level, kind, text FROM events ORDER BY id",
    "SELECT job, step, path, bytes, val_loss, best, time FROM checkpoints ORDER BY step",
    "SELECT job, step, tier FROM tiers ORDER BY step",
    "SELECT uuid, name, memory_bytes, seen FROM gpus ORDER BY uuid",
    "SELECT job, split, term, step, epoch, value, num, den, tier, time FROM loss ORDER BY job, split, term, step",
    "SELECT job, split, term, step, value FROM loss_latest ORDER BY job, split, term",
    "SELECT job, step, train_total, val_total FROM loss_wide ORDER BY job, step",
    "SELECT id, name, state, reason, attempt, step, steps, tier, device, ranks, train_total, val_total FROM job_summary ORDER BY id",
};

/* The result of these queries, a line a row. */
static void dump(const struct fixture *f, struct text *out)
{
    char path[128];
    sqlite3 *db;

    snprintf(path, sizeof path, "%s/detd.db", f->folder);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    for (size_t i = 0; i < sizeof of_them / sizeof *of_them; i++) {
        sqlite3_stmt *st;

        assert_int_equal(sqlite3_prepare_v2(db, of_them[i], -1, &st, NULL), SQLITE_OK);
        while (sqlite3_step(st) == SQLITE_ROW)
            for (int c = 0; c < sqlite3_column_count(st); c++)
                text_addf(out, "%s=%d:%s%s", sqlite3_column_name(st, c), sqlite3_column_type(st, c),
                          sqlite3_column_text(st, c) ? (const char *)sqlite3_column_text(st, c) : "",
                          c + 1 < sqlite3_column_count(st) ? "|" : "\n");
        sqlite3_finalize(st);
    }
    sqlite3_close(db);
}

static void assert_tells(struct text *t, const char *const *words)
{
    for (; *words; words++) {
        if (!strstr(t->p, *words))
            print_error("'%s' is not in %s\n", *words, t->p);
        assert_non_null(strstr(t->p, *words));
    }
    text_free(t);
}

static bool is_there(void *arg, int64_t step)
{
    (void)arg;
    return step > 2;
}

/* The answers to clients' queries. */
static void tells_of_job_4(struct fixture *f)
{
    static const char *const losses[] = { "\"step\":7,\"epoch\":1.5,\"value\":0.0333333333333333", "\"num\":null", "b\xc3\xb3x", NULL };
    static const char *const evals[] = { "\"step\":4,\"metric\":\"AP50/tree\",\"value\":1.0", "\"step\":4,\"metric\":\"AP\",\"value\":null",
                                         NULL };
    static const char *const events[] = { "\"text\":\"failed: \\\"so\\\"\"", NULL };
    static const char *const details[] = { "\"reason\":\"a \\\"reason\\\"\",\"identity\":null}",
                                           "\"path\":\"/jobs/4/checkpoints/step-4\"",
                                           "\"val_loss\":0.5,\"best\":true,\"time\":12.0,\"there\":false}",
                                           "\"there\":true}",
                                           "{\"step\":5,\"tier\":\"off\"}",
                                           NULL };
    const struct store_loss_query all = { .job = 4, .to = 100, .limit = 100 };
    struct text t = { 0 };
    int64_t best = 0;

    assert_int_equal(store_loss_rows(f->s, &all, &t, NULL), 0);
    assert_tells(&t, losses);
    assert_int_equal(store_eval_rows(f->s, &(struct store_eval_query){ .job = 4, .limit = 100 }, &t, NULL), 0);
    assert_tells(&t, evals);
    assert_int_equal(store_events(f->s, 4, &(struct store_page){ .limit = 100 }, &t, NULL), 0);
    assert_tells(&t, events);
    assert_int_equal(store_job_details(f->s, 4, "/jobs/4", is_there, NULL, &t, NULL), 0);
    assert_tells(&t, details);
    assert_int_equal(store_best_checkpoint(f->s, 4, &best, NULL), 0);
    assert_int_equal(best, 2);
}

static void make_this_version(struct fixture *f)
{
    struct text all = { 0 };

    close_store(f);
    text_addf(&all, "PRAGMA journal_mode=WAL; %s PRAGMA application_id=%d; PRAGMA user_version=1; %s", schema_step(1), SCHEMA_APPLICATION,
              rows);
    make_database(f, all.p);
    text_free(&all);
}

/* After the upgrade every old row is unchanged, and the new column has its default. */
static void the_version_before_is_brought_up(void **state)
{
    struct fixture *f = *state;
    struct text before = { 0 }, after = { 0 };
    struct job_row row;
    char *spec;

    assert_int_equal(schema_version(), 1); /* else its rows are those of an older one */
    make_this_version(f);
    dump(f, &before);
    assert_true(!before.failed && before.len > 2000);
    next = "ALTER TABLE jobs ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'; CREATE TABLE made_up (a);";
    open_again(f);
    assert_string_equal(sql(f, "PRAGMA user_version"), "2");
    assert_string_equal(sql(f, "SELECT group_concat(colour) FROM jobs"), "red,red");
    assert_string_equal(sql(f, "SELECT count(*) FROM made_up"), "0");
    dump(f, &after);
    assert_string_equal(before.p, after.p);
    text_free(&before);
    text_free(&after);
    assert_int_equal(store_get_job(f->s, 1, &row, NULL), 0);
    assert_true(row.cuda && row.ranks == 2 && row.ranks_per_gpu == 1);
    assert_int_equal(store_get_spec(f->s, 4, &spec, NULL), 0);
    assert_string_equal(spec, "{\"name\":\"b\"}");
    free(spec);
    assert_string_equal(sql(f, "PRAGMA integrity_check"), "ok");
    tells_of_job_4(f);
    assert_int_equal(submit(f, "new", 0), 5);
    next = NULL;
}

/* The first half of the failing step is taken back. */
static void a_step_that_fails_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct text before = { 0 }, after = { 0 };
    struct store *s;
    struct err err;

    make_this_version(f);
    dump(f, &before);
    next = "ALTER TABLE jobs ADD COLUMN colour TEXT; ALTER TABLE no_such_table ADD COLUMN b;";
    assert_int_equal(store_open(f->folder, &f->loop, &s, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "no_such_table"));
    next = NULL;
    open_again(f);
    assert_string_equal(sql(f, "PRAGMA user_version"), "1");
    assert_string_equal(sql(f, "SELECT count(*) FROM pragma_table_info('jobs') WHERE name='colour'"), "0");
    dump(f, &after);
    assert_string_equal(before.p, after.p);
    text_free(&before);
    text_free(&after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(refuses_what_it_does_not_know),
        TEST(refuses_a_database_without_a_log),
        TEST(the_version_before_is_brought_up),
        TEST(a_step_that_fails_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/store_impl.h - declarations that only the store's own files
 * share. */
#pragma once
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/job/job.h"
#include "daemon/job/report.h"
#include "daemon/base/reserve.h"
#include "daemon/store/store.h"
#include "proto/err.h"

struct text;

enum { STORE_READERS = 4, SERIES_SLOTS = 4096, SWEEP_ROWS = STORE_PIECE_ROWS };

enum op_kind {
    OP_SUBMIT,
    OP_TAKE_ID,
    OP_SKIP_IDS,
    OP_REOPEN,
    OP_LABEL,
    OP_SAVE,
    OP_REPORT,
    OP_EVENT,
    OP_SETTING,
    OP_GPU,
    OP_USAGE,
    OP_GRANT,
    OP_REMOVE,
    OP_SWEEP,
    OP_REWIND,
    OP_THIN,
    OP_CLEAR,
    OP_FORGET,
    OP_RUNNING,
    OP_SHRINK
};

/* A change on its way. The loop makes and frees it; in between, the writer reads it and fills rc, value, err. */
struct op {
    struct op *next;
    enum op_kind kind;
    int64_t job;
    struct job_row *row;
    struct report *rep;
    /* SUBMIT: token, spec; REOPEN: spec; LABEL: note and tags before; EVENT: level, kind, text; SETTING: key, value;
     * GPU: uuid, name, quarantine; REMOVE: its event */
    char *text[3];
    int64_t number[2]; /* SUBMIT, REOPEN: maximum of queued jobs of the user; GPU: memory, errors */
    double time, since;
    struct store_usage usage;    /* USAGE */
    struct store_grant grant;    /* GRANT */
    struct store_rewind *rewind; /* REWIND: of the caller */
    bool asked;                  /* by a user: refused at once if the disk is full */
    void (*done)(void *arg, int rc, int64_t value, const struct err *err);
    void *arg;
    int rc;
    int64_t value;
    struct err err;
};

struct op_queue {
    struct op *head, *tail;
    struct op *firm; /* the last change that no other may overtake; NULL: there is none */
    int rows;
};

/* Writer statements; prepared once. */
enum stmt_name {
    ST_TOKEN,
    ST_QUEUED,
    ST_SUBMIT,
    ST_STATE,
    ST_FIRST_ID,
    ST_NEXT_ID,
    ST_SKIP_IDS,
    ST_SPEC,
    ST_REOPEN,
    ST_LABEL,
    ST_REOPEN_SPEC,
    ST_EVALUATION,
    ST_SAVE,
    ST_SEQ,
    ST_EVENT,
    ST_SETTING,
    ST_GPU,
    ST_USAGE,
    ST_GRANT,
    ST_SERIES,
    ST_NEW_SERIES,
    ST_POINT,
    ST_EVAL,
    ST_CHECKPOINT,
    ST_TIER,
    ST_ATTEMPT,
    ST_IDENTITY,
    ST_ENDED,
    ST_COUNT
};

struct point {
    int64_t series, step;
    double epoch, num, den, time;
    int tier;
};

struct series_slot {
    int64_t job, id; /* id 0: free */
    bool val;
    char term[REPORT_NAME_MAX + 1];
};

struct seq_mark {
    int64_t job, seq, step, reported;
};

/* Belongs to the writer thread. */
struct writer {
    sqlite3 *db;
    sqlite3_stmt *stmt[ST_COUNT];
    struct series_slot *series;
    int series_used;
    struct point *points; /* of the batch, not inserted yet */
    int npoints;
    size_t points_cap;
    struct seq_mark *marks;
    int nmarks;
    size_t marks_cap;
    char node[65];
    int full;     /* ENOSPC, EDQUOT, EFBIG: the last batch found no room on disk, in the quota, or below the limit of file sizes; else 0 */
    bool damaged; /* the database is damaged: nothing is written any more */
};

struct store {
    char path[4096];
    char id[33];
    struct writer w;
    bool given_up;          /* of the writer: a stop found a batch that could not be written */
    struct reserve reserve; /* of the writer */
    sqlite3 *reader[STORE_READERS];
    bool reader_busy[STORE_READERS];
    atomic_bool stop_reading;
    pthread_mutex_t reader_lock;
    pthread_cond_t reader_free;
    pthread_t thread;
    pthread_mutex_t lock; /* for todo, finished, urgent, stopping, backlog, trouble */
    pthread_cond_t wake;
    struct op_queue todo, finished;
    int user_queued;    /* of the loop */
    struct op *spare;   /* of the loop, with a row; for the next report */
    struct op *answers; /* taken off `finished` by the loop, not given yet */
    bool urgent, stopping;
    int backlog;
    char trouble[256];
    uv_async_t async;
    void (*on_batch)(void *arg);
    void *on_batch_arg;
};

/* store_open.c. After a failure the caller must call databases_close() for the parts that were opened. */
int databases_open(struct store *s, struct err *err);
void databases_close(struct store *s);

/* store_write.c: runs on the writer thread. All return an SQLite code; a code other than OK and CONSTRAINT makes the
 * batch start again. */
int writer_open(struct writer *w, struct err *err);
void writer_close(struct writer *w);
/* For a connection whose last call failed with rc and errno `last`: returns ENOSPC, EDQUOT or EFBIG if it failed for
 * lack of room, otherwise 0. */
int db_no_room(sqlite3 *db, int rc, int last);
int writer_batch(struct writer *w, struct op *first); /* BEGIN ... COMMIT; rolls back on failure */
int op_rows(const struct op *op);
int writer_run(sqlite3_stmt *st);                           /* a statement that returns no rows; it is reset */
void bind_text(sqlite3_stmt *st, int at, const char *text); /* NULL: "". The text must live until the statement ran. */
void bind_real(sqlite3_stmt *st, int at, double v);         /* NULL in the database unless finite */
int writer_event(struct writer *w, int64_t job, double time, const char *level, const char *kind, const char *text);

/* store_series.c: the same. The number of a curve, which is made where there is none. */
int writer_series(struct writer *w, int64_t job, bool val, const char *term, int64_t *ret);
/* Forgets the numbers of all curves. To be called when curves are removed whose terms may be reported again. */
void writer_forget_series(struct writer *w);

/* store_remove.c: the same. */
int writer_remove(struct writer *w, struct op *op);
int writer_sweep(struct writer *w, struct op *op);
int writer_rewind(struct writer *w, struct op *op);
int writer_thin(struct writer *w, struct op *op);
int writer_clear(struct writer *w, struct op *op);
int writer_forget(struct writer *w, struct op *op);
int writer_running(struct writer *w, const struct op *op);

/* store_read.c */
sqlite3 *reader_take(struct store *s); /* waits for a free one */
void reader_give(struct store *s, sqlite3 *db);
/* Prepares a statement. ERR_CORRUPT with SQLite's message on failure. Caller finalizes. */
int reader_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct err *err);
/* 1: a row; 0: no more; < 0: error. */
int reader_step(sqlite3 *db, sqlite3_stmt *st, struct err *err);

/* store_rows.c */
void row_add_column(struct text *out, sqlite3_stmt *st, int at);
/* An object with a member for each column of the statement. first: no comma before it. */
void row_add(struct text *out, sqlite3_stmt *st, bool first);
/* The same, without its closing brace. */
void row_add_open(struct text *out, sqlite3_stmt *st, bool first);
enum { ROWS_LISTED = 1000 };
/* All rows of a query for a job (?1), perhaps with a limit (?2), as an array. */
int rows_list(sqlite3 *db, const char *sql, int64_t id, struct text *out, struct err *err);

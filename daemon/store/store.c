/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/store.c - the queue between loop and writer, the writer
 * thread. */
#include "daemon/store/store.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/store/store_impl.h"
#include "proto/host/room.h"
#include "proto/host/tasks.h"

/* PLAIN_ROWS: rows that a batch takes behind the last change that somebody waits for. Without them a stream of new jobs
 * would hold up all reports; with more each of these jobs would wait longer. */
enum { RETRY_MS = 200, RETRIES_AT_STOP = 3, ANSWERS_MS = 2, PLAIN_ROWS = 100 };

/* ---- queue ---- */

/* A plain change only adds rows about jobs that are stored already. */
static bool is_plain(const struct op *op)
{
    return op->kind == OP_EVENT || op->kind == OP_USAGE || (op->kind == OP_REPORT && !op->row);
}

/* A submission is the first change of its job, so it need not wait behind plain changes of others. */
static bool may_overtake(const struct op *op)
{
    return op->kind == OP_TAKE_ID || op->kind == OP_SUBMIT;
}

static void push(struct op_queue *q, struct op *op)
{
    struct op *before = may_overtake(op) ? q->firm : q->tail, **at = before ? &before->next : &q->head;

    op->next = *at;
    *at = op;
    if (!op->next)
        q->tail = op;
    if (!is_plain(op))
        q->firm = op;
    q->rows += op_rows(op);
}

static void op_free(struct op *op)
{
    if (!op)
        return;
    for (int i = 0; i < 3; i++)
        free(op->text[i]);
    free(op->row);
    free(op->rep);
    free(op);
}

static bool somebody_waits(const struct op *op)
{
    return op->kind == OP_REPORT ? op->rep->type != REPORT_LOSS : op->kind != OP_EVENT && op->kind != OP_USAGE;
}

static void enqueue(struct store *s, struct op *op)
{
    int before;

    pthread_mutex_lock(&s->lock);
    before = s->todo.rows;
    push(&s->todo, op);
    s->backlog += op_rows(op);
    s->urgent = s->urgent || somebody_waits(op);
    /* The writer must be woken for the first change, for a full batch, and for anything urgent. */
    if (before == 0 || s->urgent || (before < STORE_BATCH_ROWS && s->todo.rows >= STORE_BATCH_ROWS))
        pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* Out of memory: the change cannot be kept. It is answered with an error at once, on the loop, and nothing is
 * stored. */
static struct op *op_new(enum op_kind kind, const struct job_row *row, struct report *rep, const char *const text[3], store_done *done,
                         void *arg)
{
    struct err err;
    struct op *op = calloc(1, sizeof *op);
    bool whole = op != NULL;

    if (op) {
        *op = (struct op){ .kind = kind, .rep = rep, .done = done, .arg = arg };
        if (row) {
            op->row = malloc(sizeof *row);
            whole = op->row != NULL;
            if (whole)
                *op->row = *row;
        }
        for (int i = 0; text && i < 3; i++) {
            op->text[i] = text[i] ? strdup(text[i]) : NULL;
            whole = whole && (op->text[i] || !text[i]);
        }
    }
    if (whole)
        return op;
    op ? op_free(op) : free(rep);
    err_set(&err, -ENOMEM, "out of memory");
    if (done)
        done(arg, -ENOMEM, 0, &err);
    return NULL;
}

static void ask(struct store *s, struct op *op)
{
    if (!op)
        return;
    op->asked = true;
    enqueue(s, op);
}

void store_limit_queued(struct store *s, int most)
{
    s->user_queued = most;
}

void store_submit(struct store *s, const struct job_row *row, const char *token, const char *spec, store_done *done, void *arg)
{
    struct op *op = op_new(OP_SUBMIT, row, NULL, (const char *const[3]){ token, spec, NULL }, done, arg);

    if (op)
        op->number[0] = s->user_queued;
    ask(s, op);
}

void store_take_id(struct store *s, store_done *done, void *arg)
{
    ask(s, op_new(OP_TAKE_ID, NULL, NULL, NULL, done, arg));
}

void store_reopen(struct store *s, const struct job_row *row, const char *spec, store_done *done, void *arg)
{
    struct op *op = op_new(OP_REOPEN, row, NULL, (const char *const[3]){ spec, NULL, NULL }, done, arg);

    if (op)
        op->number[0] = s->user_queued;
    ask(s, op);
}

void store_label(struct store *s, const struct job_row *before, const struct job_row *after, store_done *done, void *arg)
{
    ask(s, op_new(OP_LABEL, after, NULL, (const char *const[3]){ before->note, before->tags, NULL }, done, arg));
}

int store_save(struct store *s, const struct job_row *row, store_done *done, void *arg)
{
    struct op *op = op_new(OP_SAVE, row, NULL, NULL, done, arg);

    if (!op)
        return -ENOMEM;
    enqueue(s, op);
    return 0;
}

void store_wish(struct store *s, const struct job_row *row, store_done *done, void *arg)
{
    ask(s, op_new(OP_SAVE, row, NULL, NULL, done, arg));
}

int store_reserve(struct store *s, struct err *err)
{
    struct job_row *row;

    if (s->spare)
        return 0;
    s->spare = calloc(1, sizeof *s->spare);
    row = s->spare ? malloc(sizeof *row) : NULL;
    if (row) {
        s->spare->row = row;
        return 0;
    }
    free(s->spare);
    s->spare = NULL;
    return err_set(err, -ENOMEM, "out of memory for a report");
}

static struct op *use_spare(struct store *s, const struct job_row *row, struct report *rep, store_done *done, void *arg)
{
    struct op *op = s->spare;
    struct job_row *room = op->row;

    s->spare = NULL;
    if (row)
        *room = *row;
    else
        free(room);
    *op = (struct op){ .kind = OP_REPORT, .rep = rep, .row = row ? room : NULL, .done = done, .arg = arg };
    return op;
}

void store_report(struct store *s, struct report *rep, const struct job_row *row, store_done *done, void *arg)
{
    struct op *op = s->spare ? use_spare(s, row, rep, done, arg) : op_new(OP_REPORT, row, rep, NULL, done, arg);

    if (op)
        enqueue(s, op);
}

void store_rewind(struct store *s, struct store_rewind *r, store_done *done, void *arg)
{
    struct op *op = op_new(OP_REWIND, NULL, NULL, NULL, done, arg);

    if (!op)
        return;
    op->rewind = r;
    enqueue(s, op);
}

void store_event(struct store *s, int64_t job, const char *level, const char *kind, const char *text, double now)
{
    struct op *op = op_new(OP_EVENT, NULL, NULL, (const char *const[3]){ level, kind, text }, NULL, NULL);

    if (!op)
        return;
    op->job = job;
    op->time = now;
    enqueue(s, op);
}

void store_usage(struct store *s, const struct store_usage *u)
{
    struct op *op = op_new(OP_USAGE, NULL, NULL, NULL, NULL, NULL);

    if (!op)
        return;
    op->usage = *u;
    enqueue(s, op);
}

void store_grant(struct store *s, const struct store_grant *g)
{
    struct op *op = op_new(OP_GRANT, NULL, NULL, NULL, NULL, NULL);

    if (!op)
        return;
    op->grant = *g;
    enqueue(s, op);
}

void store_setting(struct store *s, const char *key, const char *value, store_done *done, void *arg)
{
    ask(s, op_new(OP_SETTING, NULL, NULL, (const char *const[3]){ key, value, NULL }, done, arg));
}

void store_setting_later(struct store *s, const char *key, const char *value, store_done *done, void *arg)
{
    struct op *op = op_new(OP_SETTING, NULL, NULL, (const char *const[3]){ key, value, NULL }, done, arg);

    if (op)
        enqueue(s, op);
}

void store_gpu(struct store *s, const struct store_gpu *gpu, double now, store_done *done, void *arg)
{
    struct op *op = op_new(OP_GPU, NULL, NULL, (const char *const[3]){ gpu->uuid, gpu->name, gpu->quarantine }, done, arg);

    if (!op)
        return;
    op->number[0] = gpu->memory_bytes;
    op->number[1] = gpu->ecc_errors;
    op->time = now;
    op->since = gpu->quarantined;
    enqueue(s, op);
}

void store_remove(struct store *s, int64_t job, const char *text, double now, store_done *done, void *arg)
{
    struct op *op = op_new(OP_REMOVE, NULL, NULL, (const char *const[3]){ text, NULL, NULL }, done, arg);

    if (!op)
        return;
    op->job = job;
    op->time = now;
    ask(s, op);
}

static void enqueue_of(struct store *s, enum op_kind kind, int64_t job, double time, store_done *done, void *arg)
{
    struct op *op = op_new(kind, NULL, NULL, NULL, done, arg);

    if (!op)
        return;
    op->job = job;
    op->time = time;
    enqueue(s, op);
}

void store_sweep(struct store *s, int64_t job, double now, store_done *done, void *arg)
{
    enqueue_of(s, OP_SWEEP, job, now, done, arg);
}

void store_thin_points(struct store *s, int64_t job, store_done *done, void *arg)
{
    enqueue_of(s, OP_THIN, job, 0, done, arg);
}

void store_clear_logs(struct store *s, int64_t job, store_done *done, void *arg)
{
    enqueue_of(s, OP_CLEAR, job, 0, done, arg);
}

void store_skip_ids(struct store *s, int64_t highest)
{
    enqueue_of(s, OP_SKIP_IDS, highest, 0, NULL, NULL);
}

void store_running(struct store *s, double seconds)
{
    enqueue_of(s, OP_RUNNING, 0, seconds, NULL, NULL);
}

void store_forget_events(struct store *s, double running, store_done *done, void *arg)
{
    enqueue_of(s, OP_FORGET, 0, running, done, arg);
}

void store_shrink(struct store *s)
{
    struct op *op = op_new(OP_SHRINK, NULL, NULL, NULL, NULL, NULL);

    if (op)
        enqueue(s, op);
}

void store_on_batch(struct store *s, void (*fn)(void *arg), void *arg)
{
    s->on_batch = fn;
    s->on_batch_arg = arg;
}

int store_backlog(struct store *s)
{
    int rows;

    pthread_mutex_lock(&s->lock);
    rows = s->backlog;
    pthread_mutex_unlock(&s->lock);
    return rows;
}

void store_trouble(struct store *s, char *ret, size_t size)
{
    pthread_mutex_lock(&s->lock);
    snprintf(ret, size, "%s", s->trouble);
    pthread_mutex_unlock(&s->lock);
}

const char *store_library(void)
{
    return sqlite3_libversion();
}

const char *store_id(const struct store *s)
{
    return s->id;
}

/* ---- writer thread ---- */

static struct timespec after_ms(long ms)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ms % 1000 * 1000000;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* Takes a batch off the queue, which is not empty. */
static struct op *take_batch(struct op_queue *q)
{
    struct op *first = q->head, *last = first;
    int rows = op_rows(first), most = STORE_BATCH_ROWS;

    while (true) {
        if (last == q->firm) {
            q->firm = NULL;
            most = rows + PLAIN_ROWS < most ? rows + PLAIN_ROWS : most;
        }
        if (!last->next || rows >= most)
            break;
        last = last->next;
        rows += op_rows(last);
    }
    q->head = last->next;
    q->rows -= rows;
    last->next = NULL;
    if (!q->head)
        q->tail = NULL;
    return first;
}

/* Waits for a batch. Returns an urgent or full batch at once, any other 250 ms after its first row. NULL: stopping, and
 * nothing is left. */
static struct op *next_batch(struct store *s)
{
    struct timespec deadline;
    struct op *first;

    pthread_mutex_lock(&s->lock);
    while (!s->todo.head && !s->stopping)
        pthread_cond_wait(&s->wake, &s->lock);
    deadline = after_ms(STORE_BATCH_MS);
    while (s->todo.head && !s->stopping && !s->urgent && s->todo.rows < STORE_BATCH_ROWS)
        if (pthread_cond_timedwait(&s->wake, &s->lock, &deadline) == ETIMEDOUT)
            break;
    first = s->todo.head ? take_batch(&s->todo) : NULL;
    s->urgent = s->urgent && s->todo.head;
    pthread_mutex_unlock(&s->lock);
    return first;
}

static void set_trouble(struct store *s, const char *text)
{
    pthread_mutex_lock(&s->lock);
    snprintf(s->trouble, sizeof s->trouble, "%s", text);
    pthread_mutex_unlock(&s->lock);
}

static bool wait_to_retry(struct store *s, int *tries_after_stop)
{
    struct timespec deadline = after_ms(RETRY_MS);
    bool again;

    pthread_mutex_lock(&s->lock);
    if (!s->stopping)
        pthread_cond_timedwait(&s->wake, &s->lock, &deadline);
    again = !s->stopping || (*tries_after_stop)++ < RETRIES_AT_STOP;
    pthread_mutex_unlock(&s->lock);
    return again;
}

static void hand_back(struct store *s, struct op *first)
{
    pthread_mutex_lock(&s->lock);
    while (first) {
        struct op *op = first;

        first = op->next;
        s->backlog -= op_rows(op);
        push(&s->finished, op);
    }
    pthread_mutex_unlock(&s->lock);
    uv_async_send(&s->async);
}

static bool is_asked(const struct op *op)
{
    return op->asked;
}

static bool is_removal(const struct op *op)
{
    return op->kind == OP_REMOVE;
}

/* True for requests that a full disk refuses. A removal is not refused: it gets its turn. */
static bool is_refused(const struct op *op)
{
    return op->asked && !is_removal(op);
}

/* Takes the operations that is_meant() names off the queue, and returns them. The rest keeps its order. */
static struct op *take(struct op_queue *q, bool (*is_meant)(const struct op *op))
{
    struct op_queue kept = { 0 }, taken = { 0 };

    for (struct op *op = q->head, *next; op; op = next) {
        next = op->next;
        push(is_meant(op) ? &taken : &kept, op);
    }
    *q = kept;
    return taken.head;
}

static struct op *take_queued(struct store *s, bool (*is_meant)(const struct op *op))
{
    struct op *taken;

    pthread_mutex_lock(&s->lock);
    taken = take(&s->todo, is_meant);
    pthread_mutex_unlock(&s->lock);
    return taken;
}

static void refuse(struct store *s, struct op *asked)
{
    for (struct op *op = asked; op; op = op->next)
        op->rc = s->w.damaged ? err_set(&op->err, ERR_CORRUPT, "the database '%.300s' is damaged, and nothing was changed", s->path)
                              : err_set(&op->err, -ENOSPC, "%s: '%.300s' cannot be written, and nothing was changed",
                                        room_lacks(s->w.full ? s->w.full : ENOSPC), s->path);
    if (asked)
        hand_back(s, asked);
}

/* On a full disk, and with a damaged database, users' requests are refused at once: those of the batch and those that
 * came since. Returns the rest of the batch. */
static struct op *refuse_asked(struct store *s, struct op *first)
{
    bool (*is_meant)(const struct op *op) = s->w.damaged ? is_asked : is_refused;
    struct op_queue batch = { .head = first };

    refuse(s, take(&batch, is_meant));
    refuse(s, take_queued(s, is_meant));
    return batch.head;
}

/* Lets the log begin anew if possible. Else each removal would make it longer. */
static bool make_room(struct store *s)
{
    if (!reserve_give_back(&s->reserve))
        return false;
    sqlite3_wal_checkpoint_v2(s->w.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    return true;
}

static void remove_in_reserve(struct store *s, struct op *removals)
{
    if (!removals)
        return;
    if (make_room(s) && writer_batch(&s->w, removals) == SQLITE_OK)
        hand_back(s, removals);
    else
        refuse(s, removals);
    reserve_make(&s->reserve);
}

/* A removal makes room, but needs some itself: that was kept in reserve. It goes before changes that wait for room,
 * since all reports of an ended job are stored. Returns the rest of the batch. */
static struct op *remove_at_once(struct store *s, struct op *first)
{
    struct op_queue batch = { .head = first };

    remove_in_reserve(s, take(&batch, is_removal));
    remove_in_reserve(s, take_queued(s, is_removal));
    return batch.head;
}

/* Logged when the trouble begins and when it ends, not at each try. */
static void tell_trouble(struct store *s, int rc)
{
    char text[sizeof s->trouble];

    if (s->w.damaged)
        snprintf(text, sizeof text, "detd.db is damaged, and nothing is written any more; reports stay in the spools of their jobs");
    else /* by now the connection's own text is about the rollback */
        snprintf(text, sizeof text, "detd.db cannot be written: %.180s; trying again",
                 s->w.full ? room_lacks(s->w.full) : sqlite3_errstr(rc));
    if (s->trouble[0] == '\0' || s->w.damaged)
        log_line("error", "%s", text);
    if (s->w.damaged)
        log_line("error", "stop detd, copy its state folder, and replace detd.db by a copy that is not damaged, or by the output of "
                          "`sqlite3 detd.db .recover | sqlite3 "
                          "new.db`; the next detd adds the reports that it lacks, except those of jobs that had ended");
    set_trouble(s, text);
}

/* Nothing is written after a batch was given up. A later report's number would say that all reports before it are
 * stored, and a later row might hold a change that its user was refused. */
static struct op *give_up(struct store *s, struct op *first)
{
    s->given_up = true;
    for (struct op *op = first; op; op = op->next)
        op->rc = err_set(&op->err, ERR_CORRUPT, "%s", s->trouble);
    return first;
}

/* Tries until the batch is committed. Only a stop gives up: supervisors keep reports that were not acked, and clients
 * get the error. A damaged database is not tried again, since each write may lose more of it. Returns the operations
 * that were not refused. */
static struct op *commit_batch(struct store *s, struct op *first)
{
    int tries = 0, rc;

    if (s->given_up)
        return give_up(s, first);
    while (first) {
        bool damaged = s->w.damaged;

        rc = writer_batch(&s->w, first);
        if (rc == SQLITE_OK)
            break;
        if (!damaged)
            tell_trouble(s, rc);
        if (s->w.full)
            first = remove_at_once(s, first);
        if (s->w.full || s->w.damaged)
            first = refuse_asked(s, first);
        if (!first || wait_to_retry(s, &tries))
            continue;
        return give_up(s, first);
    }
    if (first && s->trouble[0]) {
        log_line("info", "detd.db is written again");
        set_trouble(s, "");
    }
    reserve_make(&s->reserve);
    return first;
}

static void shrink_if_asked(struct store *s, const struct op *first)
{
    for (; first && !s->w.damaged; first = first->next)
        if (first->kind == OP_SHRINK) {
            sqlite3_wal_checkpoint_v2(s->w.db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
            sqlite3_exec(s->w.db, "PRAGMA shrink_memory", NULL, NULL, NULL);
            for (int i = 0; i < STORE_READERS; i++) {
                sqlite3 *db = reader_take(s);

                sqlite3_db_release_memory(db);
                reader_give(s, db);
            }
            malloc_trim(0);
            return;
        }
}

static void *writer_main(void *arg)
{
    struct store *s = arg;
    struct op *first;

    while ((first = next_batch(s))) {
        first = commit_batch(s, first);
        shrink_if_asked(s, first);
        hand_back(s, first);
    }
    return NULL;
}

/* Gives answers for `most_ms`, so that a turn of the loop stays short. Returns true if there may be more. That includes
 * answers that the writer has finished meanwhile and that were not looked at: their wake-up may be the one that led
 * here. */
static bool give_answers(struct store *s, int most_ms)
{
    double until = mono_s() + 1e-3 * most_ms;
    bool fresh = !s->answers;

    if (fresh) {
        pthread_mutex_lock(&s->lock);
        s->answers = s->finished.head;
        s->finished = (struct op_queue){ 0 };
        pthread_mutex_unlock(&s->lock);
    }
    while (s->answers && mono_s() <= until) {
        struct op *op = s->answers;

        s->answers = op->next;
        if (op->done)
            op->done(op->arg, op->rc, op->value, &op->err);
        op_free(op);
    }
    if (s->on_batch)
        s->on_batch(s->on_batch_arg);
    return s->answers || !fresh;
}

static void on_async(uv_async_t *async)
{
    if (give_answers(async->data, ANSWERS_MS))
        uv_async_send(async);
}

/* ---- life ---- */

static void free_after_close(uv_handle_t *handle)
{
    free(handle->data);
}

static int start_thread(struct store *s, uv_loop_t *loop, struct err *err)
{
    pthread_condattr_t attr;
    int rc;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, &attr);
    pthread_condattr_destroy(&attr);
    s->async.data = s;
    rc = uv_async_init(loop, &s->async, on_async);
    if (rc < 0)
        return err_set(err, rc, "store: %s", uv_strerror(rc));
    uv_unref((uv_handle_t *)&s->async); /* an idle store does not keep the loop alive */
    rc = -pthread_create(&s->thread, NULL, writer_main, s);
    if (rc < 0) {
        uv_close((uv_handle_t *)&s->async, NULL);
        uv_run(loop, UV_RUN_NOWAIT);
        return err_set(err, rc, "start the writer thread: %s", thread_lacks(-rc));
    }
    return 0;
}

int store_open(const char *folder, uv_loop_t *loop, struct store **ret, struct err *err)
{
    struct store *s = calloc(1, sizeof *s);
    int rc;

    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&s->reader_lock, NULL);
    pthread_cond_init(&s->reader_free, NULL);
    if (snprintf(s->path, sizeof s->path, "%s/detd.db", folder) >= (int)sizeof s->path)
        rc = err_set(err, -ENAMETOOLONG, "state folder: the path is too long");
    else
        rc = databases_open(s, err);
    if (rc == 0)
        reserve_open(&s->reserve, folder);
    if (rc == 0)
        rc = start_thread(s, loop, err);
    if (rc < 0) {
        databases_close(s);
        free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->on_batch = NULL;
    do {
        while (give_answers(s, INT_MAX))
            ;
        writer_main(s); /* the writer has left: changes that the answers caused, such as the event of a queued job, are written here */
    } while (s->finished.head);
    op_free(s->spare);
    databases_close(s);
    uv_close((uv_handle_t *)&s->async, free_after_close);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/check.c - invariants that must always hold. The store is
 * read over a connection of its own, like a user's. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/job/life.h"
#include "tests/stand/sim/world.h"

static sqlite3 *db;
static sqlite3_stmt *all_jobs, *points, *numbers, *left, *lies;

static sqlite3_stmt *prepare(const char *sql)
{
    sqlite3_stmt *st;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        fail("%s: %s", sql, sqlite3_errmsg(db));
    return st;
}

void check_open(void)
{
    char path[4096];

    if (db)
        return;
    snprintf(path, sizeof path, "%s/detd.db", world.plan.folder);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        fail("%s: %s", path, sqlite3_errmsg(db));
    all_jobs = prepare("SELECT id, token, state, last_seq, reason FROM jobs ORDER BY id");
    points = prepare("SELECT split, term, step, num, den FROM loss WHERE job=?1 ORDER BY split, term, step");
    left = prepare("SELECT (SELECT count(*) FROM series WHERE job=?1) + (SELECT count(*) FROM eval WHERE job=?1) + "
                   "(SELECT count(*) FROM events WHERE job=?1) + (SELECT count(*) FROM attempts WHERE job=?1) + "
                   "(SELECT count(*) FROM checkpoints WHERE job=?1) + (SELECT count(*) FROM tiers WHERE job=?1) + "
                   "(SELECT count(*) FROM specs WHERE job=?1), (SELECT NOT pending FROM removed WHERE job=?1)");
    lies = prepare("WITH t(time) AS (SELECT p.time FROM point p JOIN series s ON s.id=p.series WHERE s.job=?1 UNION ALL "
                   "SELECT time FROM eval WHERE job=?1 UNION ALL SELECT time FROM events WHERE job=?1 UNION ALL "
                   "SELECT time FROM checkpoints WHERE job=?1 UNION ALL SELECT started FROM attempts WHERE job=?1 UNION ALL "
                   "SELECT ended FROM attempts WHERE job=?1 AND ended IS NOT NULL) "
                   "SELECT (SELECT count(*) FROM t WHERE time NOT BETWEEN ?2 AND ?3) + "
                   "(SELECT count(*) FROM attempts WHERE job=?1 AND attempt NOT BETWEEN 0 AND 1000000)");
    numbers = prepare("SELECT (SELECT count(*) FROM events WHERE kind='conflict' AND job=?1), "
                      "(SELECT count(*) FROM events WHERE job=?1 AND kind='end' AND text NOT LIKE 'paused%' AND text NOT LIKE 'queued%')");
}

/* Its statements are gone with the connection. */
void check_close(void)
{
    db = NULL;
}

static struct folder *by_token(const char *token)
{
    for (int i = 0; i < world.njobs; i++)
        if (strcmp(world.jobs[i].token, token) == 0)
            return &world.jobs[i];
    fail("the store has a job with the token '%s', which nobody sent", token);
}

static const struct record *last_record(const struct folder *f)
{
    return f->count ? &f->records[f->count - 1] : NULL;
}

static bool ended_so(const struct folder *f, const char *outcome)
{
    const struct record *r = last_record(f);

    return r && r->type == REC_END && strcmp(r->outcome, outcome) == 0;
}

/* The job that it had to run after did not complete, or is gone. */
static bool waits_in_vain(const struct folder *f)
{
    const struct folder *other = f->after ? folder_of(f->after) : NULL;

    return other && f->after_ok && (other->gone || other->removed || other->failed || (other->end && other->end != JOB_COMPLETED));
}

/* A job that ended must have the reason of its end, and no other. */
static void check_reason(const struct folder *f, int state, const char *reason)
{
    bool told;

    if (f->ticket[0]) /* its supervisor may say anything */
        return;
    told = strncmp(reason, JOB_SPOOL_LOST, strlen(JOB_SPOOL_LOST)) == 0 || strncmp(reason, JOB_SPOOL_UNREAD, strlen(JOB_SPOOL_UNREAD)) == 0;

    if (f->unread && state == JOB_CANCELLED && f->cancelled && told) /* it failed for this reason, and never ran again */
        return;
    if (f->unreadable >= LIFE_UNREADABLE_MAX &&
        (state == JOB_FAILED || (state == JOB_CANCELLED && f->cancelled))) /* reports not stored by then are lost */
        return;
    if (state == JOB_COMPLETED && !ended_so(f, "completed"))
        fail("job %lld is completed, and no supervisor said so", (long long)f->id);
    if ((state == JOB_FAILED || (state == JOB_CANCELLED && f->cancelled)) && f->mute >= LIFE_MUTE_MAX)
        return;
    if (state == JOB_FAILED && !ended_so(f, "failed") && (f->count > 0 || f->deaths <= f->restarts))
        fail("job %lld is failed, and no supervisor said so", (long long)f->id);
    if (state == JOB_CANCELLED && !f->cancelled && !waits_in_vain(f))
        fail("job %lld is cancelled, and nobody wished that", (long long)f->id);
    if (f->count && f->stored_seq != f->records[f->count - 1].seq)
        fail("job %lld is %s, and of the %lld reports in its spool %lld are stored", (long long)f->id,
             job_state_name((enum job_state)state), (long long)f->records[f->count - 1].seq, (long long)f->stored_seq);
}

static void look_at(struct folder *f, int64_t id, const char *state_name, int64_t seq, const char *reason)
{
    int state = job_state_parse(state_name);

    if (f->gone)
        fail("job %lld was removed, and is there again", (long long)f->id);
    if (f->stored && f->id != id)
        fail("submission %s is two jobs, %lld and %lld", f->token, (long long)f->id, (long long)id);
    if (f->stored && seq < f->stored_seq)
        fail("job %lld: the store goes back from report %lld to %lld", (long long)id, (long long)f->stored_seq, (long long)seq);
    if (!f->ticket[0] && seq > (f->count ? f->records[f->count - 1].seq : 0))
        fail("job %lld: the store believes in report %lld, and the spool has %d", (long long)id, (long long)seq, f->count);
    if (f->end == JOB_COMPLETED && state == JOB_QUEUED && f->more) {
        say("job %lld: has %d steps in the store", (long long)id, f->more);
        f->end = 0;
        f->reopened++;
        f->steps = f->more;
        f->more = 0;
    }
    if (f->end == JOB_FAILED && state == JOB_QUEUED && f->again) {
        say("job %lld: is queued again in the store", (long long)id);
        f->unread = f->count && seq != f->records[f->count - 1].seq;
        f->end = f->deaths = f->unreadable = f->mute = 0;
        f->again = false;
        f->reopened++;
    }
    if (f->end && state != f->end)
        fail("job %lld was %s, and is %s", (long long)id, job_state_name((enum job_state)f->end), state_name);
    f->id = id;
    f->stored = true;
    f->stored_seq = seq;
    if (!f->end && job_is_done((enum job_state)state)) {
        check_reason(f, state, reason);
        f->end = state;
        f->failed = f->failed || state == JOB_FAILED;
        say("job %lld: is %s in the store", (long long)id, state_name);
    }
}

/* It had ended, though that may have been stored together with its removal. */
static void check_gone(struct folder *f)
{
    bool ended = f->end || f->ticket[0] || f->cancelled || ended_so(f, "completed") || ended_so(f, "failed") || f->deaths > f->restarts ||
                 f->unreadable >= LIFE_UNREADABLE_MAX || f->mute >= LIFE_MUTE_MAX || waits_in_vain(f);

    if (!f->removed)
        fail("job %lld is not in the store any more, and nobody wished that", (long long)f->id);
    if (!ended || f->lock == LOCK_SUP)
        fail("job %lld was removed, and has not ended", (long long)f->id);
    f->gone = true;
    f->end = f->end ? f->end : JOB_CANCELLED;
    say("job %lld: is removed from the store", (long long)f->id);
}

void check_store(void)
{
    bool seen[WORLD_JOBS] = { false };
    int rc;

    if (!db)
        return;
    while ((rc = sqlite3_step(all_jobs)) == SQLITE_ROW) {
        struct folder *f = by_token((const char *)sqlite3_column_text(all_jobs, 1));

        look_at(f, sqlite3_column_int64(all_jobs, 0), (const char *)sqlite3_column_text(all_jobs, 2), sqlite3_column_int64(all_jobs, 3),
                (const char *)sqlite3_column_text(all_jobs, 4));
        seen[f->slot] = true;
    }
    sqlite3_reset(all_jobs);
    if (rc != SQLITE_DONE)
        fail("the store cannot be read: %s", sqlite3_errmsg(db));
    for (int i = 0; i < world.njobs; i++)
        if (world.jobs[i].stored && !seen[i] && !world.jobs[i].gone)
            check_gone(&world.jobs[i]);
}

/* ---- rows against records ---- */

/* The expected contents of the store after the records up to `seq`: the values reported by the latest attempt that went
 * so far. */
struct expected {
    double num[2][TERMS][WORLD_STEPS + 1]; /* [split][term][step]; 0: no value */
};

static void replay(const struct folder *f, int64_t seq, struct expected *ret)
{
    memset(ret, 0, sizeof *ret);
    for (int i = 0; i < f->count && f->records[i].seq <= seq; i++) {
        const struct record *r = &f->records[i];

        if (r->type == REC_LOSS)
            for (int term = 0; term < TERMS; term++)
                ret->num[r->val][term][r->step] = (1000.0 * f->slot + (double)r->step + (r->val ? 0.5 : 0)) / (term + 1);
        for (int64_t step = r->type == REC_ATTEMPT ? r->step + 1 : WORLD_STEPS + 1; step <= WORLD_STEPS; step++)
            for (int k = 0; k < 2 * TERMS; k++)
                ret->num[k / TERMS][k % TERMS][step] = 0;
    }
}

/* The step to which the next report goes back, if that is an attempt: its rewind may have begun in the store, piece by
 * piece, and the attempt itself is stored after the last piece. */
static int64_t next_resume(const struct folder *f, int64_t seq)
{
    for (int i = 0; i < f->count; i++)
        if (f->records[i].seq == seq + 1 && f->records[i].type == REC_ATTEMPT)
            return f->records[i].step;
    return WORLD_STEPS;
}

/* Of a job with a hostile supervisor: values may be anything, times and numbers may not. */
static void check_lies(const struct folder *f)
{
    sqlite3_bind_int64(lies, 1, f->id);
    sqlite3_bind_double(lies, 2, CLOCK_BEGIN + world.offset_min);
    sqlite3_bind_double(lies, 3, now_s() - world.wall_offset + world.offset_max);
    sqlite3_step(lies);
    if (sqlite3_column_int64(lies, 0) > 0)
        fail("job %lld: the store believes %lld times or numbers of its hostile supervisor", (long long)f->id,
             (long long)sqlite3_column_int64(lies, 0));
    sqlite3_reset(lies);
}

void check_rows(const struct folder *f)
{
    int64_t resume = next_resume(f, f->stored_seq);
    struct expected want;
    int64_t ends;

    if (!db || !f->stored || f->gone)
        return;
    if (f->ticket[0]) {
        check_lies(f);
        return;
    }
    replay(f, f->stored_seq, &want);
    sqlite3_bind_int64(points, 1, f->id);
    while (sqlite3_step(points) == SQLITE_ROW) {
        int val = sqlite3_column_text(points, 0)[0] == 'v', term = sqlite3_column_text(points, 1)[0] == 'b';
        int64_t step = sqlite3_column_int64(points, 2);
        double num = sqlite3_column_double(points, 3);
        double *cell = step < 1 || step > WORLD_STEPS ? NULL : &want.num[val][term][step];

        if (!cell || *cell != num || num == 0)
            fail("job %lld: %s %s of step %lld is %g in the store, as of report %lld it is %g", (long long)f->id, val ? "val" : "train",
                 term ? "box" : "total", (long long)step, num, (long long)f->stored_seq, cell ? *cell : 0);
        else
            *cell = 0;
    }
    sqlite3_reset(points);
    for (int k = 0; k < 2 * TERMS; k++)
        for (int step = 1; step <= WORLD_STEPS; step++)
            if (step <= resume && want.num[k / TERMS][k % TERMS][step] != 0)
                fail("job %lld: %s of step %d is not in the store, which has reports up to %lld", (long long)f->id,
                     k / TERMS ? "val" : "train", step, (long long)f->stored_seq);
    sqlite3_bind_int64(numbers, 1, f->id);
    sqlite3_step(numbers);
    if (sqlite3_column_int64(numbers, 0) > 0)
        fail("a value was told twice");
    ends = sqlite3_column_int64(numbers, 1);
    sqlite3_reset(numbers);
    if (ends > 1 + f->reopened)
        fail("job %lld has %lld ends", (long long)f->id, (long long)ends);
}

/* ---- actions of detd ---- */

/* The only connection of a user with a job that runs is never refused, whatever another user has opened. */
void check_connection(const struct link *l, bool taken)
{
    const struct folder *f = folder_of(l->job);

    if (!taken && !l->by_liar && l->uid == 0)
        fail("job %lld: its supervisor's connection is refused", (long long)(f ? f->id : 0));
}

void check_welcome(const struct link *l, const char *line)
{
    const struct folder *f = folder_of(l->job);

    if (!strstr(line, "\"welcome\""))
        return;
    if (f && l->uid && (l->uid != f->uid || !f->ticket[0]))
        fail("job %lld: detd welcomes a process of user %u", (long long)l->job, l->uid);
    if (!f || strcmp(f->nonce, l->nonce) != 0)
        fail("job %lld: detd welcomes another supervisor than was started last", (long long)l->job);
}

/* At most one ack waits for a supervisor that reads nothing, and it tells the newest number when it is sent. */
void check_unread(const struct link *l, const char *line)
{
    if (strstr(line, "\"ack\""))
        fail("job %lld: an ack is sent, and %zu bytes before it are not read", (long long)l->job, l->nto_sup);
}

void check_ack(struct folder *f, int64_t seq)
{
    check_store();
    if (seq > f->stored_seq)
        fail("job %lld: report %lld is acked, the store has %lld", (long long)f->id, (long long)seq, (long long)f->stored_seq);
}

void check_view(int64_t job, const char *json)
{
    const struct folder *f;

    if (!strstr(json, "\"state\":\"completed\""))
        return;
    check_store();
    f = folder_of(job);
    if (f->end != JOB_COMPLETED && !f->gone && f->reopened == f->told) /* a view from before the end was reported is late, not ahead */
        fail("job %lld is shown as completed, and is not so in the store", (long long)job);
}

static int cpu_need(const struct folder *f)
{
    int need = f->ranks * f->run_threads;

    return f->cuda || f->run_drains ? 0 : need > WORLD_SLOTS ? WORLD_SLOTS : need;
}

/* Slots and GPUs are held while any process of a job lives. */
static void check_slots(const struct folder *f, const struct launch_request *rq)
{
    int used = 0;

    for (int i = 0; i < world.njobs; i++) {
        const struct folder *other = &world.jobs[i];

        if (other != f && other->lock != LOCK_SUP && other->lock != LOCK_STRAY)
            continue;
        used += cpu_need(other);
        for (int g = 0; other != f && g < WORLD_GPUS; g++) {
            char uuid[16];

            snprintf(uuid, sizeof uuid, "GPU-%d", g);
            if (strstr(rq->gpus, uuid) && strstr(other->run_gpus, uuid))
                fail("jobs %lld and %lld both have %s", (long long)f->id, (long long)other->id, uuid);
        }
    }
    if (used > WORLD_SLOTS)
        fail("job %lld starts, and then %d of %d slots are in use", (long long)f->id, used, WORLD_SLOTS);
}

/* No user has more jobs than the limit, however many the user has submitted. */
static void check_user(const struct folder *f)
{
    int runs = 1;

    for (int i = 0; i < world.njobs; i++) {
        const struct folder *other = &world.jobs[i];

        runs += other != f && other->uid == f->uid && (other->lock == LOCK_SUP || other->lock == LOCK_STRAY) && !other->run_drains;
    }
    if (world.plan.user_running && !f->run_drains && runs > world.plan.user_running)
        fail("job %lld starts, and then user %u has %d jobs, more than %d", (long long)f->id, f->uid, runs, world.plan.user_running);
}

static void check_pause(const struct folder *f, const struct launch_request *rq)
{
    double since = world.mono - (f->refused > f->died ? f->refused : f->died);
    bool died = f->died_under == detd_number, refused = f->refused_under == detd_number && f->refused > f->started;

    if (rq->drain || f->cancelled || ended_so(f, "paused"))
        return;
    if ((died || refused) && since < 1)
        fail("job %lld is started again at once after a %s", (long long)f->id, died ? "death" : "refusal");
}

static void check_after(const struct folder *f)
{
    const struct folder *other = f->after ? folder_of(f->after) : NULL;

    if (other && other->reopened) /* it had ended before */
        return;
    if (other && !other->end && !other->gone)
        fail("job %lld starts, and was to wait for job %lld, which has not ended", (long long)f->id, (long long)f->after);
    if (other && f->after_ok && !other->gone && other->end != JOB_COMPLETED)
        fail("job %lld starts, and was to run after job %lld completed, which is %s", (long long)f->id, (long long)f->after,
             job_state_name((enum job_state)other->end));
}

void check_start(struct folder *f, const struct launch_request *rq)
{
    if (f->end)
        fail("job %lld is %s and is started", (long long)f->id, job_state_name((enum job_state)f->end));
    if (f->cancel_noted_by != 0 && f->cancel_noted_by != detd_number && rq->drain != JOB_CANCELLED)
        fail("job %lld starts, and was cancelled while the disk was full", (long long)f->id);
    f->run_threads = rq->threads;
    f->run_drains = rq->drain == JOB_CANCELLED; /* which needs no slots */
    memcpy(f->run_gpus, rq->gpus, sizeof f->run_gpus);
    memcpy(f->nonce, rq->nonce, sizeof f->nonce);
    if (f->cuda && !rq->gpus[0] && !f->run_drains)
        fail("job %lld starts without the GPUs it needs", (long long)f->id);
    check_after(f);
    check_slots(f, rq);
    check_user(f);
    check_pause(f, rq);
    f->started = world.mono;
    f->died_under = f->refused_under = 0;
}

/* Nothing is left of it. */
static bool is_wiped(const struct folder *f)
{
    bool wiped;

    sqlite3_bind_int64(left, 1, f->id);
    sqlite3_step(left);
    wiped = sqlite3_column_int(left, 0) == 0 && sqlite3_column_int(left, 1) == 1 && f->entries == -1;
    sqlite3_reset(left);
    return wiped;
}

bool check_done(void)
{
    for (int i = 0; i < world.njobs; i++)
        if (!world.jobs[i].end || !world.jobs[i].answered || world.jobs[i].lock != LOCK_FREE ||
            (world.jobs[i].gone && !is_wiped(&world.jobs[i])))
            return false;
    return true;
}

void check_end(void)
{
    check_store();
    for (int i = 0; i < world.njobs; i++) {
        const struct folder *f = &world.jobs[i];

        if (!f->end)
            fail("job %lld has no end: its lock is %s, its supervisor %s, %d records, %lld stored", (long long)f->id,
                 f->lock == LOCK_FREE ? "free" : "held", f->sup ? "lives" : "does not live", f->count, (long long)f->stored_seq);
        if (!f->answered || f->lock != LOCK_FREE)
            fail("job %lld: %s", (long long)f->id, f->answered ? "a process of it stays" : "its client never heard of it");
        if (f->gone && !is_wiped(f))
            fail("job %lld was removed, and rows of it are left, or its folder", (long long)f->id);
        check_rows(f);
    }
}

#include "daemon/jobs/jobs.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/jobs/event.h"
#include "daemon/launch/launch.h"
#include "daemon/base/text.h"
#include "daemon/job/view.h"
#include "proto/err.h"
#include "proto/grow.h"
#include "proto/tier.h"

/* ---- the table ---- */

static void job_free(struct job *j)
{
    json_decref(j->losses);
    free(j->json);
    free(j);
}

/* The index of id, or the index where it would be inserted. */
static int position(const struct jobs *jobs, int64_t id)
{
    int lo = 0, hi = jobs->count;

    while (lo < hi) {
        int mid = (lo + hi) / 2;

        if (jobs->all[mid]->row.id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct job *jobs_find(struct jobs *jobs, int64_t id)
{
    int at = position(jobs, id);

    return at < jobs->count && jobs->all[at]->row.id == id ? jobs->all[at] : NULL;
}

struct job *jobs_after(struct jobs *jobs, int64_t id)
{
    int at = position(jobs, id + 1);

    return at < jobs->count ? jobs->all[at] : NULL;
}

static bool has_place(struct jobs *jobs)
{
    return GROW(jobs->all, jobs->cap, jobs->count + jobs->coming + 1);
}

/* A job with all memory that it needs here; NULL: out of memory. */
static struct job *job_new(struct jobs *jobs, const struct job_row *row)
{
    struct job *j = calloc(1, sizeof *j);

    if (j)
        j->losses = json_pack("{s:{}, s:{}}", "train", "val");
    if (!j || !j->losses || !has_place(jobs)) {
        if (j)
            json_decref(j->losses);
        free(j);
        return NULL;
    }
    j->row = *row;
    j->committed = row->last_seq;
    return j;
}

static void insert(struct jobs *jobs, struct job *j)
{
    int at = position(jobs, j->row.id);

    memmove(&jobs->all[at + 1], &jobs->all[at], (size_t)(jobs->count - at) * sizeof(struct job *));
    jobs->all[at] = j;
    jobs->count++;
}

struct job *jobs_add(struct jobs *jobs, const struct job_row *row)
{
    struct job *j = job_new(jobs, row);

    if (j)
        insert(jobs, j);
    return j;
}

int jobs_live(const struct jobs *jobs)
{
    int n = 0;

    for (int i = 0; i < jobs->count; i++)
        n += !job_is_done(jobs->all[i]->row.state);
    return n;
}

void jobs_forget(struct jobs *jobs, int64_t id)
{
    int at = position(jobs, id);

    if (at == jobs->count || jobs->all[at]->row.id != id)
        return;
    job_free(jobs->all[at]);
    jobs->count--;
    memmove(&jobs->all[at], &jobs->all[at + 1], (size_t)(jobs->count - at) * sizeof(struct job *));
}

/* Marks jobs that another job, or a submission under way, waits for (after.h). */
static void mark_awaited(struct jobs *jobs)
{
    for (int i = 0; i < jobs->count; i++)
        jobs->all[i]->awaited = jobs->all[i]->submissions > 0;
    for (int i = 0; i < jobs->count; i++) {
        struct job *other = jobs->all[i]->row.after ? jobs_find(jobs, jobs->all[i]->row.after) : NULL;

        if (other && !job_is_done(jobs->all[i]->row.state))
            other->awaited = true;
    }
}

void jobs_trim(struct jobs *jobs)
{
    int done = 0, kept = 0;

    for (int i = 0; i < jobs->count; i++)
        done += job_is_done(jobs->all[i]->row.state);
    if (done > JOBS_RECENT)
        mark_awaited(jobs);
    for (int i = 0; i < jobs->count; i++) {
        struct job *j = jobs->all[i];

        if (done > JOBS_RECENT && job_is_done(j->row.state) && j->life.phase == LIFE_IDLE && !j->wishes && !j->unsaved && !j->awaited &&
            !j->reopening && !jobs_keeps(j)) {
            done--;
            if (jobs->floor <= j->row.id) /* an old job may end after newer ones were forgotten */
                jobs->floor = j->row.id + 1;
            job_free(j);
        } else {
            jobs->all[kept++] = j;
        }
    }
    jobs->count = kept;
}

struct loading {
    struct jobs *jobs;
    int64_t lowest_done; /* every finished job from this id on was loaded */
    int rows;
    bool failed;
};

static void load_one(void *arg, const struct job_row *row)
{
    struct loading *l = arg;

    l->failed = l->failed || !jobs_add(l->jobs, row);
    if (l->rows++ < JOBS_RECENT)
        l->lowest_done = row->id;
}

/* Takes over a wish that an earlier daemon carried out and could not store. */
static void take_noted(struct jobs *jobs, struct job *j)
{
    enum job_want want = launch_noted_want(jobs->folder, &j->row, store_id(jobs->store));

    if (want == JOB_WANT_RUN)
        return;
    job_apply(&j->row, want == JOB_WANT_CANCEL ? JOB_EV_CANCEL : JOB_EV_PAUSE, "", now_s(), NULL);
    j->keeps++;
    j->unsaved = true;
}

/* Loads facts that an earlier daemon stored about the job outside its row. */
static int load_living(struct jobs *jobs, struct job *j, struct err *err)
{
    int64_t rows = 0, attempt = 0;
    int rc = store_newest_checkpoint(jobs->store, j->row.id, &j->saved, err);

    if (rc == 0)
        rc = store_usage_count(jobs->store, j->row.id, &rows, err);
    if (rc == 0)
        rc = store_newest_attempt(jobs->store, j->row.id, &attempt, err);
    j->attempted = (int)attempt;
    j->usage.rows = (int)rows;
    return rc;
}

static void load_share(void *arg, uint32_t uid, int64_t bytes)
{
    struct jobs *jobs = arg;
    struct user_share *share = user_shares_of(&jobs->shares, uid);

    if (share)
        share->stored = bytes;
}

int jobs_load(struct jobs *jobs, struct err *err)
{
    struct loading l = { .jobs = jobs };
    int rc = store_load_jobs(jobs->store, JOBS_RECENT, load_one, &l, err);

    if (rc == 0)
        rc = store_each_user(jobs->store, jobs->report_max, JOBS_FILES_BYTES, load_share, jobs, err);
    if (rc == 0 && l.failed)
        rc = err_set(err, -ENOMEM, "out of memory for the jobs");
    jobs->floor = l.rows < JOBS_RECENT ? 1 : l.lowest_done;
    for (int i = 0; rc == 0 && i < jobs->count; i++) {
        struct job *j = jobs->all[i];
        struct text losses = { 0 };

        rc = store_losses(jobs->store, j->row.id, &losses, err);
        if (rc == 0 && losses.p) {
            json_decref(j->losses);
            j->losses = json_loads(losses.p, 0, NULL);
        }
        text_free(&losses);
        if (rc == 0 && !job_is_done(j->row.state))
            rc = load_living(jobs, j, err);
        if (rc == 0 && !job_is_done(j->row.state))
            take_noted(jobs, j);
        j->counts = j->row.state == JOB_RUNNING || j->row.state == JOB_STOPPING;
    }
    return rc;
}

void jobs_free(struct jobs *jobs)
{
    for (int i = 0; i < jobs->count; i++)
        job_free(jobs->all[i]);
    free(jobs->all);
    jobs->all = NULL;
    jobs->count = 0;
    jobs->cap = 0;
    user_shares_free(&jobs->shares);
}

/* ---- the clients' view ---- */

const char *job_json(struct jobs *jobs, struct job *j, size_t *ret_len)
{
    if (!j->json) {
        struct text t = { 0 };
        char *losses = json_dumps(j->losses, JSON_COMPACT);

        view_job(&t, &j->row, jobs->folder, j->phase, losses ? losses : "{}");
        text_add(&t, "}");
        free(losses);
        j->json = text_take(&t, &j->json_len);
    }
    if (ret_len)
        *ret_len = j->json_len;
    return j->json;
}

/* A job that is shown as completed must be completed in SQL too: until its end is committed, its last view stays. */
void job_drop_view(struct job *j)
{
    if (j->hidden_until)
        return;
    free(j->json);
    j->json = NULL;
}

void job_committed(struct jobs *jobs, struct job *j, int64_t seq)
{
    if (seq > j->committed) /* else a gap in the reports has moved it on already */
        j->committed = seq;
    if (j->hidden_until == 0 || seq < j->hidden_until)
        return;
    j->hidden_until = 0;
    job_changed(jobs, j);
    jobs->hooks.ended(jobs->hooks.arg, j);
}

void job_changed(struct jobs *jobs, struct job *j)
{
    job_drop_view(j);
    if (!j->hidden_until && events_wanted(jobs->events, TOPIC_JOBS)) {
        const char *json = job_json(jobs, j, NULL);

        if (json)
            events_tell(jobs->events, TOPIC_JOBS, j->row.id, json);
    }
}

/* ---- new ones ---- */

struct submission {
    struct jobs *jobs;
    struct job *job; /* it is in memory before it is stored, so an accepted job runs */
    char *note;
    store_done *done;
    void *arg;
};

static void submission_free(struct submission *s)
{
    if (s->job)
        job_free(s->job);
    free(s->note);
    free(s);
}

static void submitted(void *arg, int rc, int64_t id, const struct err *err)
{
    struct submission *s = arg;
    struct jobs *jobs = s->jobs;
    struct job *j = s->job, *other = jobs_find(jobs, j->row.after);

    jobs->coming--;
    if (other)
        other->submissions--;
    if (rc == STORE_CLEAR)
        j->row.after = rc = 0;
    if (rc == 0) {
        j->row.id = id;
        insert(jobs, j);
        s->job = NULL;
        event_add(jobs->events, id, "info", "state", "queued");
        if (s->note[0])
            event_add(jobs->events, id, "info", "device", "%s", s->note);
        job_changed(jobs, j);
        jobs->hooks.wished(jobs->hooks.arg);
    }
    s->done(s->arg, rc, id, err);
    submission_free(s);
}

void jobs_submit(struct jobs *jobs, const struct job_row *row, const char *token, const char *spec, const char *note, store_done *done,
                 void *arg)
{
    struct submission *s = calloc(1, sizeof *s);
    struct job *other;
    struct err err;

    if (s)
        *s = (struct submission){ jobs, job_new(jobs, row), strdup(note), done, arg };
    if (!s || !s->job || !s->note) {
        if (s)
            submission_free(s);
        done(arg, err_set(&err, -ENOMEM, "out of memory"), 0, &err);
        return;
    }
    jobs->coming++;
    other = jobs_find(jobs, row->after);
    if (other)
        other->submissions++;
    store_submit(jobs->store, row, token, spec, submitted, s);
}

/* ---- jobs that had ended ---- */

struct reopening {
    struct jobs *jobs;
    struct job_row row;
    struct job *job; /* if it is no longer in memory: it is taken in again */
    store_done *done;
    void *arg;
};

static void reopening_free(struct reopening *x)
{
    if (x->job)
        job_free(x->job);
    free(x);
}

/* Starts that were refused before the job ended no longer count, just as for a job that is taken in again. */
static void forget_tries(struct job *j)
{
    j->life.refusals = j->life.unreachable = j->life.mute = 0;
    j->life.not_before = 0;
    j->told[0] = '\0';
    j->tier_from = 0;
}

/* Takes over the new row. A job in memory keeps its labels, which may be newer. */
static struct job *take_in(struct reopening *x)
{
    struct job *j = jobs_find(x->jobs, x->row.id);

    if (j) { /* these may have changed since its row was read: its processes may be leaving, with their GPUs */
        memcpy(x->row.note, j->row.note, sizeof x->row.note);
        memcpy(x->row.tags, j->row.tags, sizeof x->row.tags);
        memcpy(x->row.nonce, j->row.nonce, sizeof x->row.nonce);
        memcpy(x->row.gpus, j->row.gpus, sizeof x->row.gpus);
        j->row = x->row;
        forget_tries(j);
        return j;
    }
    j = x->job;
    assert(j);             /* a job in memory stays there meanwhile */
    j->row.gpus[0] = '\0'; /* of its last run */
    insert(x->jobs, j);
    x->job = NULL;
    return j;
}

static void reopened(void *arg, int rc, int64_t value, const struct err *err)
{
    struct reopening *x = arg;
    struct jobs *jobs = x->jobs;
    struct job *j = jobs_find(jobs, x->row.id);

    (void)value;
    jobs->coming -= x->job != NULL;
    if (j)
        j->reopening = false;
    if (rc == 0) {
        j = take_in(x);
        event_add(jobs->events, x->row.id, "info", "state", "queued");
        job_changed(jobs, j);
        jobs->hooks.wished(jobs->hooks.arg);
    }
    x->done(x->arg, rc, x->row.id, err);
    reopening_free(x);
}

static struct job *with_losses(struct jobs *jobs, const struct job_row *row, const json_t *losses)
{
    struct job *j = job_new(jobs, row);
    json_t *copy = j ? json_deep_copy(losses) : NULL;

    if (!copy) {
        if (j)
            job_free(j);
        return NULL;
    }
    json_decref(j->losses);
    j->losses = copy;
    return j;
}

void jobs_reopen(struct jobs *jobs, const struct job_row *row, const char *spec, const json_t *losses, store_done *done, void *arg)
{
    struct reopening *x = calloc(1, sizeof *x);
    struct job *j = jobs_find(jobs, row->id);
    struct err err;

    if (x)
        *x = (struct reopening){ jobs, *row, j ? NULL : with_losses(jobs, row, losses), done, arg };
    if (!x || (!j && !x->job)) {
        free(x);
        done(arg, err_set(&err, -ENOMEM, "out of memory"), row->id, &err);
        return;
    }
    if (j)
        j->reopening = true; /* this keeps it in memory */
    jobs->coming += x->job != NULL;
    store_reopen(jobs->store, row, spec, reopened, x);
}

/* ---- wishes ---- */

/* The fields that a wish asks for, whether or not an earlier wish has asked for them too. A resume that takes back a
 * refused pause asks for nothing. */
enum { ASKS_END = 1, ASKS_TIER = 2, ASKS_CHECKPOINT = 4, ASKS_EVAL = 8, ASKS_PRIORITY = 16 };

/* A wish on its way to the disk. The supervisor hears of it when it is durable. */
struct wish {
    struct wish *next;
    struct jobs *jobs;
    int64_t id;
    unsigned asks;
    const char *word, *tier; /* static strings; word NULL: nothing to say */
    struct job_row before, after;
    store_done *done;
    void *arg;
};

const struct job_row *jobs_sure(const struct job *j)
{
    return j->wishes ? &j->wishes->before : &j->row;
}

static bool is_sent_away(const struct job *j)
{
    return j->yields_to || j->off_gpu;
}

/* A user who pauses a job waits for its checkpoint without limit. A pause that frees slots for other jobs gets a
 * deadline. */
json_t *jobs_word(const struct jobs *jobs, const struct job *j, const char *word, const char *tier)
{
    json_t *msg = json_pack("{s:s}", "word", word);

    if (tier)
        json_object_set_new(msg, "tier", json_string(tier));
    if (strcmp(word, "pause") == 0 && is_sent_away(j) && jobs->leave_s > 0)
        json_object_set_new(msg, "deadline", json_integer(jobs->leave_s));
    return msg;
}

json_t *jobs_wishes(const struct jobs *jobs, const struct job *j)
{
    json_t *all = json_array();
    const struct job_row *row = jobs_sure(j);

    if (row->want == JOB_WANT_CANCEL)
        json_array_append_new(all, jobs_word(jobs, j, "cancel", NULL));
    else if (row->state == JOB_STOPPING || row->want == JOB_WANT_PAUSE || is_sent_away(j))
        json_array_append_new(all, jobs_word(jobs, j, "pause", NULL));
    if (row->want_tier >= 0 && row->want_tier == j->row.want_tier)
        json_array_append_new(all, jobs_word(jobs, j, "tier", tier_name(row->want_tier)));
    if (row->want_checkpoint && j->row.want_checkpoint)
        json_array_append_new(all, jobs_word(jobs, j, "checkpoint", NULL));
    if (row->want_eval && j->row.want_eval)
        json_array_append_new(all, jobs_word(jobs, j, "eval", NULL));
    return all;
}

void jobs_send_away(struct jobs *jobs, struct job *j)
{
    if (jobs->leave_s > 0 && j->leave_by == 0)
        j->leave_by = mono_s() + jobs->leave_s + LIFE_MARGIN_S;
    jobs->hooks.word(jobs->hooks.arg, j, "pause", NULL);
}

static void granted(struct wish *w, struct job *j)
{
    if (w->word)
        w->jobs->hooks.word(w->jobs->hooks.arg, j, w->word, w->tier);
    if (w->after.want == JOB_WANT_CANCEL) {
        j->life.not_before = 0; /* whatever the job waits for, its next try is now */
        if (w->after.state == JOB_STOPPING)
            life_within(&j->life, mono_s(), LIFE_OBEY_S);
    }
    if (w->after.state != w->before.state && w->after.state != JOB_STOPPING)
        event_add(w->jobs->events, w->id, "info", "state", "%s", job_state_name(w->after.state));
}

/* Restores fields that the wish changed and that are unchanged since, except the fields in `asked`, which later wishes
 * ask for. */
static void undo(const struct wish *w, unsigned asked, struct job_row *row)
{
    const struct job_row *old = &w->before, *new = &w->after;

    if (!(asked & ASKS_END)) {
        if (row->state == new->state && old->state != new->state) {
            row->state = old->state;
            row->ended = old->ended;
            memcpy(row->reason, old->reason, sizeof row->reason);
        }
        row->want = row->want == new->want ? old->want : row->want;
    }
    if (!(asked & ASKS_TIER)) {
        row->want_tier = row->want_tier == new->want_tier ? old->want_tier : row->want_tier;
        row->tier = row->tier == new->tier ? old->tier : row->tier;
    }
    if (!(asked & ASKS_CHECKPOINT) && row->want_checkpoint == new->want_checkpoint)
        row->want_checkpoint = old->want_checkpoint;
    if (!(asked & ASKS_EVAL) && row->want_eval == new->want_eval)
        row->want_eval = old->want_eval;
    if (!(asked & ASKS_PRIORITY) && row->priority == new->priority)
        row->priority = old->priority;
}

/* Later wishes were made from a row with this wish in it, so it is taken out of them. If a row with it went to the disk
 * meanwhile, a row without it must follow. That row waits until the fate of the later wishes is known, since it must
 * not bring one of them back. */
static void take_back(struct wish *w, struct job *j)
{
    unsigned asked = 0;

    for (struct wish *later = w->next; later; later = later->next) {
        undo(w, asked, &later->before);
        asked |= later->asks;
        undo(w, asked, &later->after);
    }
    undo(w, asked, &j->row);
    job_changed(w->jobs, j);
    j->unsaved = j->unsaved || w->next || j->row.last_seq != w->before.last_seq || strcmp(j->row.nonce, w->before.nonce) != 0;
}

/* ---- wishes that a full disk kept from being stored ---- */

bool jobs_keeps(const struct job *j)
{
    return j->kept != j->keeps;
}

/* Its wishes up to that number are on the disk. */
static void note_kept(struct jobs *jobs, struct job *j, int keeps)
{
    if (!jobs_keeps(j) || keeps != j->keeps)
        return;
    j->kept = keeps;
    launch_note_want(jobs->folder, &j->row, store_id(jobs->store), JOB_WANT_RUN);
}

/* Carries out a wish that the store had no room for. Returns JOBS_NOTED or JOBS_REMEMBERED; 0: the same wish is
 * stored. */
static int keep(struct wish *w, struct job *j)
{
    bool noted;

    granted(w, j);
    if (w->after.state != w->before.state || w->after.want != w->before.want) {
        j->keeps++;
        j->unsaved = true;
    }
    if (!jobs_keeps(j)) /* it was asked for before, and that is stored */
        return 0;
    noted = launch_note_want(w->jobs->folder, &j->row, store_id(w->jobs->store), w->after.want);
    return noted ? JOBS_NOTED : JOBS_REMEMBERED;
}

static bool may_keep(const struct wish *w)
{
    return w->asks == ASKS_END && w->word;
}

struct saving {
    struct jobs *jobs;
    int64_t id;
    int keeps;
    bool ended;
};

static void saved(void *arg, int rc, int64_t value, const struct err *err)
{
    struct saving *s = arg;
    struct job *j = jobs_find(s->jobs, s->id);

    (void)value;
    (void)err;
    if (j && rc == 0) {
        note_kept(s->jobs, j, s->keeps);
        if (s->ended && !j->hidden_until)
            s->jobs->hooks.ended(s->jobs->hooks.arg, j);
    }
    free(s);
}

static int save(struct jobs *jobs, struct job *j)
{
    struct saving *s;

    if (!jobs_keeps(j))
        return store_save(jobs->store, &j->row, NULL, NULL);
    s = malloc(sizeof *s);
    if (!s)
        return -ENOMEM;
    *s = (struct saving){ jobs, j->row.id, j->keeps, job_is_done(j->row.state) };
    return store_save(jobs->store, &j->row, saved, s);
}

void jobs_save(struct jobs *jobs, struct job *j)
{
    const char *why = j->row.reason;

    j->unsaved = save(jobs, j) < 0;
    if (j->unsaved || !j->untold)
        return;
    j->untold = false;
    event_add(jobs->events, j->row.id, j->row.state == JOB_FAILED ? "error" : "info", "end", "%s%s%s", job_state_name(j->row.state),
              why[0] ? ": " : "", why);
}

void jobs_save_again(struct jobs *jobs, struct job *j)
{
    if (j->unsaved && !j->wishes)
        jobs_save(jobs, j);
}

/* Answers come in order, with one exception: a wish that found no memory is refused while earlier ones wait. */
static void unlink_wish(struct job *j, const struct wish *w)
{
    struct wish **at = &j->wishes;

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
}

static void wish_durable(void *arg, int rc, int64_t value, const struct err *err)
{
    struct wish *w = arg;
    struct job *j = jobs_find(w->jobs, w->id);

    (void)value;
    if (j)
        unlink_wish(j, w);
    if (j && rc == 0) {
        granted(w, j);
        note_kept(w->jobs, j, j->keeps);
    } else if (j && rc == -ENOSPC && may_keep(w)) {
        rc = keep(w, j);
    } else if (j) {
        take_back(w, j);
    }
    if (j)
        jobs_save_again(w->jobs, j);
    if (w->done)
        w->done(w->arg, rc, w->id, err);
    if (j && rc == 0 && job_is_done(j->row.state))
        w->jobs->hooks.ended(w->jobs->hooks.arg, j);
    w->jobs->hooks.wished(w->jobs->hooks.arg);
    free(w);
}

static int save_wish(struct jobs *jobs, struct job *j, const struct job_row *row, unsigned asks, const char *word, const char *tier,
                     store_done *done, void *arg, struct err *err)
{
    struct wish *w = malloc(sizeof *w), **end = &j->wishes;

    if (!w)
        return err_set(err, -ENOMEM, "out of memory");
    *w = (struct wish){
        .jobs = jobs, .id = row->id, .asks = asks, .word = word, .tier = tier, .before = j->row, .after = *row, .done = done, .arg = arg
    };
    memcpy(&j->row, row, sizeof j->row);
    while (*end)
        end = &(*end)->next;
    *end = w;
    job_changed(jobs, j);
    store_wish(jobs->store, &j->row, wish_durable, w);
    return 0;
}

int jobs_command(struct jobs *jobs, struct job *j, enum job_event event, store_done *done, void *arg, struct err *err)
{
    struct job_row row = j->row;
    const char *word = event == JOB_EV_CANCEL ? "cancel" : event == JOB_EV_PAUSE ? "pause" : NULL;
    int rc = job_apply(&row, event, "", now_s(), err);

    if (rc < 0)
        return rc;
    if (event == JOB_EV_RESUME && row.state == JOB_QUEUED) /* the obstacle may be gone: the next try is now */
        j->life.not_before = 0;
    return save_wish(jobs, j, &row, word ? ASKS_END : 0, word, NULL, done, arg, err);
}

static int refuse_done(const struct job *j, const char *what, struct err *err)
{
    if (!job_is_done(j->row.state))
        return 0;
    return err_field(err, ERR_STATE, "id", "job %lld is %s: %s is not possible", (long long)j->row.id, job_state_name(j->row.state), what);
}

int jobs_want_checkpoint(struct jobs *jobs, struct job *j, bool eval, store_done *done, void *arg, struct err *err)
{
    struct job_row row = j->row;
    int rc = refuse_done(j, eval ? "eval" : "checkpoint", err);

    if (rc < 0)
        return rc;
    if (eval)
        row.want_eval = true;
    else
        row.want_checkpoint = true;
    return save_wish(jobs, j, &row, eval ? ASKS_EVAL : ASKS_CHECKPOINT, eval ? "eval" : "checkpoint", NULL, done, arg, err);
}

int jobs_want_tier(struct jobs *jobs, struct job *j, int tier, store_done *done, void *arg, struct err *err)
{
    struct job_row row = j->row;
    int rc = refuse_done(j, "a change of tier", err);

    if (rc < 0)
        return rc;
    if (row.attempt == 0) { /* nothing was trained yet: the job simply starts with it */
        row.tier = tier;
        return save_wish(jobs, j, &row, ASKS_TIER, NULL, NULL, done, arg, err);
    }
    row.want_tier = tier == row.tier ? -1 : tier;
    return save_wish(jobs, j, &row, ASKS_TIER, "tier", tier_name(tier), done, arg, err);
}

/* The new priority of a running job counts when the job is queued again. */
int jobs_want_priority(struct jobs *jobs, struct job *j, int priority, store_done *done, void *arg, struct err *err)
{
    struct job_row row = j->row;
    int rc = refuse_done(j, "another priority", err);

    if (rc < 0)
        return rc;
    row.priority = priority;
    return save_wish(jobs, j, &row, ASKS_PRIORITY, NULL, NULL, done, arg, err);
}

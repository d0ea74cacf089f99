/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/messages.c - what ranks say: each type is a row and a function. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/record.h"
#include "supervisor/job_impl.h"

enum { OTHERS_MS = 3000, LEAVE_MS = 30000 };

struct message {
    int rank;
    const json_t *msg;
    const char *text; /* the line itself: a record goes into the spool as the rank wrote it */
    size_t len;
};

static const char *string_of(const json_t *msg, const char *key)
{
    const char *s = json_string_value(json_object_get(msg, key));

    return s ? s : "";
}

static json_int_t integer_of(const json_t *msg, const char *key)
{
    return json_integer_value(json_object_get(msg, key));
}

/* ---- durable before the rank goes on: publish and tier_ok ---- */

struct durable {
    uv_work_t work;
    struct job *job;
    int attempt;
    const char *answer; /* type of the line that rank 0 waits for */
    int64_t step;
    char tier[16];
    struct err err;
};

static void sync_files(uv_work_t *work)
{
    struct durable *d = work->data;

    if (spool_sync(d->job->spool, &d->err) == 0)
        tiers_sync(d->job->tiers, &d->err);
}

static void on_synced(uv_work_t *work, int status)
{
    struct durable *d = work->data;
    struct job *j = d->job;
    struct line l;

    (void)status;
    j->syncs--;
    if (d->err.code) {
        job_fatal(j, &d->err);
    } else if (j->ranks && d->attempt == j->attempt) {
        line_begin(&l, j->record, sizeof j->record, d->answer);
        line_int(&l, "step", d->step);
        if (d->tier[0])
            line_str(&l, "tier", d->tier);
        job_to_rank(j, 0, &l);
    }
    free(d);
}

/* Off the loop: a slow disk must not look like a silent supervisor. */
static int answer_when_durable(struct job *j, const char *answer, int64_t step, const char *tier, struct err *err)
{
    struct durable *d = calloc(1, sizeof *d);

    if (!d)
        return err_set(err, -ENOMEM, "out of memory");
    d->work.data = d;
    d->job = j;
    d->attempt = j->attempt;
    d->answer = answer;
    d->step = step;
    snprintf(d->tier, sizeof d->tier, "%s", tier);
    free(j->durable);
    j->durable = d;
    if (!j->late)
        job_answer_late(j);
    return 0;
}

void job_answer_late(struct job *j)
{
    struct durable *d = j->durable;

    j->durable = NULL;
    if (!d)
        return;
    j->syncs++;
    uv_queue_work(j->loop, &d->work, sync_files, on_synced); /* fails only without a callback */
}

/* ---- the messages ---- */

static void send_go(struct job *j)
{
    struct line l;

    for (int i = 0; i < j->nranks; i++) {
        line_begin(&l, j->record, sizeof j->record, "go");
        line_str(&l, "nccl_id", j->nccl_id[0] ? j->nccl_id : NULL);
        line_str(&l, "store_id", spool_store_id(j->spool)[0] ? spool_store_id(j->spool) : NULL);
        line_int(&l, "attempt", j->attempt);
        tiers_write(j->tiers, &l);
        job_to_rank(j, i, &l);
    }
    uv_timer_stop(&j->state_timer);
    j->state = RUN_GOING;
    job_log("attempt %d: all ranks are there (%s), go", j->attempt, j->device);
    job_send_pending(j);
}

static int take_hello(struct job *j, const struct message *m, struct err *err)
{
    if (integer_of(m->msg, "rank") != m->rank || integer_of(m->msg, "nranks") != j->nranks)
        return err_set(err, ERR_PROTO, "hello: says it is rank %lld of %lld, but it is rank %d of %d",
                       (long long)integer_of(m->msg, "rank"), (long long)integer_of(m->msg, "nranks"), m->rank, j->nranks);
    if (j->rank[m->rank].hello)
        return err_set(err, ERR_PROTO, "hello: came twice");
    if (strlen(string_of(m->msg, "nccl_id")) >= sizeof j->nccl_id)
        return err_set(err, ERR_PROTO, "hello: nccl_id over %zu bytes", sizeof j->nccl_id - 1);
    j->rank[m->rank].hello = true;
    if (m->rank == 0) {
        snprintf(j->nccl_id, sizeof j->nccl_id, "%s", string_of(m->msg, "nccl_id"));
        snprintf(j->device, sizeof j->device, "%s", string_of(m->msg, "device"));
    }
    job_check_gpu(j, m->rank, m->msg);
    for (int i = 0; i < j->nranks; i++)
        if (!j->rank[i].hello)
            return 0;
    if (j->state == RUN_HELLO)
        send_go(j);
    return 0;
}

static int take_start(struct job *j, const struct message *m, struct err *err)
{
    struct line l;

    if (j->started)
        return err_set(err, ERR_PROTO, "start: came twice");
    if (!tiers_any(j->tiers) && tiers_add(j->tiers, 1, j->spec->run_deterministic ? j->spec->run_deterministic : "off", err) < 0) {
        job_fatal(j, err);
        return 0;
    }
    j->started = true;
    job_saved(j, integer_of(m->msg, "resume_step"));
    line_begin(&l, j->record, sizeof j->record, "attempt");
    line_int(&l, "attempt", j->attempt);
    line_int(&l, "resume_step", integer_of(m->msg, "resume_step"));
    line_real(&l, "time", job_time());
    line_int(&l, "ranks", j->nranks);
    line_str(&l, "device", j->device);
    line_bool(&l, "first", !j->told);
    j->told = true;
    job_append(j, &l, NULL);
    job_log("attempt %d starts after step %lld", j->attempt, (long long)integer_of(m->msg, "resume_step"));
    return 0;
}

static int take_record(struct job *j, const struct message *m, struct err *err)
{
    (void)err;
    job_append_text(j, m->text, m->len);
    return 0;
}

static int take_checkpoint(struct job *j, const struct message *m, struct err *err)
{
    if (strcmp(string_of(m->msg, "phase"), "ready") == 0)
        return answer_when_durable(j, "publish", integer_of(m->msg, "step"), "", err);
    j->waits[0] = '\0';
    job_append_text(j, m->text, m->len);
    job_saved(j, integer_of(m->msg, "step"));
    return 0;
}

static int take_tier(struct job *j, const struct message *m, struct err *err)
{
    const char *tier = string_of(m->msg, "tier");
    int64_t step = integer_of(m->msg, "step");
    struct line l;
    int rc = tiers_add(j->tiers, step, tier, err);

    if (rc < 0) {
        job_fatal(j, err);
        return 0;
    }
    line_begin(&l, j->record, sizeof j->record, "tier");
    line_int(&l, "step", step);
    line_str(&l, "tier", tier);
    line_real(&l, "time", job_time());
    job_append(j, &l, NULL);
    if (strcmp(tier, j->want_tier) == 0)
        j->want_tier[0] = '\0';
    return answer_when_durable(j, "tier_ok", step, tier, err);
}

static int take_identity(struct job *j, const struct message *m, struct err *err)
{
    char *text = json_dumps(json_object_get(m->msg, "identity"), JSON_COMPACT);
    struct line l;

    if (!text)
        return err_set(err, -ENOMEM, "out of memory");
    line_begin(&l, j->record, sizeof j->record, "identity");
    line_int(&l, "attempt", j->attempt);
    line_real(&l, "time", job_time());
    line_json(&l, "identity", text);
    job_append(j, &l, NULL);
    free(text);
    return 0;
}

static int take_event(struct job *j, const struct message *m, struct err *err)
{
    const char *tier = json_string_value(json_object_get(m->msg, "tier"));

    (void)err;
    if (m->rank == 0 && strcmp(string_of(m->msg, "kind"), "no_room") == 0) /* for the checkpoint that it ends with */
        snprintf(j->waits, sizeof j->waits, "%s", string_of(m->msg, "text"));
    if (m->rank == 0 && tier && strcmp(tier, j->want_tier) == 0) /* it may be asked for again */
        j->want_tier[0] = '\0';
    job_event_of_tier(j, m->rank, string_of(m->msg, "level"), string_of(m->msg, "kind"), string_of(m->msg, "text"), tier);
    return 0;
}

static int take_end(struct job *j, const struct message *m, struct err *err)
{
    struct outcome_rank *o = &j->rank[m->rank].out;

    (void)err;
    o->ended = true;
    o->order = j->order++;
    snprintf(o->outcome, sizeof o->outcome, "%s", string_of(m->msg, "outcome"));
    snprintf(o->class, sizeof o->class, "%s", string_of(m->msg, "class"));
    snprintf(o->reason, sizeof o->reason, "%s", string_of(m->msg, "reason"));
    job_log("attempt %d: rank %d says %s%s%s", j->attempt, m->rank, o->outcome, o->reason[0] ? ": " : "", o->reason);
    if (strcmp(o->outcome, "failed") == 0)
        job_stop_ranks(j, OTHERS_MS, "");
    else if (m->rank == 0)
        job_stop_ranks(j, LEAVE_MS, "");
    return 0;
}

enum { ZERO = 1, STARTED = 2 }; /* rank 0 only; only after its `start` */

static const struct {
    int needs;
    int (*take)(struct job *j, const struct message *m, struct err *err);
} rows[RECORD_UNKNOWN] = {
    [RECORD_HELLO] = { 0, take_hello },
    [RECORD_START] = { ZERO, take_start },
    [RECORD_LOSS] = { ZERO | STARTED, take_record },
    [RECORD_EVAL] = { ZERO | STARTED, take_record },
    [RECORD_CHECKPOINT] = { ZERO | STARTED, take_checkpoint },
    [RECORD_TIER] = { ZERO, take_tier },
    [RECORD_DATA] = { ZERO, take_record },
    [RECORD_IDENTITY] = { ZERO | STARTED, take_identity },
    [RECORD_EVENT] = { 0, take_event },
    [RECORD_END] = { 0, take_end },
};

static int take(struct job *j, const struct message *m, enum record_type type, struct err *err)
{
    const char *name = string_of(m->msg, "type");

    if (type == RECORD_UNKNOWN) {
        job_log("rank %d: message of unknown type '%.40s' ignored", m->rank, name);
        return 0;
    }
    if (j->rank[m->rank].out.ended)
        return err_set(err, ERR_PROTO, "%s: came after `end`", name);
    if (type != RECORD_HELLO && type != RECORD_END && type != RECORD_EVENT && !j->rank[m->rank].hello)
        return err_set(err, ERR_PROTO, "%s: came before `hello`", name);
    if (rows[type].needs & ZERO && m->rank != 0)
        return err_set(err, ERR_PROTO, "%s: only rank 0 may say that", name);
    if (rows[type].needs & STARTED && !j->started)
        return err_set(err, ERR_PROTO, "%s: came before `start`", name);
    return rows[type].take(j, m, err);
}

void job_take_line(void *arg, int rank, const char *text, size_t len)
{
    struct job *j = arg;
    char cause[OUTCOME_TEXT];
    struct err err = { 0 };
    enum record_type type;
    json_t *msg = NULL;
    int rc = record_parse(text, len, &type, &msg, &err);

    if (rc == 0) {
        struct message m = { rank, msg, text, len };

        rc = take(j, &m, type, &err);
    }
    json_decref(msg);
    if (rc == 0)
        return;
    snprintf(cause, sizeof cause, "rank %d: malformed report: %s", rank, err.msg);
    job_log("%s", cause);
    job_stop_ranks(j, 0, cause);
}

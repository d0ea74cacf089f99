#include "supervisor/messages.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/record.h"
#include "supervisor/attempt.h"
#include "supervisor/gpus.h"
#include "supervisor/ranks/log.h"
#include "supervisor/needs.h"
#include "supervisor/orders.h"
#include "supervisor/ranks/ranks.h"
#include "supervisor/records.h"
#include "supervisor/spool/tiers.h"

enum { GO_BYTES = 64 << 10 };

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
    struct messages *messages;
    struct spool *spool;
    struct tiers *tiers;
    int attempt;
    const char *answer; /* type of the line that rank 0 waits for */
    int64_t step;
    char tier[16];
    struct err err;
};

static void fatal(const struct messages *m, const struct err *err)
{
    m->records->fatal(m->records->arg, err);
}

static void sync_files(uv_work_t *work)
{
    struct durable *d = work->data;

    if (spool_sync(d->spool, &d->err) == 0)
        tiers_sync(d->tiers, &d->err);
}

static void on_synced(uv_work_t *work, int status)
{
    struct durable *d = work->data;
    const struct messages *m = d->messages;
    char text[256];
    struct line l;

    (void)status;
    if (d->err.code) {
        fatal(m, &d->err);
    } else if (m->attempt->ranks && d->attempt == m->going->attempt) {
        line_begin(&l, text, sizeof text, d->answer);
        line_int(&l, "step", d->step);
        if (d->tier[0])
            line_str(&l, "tier", d->tier);
        ranks_say(m->attempt->ranks, 0, &l);
    }
    free(d);
}

/* Off the loop: a slow disk must not look like a silent supervisor. */
static int answer_when_durable(struct messages *m, const char *answer, int64_t step, const char *tier, struct err *err)
{
    struct durable *d = calloc(1, sizeof *d);

    if (!d)
        return err_set(err, -ENOMEM, "out of memory");
    *d = (struct durable){
        .messages = m, .spool = m->records->spool, .tiers = m->needs->tiers, .attempt = m->going->attempt, .answer = answer, .step = step
    };
    d->work.data = d;
    snprintf(d->tier, sizeof d->tier, "%s", tier);
    free(m->durable);
    m->durable = d;
    if (!m->records->late)
        messages_answer_late(m);
    return 0;
}

void messages_answer_late(struct messages *m)
{
    struct durable *d = m->durable;

    m->durable = NULL;
    if (d)
        uv_queue_work(m->loop, &d->work, sync_files, on_synced); /* fails only without a callback */
}

void messages_close(struct messages *m)
{
    free(m->durable);
    m->durable = NULL;
}

/* ---- the messages ---- */

void messages_go(struct messages *m)
{
    const struct attempt *a = m->attempt;
    const char *store_id = spool_store_id(m->records->spool);
    char text[GO_BYTES];
    struct line l;

    for (int i = 0; i < a->nranks; i++) {
        line_begin(&l, text, sizeof text, "go");
        line_str(&l, "nccl_id", a->nccl_id[0] ? a->nccl_id : NULL);
        line_str(&l, "store_id", store_id[0] ? store_id : NULL);
        line_int(&l, "attempt", m->going->attempt);
        tiers_write(m->needs->tiers, &l);
        ranks_say(a->ranks, i, &l);
    }
    job_log("attempt %d: all ranks are there (%s), go", m->going->attempt, a->device);
}

static int take_hello(struct messages *m, const struct message *msg, struct err *err)
{
    struct attempt *a = m->attempt;
    char cause[OUTCOME_TEXT];

    if (integer_of(msg->msg, "rank") != msg->rank || integer_of(msg->msg, "nranks") != a->nranks)
        return err_set(err, ERR_PROTO, "hello: says it is rank %lld of %lld, but it is rank %d of %d",
                       (long long)integer_of(msg->msg, "rank"), (long long)integer_of(msg->msg, "nranks"), msg->rank, a->nranks);
    if (a->rank[msg->rank].hello)
        return err_set(err, ERR_PROTO, "hello: came twice");
    if (strlen(string_of(msg->msg, "nccl_id")) >= sizeof a->nccl_id)
        return err_set(err, ERR_PROTO, "hello: nccl_id over %zu bytes", sizeof a->nccl_id - 1);
    a->rank[msg->rank].hello = true;
    if (msg->rank == 0) {
        snprintf(a->nccl_id, sizeof a->nccl_id, "%s", string_of(msg->msg, "nccl_id"));
        snprintf(a->device, sizeof a->device, "%s", string_of(msg->msg, "device"));
    }
    if (gpus_is_wrong(ranks_gpu(a->ranks, msg->rank), msg->rank, msg->msg, cause, sizeof cause)) {
        job_log("%s", cause);
        m->fact(m->arg, GOING_FACT_BROKEN, cause);
    }
    for (int i = 0; i < a->nranks; i++)
        if (!a->rank[i].hello)
            return 0;
    m->fact(m->arg, GOING_FACT_GREETED, "");
    return 0;
}

static int take_start(struct messages *m, const struct message *msg, struct err *err)
{
    if (m->attempt->started)
        return err_set(err, ERR_PROTO, "start: came twice");
    if (!tiers_any(m->needs->tiers) &&
        tiers_add(m->needs->tiers, 1, m->needs->spec->run_deterministic ? m->needs->spec->run_deterministic : "off", err) < 0) {
        fatal(m, err);
        return 0;
    }
    m->attempt->started = true;
    going_saved(m->going, integer_of(msg->msg, "resume_step"));
    records_attempt(m->records, m->attempt->nranks, integer_of(msg->msg, "resume_step"), m->attempt->device);
    job_log("attempt %d starts after step %lld", m->going->attempt, (long long)integer_of(msg->msg, "resume_step"));
    return 0;
}

static int take_record(struct messages *m, const struct message *msg, struct err *err)
{
    (void)err;
    records_add_text(m->records, msg->text, msg->len);
    return 0;
}

static int take_checkpoint(struct messages *m, const struct message *msg, struct err *err)
{
    if (strcmp(string_of(msg->msg, "phase"), "ready") == 0)
        return answer_when_durable(m, "publish", integer_of(msg->msg, "step"), "", err);
    m->attempt->waits[0] = '\0';
    records_add_text(m->records, msg->text, msg->len);
    going_saved(m->going, integer_of(msg->msg, "step"));
    return 0;
}

static int take_tier(struct messages *m, const struct message *msg, struct err *err)
{
    const char *tier = string_of(msg->msg, "tier");
    int64_t step = integer_of(msg->msg, "step");
    struct line *l;
    int rc = tiers_add(m->needs->tiers, step, tier, err);

    if (rc < 0) {
        fatal(m, err);
        return 0;
    }
    l = records_begin(m->records, "tier");
    line_int(l, "step", step);
    line_str(l, "tier", tier);
    line_real(l, "time", job_time());
    records_add(m->records, NULL);
    orders_tier_settled(m->orders, tier);
    return answer_when_durable(m, "tier_ok", step, tier, err);
}

static int take_identity(struct messages *m, const struct message *msg, struct err *err)
{
    char *text = json_dumps(json_object_get(msg->msg, "identity"), JSON_COMPACT);
    struct line *l;

    if (!text)
        return err_set(err, -ENOMEM, "out of memory");
    l = records_begin(m->records, "identity");
    line_int(l, "attempt", m->going->attempt);
    line_real(l, "time", job_time());
    line_json(l, "identity", text);
    records_add(m->records, NULL);
    free(text);
    return 0;
}

static int take_event(struct messages *m, const struct message *msg, struct err *err)
{
    const char *tier = json_string_value(json_object_get(msg->msg, "tier"));

    (void)err;
    if (msg->rank == 0 && strcmp(string_of(msg->msg, "kind"), "no_room") == 0) /* for the checkpoint that it ends with */
        snprintf(m->attempt->waits, sizeof m->attempt->waits, "%s", string_of(msg->msg, "text"));
    if (msg->rank == 0 && tier)
        orders_tier_settled(m->orders, tier);
    records_event(m->records, msg->rank, string_of(msg->msg, "level"), string_of(msg->msg, "kind"), string_of(msg->msg, "text"), tier);
    return 0;
}

static int take_end(struct messages *m, const struct message *msg, struct err *err)
{
    struct outcome_rank *o = &m->attempt->rank[msg->rank].out;

    (void)err;
    o->ended = true;
    o->order = m->attempt->order++;
    snprintf(o->outcome, sizeof o->outcome, "%s", string_of(msg->msg, "outcome"));
    snprintf(o->class, sizeof o->class, "%s", string_of(msg->msg, "class"));
    snprintf(o->reason, sizeof o->reason, "%s", string_of(msg->msg, "reason"));
    job_log("attempt %d: rank %d says %s%s%s", m->going->attempt, msg->rank, o->outcome, o->reason[0] ? ": " : "", o->reason);
    if (strcmp(o->outcome, "failed") == 0)
        m->fact(m->arg, GOING_FACT_FAILED, "");
    else if (msg->rank == 0)
        m->fact(m->arg, GOING_FACT_DONE, "");
    return 0;
}

enum { ZERO = 1, STARTED = 2 }; /* rank 0 only; only after its `start` */

static const struct {
    int needs;
    int (*take)(struct messages *m, const struct message *msg, struct err *err);
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

static int take(struct messages *m, const struct message *msg, enum record_type type, struct err *err)
{
    const char *name = string_of(msg->msg, "type");

    if (type == RECORD_UNKNOWN) {
        job_log("rank %d: message of unknown type '%.40s' ignored", msg->rank, name);
        return 0;
    }
    if (m->attempt->rank[msg->rank].out.ended)
        return err_set(err, ERR_PROTO, "%s: came after `end`", name);
    if (type != RECORD_HELLO && type != RECORD_END && type != RECORD_EVENT && !m->attempt->rank[msg->rank].hello)
        return err_set(err, ERR_PROTO, "%s: came before `hello`", name);
    if (rows[type].needs & ZERO && msg->rank != 0)
        return err_set(err, ERR_PROTO, "%s: only rank 0 may say that", name);
    if (rows[type].needs & STARTED && !m->attempt->started)
        return err_set(err, ERR_PROTO, "%s: came before `start`", name);
    return rows[type].take(m, msg, err);
}

void messages_take(struct messages *m, int rank, const char *text, size_t len)
{
    char cause[OUTCOME_TEXT];
    struct err err = { 0 };
    enum record_type type;
    json_t *msg = NULL;
    int rc = record_parse(text, len, &type, &msg, &err);

    if (rc == 0)
        rc = take(m, &(struct message){ rank, msg, text, len }, type, &err);
    json_decref(msg);
    if (rc == 0)
        return;
    snprintf(cause, sizeof cause, "rank %d: malformed report: %s", rank, err.msg);
    job_log("%s", cause);
    m->fact(m->arg, GOING_FACT_BROKEN, cause);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/methods/methods_submit.c - job.submit: the spec is parsed on a
 * thread of the pool, as it may have a megabyte. Then the job of a system daemon gets its ticket, and the job is
 * stored. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/jobs/audit.h"
#include "daemon/base/clock.h"
#include "daemon/socket/conn.h"
#include "daemon/daemon.h"
#include "daemon/gpu/device.h"
#include "daemon/base/errand.h"
#include "daemon/run/gpu_node.h"
#include "daemon/jobs/place.h"
#include "daemon/launch/launcher.h"
#include "daemon/methods/methods.h"
#include "daemon/job/sched.h"
#include "daemon/store/store.h"
#include "daemon/base/text.h"
#include "proto/host/cpu.h"
#include "proto/host/sha256.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "proto/tier.h"

enum { TOKEN_MAX = 128, ROW_BYTES = 1024 }; /* ROW_BYTES: of a job's row and its first events */

struct submission {
    struct request *rq;
    const json_t *spec; /* borrowed from the request */
    const char *token;
    struct user_share *place;
    /* the node, as it was when the request came */
    struct device_node node;
    const struct config *cfg; /* limits of users */
    int tier;
    /* result */
    struct job_row row;
    char device[DEVICE_TEXT]; /* the decision about `auto`; "": `auto` was not given */
    char *text;
    unsigned char hash[SHA256_BYTES]; /* of the text, for detd-launch */
    int rc;
    struct err err;
};

static void submission_free(struct submission *s)
{
    place_give_back(s->place);
    free(s->text);
    free(s);
}

static void fill_row(struct submission *s, const struct jobspec *spec)
{
    struct job_row *row = &s->row;

    memset(row, 0, sizeof *row);
    snprintf(row->name, sizeof row->name, "%s", spec->name);
    row->uid = s->rq->caller.uid;
    row->admin = s->rq->caller.admin;
    row->kind = jobspec_is_program(spec) ? JOB_RUNS : spec->eval_run ? JOB_EVALUATES : spec->verify_evidence ? JOB_VERIFIES : JOB_TRAINS;
    row->state = JOB_QUEUED;
    row->want_tier = -1;
    row->tier = tier_parse(spec->run_deterministic);
    row->cuda = strcmp(spec->run_device, "cuda") == 0;
    row->ranks = (int)spec->run_ranks;
    row->ranks_per_gpu = (int)spec->run_ranks_per_gpu;
    row->gpus_asked = spec->program_gpus > 0 ? (int)spec->program_gpus : 0;
    row->fixed = jobspec_is_program(spec) && strcmp(spec->program_on_pause, "refuse") == 0;
    row->threads = spec->run_threads < 0 ? 0 : (int)spec->run_threads;
    row->priority = (int)spec->run_priority;
    row->after = spec->run_after < 0 ? 0 : spec->run_after;
    row->after_ok = spec->run_after_ok;
    row->restarts = (int)spec->run_restarts;
    row->steps = spec->eval_run ? 0 : spec->train_steps;
    row->submitted = now_s();
    row->time_limit = spec->run_time_limit;
}

/* Limits of users other than admins. A job that needs more GPUs than its user may hold would wait for ever. */
static int check_limits(struct submission *s, struct jobspec *spec, struct err *err)
{
    const struct sched_job view = {
        .cuda = s->row.cuda, .ranks = s->row.ranks, .ranks_per_gpu = s->row.ranks_per_gpu, .gpus_asked = s->row.gpus_asked
    };
    const struct config *cfg = s->cfg;

    if (s->row.admin)
        return 0;
    if (cfg->user_gpus > 0 && sched_gpu_need(&view) > cfg->user_gpus)
        return err_field(err, ERR_INPUT, "run.ranks",
                         "run.ranks: %lld ranks need %d GPUs, and the jobs of a user hold at most %d (user_gpus)",
                         (long long)spec->run_ranks, sched_gpu_need(&view), cfg->user_gpus);
    if (s->row.priority > cfg->user_priority)
        return err_field(err, ERR_INPUT, "run.priority", "run.priority: must be at most %d on this node (user_priority), is %d",
                         cfg->user_priority, s->row.priority);
    if (cfg->time_limit_max_s > 0 && spec->run_time_limit > cfg->time_limit_max_s)
        return err_field(err, ERR_INPUT, "run.time_limit", "run.time_limit: must be at most %d s on this node (time_limit_max), is %.10g s",
                         cfg->time_limit_max_s, spec->run_time_limit);
    if (cfg->time_limit_max_s > 0 && spec->run_time_limit == 0)
        s->row.time_limit = spec->run_time_limit = cfg->time_limit_max_s;
    return 0;
}

static int fill_tier(struct jobspec *spec, int tier, struct err *err)
{
    spec->run_deterministic = strdup(tier_name(tier));
    return spec->run_deterministic ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int check_spec(struct submission *s, struct err *err)
{
    struct jobspec *spec = NULL;
    json_t *whole;
    int rc = jobspec_parse(s->spec, &spec, err);

    if (rc == 0)
        rc = jobspec_require_absolute(spec, err);
    if (rc == 0)
        rc = device_resolve(spec, &s->node, s->device, err);
    if (rc == 0 && !spec->run_deterministic)
        rc = fill_tier(spec, s->tier, err);
    if (rc == 0) {
        fill_row(s, spec);
        rc = check_limits(s, spec, err);
    }
    if (rc == 0) {
        whole = jobspec_json(spec);
        s->text = whole ? json_dumps(whole, JSON_COMPACT) : NULL;
        json_decref(whole);
        if (!s->text)
            rc = err_set(err, -ENOMEM, "out of memory");
    }
    if (rc == 0) {
        s->row.reported = (int64_t)strlen(s->text) + ROW_BYTES;
        sha256(s->text, strlen(s->text), s->hash);
    }
    jobspec_free(spec);
    return rc;
}

static void name_user(void *arg)
{
    struct job_row *row = &((struct submission *)arg)->row;

    audit_name(row->uid, row->user);
}

static void submit_work(void *arg)
{
    struct submission *s = arg;

    s->rc = check_spec(s, &s->err);
}

static void submitted(void *arg, int rc, int64_t id, const struct err *err)
{
    struct submission *s = arg;

    if (rc >= 0)
        s->rq->result = json_pack("{s:I}", "id", (json_int_t)id);
    if (rc == 0)
        s->place->stored += jobs_stored(&s->rq->d->jobs, s->row.reported);
    if (rc == 0)
        audit_add(&s->rq->d->audit, id, s->row.uid, s->row.user, "submitted");
    request_done(s->rq, rc < 0 ? rc : 0, err);
    submission_free(s);
}

static void refuse_submission(struct submission *s, int rc, const struct err *err)
{
    request_done(s->rq, rc, err);
    submission_free(s);
}

/* ---- a ticket: detd-launch runs jobs of a system daemon as their submitters ---- */

static void sealed(void *arg, const char *ticket, const struct err *err)
{
    struct submission *s = arg;

    if (!ticket) {
        refuse_submission(s, err->code, err);
        return;
    }
    snprintf(s->row.ticket, sizeof s->row.ticket, "%s", ticket);
    jobs_submit(&s->rq->d->jobs, &s->row, s->token, s->text, s->device, submitted, s);
}

static void id_taken(void *arg, int rc, int64_t id, const struct err *err)
{
    struct submission *s = arg;
    struct daemon *d = s->rq->d;
    int client = request_fd(s->rq);

    s->row.id = id;
    if (rc < 0)
        s->err = *err;
    else if (client < 0)
        rc = err_set(&s->err, ERR_STATE, "the client is gone");
    else
        rc = launcher_seal(d->launcher, client, id, s->row.user, store_id(d->store), s->hash, sealed, s, &s->err);
    if (rc < 0)
        refuse_submission(s, rc, &s->err);
}

static void user_named(void *arg)
{
    struct submission *s = arg;

    if (!s->rq->d->private)
        store_take_id(s->rq->d->store, id_taken, s);
    else
        jobs_submit(&s->rq->d->jobs, &s->row, s->token, s->text, s->device, submitted, s);
}

static void submit_after(void *arg)
{
    struct submission *s = arg;

    if (s->rc == 0 && errands_add(s->rq->d->names, name_user, user_named, s) < 0)
        s->rc = err_set(&s->err, -ENOMEM, "out of memory");
    if (s->rc == 0)
        return;
    request_done(s->rq, s->rc, &s->err);
    submission_free(s);
}

/* Continues once it is known whether there are GPUs. Without a plugin only programs could use them. */
static void gpus_ready(void *arg)
{
    struct submission *s = arg;
    struct daemon *d = s->rq->d;
    int rc;

    gpus_count(&d->gpus, &s->node.gpus);
    snprintf(s->node.why_none, sizeof s->node.why_none, "%s", d->gpus.trouble[0] ? d->gpus.trouble : d->gpus.absent);
    rc = request_work(s->rq, submit_work, submit_after, s, &s->err);
    if (rc >= 0)
        return;
    request_done(s->rq, rc, &s->err);
    submission_free(s);
}

static int start_submission(struct request *rq, const json_t *spec, const char *token, struct user_share *place, struct err *err)
{
    struct submission *s = calloc(1, sizeof *s);

    if (!s) {
        place_give_back(place);
        return err_set(err, -ENOMEM, "out of memory");
    }
    *s = (struct submission){ .rq = rq,
                              .place = place,
                              .spec = spec,
                              .token = token,
                              .tier = rq->d->tier,
                              .cfg = &rq->d->cfg,
                              .node.plugin = rq->d->plugin,
                              .node.bf16_unit = cpu_has_bf16_unit() };
    if ((rq->d->plugin || json_object_get(spec, "program")) && !rq->d->gpus.known)
        gpu_node_await(rq->d->gpu_node, INFINITY, gpus_ready, s);
    else
        gpus_ready(s);
    return REQUEST_LATER;
}

int do_job_submit(struct request *rq, struct err *err)
{
    const char *token;
    struct user_share *place;
    json_t *spec;
    int rc = params_unpack(rq, err, "{s:o, s:s}", "spec", &spec, "token", &token);

    if (rc < 0)
        return rc;
    if (!token[0] || strlen(token) > TOKEN_MAX)
        return err_field(err, ERR_INPUT, "token", "token: must have 1 to %d bytes", TOKEN_MAX);
    rc = place_take(&rq->d->jobs, rq->caller.uid, rq->caller.admin, &place, err);
    return rc < 0 ? rc : start_submission(rq, spec, token, place, err);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/methods/methods_job.c - job.*: listing, looking, commanding. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/socket/conn.h"
#include "daemon/daemon.h"
#include "daemon/launch/launch.h"
#include "daemon/methods/methods.h"
#include "daemon/store/store.h"
#include "daemon/base/text.h"
#include "daemon/job/view.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "proto/tier.h"

enum { LIST_DEFAULT = 100, LIST_MAX = 1000 };

/* ---- list ---- */

struct listing {
    struct request *rq;
    struct store_page page;
    struct store_job_filter filter;
    struct text out;
    int64_t count, last;
    int rc;
    struct err err;
    char jobs_dir[CONFIG_PATH_MAX + 8];
};

static void list_one(void *arg, const struct job_row *row, const char *losses)
{
    struct listing *l = arg;

    if (l->out.len > STORE_PAGE_BYTES)
        return;
    if (l->count++)
        text_add(&l->out, ",");
    view_job(&l->out, row, l->jobs_dir, "", losses);
    text_add(&l->out, "}");
    l->last = row->id;
}

static void list_work(void *arg)
{
    struct listing *l = arg;

    text_add(&l->out, "{\"jobs\":[");
    l->rc = request_wanted(l->rq, &l->err);
    if (l->rc == 0)
        l->rc = store_list_jobs(l->rq->d->store, &l->page, &l->filter, list_one, l, &l->err);
}

static void close_list(struct text *out, int64_t cursor)
{
    if (cursor)
        text_addf(out, "],\"cursor\":%lld}", (long long)cursor);
    else
        text_add(out, "],\"cursor\":null}");
}

static void list_after(void *arg)
{
    struct listing *l = arg;

    if (l->rc >= 0) {
        close_list(&l->out, l->count == l->page.limit || l->out.len > STORE_PAGE_BYTES ? l->last : 0);
        l->rc = request_take(l->rq, &l->out, &l->err);
    }
    request_done(l->rq, l->rc, &l->err);
    text_free(&l->out);
    free(l);
}

static int list_from_store(struct request *rq, const struct store_page *page, const struct store_job_filter *filter, struct err *err)
{
    struct listing *l = calloc(1, sizeof *l);
    int rc;

    if (!l)
        return err_set(err, -ENOMEM, "out of memory");
    l->rq = rq;
    l->page = *page;
    l->filter = *filter;
    memcpy(l->jobs_dir, rq->d->jobs_dir, sizeof l->jobs_dir);
    rc = request_work(rq, list_work, list_after, l, err);
    if (rc < 0)
        free(l);
    return rc;
}

/* Lists the newest jobs, from memory. Returns false if the page reaches further back than memory does. */
static bool list_from_memory(struct daemon *d, const struct store_page *page, const struct store_job_filter *filter, struct text *out)
{
    int64_t count = 0, last = 0;

    text_add(out, "{\"jobs\":[");
    for (int i = d->jobs.count - 1; i >= 0 && count < page->limit; i--) {
        struct job *j = d->jobs.all[i];
        const char *json;
        size_t len;

        if (j->row.id < d->jobs.floor)
            return false;
        if ((page->cursor && j->row.id >= page->cursor) || !store_filter_takes(filter, &j->row))
            continue;
        if (out->len > STORE_PAGE_BYTES)
            break;
        json = job_json(&d->jobs, j, &len);
        if (!json)
            return false;
        if (count++)
            text_add(out, ",");
        text_add_bytes(out, json, len);
        last = j->row.id;
    }
    if (count < page->limit && out->len <= STORE_PAGE_BYTES && d->jobs.floor > 1)
        return false;
    close_list(out, count == page->limit || out->len > STORE_PAGE_BYTES ? last : 0);
    return true;
}

static int take_text(char *to, size_t size, const char *from, const char *name, struct err *err)
{
    if (strlen(from) >= size)
        return err_field(err, ERR_INPUT, name, "%s: no %s has more than %zu bytes", name, name, size - 1);
    memcpy(to, from, strlen(from) + 1);
    return 0;
}

static int no_state(const char *word, struct err *err)
{
#define X(ident, name, ...) ", " name
    static const char all[] = JOB_STATES(X);
#undef X

    return err_field(err, ERR_INPUT, "state", "state: '%.40s' is not a state of a job; the states are %s", word, all + strlen(", "));
}

static int take_filter(struct request *rq, struct store_job_filter *f, struct err *err)
{
    const char *state = NULL, *user = "", *name = "", *tag = "";
    double since = 0;
    int mine = 0, rc;

    rc = params_unpack(rq, err, "{s?s, s?s, s?b, s?s, s?F, s?s}", "state", &state, "user", &user, "mine", &mine, "name", &name, "since",
                       &since, "tag", &tag);
    if (rc < 0)
        return rc;
    *f = (struct store_job_filter){ .state = state ? job_state_parse(state) : -1,
                                    .uid = mine ? (int64_t)rq->caller.uid : -1,
                                    .since = since };
    if (state && f->state < 0)
        return no_state(state, err);
    rc = take_text(f->user, sizeof f->user, user, "user", err);
    if (rc == 0)
        rc = take_text(f->name, sizeof f->name, name, "name", err);
    return rc < 0 ? rc : take_text(f->tag, sizeof f->tag, tag, "tag", err);
}

int do_job_list(struct request *rq, struct err *err)
{
    json_int_t limit = LIST_DEFAULT, cursor = 0;
    struct store_job_filter filter;
    struct store_page page;
    struct text out = { 0 };
    int rc = params_unpack(rq, err, "{s?I, s?I}", "limit", &limit, "cursor", &cursor);

    if (rc == 0)
        rc = take_filter(rq, &filter, err);
    if (rc < 0)
        return rc;
    if (limit < 1 || limit > LIST_MAX)
        return err_field(err, ERR_INPUT, "limit", "limit: must be 1 to %d, is %lld", LIST_MAX, (long long)limit);
    if (cursor < 0)
        return err_field(err, ERR_INPUT, "cursor", "cursor: must be an id");
    page = (struct store_page){ limit, cursor };
    if (list_from_memory(rq->d, &page, &filter, &out))
        return request_take(rq, &out, err);
    text_free(&out);
    return list_from_store(rq, &page, &filter, err);
}

/* ---- one job: from memory if it is there, with facts that only the store has ---- */

struct looking {
    struct request *rq;
    int64_t id;
    bool details;
    const char *refused; /* the command that a job outside memory refuses; NULL: only looking */
    struct text out, more, losses;
    char *spec, *hidden; /* hidden: keys of the spec whose values the caller may not see */
    struct job_row row;
    int rc;
    struct err err;
};

static void looking_free(struct looking *l)
{
    text_free(&l->out);
    text_free(&l->more);
    text_free(&l->losses);
    free(l->spec);
    free(l->hidden);
    free(l);
}

/* Code in a job, such as run.env and run.on_end, is for its owner alone: it may hold secrets, and an admin who submits
 * it again would run it. */
static int hide_code(struct looking *l)
{
    json_t *root = json_loads(l->spec, 0, NULL), *names = jobspec_hide_code(root);

    free(l->spec);
    l->spec = root && names ? json_dumps(root, JSON_COMPACT) : NULL;
    l->hidden = names ? json_dumps(names, JSON_COMPACT) : NULL;
    json_decref(root);
    json_decref(names);
    return l->spec && l->hidden ? 0 : err_set(&l->err, -ENOMEM, "out of memory for a job's spec");
}

static bool has_checkpoint(void *arg, int64_t step)
{
    const struct looking *l = arg;

    if (l->row.kind == JOB_RUNS) /* detctl looks, with the rights of its caller */
        return true;
    return launch_has_checkpoint(l->rq->d->jobs_dir, &l->row, step);
}

static void look_work(void *arg)
{
    struct looking *l = arg;
    struct store *s = l->rq->d->store;
    char folder[sizeof l->rq->d->jobs_dir + 32];

    snprintf(folder, sizeof folder, "%s/%lld", l->rq->d->jobs_dir, (long long)l->id);
    l->rc = request_wanted(l->rq, &l->err);
    if (l->rc == 0)
        l->rc = store_get_job(s, l->id, &l->row, &l->err);
    if (l->rc == 0 && l->details)
        l->rc = store_losses(s, l->id, &l->losses, &l->err);
    if (l->rc == 0 && l->details)
        l->rc = store_job_details(s, l->id, l->row.kind == JOB_RUNS ? NULL : folder, has_checkpoint, l, &l->more, &l->err);
    if (l->rc == 0 && l->details)
        l->rc = store_get_spec(s, l->id, &l->spec, &l->err);
    if (l->rc == 0 && l->details && l->rq->caller.uid != l->row.uid)
        l->rc = hide_code(l);
}

static void add_details(struct looking *l)
{
    struct daemon *d = l->rq->d;
    struct job *j = jobs_find(&d->jobs, l->id);
    size_t len;
    const char *json = j ? job_json(&d->jobs, j, &len) : NULL;

    if (json)
        text_add_bytes(&l->out, json, len - 1); /* without its closing brace */
    else
        view_job(&l->out, &l->row, d->jobs_dir, "", l->losses.p);
    text_addf(&l->out, ",%s,\"spec\":%s,\"hidden\":%s}", l->more.p, l->spec, l->hidden ? l->hidden : "[]");
}

static void look_after(void *arg)
{
    struct looking *l = arg;

    if (l->rc == 0 && l->refused)
        l->rc = err_field(&l->err, ERR_STATE, "id", "job %lld is %s: %s is not possible", (long long)l->id, job_state_name(l->row.state),
                          l->refused);
    if (l->rc == 0) {
        add_details(l);
        l->rc = request_take(l->rq, &l->out, &l->err);
    }
    request_done(l->rq, l->rc, &l->err);
    looking_free(l);
}

static int look(struct request *rq, int64_t id, const char *refused, struct err *err)
{
    struct looking *l = calloc(1, sizeof *l);
    int rc;

    if (!l)
        return err_set(err, -ENOMEM, "out of memory");
    l->rq = rq;
    l->id = id;
    l->details = !refused;
    l->refused = refused;
    rc = request_work(rq, look_work, look_after, l, err);
    if (rc < 0)
        looking_free(l);
    return rc;
}

int do_job_get(struct request *rq, struct err *err)
{
    json_int_t id;
    int rc = params_unpack(rq, err, "{s:I}", "id", &id);

    return rc < 0 ? rc : look(rq, id, NULL, err);
}

/* ---- commands ---- */

static void command_durable(void *arg, int rc, int64_t id, const struct err *err)
{
    struct request *rq = arg;
    struct job *j = jobs_find(&rq->d->jobs, id);

    if (rc >= 0)
        rq->result = json_pack("{s:s}", "state", j ? job_state_name(j->row.state) : "cancelled");
    request_carried_out(rq, rc, err);
}

static int check_owner(const struct request *rq, const struct job *j, struct err *err)
{
    if (rq->caller.admin || rq->caller.uid == j->row.uid)
        return 0;
    return err_field(err, ERR_DENIED, "id", "job %lld belongs to %s", (long long)j->row.id, j->row.user);
}

/* Finds the caller's job. If *ret is NULL and the result is 0 or more, the answer comes from the store. */
static int own_job(struct request *rq, const char *what, struct job **ret, struct err *err)
{
    json_int_t id;
    int rc = params_unpack(rq, err, "{s:I}", "id", &id);

    *ret = NULL;
    if (rc < 0)
        return rc;
    *ret = jobs_find(&rq->d->jobs, id);
    if (!*ret)
        return look(rq, id, what, err);
    return check_owner(rq, *ret, err);
}

/* True if the event was asked for before, so that it would change nothing. */
static bool holds(const struct job_row *row, enum job_event event)
{
    struct job_row after = *row;

    return job_apply(&after, event, "", 0, NULL) == 0 && after.state == row->state && after.want == row->want;
}

/* A program that runs and says nothing of pauses would lose its work. */
static int refuse_pause(const struct job *j, enum job_event event, struct err *err)
{
    if (event != JOB_EV_PAUSE || !j->row.fixed || j->pausable || !job_is_live(j->row.state))
        return 0;
    return err_field(err, ERR_STATE, "id",
                     "job %lld runs a program that cannot be paused (program.on_pause is refuse, and the program does not ask for the word "
                     "pause); detctl cancel ends it",
                     (long long)j->row.id);
}

int methods_command(struct request *rq, enum job_event event, const char *what, struct err *err)
{
    struct job *j;
    int rc = own_job(rq, what, &j, err);

    if (rc == 0 && j)
        rc = refuse_pause(j, event, err);
    if (rc < 0 || !j)
        return rc;
    if (!holds(&j->row, event))
        request_note(rq, j->row.id, "%s", what);
    rc = jobs_command(&rq->d->jobs, j, event, command_durable, rq, err);
    return rc < 0 ? rc : REQUEST_LATER;
}

int do_job_cancel(struct request *rq, struct err *err)
{
    return methods_command(rq, JOB_EV_CANCEL, "cancel", err);
}

int do_job_pause(struct request *rq, struct err *err)
{
    return methods_command(rq, JOB_EV_PAUSE, "pause", err);
}

static int want(struct request *rq, bool eval, struct err *err)
{
    struct job *j;
    int rc = own_job(rq, eval ? "eval" : "checkpoint", &j, err);

    if (rc < 0 || !j)
        return rc;
    request_note(rq, j->row.id, "%s", eval ? "eval" : "checkpoint");
    rc = jobs_want_checkpoint(&rq->d->jobs, j, eval, command_durable, rq, err);
    return rc < 0 ? rc : REQUEST_LATER;
}

int do_job_checkpoint(struct request *rq, struct err *err)
{
    return want(rq, false, err);
}

int do_job_eval(struct request *rq, struct err *err)
{
    return want(rq, true, err);
}

static int unpack_priority(struct request *rq, int *ret, struct err *err)
{
    json_int_t priority;
    int rc = params_unpack(rq, err, "{s:I}", "priority", &priority);

    if (rc < 0)
        return rc;
    if (priority < -JOB_PRIORITY_MAX || priority > JOB_PRIORITY_MAX)
        return err_field(err, ERR_INPUT, "priority", "priority: must be %d to %d, is %lld", -JOB_PRIORITY_MAX, JOB_PRIORITY_MAX,
                         (long long)priority);
    *ret = (int)priority;
    return 0;
}

int do_job_priority(struct request *rq, struct err *err)
{
    int priority = 0, rc = unpack_priority(rq, &priority, err);
    struct job *j = NULL;

    if (rc == 0)
        rc = own_job(rq, "another priority", &j, err);
    if (rc < 0 || !j)
        return rc;
    if (!rq->caller.admin && priority > rq->d->cfg.user_priority)
        return err_field(err, ERR_INPUT, "priority", "priority: must be at most %d on this node (user_priority), is %d",
                         rq->d->cfg.user_priority, priority);
    request_note(rq, j->row.id, "priority %d", priority);
    rc = jobs_want_priority(&rq->d->jobs, j, priority, command_durable, rq, err);
    return rc < 0 ? rc : REQUEST_LATER;
}

/* ---- deterministic tier ---- */

static void tier_durable(void *arg, int rc, int64_t id, const struct err *err)
{
    struct request *rq = arg;

    (void)id;
    if (rc == 0)
        rq->result = json_pack("{s:s}", "tier", json_string_value(json_object_get(rq->params, "tier")));
    request_granted(rq, rc, err);
}

static void node_tier_durable(void *arg, int rc, int64_t id, const struct err *err)
{
    struct request *rq = arg;

    if (rc == 0)
        rq->d->tier = tier_parse(json_string_value(json_object_get(rq->params, "tier")));
    tier_durable(arg, rc, id, err);
}

static int set_node_tier(struct request *rq, int tier, struct err *err)
{
    if (!rq->caller.admin)
        return err_set(err, ERR_DENIED, "only admins may change the tier of new jobs");
    request_note(rq, 0, "tier %s of new jobs", tier_name(tier));
    store_setting(rq->d->store, "tier", tier_name(tier), node_tier_durable, rq);
    return REQUEST_LATER;
}

int do_deterministic_set(struct request *rq, struct err *err)
{
    json_int_t id = 0;
    const char *name;
    struct job *j;
    int tier, rc = params_unpack(rq, err, "{s:s, s?I}", "tier", &name, "id", &id);

    if (rc < 0)
        return rc;
    tier = tier_parse(name);
    if (tier < 0)
        return err_field(err, ERR_INPUT, "tier", "tier: must be off, rerun or world, is '%.40s'", name);
    if (!json_object_get(rq->params, "id"))
        return set_node_tier(rq, tier, err);
    j = jobs_find(&rq->d->jobs, id);
    if (!j)
        return look(rq, id, "a change of tier", err);
    rc = check_owner(rq, j, err);
    if (rc == 0 && j->row.kind == JOB_RUNS)
        rc = err_field(err, ERR_STATE, "id", "job %lld is a program", (long long)j->row.id);
    if (rc < 0)
        return rc;
    request_note(rq, j->row.id, "tier %s", tier_name(tier));
    rc = jobs_want_tier(&rq->d->jobs, j, tier, tier_durable, rq, err);
    return rc < 0 ? rc : REQUEST_LATER;
}

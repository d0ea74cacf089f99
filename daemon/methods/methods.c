/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/methods/methods.c - the method table, access, and the methods about
 * the daemon itself. */
#include "daemon/methods/methods.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/socket/conn.h"
#include "daemon/base/clock.h"
#include "daemon/base/node.h"
#include "daemon/daemon.h"
#include "daemon/jobs/event.h"
#include "daemon/launch/launcher.h"
#include "daemon/run/drain.h"
#include "daemon/store/store.h"
#include "daemon/base/text.h"
#include "proto/clean.h"
#include "proto/err.h"
#include "proto/methods.h"
#include "proto/tier.h"
#include "proto/version.h"

enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_OWNER, ACCESS_SUBMIT };

#define X(ident, name, access, params, help) { name, do_##ident, ACCESS_##access, params },
static const struct method {
    const char *name;
    method_fn *fn;
    enum access access;
    const char *params; /* as in "id:int limit:int?" */
} table[] = { METHODS(X) };
#undef X

/* No job of a system daemon runs as root or as the daemon's own user, who reads the tickets of all users. */
static int check_submitter(const struct request *rq, struct err *err)
{
    if (!launcher_is_there(rq->d->launcher))
        return err_set(err, ERR_DENIED,
                       "this daemon takes no jobs without detd-launch, which starts jobs as their submitters; an admin starts it with "
                       "`systemctl enable --now detd-launch.socket`, and any user a private daemon with `detd --state DIR --socket PATH`");
    if (rq->caller.uid == 0)
        return err_set(err, ERR_DENIED, ROOT_SUBMITS);
    if (rq->caller.uid == geteuid())
        return err_set(err, ERR_DENIED, "no job runs as the daemon's own user: submit it as another user");
    return 0;
}

/* OWNER is checked by the method, which knows the job. On a private daemon every user that may connect is the owner. */
static int check_access(const struct request *rq, const struct method *m, struct err *err)
{
    const struct daemon *d = rq->d;

    if ((m->access == ACCESS_READ || m->access == ACCESS_SUBMIT) && !d->everyone_reads && !rq->caller.admin)
        return err_set(err, ERR_DENIED, "%s: this daemon answers its admins only", m->name);
    if (m->access == ACCESS_SUBMIT && !d->private && check_submitter(rq, err) < 0)
        return err->code;
    if (m->access == ACCESS_WRITE && !rq->caller.admin)
        return err_set(err, ERR_DENIED, "%s: this daemon does that for its admins only (root, its own user, group detd)", m->name);
    if (m->access != ACCESS_READ && d->stopping)
        return err_set(err, ERR_STATE, "the daemon is stopping");
    return 0;
}

/* Each change leaves an event. A request that ends or removes a job is never refused: it is done once for each job. */
static int check_rate(const struct request *rq, const struct method *m, struct err *err)
{
    enum bound_id id = m->fn == do_job_label ? BOUND_LABELS : BOUND_EVENTS;
    const struct job *j = jobs_find(&rq->d->jobs, json_integer_value(json_object_get(rq->params, "id")));
    struct user_share *share;

    if (m->access == ACCESS_READ || rq->caller.admin || m->fn == do_job_rm || m->fn == do_job_prune ||
        (m->fn == do_job_cancel && j && !job_is_done(j->row.state)))
        return 0;
    share = user_shares_of(&rq->d->jobs.shares, rq->caller.uid);
    if (share && user_share_take(share, id, mono_s()))
        return 0;
    return err_set(err, ERR_STATE, "%s: a user has %lld %s at once, and then %lld a second; try again later", m->name,
                   (long long)bounds[id].share, bounds[id].what, (long long)bounds[id].per_s);
}

/* ---- params against the table, so that every error names its member ---- */

struct param {
    const char *name, *type;
    int name_len, type_len;
    bool optional;
};

/* Reads the next parameter of "id:int limit:int?"; returns false at the end. */
static bool next_param(const char **at, struct param *ret)
{
    *at += strspn(*at, " ");
    if (!**at)
        return false;
    ret->name = *at;
    ret->name_len = (int)strcspn(*at, ":");
    ret->type = *at + ret->name_len + 1;
    ret->type_len = (int)strcspn(ret->type, " ?");
    ret->optional = ret->type[ret->type_len] == '?';
    *at = ret->type + ret->type_len + ret->optional;
    return true;
}

static bool has_type(const json_t *value, const struct param *p)
{
    switch (p->type[0]) {
    case 'i':
        return json_is_integer(value);
    case 's':
        return json_is_string(value);
    case 'b':
        return json_is_boolean(value);
    case 'n':
        return json_is_number(value);
    default:
        return json_is_object(value);
    }
}

static int check_params(const struct method *m, const json_t *params, struct err *err)
{
    const char *at = m->params, *key;
    struct param p;
    size_t found = 0;
    json_t *value;

    while (next_param(&at, &p)) {
        char name[32];

        snprintf(name, sizeof name, "%.*s", p.name_len, p.name);
        value = json_object_get(params, name);
        found += value != NULL;
        if (!value && !p.optional)
            return err_field(err, ERR_INPUT, name, "%s: %s is missing", m->name, name);
        if (value && !has_type(value, &p))
            return err_field(err, ERR_INPUT, name, "%s: must be of type %.*s", name, p.type_len, p.type);
    }
    if (found == json_object_size(params))
        return 0;
    json_object_foreach ((json_t *)params, key, value) {
        bool known = false;

        for (at = m->params; next_param(&at, &p);)
            known = known || (strlen(key) == (size_t)p.name_len && strncmp(key, p.name, strlen(key)) == 0);
        if (!known)
            return err_field(err, ERR_INPUT, key, "%s: unknown parameter '%.60s'", m->name, key);
    }
    return 0;
}

int method_call(struct request *rq, const char *name, struct err *err)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0) {
            int rc = check_access(rq, &table[i], err);

            if (rc == 0 && table[i].access != ACCESS_READ && request_gone(rq))
                rc = err_set(err, ERR_STATE, "the client has hung up before its request was read");
            if (rc == 0)
                rc = check_params(&table[i], rq->params, err);
            if (rc == 0)
                rc = check_rate(rq, &table[i], err);
            return rc < 0 ? rc : table[i].fn(rq, err);
        }
    return err_field(err, ERR_UNSUPPORTED, "method", "no method '%.80s'", name);
}

/* ---- daemon ---- */

int do_daemon_info(struct request *rq, struct err *err)
{
    struct daemon *d = rq->d;
    struct gpu_counts counts;
    double loop_ms, cpu_ms;
    char trouble[256], libraries[120];
    int rc = params_unpack(rq, err, "{}");

    if (rc < 0)
        return rc;
    snprintf(libraries, sizeof libraries, "SQLite %s, libuv %s, jansson %s", store_library(), uv_version_string(), jansson_version_str());
    gpus_count(&d->gpus, &counts);
    loop_ms = wires_longest_ms(&d->wires, &cpu_ms);
    store_trouble(d->store, trouble, sizeof trouble);
    rq->result = json_pack(
        "{s:s, s:i, s:s, s:s, s:s, s:f, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:s, "
        "s:b, s:i, s:s, s:b, s:o, s:i, s:I, s:i}",
        "version", DETD_VERSION, "protocol", DETD_PROTOCOL, "store_id", store_id(d->store), "state", d->cfg.state, "socket", d->cfg.socket,
        "uptime_s", mono_s() - d->started, "cpu_slots", d->runner.cpu_slots, "cpu_free", run_cpu_free(&d->runner), "gpus", counts.devices,
        "gpus_free", counts.free, "jobs_live", jobs_live(&d->jobs), "clients", conns_count(d->conns), "tier", tier_name(d->tier), "drained",
        d->runner.drained, "requests", (json_int_t)conns_requests(d->conns), "rows", (json_int_t)d->jobs.rows, "backlog",
        (json_int_t)store_backlog(d->store), "rss_bytes", (json_int_t)node_resident_bytes(), "heap_bytes", (json_int_t)mallinfo2().uordblks,
        "loop_max_ms", loop_ms, "loop_cpu_max_ms", cpu_ms, "trouble", trouble, "gpu_trouble", d->gpus.trouble, "private", d->private, "pid",
        (int)getpid(), "libraries", libraries, "launch", launcher_is_there(d->launcher), "launch_trouble",
        clean_string(launcher_trouble(d->launcher)), "removals", d->removals.held_up, "removal", (json_int_t)d->removals.held_job,
        "priority_max", rq->caller.admin ? JOB_PRIORITY_MAX : d->cfg.user_priority);
    return rq->result ? 0 : err_set(err, -1, "daemon.info: cannot be written as JSON");
}

/* While the disk is full, a drain is carried out before it is stored, and an undrain is refused. */
static void drain_durable(void *arg, int rc, int64_t value, const struct err *err)
{
    struct request *rq = arg;
    const char *reason = json_string_value(json_object_get(rq->params, "reason"));

    (void)value;
    if (rc == -ENOSPC && reason)
        rc = drain_keep(&rq->d->runner, reason) ? JOBS_NOTED : JOBS_REMEMBERED;
    if (rc >= 0) {
        snprintf(rq->d->runner.drained, sizeof rq->d->runner.drained, "%s", reason ? reason : "");
        run_schedule(&rq->d->runner);
        rq->result = json_pack("{s:s}", "drained", rq->d->runner.drained);
    }
    request_carried_out(rq, rc, err);
}

int do_daemon_drain(struct request *rq, struct err *err)
{
    const char *reason;
    int rc = params_unpack(rq, err, "{s:s}", "reason", &reason);

    if (rc < 0)
        return rc;
    if (!*reason || strlen(reason) > RUN_DRAINED_MAX)
        return err_field(err, ERR_INPUT, "reason", "reason: needs 1 to %d bytes that tell others why", RUN_DRAINED_MAX);
    request_note(rq, 0, "drain (%s)", reason);
    store_setting(rq->d->store, "drained", reason, drain_durable, rq);
    return REQUEST_LATER;
}

int do_daemon_undrain(struct request *rq, struct err *err)
{
    int rc = params_unpack(rq, err, "{}");

    if (rc < 0)
        return rc;
    request_note(rq, 0, "undrain");
    store_setting(rq->d->store, "drained", "", drain_durable, rq);
    return REQUEST_LATER;
}

int do_subscribe(struct request *rq, struct err *err)
{
    static const struct {
        const char *name;
        unsigned topic;
    } known[] = { { "jobs", TOPIC_JOBS }, { "losses", TOPIC_LOSSES }, { "events", TOPIC_EVENTS } };
    json_int_t id = 0;
    const char *topics = "jobs,losses,events";
    unsigned set = 0;
    int rc = params_unpack(rq, err, "{s?I, s?s}", "id", &id, "topics", &topics);

    if (rc < 0)
        return rc;
    for (topics += strspn(topics, " ,"); *topics; topics += strspn(topics, " ,")) {
        size_t len = strcspn(topics, " ,"), i = 0;

        while (i < 3 && (strlen(known[i].name) != len || strncmp(known[i].name, topics, len) != 0))
            i++;
        if (i == 3)
            return err_field(err, ERR_INPUT, "topics", "topics: must be jobs, losses or events, is '%.*s'", len > 40 ? 40 : (int)len,
                             topics);
        set |= known[i].topic;
        topics += len;
    }
    conn_subscribe(rq->conn, set, id);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/methods/methods_gpu.c - gpu.*: the state of the node's GPUs, and
 * lifting a quarantine. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/socket/conn.h"
#include "daemon/daemon.h"
#include "daemon/run/gpu_node.h"
#include "daemon/methods/methods.h"
#include "daemon/base/text.h"
#include "proto/err.h"

enum { FRESH_S = 2 };

/* ---- list ---- */

static void number(struct text *out, const char *key, int64_t value, bool known)
{
    if (known)
        text_addf(out, ",\"%s\":%lld", key, (long long)value);
    else
        text_addf(out, ",\"%s\":null", key);
}

static void string(struct text *out, const char *key, const char *value)
{
    text_addf(out, ",\"%s\":", key);
    text_json(out, value);
}

static void add_processes(struct text *out, const struct gpu_seen *seen)
{
    text_add(out, ",\"processes\":[");
    for (int i = 0; i < seen->nprocesses; i++) {
        const struct gpu_process *p = &seen->processes[i];

        text_addf(out, "%s{\"pid\":%lld", i ? "," : "", (long long)p->pid);
        string(out, "name", p->name);
        number(out, "memory_bytes", p->memory_bytes, p->memory_bytes >= 0);
        text_add(out, "}");
    }
    text_add(out, "]");
}

static void add_gpu(struct text *out, const struct gpu *g)
{
    const struct gpu_seen *s = &g->seen;
    char reason[GPU_REASON];

    gpu_reason(g, reason, sizeof reason);
    text_addf(out, "{\"index\":%d", s->index);
    string(out, "uuid", s->uuid);
    string(out, "name", s->name);
    string(out, "driver", s->driver);
    number(out, "memory_bytes", s->memory_bytes, s->memory_bytes >= 0);
    number(out, "memory_used", s->memory_used, s->memory_used >= 0);
    number(out, "utilisation", s->utilisation, s->utilisation >= 0);
    number(out, "temperature", s->temperature, s->temperature >= 0);
    number(out, "power_w", s->power_w, s->power_w >= 0);
    number(out, "ecc_errors", s->ecc_errors, s->ecc_errors >= 0);
    string(out, "state", gpu_state_name(gpu_state(g)));
    number(out, "job", g->job, g->job != 0);
    string(out, "foreign", g->foreign);
    string(out, "reason", reason);
    add_processes(out, s);
    text_add(out, "}");
}

/* The driver has just been asked. If it does not answer, `trouble` says so, and the list shows the last known state. */
static void list_ready(void *arg)
{
    struct request *rq = arg;
    const struct gpus *all = &rq->d->gpus;
    struct text t = { 0 };
    struct err err;
    int rc;

    text_add(&t, "{\"gpus\":[");
    for (int i = 0; i < all->count; i++) {
        text_add(&t, i ? "," : "");
        add_gpu(&t, &all->all[i]);
    }
    text_add(&t, "]");
    string(&t, "trouble", all->trouble);
    string(&t, "absent", all->absent);
    text_add(&t, "}");
    rc = request_take(rq, &t, &err);
    request_done(rq, rc, &err);
}

int do_gpu_list(struct request *rq, struct err *err)
{
    int rc = params_unpack(rq, err, "{}");

    if (rc < 0)
        return rc;
    gpu_node_await(rq->d->gpu_node, FRESH_S, list_ready, rq);
    return REQUEST_LATER;
}

/* ---- release ---- */

static void released(void *arg, int rc, int64_t value, const struct err *err)
{
    struct request *rq = arg;
    const struct gpu *g = gpus_find(&rq->d->gpus, json_string_value(json_object_get(rq->params, "uuid")));

    (void)value;
    if (rc == 0)
        rq->result = json_pack("{s:s}", "state", g ? gpu_state_name(gpu_state(g)) : "free");
    request_granted(rq, rc, err);
}

int do_gpu_release(struct request *rq, struct err *err)
{
    const char *uuid;
    int rc = params_unpack(rq, err, "{s:s}", "uuid", &uuid);

    if (rc < 0)
        return rc;
    request_note(rq, 0, "release of GPU %.47s", uuid);
    rc = gpu_node_release(rq->d->gpu_node, uuid, released, rq, err);
    return rc < 0 ? rc : REQUEST_LATER;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/queue.c - queue: jobs that wait for slots, in the order of
 * service, with the reason; wait: until jobs have ended; retry: the same job once more. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/print.h"
#include "client/jobs/submit.h"
#include "client/jobs/watch.h"
#include "proto/host/memory.h"

enum { SHOWN = 1000 };

/* ---- queue ---- */

/* By the place that the daemon tells. Two jobs may have the same place if the queue has changed in between. */
static int by_service(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    long long px = int_of(x, "place"), py = int_of(y, "place"), ix = int_of(x, "id"), iy = int_of(y, "id");

    return px != py ? (px > py) - (px < py) : (ix > iy) - (ix < iy);
}

/* If the job has left the queue meanwhile, this is its present reason. */
static int add_reason(struct context *ctx, json_t *job)
{
    json_t *why;
    int rc = call(ctx, "job.why", json_pack("{s:I}", "id", (json_int_t)int_of(job, "id")), &why);

    if (rc)
        return rc;
    json_object_set(job, "why", json_object_get(why, "text"));
    json_object_set(job, "expected", json_object_get(why, "expected"));
    json_object_set(job, "place", json_object_get(why, "place"));
    json_decref(why);
    return 0;
}

static json_t *in_order(const json_t *all)
{
    size_t n = json_array_size(all);
    json_t **jobs = malloc((n + 1) * sizeof(json_t *)), *ret = json_array();

    if (!jobs)
        memory_out();
    for (size_t i = 0; i < n; i++)
        jobs[i] = json_array_get(all, i);
    qsort(jobs, n, sizeof(json_t *), by_service);
    for (size_t i = 0; i < n; i++)
        json_array_append(ret, jobs[i]);
    free(jobs);
    return ret;
}

static void print_queue(const json_t *jobs)
{
    static const char *const headers[] = { ">ID", "<NAME", "<USER", ">PRIORITY", "<DEVICE", "<SUBMITTED", "<EXPECTED", "<WHY" };
    struct table *t = table_new(sizeof headers / sizeof *headers, headers);
    json_t *job;
    size_t i;

    json_array_foreach (jobs, i, job) {
        table_addf(t, "%lld", int_of(job, "id"));
        table_add(t, text_of(job, "name"));
        table_add(t, text_of(job, "user"));
        table_addf(t, "%lld", int_of(job, "priority"));
        table_addf(t, "%lld %s", int_of(job, "ranks"), text_of(job, "device"));
        table_add(t, text_time(json_number_value(json_object_get(job, "submitted"))).s);
        table_add(t, text_time(real_of(job, "expected")).s);
        table_add(t, text_of(job, "why"));
    }
    table_print(t, stdout);
    table_free(t);
}

int command_queue(struct context *ctx, int argc, char **argv)
{
    struct list l = { .method = "job.list", .member = "jobs", .limit = SHOWN };
    json_t *all, *jobs;
    bool json;
    int rc;

    if (take_json(argc, argv, &json))
        return CODE_USAGE;
    if (optind < argc)
        return misuse(ctx, "'%s' is not an option; detctl why ID tells about one job", argv[optind]);
    l.params = json_pack("{s:s}", "state", "queued");
    if ((rc = call_list(ctx, &l, &all)))
        return rc;
    for (size_t i = 0; rc == 0 && i < json_array_size(all); i++)
        rc = add_reason(ctx, json_array_get(all, i));
    jobs = in_order(all);
    json_decref(all);
    if (rc == 0 && json)
        print_json(jobs);
    else if (rc == 0 && json_array_size(jobs) == 0)
        fputs("no job waits\n", stderr);
    else if (rc == 0)
        print_queue(jobs);
    json_decref(jobs);
    return rc;
}

/* ---- wait ---- */

/* Returns the code that comes first in `order`: a failure is told even if other jobs ended well. */
static int worse(int a, int b)
{
    static const int order[] = { CODE_INTERRUPTED, CODE_NO_DAEMON, CODE_REFUSED, CODE_JOB_FAILED, CODE_JOB_CANCELLED, CODE_DONE };

    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (a == order[i] || b == order[i])
            return order[i];
    return a ? a : b;
}

int command_wait(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { 0 } };
    int rc = CODE_DONE;

    if (next_option(argc, argv, "", options) != -1)
        return CODE_USAGE;
    if (optind >= argc)
        return misuse(ctx, "no job id given");
    for (int i = optind; i < argc; i++) {
        int64_t id;

        if (take_id(ctx, argv[i], &id))
            return CODE_USAGE;
    }
    for (int i = optind; i < argc && rc != CODE_INTERRUPTED && rc != CODE_NO_DAEMON; i++) {
        int64_t id = 0;

        take_id(ctx, argv[i], &id);
        rc = worse(rc, watch_job(ctx, id, "total", WATCH_QUIETLY));
    }
    return rc;
}

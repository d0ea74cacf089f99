#include "daemon/jobs/usage.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>

#include "daemon/base/clock.h"
#include "daemon/gpu/gpu.h"
#include "daemon/jobs/jobs.h"
#include "daemon/store/store.h"

/* Even a short job has rows, and a job of a month has only some 43,000. */
enum { FIRST_S = 2, OFTEN_S = 10, OFTEN_ROWS = 60, THEN_S = 60, PACE_S = 5 };

static double span(const struct job_usage *u)
{
    return u->rows == 0 ? FIRST_S : u->rows < OFTEN_ROWS ? OFTEN_S : THEN_S;
}

static void add_gpus(const struct gpus *gpus, int64_t job, struct store_usage *ret)
{
    int known = 0, found = 0;
    double percent = 0;

    ret->gpu = -1;
    ret->gpu_memory = -1;
    for (int i = 0; i < gpus->count; i++) {
        const struct gpu *g = &gpus->all[i];

        if (g->job != job)
            continue;
        if (g->seen.memory_used >= 0)
            ret->gpu_memory = (found++ ? ret->gpu_memory : 0) + g->seen.memory_used;
        if (g->seen.utilisation >= 0) {
            percent += g->seen.utilisation;
            known++;
        }
    }
    if (known > 0)
        ret->gpu = percent / known;
}

/* A span begins when a supervisor is first heard, and again with each later supervisor, as each counts its CPU time
 * anew. */
static void begin(struct job *j, double now)
{
    j->usage.sup = j->sup;
    j->usage.since = now;
    j->usage.cpu_seconds = j->row.cpu_seconds;
}

/* Steps with validation and checkpoints are slower: the pace is the average of all steps. */
static void look_at_pace(struct job *j, double now)
{
    struct job_usage *u = &j->usage;

    if (u->sup != j->sup || j->row.step < u->pace_step)
        u->pace_since = 0;
    if (u->pace_since == 0 && j->row.step > 0) {
        u->pace_since = now;
        u->pace_step = j->row.step;
    }
}

double usage_expected_end(const struct job *j, double now)
{
    const struct job_usage *u = &j->usage;
    int64_t done = j->row.step - u->pace_step;

    if (u->pace_since == 0 || j->row.state != JOB_RUNNING || done <= 0 || now - u->pace_since < PACE_S)
        return INFINITY;
    return now + (double)(j->row.steps - j->row.step) * (now - u->pace_since) / (double)done;
}

static void look(struct jobs *jobs, const struct gpus *gpus, struct job *j, double now)
{
    struct job_usage *u = &j->usage;
    double used = j->row.cpu_seconds - u->cpu_seconds;
    struct store_usage row = { .job = j->row.id, .time = (int64_t)now_s(), .memory = j->rss };

    if (!j->sup || j->heard != j->sup || j->row.state != JOB_RUNNING || j->rss == 0) { /* 0: an older detd-job that does not report it */
        u->sup = NULL;
        return;
    }
    look_at_pace(j, now);
    if (u->sup != j->sup || used < 0) {
        begin(j, now);
        return;
    }
    if (now - u->since < span(u))
        return;
    row.cpu = used / (now - u->since);
    add_gpus(gpus, j->row.id, &row);
    store_usage(jobs->store, &row);
    u->rows++;
    begin(j, now);
}

void usage_tick(struct jobs *jobs, const struct gpus *gpus)
{
    double now = mono_s();
    char trouble[200];

    store_trouble(jobs->store, trouble, sizeof trouble);
    for (int i = 0; i < jobs->count && !trouble[0]; i++)
        look(jobs, gpus, jobs->all[i], now);
}

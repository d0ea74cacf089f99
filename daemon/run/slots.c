#include "daemon/run/slots.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "daemon/gpu/gpu.h"
#include "daemon/jobs/jobs.h"
#include "daemon/run/run.h"
#include "daemon/run/shares.h"

/* A supervisor that only reads the spool of a cancelled job needs no slots, and may take long. They are given back once
 * no process of the job lives. */
bool slots_are_held(const struct job *j)
{
    return j->life.phase != LIFE_IDLE &&
           !(jobs_sure(j)->want == JOB_WANT_CANCEL && j->life.drains > 0 && j->cpu_slots == 0 && !j->row.gpus[0]);
}

int run_cpu_free(const struct runner *r)
{
    int free_slots = r->cpu_slots;

    for (int i = 0; i < r->jobs->count; i++)
        free_slots -= r->jobs->all[i]->cpu_slots;
    return free_slots < 0 ? 0 : free_slots;
}

int slots_of_ranks(const struct runner *r, const struct job *j)
{
    int64_t all = (int64_t)j->row.ranks * j->row.threads;

    return all > r->cpu_slots ? r->cpu_slots : (int)all;
}

struct sched_job slots_view(const struct runner *r, const struct job *j)
{
    bool stays = j->trouble[0] || j->life.phase == LIFE_STUCK; /* it may hold its slots for an unknown time, whatever its deadline */
    bool sent = j->off_gpu || j->yields_to, stops = j->row.state != JOB_STARTING && j->row.state != JOB_RUNNING;

    return (struct sched_job){ .id = j->row.id,
                               .uid = j->row.uid,
                               .free = j->row.admin,
                               .priority = j->row.priority,
                               .granted = r->shares ? shares_granted(r->shares, j->row.uid, j->row.cuda) : 0,
                               .cuda = j->row.cuda,
                               .ranks = j->row.ranks,
                               .ranks_per_gpu = j->row.ranks_per_gpu,
                               .gpus_asked = j->row.gpus_asked,
                               .fixed = j->row.fixed,
                               .threads = j->row.threads,
                               .not_before = j->life.not_before,
                               .backfill = j->row.backfill && !stays,
                               .leaves = !stays && (sent || stops),
                               .lingers = !stays && !sent && j->row.state == JOB_STOPPING && j->row.want != JOB_WANT_CANCEL };
}

struct sched_node slots_node(const struct runner *r)
{
    struct gpu_counts gpus;

    gpus_count(r->gpus, &gpus);
    return (struct sched_node){ .cpu_slots = r->cpu_slots,
                                .cpu_free = run_cpu_free(r),
                                .gpus = gpus.usable,
                                .gpus_free = gpus.free,
                                .gpus_soon = gpus.checking,
                                .user_running = r->user_running,
                                .user_gpus = r->user_gpus };
}

bool slots_holders(const struct runner *r, struct sched_node *node)
{
    struct sched_job *all = calloc((size_t)r->jobs->count + 1, sizeof *all);

    for (int i = 0; all && i < r->jobs->count; i++)
        if (slots_are_held(r->jobs->all[i]))
            all[node->nholders++] = slots_view(r, r->jobs->all[i]);
    node->holders = all;
    return all != NULL;
}

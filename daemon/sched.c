#include "daemon/sched.h"

#include <stdlib.h>

static int by_service(const void *pa, const void *pb)
{
    const struct sched_job *a = pa, *b = pb;

    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

int sched_threads(const struct sched_job *job, const struct sched_node *node)
{
    int share = node->cpu_slots / job->ranks;

    if (job->threads > 0)
        return job->threads;
    return share > 1 ? share : 1;
}

int sched_cpu_need(const struct sched_job *job, const struct sched_node *node)
{
    int64_t need = (int64_t)job->ranks * sched_threads(job, node);

    if (job->cuda)
        return 0;
    return need > node->cpu_slots ? node->cpu_slots : (int)need;
}

int sched_gpu_need(const struct sched_job *job)
{
    int share = job->ranks_per_gpu > 1 ? job->ranks_per_gpu : 1;

    return job->cuda ? (job->ranks + share - 1) / share : 0;
}

int sched_pick(struct sched_job *queue, int n, struct sched_node node, double now, struct sched_grant *ret)
{
    bool blocked[2] = { false, false };
    int count = 0;

    if (n > 1)
        qsort(queue, (size_t)n, sizeof *queue, by_service);
    for (int i = 0; i < n; i++) {
        const struct sched_job *job = &queue[i];
        struct sched_grant grant = { job->id, sched_cpu_need(job, &node), sched_gpu_need(job), sched_threads(job, &node) };

        if (blocked[job->cuda] || job->not_before > now || grant.gpus > node.gpus)
            continue;
        if (grant.cpu_slots > node.cpu_free || grant.gpus > node.gpus_free) {
            blocked[job->cuda] = true;
            continue;
        }
        node.cpu_free -= grant.cpu_slots;
        node.gpus_free -= grant.gpus;
        ret[count++] = grant;
    }
    return count;
}

/* daemon/sched.h - who gets the node's slots. A pure function of queue, slots and clock.
 *
 * A job gets all its slots or none (gang). Higher priority first, then the older job (smaller id). Jobs on GPUs and jobs on the CPU queue up
 * apart, and in each of the two queues nobody overtakes a job that waits for slots. A job whose retry is due later is passed over till then, and
 * one that needs more GPUs than are healthy till they are. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct sched_job {
    int64_t id;
    int priority;
    bool cuda;
    int ranks;
    int ranks_per_gpu; /* at most; 0 counts as 1 */
    int threads;       /* CPU threads of a rank that the job asks for; 0: it shares out the whole node */
    double not_before;
};

struct sched_node {
    int cpu_slots, cpu_free;
    int gpus, gpus_free; /* healthy ones */
};

struct sched_grant {
    int64_t id;
    int cpu_slots, gpus; /* taken from the node; one of the two is 0 */
    int threads;         /* of a rank */
};

/* CPU slots that a job takes: ranks * threads, never more than the node has (more ranks than slots: the whole idle node). 0 for GPU jobs. */
int sched_cpu_need(const struct sched_job *job, const struct sched_node *node);
/* GPUs that a job takes: as many as its ranks need at ranks_per_gpu each. 0 for CPU jobs. */
int sched_gpu_need(const struct sched_job *job);
/* Threads of a rank: what the job asks for, or max(1, slots / ranks). */
int sched_threads(const struct sched_job *job, const struct sched_node *node);
/* Sorts `queue` into the order of service and fills `ret` (room for n) with the jobs that start now. Returns how many. */
int sched_pick(struct sched_job *queue, int n, struct sched_node node, double now, struct sched_grant *ret);

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/job/sched.h - who gets the node's slots. A pure function of queue, slots and clock.
 *
 * A job gets all its slots or none (gang). Higher priority first, then the older job (smaller id). Jobs on GPUs and jobs on the CPU queue up
 * apart. In each of the two queues one that finds too few free slots is a head, and those behind it are let past it (backfill) where they
 * fit into what it cannot use yet; they make room for it, and for any other job ahead of them, once that is all it waits for: they write a
 * checkpoint and are queued again. One that its owner has paused is on its way already, and is given a deadline for it then. So a head starts as soon as if nobody had been let past, but for a checkpoint's time. A job whose retry is due later is passed
 * over till then, by those that make room for it afterwards. One that needs more GPUs than are healthy is passed over till they are, and one whose user
 * has as much as a user may have, root excepted; what a head waits for counts as his. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct sched_job {
    int64_t id;
    uint32_t uid;
    int priority;
    bool cuda;
    int ranks;
    int ranks_per_gpu; /* at most; 0 counts as 1 */
    int threads;       /* CPU threads of a rank that the job asks for; 0: it shares out the whole node */
    double not_before;
    bool waits; /* set by sched_pick(): for slots */
    /* of those that have their slots: */
    bool backfill;     /* it was let past others */
    bool leaves;       /* its slots come free without anybody's doing */
    bool lingers;      /* likewise, and it may take as long as it likes for that */
    int64_t yields_to; /* set by sched_pick(): job that it is to make room for; 0: none */
    double ends;       /* when it has trained all its steps, at its pace; INFINITY: nobody knows */
};

struct sched_node {
    int cpu_slots, cpu_free;
    int gpus, gpus_free;         /* healthy ones */
    int gpus_soon;               /* that a job has left and whose memory is looked at */
    int user_running, user_gpus; /* jobs and GPUs of a user at most; 0: no limit */
    struct sched_job *holders;   /* jobs that have their slots */
    int nholders;
};

struct sched_grant {
    int64_t id;
    int cpu_slots, gpus; /* taken from the node; one of the two is 0 */
    int threads;         /* of a rank */
    bool backfill;       /* it is let past others */
};

/* CPU slots that a job takes: ranks * threads, never more than the node has (more ranks than slots: the whole idle node). 0 for GPU jobs. */
int sched_cpu_need(const struct sched_job *job, const struct sched_node *node);
/* GPUs that a job takes: as many as its ranks need at ranks_per_gpu each. 0 for CPU jobs. */
int sched_gpu_need(const struct sched_job *job);
/* Threads of a rank: what the job asks for, or max(1, slots / ranks). */
int sched_threads(const struct sched_job *job, const struct sched_node *node);
/* Whether a user's limit keeps the job from starting: its name in the configuration, or NULL. *ret_has: how much he has. */
const char *sched_user_limit(const struct sched_job *job, const struct sched_node *node, int *ret_has);
/* When the job of that number in `queue` gets its slots, if those that have theirs end when they are expected to; INFINITY: nobody knows, as where one has to end
 * that has not begun. Sorts `queue` and node.holders. */
double sched_expected(struct sched_job *queue, int n, const struct sched_node *node, int64_t id, double now);
/* Sorts `queue` into the order of service, those that start first, and fills `ret` (room for n) with the jobs that start now. Returns how many.
 * Marks those of node.holders, which may come in another order afterwards, that are to make room. */
int sched_pick(struct sched_job *queue, int n, struct sched_node node, double now, struct sched_grant *ret);

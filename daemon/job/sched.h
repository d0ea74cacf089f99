/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/job/sched.h - the scheduler: decides which jobs get the node's
 * slots. A pure function of queue, slots and clock.
 *
 * A job gets all its slots or none (gang). Higher priority goes first, then the job whose user was granted less lately,
 * then the older job (smaller id). Jobs on GPUs
 * and jobs on the CPU have separate queues. In each queue, a job that finds too few free slots is a head. Jobs behind a
 * head may pass it (backfill) if they fit into slots that the head cannot use yet. They make room for the head, and for
 * any other job ahead of them, once their slots are all that it waits for: they write a checkpoint and are queued
 * again. A backfill job that its owner has paused is leaving already, and then gets a deadline for it. So a head starts
 * as soon as without backfill, apart from the time of a checkpoint.
 *
 * A job whose retry is due later is passed over until then; jobs that pass it make room for it afterwards. A job that
 * needs more GPUs than are healthy is passed over until enough are. A job is also passed over if its user has reached a
 * limit (except admins); the slots that a head waits for count for its user. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct sched_job {
    int64_t id;
    uint32_t uid;
    bool free; /* an admin's: limits of users do not hold for it */
    int priority;
    double granted; /* slot seconds of its user lately, on its kind of slots */
    bool cuda;
    int ranks;
    int ranks_per_gpu; /* at most; 0 counts as 1 */
    int gpus_asked;    /* in all; 0: ranks and ranks_per_gpu decide */
    bool fixed;        /* it cannot make room, so it never runs as backfill */
    int threads;       /* CPU threads of a rank that the job asks for; 0: it divides the whole node */
    double not_before;
    /* of jobs that have their slots: */
    bool backfill;     /* it passed others */
    bool leaves;       /* its slots will come free without further action */
    bool lingers;      /* the same, without a time limit */
    int64_t yields_to; /* set by sched_pick(): the job that it must make room for; 0: no job */
    double ends;       /* when it will have trained all its steps, at its pace; INFINITY: unknown */
};

struct sched_node {
    int cpu_slots, cpu_free;
    int gpus, gpus_free;         /* healthy ones */
    int gpus_soon;               /* GPUs that a job has left, while their memory is checked */
    int user_running, user_gpus; /* limits of jobs and GPUs of a user; 0: no limit */
    struct sched_job *holders;   /* jobs that have their slots */
    int nholders;
};

struct sched_grant {
    int64_t id;
    int cpu_slots, gpus; /* taken from the node; one of the two is 0 */
    int threads;         /* of a rank */
    bool backfill;       /* it passes others */
};

/* Whether a comes before b in the order of service. */
bool sched_is_before(const struct sched_job *a, const struct sched_job *b);
/* CPU slots that a job takes: ranks * threads, but never more than the node has (more ranks than slots: the whole idle
 * node). 0 for GPU jobs. */
int sched_cpu_need(const struct sched_job *job, const struct sched_node *node);
/* GPUs that a job takes: those that it asks for, else enough for its ranks at ranks_per_gpu each. 0 for CPU jobs. */
int sched_gpu_need(const struct sched_job *job);
/* Threads of a rank: the number that the job asks for, or max(1, slots / ranks). */
int sched_threads(const struct sched_job *job, const struct sched_node *node);
/* The configuration's name of the limit of its user that keeps the job from starting; NULL: there is none.
 * *ret_has: the user's present number. */
const char *sched_user_limit(const struct sched_job *job, const struct sched_node *node, int *ret_has);
/* When the job `id` in `queue` gets its slots, if the running jobs end when they are expected to. INFINITY: unknown,
 * for example if a job has to end that has not begun. Sorts `queue` and node.holders. */
double sched_expected(struct sched_job *queue, int n, const struct sched_node *node, int64_t id, double now);
/* Sorts `queue` into the order of service, and fills `ret` (room for n) with the jobs that start now. Returns their
 * number, 0 if memory is lacking. Marks the jobs of node.holders that must make room; it may change the order of
 * node.holders. */
int sched_pick(struct sched_job *queue, int n, struct sched_node node, double now, struct sched_grant *ret);

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/run.h - runs jobs: grants slots, starts supervisors, finds lost
 * supervisors by their locks. Everything runs on the loop. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct events;
struct gpu_node;
struct gpulocks;
struct gpus;
struct job;
struct jobs;
struct launcher;
struct shares;
struct store;

enum { RUN_DRAINED_MAX = 200 };

/* All borrowed. */
struct runner {
    uv_loop_t *loop;
    struct store *store;
    struct jobs *jobs;
    struct gpus *gpus;
    struct gpu_node *gpu_node;
    const struct gpulocks *gpu_locks;
    struct launcher *launcher; /* NULL: no job has a ticket */
    const struct events *events;
    int cpu_slots;                     /* of the node */
    int user_running, user_gpus;       /* sched.h */
    const struct shares *shares;       /* NULL: fair_share = off */
    int64_t log_max;                   /* launch.h */
    char drained[RUN_DRAINED_MAX + 1]; /* why no job is started now, in an admin's words; "": jobs are started */
    double ticked;                     /* when run_tick() was called last; 0: never */
    atomic_bool stopping;              /* nothing is started any more, and ends are left to the next daemon */
};

/* Grants slots to queued jobs and starts their supervisors. */
void run_schedule(struct runner *r);
/* The job's supervisor said hello. */
void run_connected(struct runner *r, struct job *j);
/* The connection of the job's supervisor is closed: its lock is tried. */
void run_disconnected(struct runner *r, struct job *j);
/* launcher.h: no process of a job with a ticket lives. */
void run_scope_is_empty(struct runner *r, int64_t id, bool exited);
/* Once a second: checks deadlines and locks (life.h). */
void run_tick(struct runner *r);
int run_cpu_free(const struct runner *r);
/* After the start of detd: finds the jobs that may have processes. */
void run_adopt(struct runner *r);
/* After that, and when the GPUs are known: jobs with processes take the slots they hold. */
void run_take_slots(struct runner *r);
/* Whether a system daemon has the job without a ticket, as earlier versions stored jobs of root. It never starts such a
 * job. */
bool run_is_ownerless(const struct runner *r, const struct job *j);
/* Writes a sentence about why a job waits: it is queued; or has its slots without a supervisor (job.trouble); or its
 * supervisor cannot go on (job.says). */
void run_why(struct runner *r, const struct job *j, char *ret, size_t size);
/* Number of queued jobs that come before it in the order of service. */
int run_place(const struct runner *r, const struct job *j);
/* Seconds until a queued job starts; INFINITY: not known. */
double run_expected_wait(struct runner *r, const struct job *j);

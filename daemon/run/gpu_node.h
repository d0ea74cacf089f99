/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/gpu_node.h - keeps the known state of the GPUs up to date:
 * decides when to ask the driver, and passes the answers on to jobs, events and the store.
 *
 * The driver is asked soon after the start. It is asked every 10 s while jobs on GPUs run or wait, or a client asked
 * within the last minute; every second while the memory of a job that left is being checked; otherwise every 5 minutes.
 * While no answer is needed, no process is kept in the driver. After a failure the pauses double up to 5 minutes, and
 * nothing is granted until the next answer. */
#pragma once
#include <stdint.h>
#include <uv.h>

#include "daemon/store/store.h"

struct err;
struct events;
struct gpu_node;
struct gpulocks;
struct gpus;
struct jobs;

/* All borrowed. */
struct gpu_node_config {
    uv_loop_t *loop;
    struct store *store;
    struct jobs *jobs;
    struct gpus *gpus;
    const struct events *events;
    const struct gpulocks *locks;
    int deadline_s; /* for an observation */
    /* An observation has ended: jobs with processes must take their GPUs. */
    void (*looked)(void *arg);
    /* Called after `looked` and all consequences of the observation: GPUs may be granted. */
    void (*ready)(void *arg);
    void *arg;
};

/* Loads the stored quarantines. The first tick, or an earlier gpu_node_await(), asks for the first observation. */
int gpu_node_open(const struct gpu_node_config *config, struct gpu_node **ret, struct err *err);
/* Stops asking, and calls all waiting callbacks. Calling it twice, or with NULL, is allowed. */
void gpu_node_stop(struct gpu_node *n);
void gpu_node_free(struct gpu_node *n);
void gpu_node_tick(struct gpu_node *n);

/* Calls fn when the known state is at most age_s old, or the driver has failed to answer; immediately if that is
 * already so. */
void gpu_node_await(struct gpu_node *n, double age_s, void (*fn)(void *arg), void *arg);
/* For GPU jobs that wait: checks whether other daemons' jobs hold the locks of free GPUs. */
void gpu_node_look_at_locks(struct gpu_node *n);
/* Job `job` has given back its GPUs: their memory is checked before the next grant. */
void gpu_node_job_left(struct gpu_node *n, int64_t job);
/* Lifts a quarantine. `done` runs when that is durable. Returns an error at once: ERR_NOTFOUND, ERR_STATE. */
int gpu_node_release(struct gpu_node *n, const char *uuid, store_done *done, void *arg, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/gpu_node.h - keeps what is known of the GPUs true: when the driver is asked, what follows from its answers for jobs, events and the store.
 *
 * The driver is asked soon after the start; every 10 s while jobs on GPUs run or wait, or a client asked within the last minute; every
 * second while the memory of a job that left is being checked; else every 5 minutes. While nobody needs it, no process is kept in the
 * driver. After a failure the pauses double up to 5 minutes, and nothing is granted till the next answer. */
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
    int deadline_s; /* of a look */
    /* A look has ended: jobs with processes take what they hold. */
    void (*looked)(void *arg);
    /* Then, once all that follows was done: GPUs may be granted. */
    void (*ready)(void *arg);
    void *arg;
};

/* Reads what is stored of quarantined GPUs. The first tick, or whoever waits before, asks for the first look. */
int gpu_node_open(const struct gpu_node_config *config, struct gpu_node **ret, struct err *err);
/* Ends the asking: whoever waits is called. Calling it twice, or with NULL, is allowed. */
void gpu_node_stop(struct gpu_node *n);
void gpu_node_free(struct gpu_node *n);
void gpu_node_tick(struct gpu_node *n);

/* Calls fn when what is known is at most age_s old, or the driver has failed to answer; at once where it is so already. */
void gpu_node_await(struct gpu_node *n, double age_s, void (*fn)(void *arg), void *arg);
/* Jobs on GPUs wait: whether other daemons' jobs hold the locks of free ones. */
void gpu_node_look_at_locks(struct gpu_node *n);
/* Job `job` has given back what it held: the memory of its GPUs is checked before the next grant. */
void gpu_node_job_left(struct gpu_node *n, int64_t job);
/* Lifts a quarantine. `done` runs when that is durable; an error is returned at once: ERR_NOTFOUND, ERR_STATE. */
int gpu_node_release(struct gpu_node *n, const char *uuid, store_done *done, void *arg, struct err *err);

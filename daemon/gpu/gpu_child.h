/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/gpu/gpu_child.h - the process that asks the driver (gpu_probe.h), on
 * the side of detd: it is started for an observation, and killed when it does not answer.
 *
 * A process that hangs in the driver may survive its SIGKILL as long as the driver hangs. It is left alone, and no
 * other process is started before it is gone. All callbacks come from the loop, never from within a call of these
 * functions. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct err;
struct gpu_child;
struct gpu_seen;

struct gpu_child_config {
    uv_loop_t *loop;
    unsigned deadline_ms; /* for an observation, the start of the process included */
    void (*seen)(void *arg, const struct gpu_seen *device);
    void (*xid)(void *arg, const char *uuid, int64_t number);
    /* The observation has ended: every device was reported. */
    void (*done)(void *arg);
    /* The observation, or the process between two observations, has failed. absent: because this machine has no
     * driver. */
    void (*failed)(void *arg, bool absent, const char *why);
    void *arg;
};

/* *config is copied. NULL: out of memory. */
struct gpu_child *gpu_child_new(const struct gpu_child_config *config);
/* Asks for an observation; `done` or `failed` follows. Does nothing while one is in progress. */
void gpu_child_look(struct gpu_child *c);
bool gpu_child_is_looking(const struct gpu_child *c);
/* Ends an idle process, since it keeps the driver from being unloaded. */
void gpu_child_rest(struct gpu_child *c);
/* Kills the process; no further callback comes. The memory is freed when libuv has closed its handles. NULL is
 * allowed. */
void gpu_child_free(struct gpu_child *c);

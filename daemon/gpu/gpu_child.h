/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/gpu/gpu_child.h - the process that asks the driver (gpu_probe.h), seen from detd: started when a look is wanted, killed when it does
 * not answer.
 *
 * A process that hangs in the driver may survive its SIGKILL for as long as the driver hangs. It is left to itself, and no other is started
 * before it is gone. All callbacks come from the loop, never from within a call of these functions. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct err;
struct gpu_child;
struct gpu_seen;

struct gpu_child_config {
    uv_loop_t *loop;
    unsigned deadline_ms; /* of a look, the start of the process included */
    void (*seen)(void *arg, const struct gpu_seen *device);
    void (*xid)(void *arg, const char *uuid, int64_t number);
    /* The look has ended: every device was seen. */
    void (*done)(void *arg);
    /* The look, or the process between two looks, has failed. absent: since there is no driver on this machine. */
    void (*failed)(void *arg, bool absent, const char *why);
    void *arg;
};

/* *config is copied. NULL: out of memory. */
struct gpu_child *gpu_child_new(const struct gpu_child_config *config);
/* Asks for a look; `done` or `failed` follows. Nothing is done while one is under way. */
void gpu_child_look(struct gpu_child *c);
bool gpu_child_is_looking(const struct gpu_child *c);
/* Lets an idle process go: it keeps the driver from being unloaded. */
void gpu_child_rest(struct gpu_child *c);
/* Kills the process; no callback comes any more. Memory goes when libuv has closed its handles. NULL is allowed. */
void gpu_child_free(struct gpu_child *c);

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/daemon.h - the parts of a running detd, tied together; only daemon.c
 * and methods*.c see all of it. Everything here belongs to the loop's thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/jobs/audit.h"
#include "daemon/base/config.h"
#include "daemon/jobs/event.h"
#include "daemon/gpu/gpu.h"
#include "daemon/jobs/jobs.h"
#include "daemon/run/removal.h"
#include "daemon/run/retention.h"
#include "daemon/run/run.h"
#include "daemon/run/shares.h"
#include "daemon/base/turns.h"
#include "daemon/socket/wire.h"
#include "proto/err.h"
#include "proto/host/gpulock.h"

struct conns;
struct errands;
struct gpu_node;
struct ingest;
struct launcher;
struct store;

struct daemon {
    uv_loop_t *loop;
    struct config cfg;
    struct wires wires;
    struct store *store;
    struct events events;
    struct audit audit;
    struct jobs jobs;
    struct gpus gpus;
    struct gpulocks gpu_locks;
    struct runner runner;
    struct removals removals;
    struct retention retention;
    struct shares shares;
    struct gpu_node *gpu_node;
    struct launcher *launcher; /* NULL: jobs run as our own user; always NULL in a private daemon */
    struct conns *conns;
    struct ingest *ingest;
    struct turns turns;    /* of queries, and of other work of requests that needs a thread */
    struct errands *names; /* of users, which may come over a network */
    char jobs_dir[CONFIG_PATH_MAX + 8];
    char admin_socket[CONFIG_SOCKET_MAX + 1]; /* "": no socket for admins */
    int tier;                                 /* of new jobs */
    bool private, everyone_reads, stopping;
    bool plugin; /* libdetd-cuda.so lies beside the program */
    gid_t admin_gid;
    int state_lock;          /* descriptor */
    struct stat database[2]; /* of detd.db and its log, when they were opened */
    double started;          /* on the monotonic clock */
    uint64_t last_activity;  /* requests + rows at the last tick; equal for a while: idle */
    int idle_ticks;
    uv_timer_t tick;
    uv_signal_t sigterm, sigint, sighup;
    struct err failure; /* why it stopped by itself; code 0: it did not */
};

/* Runs until SIGTERM or SIGINT. Returns 0, or the reason why it could not start or go on: its state folder was
 * removed. */
int daemon_run(const struct config *cfg, struct err *err);

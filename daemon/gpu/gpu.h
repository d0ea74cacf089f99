/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/gpu/gpu.h - the GPUs of the node as detd knows them, and their
 * states. Pure: observations and the time are arguments.
 *
 * A GPU is granted only while it is free: no job holds it, it is healthy, no process uses it, and its memory was
 * verified free since the last job on it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/job/job.h"

struct err;

enum { GPU_MAX = 64, GPU_PROCESSES = 8, GPU_PROCESS_NAME = 32, GPU_NAME = 120, GPU_REASON = 240, GPU_DRIVER = 40 };
/* Within so many seconds of a job's end, its GPUs must be as empty as before the job. An idle driver keeps some memory
 * for itself. */
enum { GPU_LEAVE_S = 10 };
#define GPU_SLACK_BYTES ((int64_t)256 << 20)
#define GPU_IDLE_BYTES  ((int64_t)1 << 30)

#define GPU_STATES(X)                                                                                      \
    X(FREE, "free")                                                                                        \
    X(GRANTED, "granted")         /* to a job */                                                           \
    X(CHECKING, "checking")       /* after a job's end */                                                  \
    X(FOREIGN, "foreign")         /* a foreign process uses it, or a job of another daemon has its lock */ \
    X(DIVIDED, "divided")         /* its MIG instances are granted, not it */                              \
    X(QUARANTINED, "quarantined") /* not granted until an admin releases it */
#define X(ident, name) GPU_##ident,
enum gpu_state { GPU_STATES(X) GPU_STATE_COUNT };
#undef X

struct gpu_process {
    int64_t pid, memory_bytes; /* -1: not told */
    long session;              /* -1: this machine (or container) cannot see the process */
    char name[GPU_PROCESS_NAME];
};

/* A device in one observation. Numbers that the driver does not give are -1. */
struct gpu_seen {
    char uuid[JOB_UUID_MAX + 1], name[GPU_NAME], driver[GPU_DRIVER];
    int index; /* in PCI order; an instance has the index of its GPU */
    bool divided;
    int64_t memory_bytes, memory_used, ecc_errors; /* uncorrected ones since the driver was loaded */
    int utilisation, temperature, power_w;         /* percent, degrees Celsius */
    int nprocesses;                                /* -1: not known */
    struct gpu_process processes[GPU_PROCESSES];
};

struct gpu {
    struct gpu_seen seen;
    int64_t job;     /* job that holds it; 0: no job */
    int64_t left_by; /* job whose memory must be freed before the next grant; 0: no job */
    double left_at;
    char quarantine[GPU_REASON], foreign[GPU_REASON]; /* why; "": not in that state */
    char locked[GPU_REASON];                          /* the same: locked by a job of another daemon, or its lock cannot be taken */
    double quarantined;                               /* since when */
    int64_t idle_bytes;                               /* in use while no process used it; -1: never observed */
};

struct gpus {
    struct gpu all[GPU_MAX];
    int count;
    bool known;        /* a first observation has ended, well or not */
    char trouble[256]; /* why the driver does not answer; then no GPU is granted */
    char absent[256];  /* why this node has no GPUs */
};

/* Parses a line of the probe about a device. ERR_PROTO: the line is malformed. */
int gpu_parse(const char *line, struct gpu_seen *ret, struct err *err);

enum gpu_state gpu_state(const struct gpu *g);
const char *gpu_state_name(enum gpu_state s);
/* Why the GPU is not free, in words; "" if it is free. */
void gpu_reason(const struct gpu *g, char *ret, size_t size);

struct gpu *gpus_find(struct gpus *all, const char *uuid);
/* Adds a new device. NULL: no room. */
struct gpu *gpus_add(struct gpus *all, const struct gpu_seen *seen);
void gpus_remove(struct gpus *all, struct gpu *g);

/* Applies an observation of a known device. session: that of the job that holds or left it, 0: not known. */
void gpu_take(struct gpu *g, const struct gpu_seen *seen, long session, double now);
/* For a device that is missing in an observation. True: the caller must forget it (a MIG instance without a job);
 * false: it is quarantined. */
bool gpu_vanish(struct gpu *g, double now);
/* For error `xid` of the driver. True: the GPU is quarantined for it. */
bool gpu_xid(struct gpu *g, int64_t xid, double now);
/* The job has given the GPU back. */
void gpu_leave(struct gpu *g, double now);

struct gpu_counts {
    int devices; /* devices that can be granted in principle: all but the divided ones */
    int usable;  /* the part of them that is not quarantined */
    int free, foreign, quarantined, checking;
};
void gpus_count(const struct gpus *all, struct gpu_counts *ret);

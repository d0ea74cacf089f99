/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/gpu/gpu.h - the GPUs of the node as detd knows them, and what may be done with each. Pure: what was seen and the time are arguments.
 *
 * A GPU is granted only while it is free: held by no job, healthy, used by nobody, and its memory verified free since the last job on it.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/job/job.h"

struct err;

enum { GPU_MAX = 64, GPU_PROCESSES = 8, GPU_PROCESS_NAME = 32, GPU_NAME = 120, GPU_REASON = 240, GPU_DRIVER = 40 };
/* A job's GPUs must be as empty as they were within so many seconds of its end. An idle driver keeps some memory for itself. */
enum { GPU_LEAVE_S = 10 };
#define GPU_SLACK_BYTES ((int64_t)256 << 20)
#define GPU_IDLE_BYTES  ((int64_t)1 << 30)

#define GPU_STATES(X)                                                                                  \
    X(FREE, "free")                                                                                    \
    X(GRANTED, "granted")         /* to a job */                                                       \
    X(CHECKING, "checking")       /* after a job's end */                                              \
    X(FOREIGN, "foreign")         /* somebody else uses it, or a job of another daemon has its lock */ \
    X(DIVIDED, "divided")         /* its MIG instances are granted, not it */                          \
    X(QUARANTINED, "quarantined") /* not to be trusted until an admin says so */
#define X(ident, name) GPU_##ident,
enum gpu_state { GPU_STATES(X) GPU_STATE_COUNT };
#undef X

struct gpu_process {
    int64_t pid, memory_bytes; /* -1: not told */
    long session;              /* -1: no process that this machine (or container) can see */
    char name[GPU_PROCESS_NAME];
};

/* A device as one look shows it. Numbers that the driver does not tell are -1. */
struct gpu_seen {
    char uuid[JOB_UUID_MAX + 1], name[GPU_NAME], driver[GPU_DRIVER];
    int index; /* in PCI order; an instance has that of its GPU */
    bool divided;
    int64_t memory_bytes, memory_used, ecc_errors; /* uncorrected ones since the driver was loaded */
    int utilisation, temperature, power_w;         /* percent, degrees Celsius */
    int nprocesses;                                /* -1: not told */
    struct gpu_process processes[GPU_PROCESSES];
};

struct gpu {
    struct gpu_seen seen;
    int64_t job;     /* that holds it; 0: none */
    int64_t left_by; /* job whose memory must go before the next grant; 0: none */
    double left_at;
    char quarantine[GPU_REASON], foreign[GPU_REASON]; /* why; "": not so */
    char locked[GPU_REASON];                          /* likewise: by a job of another daemon, or by what lies in the lock's place */
    double quarantined;                               /* since */
    int64_t idle_bytes;                               /* in use while nobody used it; -1: never seen so */
};

struct gpus {
    struct gpu all[GPU_MAX];
    int count;
    bool known;        /* a first look has ended, well or not */
    char trouble[256]; /* why the driver does not answer; then nothing is granted */
    char absent[256];  /* why there are none */
};

/* One line of the probe about a device. ERR_PROTO: it is none. */
int gpu_parse(const char *line, struct gpu_seen *ret, struct err *err);

enum gpu_state gpu_state(const struct gpu *g);
const char *gpu_state_name(enum gpu_state s);
/* Why it is not free, in words; "" where it is. */
void gpu_reason(const struct gpu *g, char *ret, size_t size);

struct gpu *gpus_find(struct gpus *all, const char *uuid);
/* A device seen for the first time. NULL: no room. */
struct gpu *gpus_add(struct gpus *all, const struct gpu_seen *seen);
void gpus_remove(struct gpus *all, struct gpu *g);

/* What a look shows of a device that is known. session: that of the job that holds or left it, 0: not known. */
void gpu_take(struct gpu *g, const struct gpu_seen *seen, long session, double now);
/* A look did not show it. True: forget it (a MIG instance that nobody holds); otherwise it is quarantined. */
bool gpu_vanish(struct gpu *g, double now);
/* Error `xid` of the driver. True: the GPU is quarantined for it. */
bool gpu_xid(struct gpu *g, int64_t xid, double now);
/* The job gave it back. */
void gpu_leave(struct gpu *g, double now);

struct gpu_counts {
    int devices; /* that could be granted if nothing stood against it: all but the divided ones */
    int usable;  /* of them, not quarantined */
    int free, foreign, quarantined, checking;
};
void gpus_count(const struct gpus *all, struct gpu_counts *ret);

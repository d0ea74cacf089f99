/* daemon/daemon.h - the parts of a running detd, tied together. Everything here belongs to the loop's thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/config.h"
#include "daemon/gpu.h"
#include "daemon/jobs.h"
#include "daemon/wire.h"
#include "proto/err.h"

struct conns;
struct gpu_node;
struct ingest;
struct store;

struct daemon {
    uv_loop_t *loop;
    struct config cfg;
    struct wires wires;
    struct store *store;
    struct jobs jobs;
    struct gpus gpus;
    struct gpu_node *gpu_node;
    struct conns *conns;
    struct ingest *ingest;
    char jobs_dir[CONFIG_PATH_MAX + 8];
    int cpu_slots;
    int tier; /* of new jobs */
    bool private, everyone_reads, stopping;
    bool plugin; /* libdetd-cuda.so lies beside the program */
    gid_t admin_gid;
    int state_lock; /* descriptor */
    double started;
    uint64_t requests, rows;
    uint64_t last_activity; /* requests + rows at the last tick; equal for a while: idle */
    int idle_ticks;
    uv_timer_t tick;
    uv_signal_t sigterm, sigint;
    struct err failure; /* why it stopped by itself; code 0: it did not */
};

/* Runs until SIGTERM or SIGINT. Returns 0, or why it could not start or go on: its state folder was removed. */
int daemon_run(const struct config *cfg, struct err *err);

double now_s(void);  /* Unix time: for what is stored and shown */
double mono_s(void); /* of a clock that nobody sets: for pauses and deadlines */
/* Tells subscribers of an event that the store gets by another way. */
void daemon_tell_event(struct daemon *d, int64_t job, const char *level, const char *kind, const char *text, double time);
/* An event of a job (0: of the node): stored, and told to subscribers. */
void daemon_event(struct daemon *d, int64_t job, const char *level, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

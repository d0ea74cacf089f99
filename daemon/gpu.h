/* daemon/gpu.h - the GPUs of the node. detd never loads a driver: a child of its own, `detd --probe-gpus`, asks NVML and prints JSON lines. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/job.h"

struct err;

enum { GPU_MAX = JOB_GPUS_MAX, GPU_PROBE_MS = 15000 };

struct gpu {
    char uuid[JOB_UUID_MAX + 1], name[96];
    int64_t memory_bytes;
    int64_t job; /* 0: free */
};

struct gpus {
    struct gpu all[GPU_MAX];
    int count;
    char trouble[256]; /* why the probe failed, "" otherwise */
};

/* The child: prints {"uuid","name","memory_bytes"} a line for what NVML sees and CUDA_VISIBLE_DEVICES allows. Returns the exit status. */
int gpu_probe_main(void);
/* Starts the child; `done` runs on the loop once, with what it said before its deadline. No NVIDIA device file: at once, without a child. */
void gpu_probe(uv_loop_t *loop, void (*done)(void *arg, const struct gpus *found), void *arg);
/* One line of the child. */
int gpu_parse(const char *line, struct gpu *ret, struct err *err);

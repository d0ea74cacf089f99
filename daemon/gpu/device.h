/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/gpu/device.h - chooses the device and precision of a job: decides
 * `auto`, and refuses devices that this node does not have. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "daemon/gpu/gpu.h"

struct err;
struct jobspec;

enum { DEVICE_TEXT = 500 };

/* The state of the node when the request came. */
struct device_node {
    struct gpu_counts gpus;
    char why_none[256]; /* reason for the lack of GPUs; "": not known */
    bool plugin;        /* the plugin for GPUs is there */
    bool bf16_unit;     /* the CPU has one */
};

/* Decides the two keys.
 * - precision auto: bf16 on GPUs, and on CPUs with a unit for it, otherwise fp32. Afterwards
 *   spec->run_precision is not auto.
 * - program.gpus of a program: as many GPUs as ranks on a node with GPUs, else 0; no plugin is needed.
 * - device auto: GPUs if there are enough of them and the plugin is there. A GPU in use, also by foreign processes,
 *   counts, since it will be free again. A quarantined GPU counts only if the user asked for GPUs: then the job waits
 *   for an admin. Afterwards spec->run_device is cuda or cpu.
 *
 * `note` says how auto was decided, "": no key was auto. ERR_INPUT names the key. */
int device_resolve(struct jobspec *spec, const struct device_node *node, char note[DEVICE_TEXT], struct err *err);

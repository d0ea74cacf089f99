/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/gpu/device.h - on what a job runs: `auto` decided, and what this node does not have refused. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "daemon/gpu/gpu.h"

struct err;
struct jobspec;

enum { DEVICE_TEXT = 500 };

/* The node, when the request came. */
struct device_node {
    struct gpu_counts gpus;
    char why_none[256]; /* "": not known */
    bool plugin;        /* there is something to use GPUs with */
    bool bf16_unit;     /* of the CPU */
};

/* precision auto: bf16 on GPUs, and on CPUs that have a unit for it, else fp32; afterwards spec->run_precision is one of them.
 * device auto: GPUs where there are enough of them and something to use them with. One in use, or in foreign use, counts: it will be free again. One that is
 * quarantined does not, unless the user asked for GPUs: then the job waits for an admin. Afterwards spec->run_device is cuda or cpu; `note` tells how
 * either was decided, "": it was not asked for. ERR_INPUT names the key. */
int device_resolve(struct jobspec *spec, const struct device_node *node, char note[DEVICE_TEXT], struct err *err);

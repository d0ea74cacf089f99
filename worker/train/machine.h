/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/machine.h - the devices and connections of a rank: queues of
 * its device, links to the other ranks, reports, the progress page. */
#pragma once
#include "worker/core/stress.h"

struct comm;
struct device;
struct err;
struct jobspec;
struct progress;
struct report;
struct report_go;
struct trainer_options;

struct machine {
    /* queues of one backend: computes; adds gradients of other ranks; carries batches */
    struct device *dev, *side, *carrier;
    struct comm *comm; /* over host memory */
    /* over device memory; comm itself on a device with memory that the host sees */
    struct comm *link;
    struct report *report;
    struct progress *progress;
    const struct jobspec *spec;
    const struct trainer_options *opt;
    struct stress forced;
    const struct stress *stress; /* errand.stress; NULL: off */
};

/* Opens the device, says hello, waits for detd-job's answer and meets the other ranks. *ret_go: that answer. On failure
 * machine_close() must still be called; open parts may serve to report the failure before. spec and opt are
 * borrowed. */
int machine_open(struct machine *m, const struct jobspec *spec, const struct trainer_options *opt, struct report_go *ret_go,
                 struct err *err);
/* The struct must have been zero before machine_open(). */
void machine_close(struct machine *m);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/machine.h - what a rank works on and talks over: queues of its device, links to the other ranks, reports, the progress page. */
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
    struct device *dev, *side, *carrier; /* queues of one backend: computes; adds gradients of other ranks; carries batches */
    struct comm *comm;                   /* over host memory */
    struct comm *link;                   /* over device memory; on a device whose memory the host sees it is comm itself */
    struct report *report;
    struct progress *progress;
    const struct jobspec *spec;
    const struct trainer_options *opt;
    struct stress forced;
    const struct stress *stress; /* errand.stress; NULL: off */
};

/* Opens the device, says hello, waits for detd-job's word and meets the other ranks. *ret_go: that word. On failure machine_close() closes what there
 * is, which may already serve to report it. spec and opt are borrowed. */
int machine_open(struct machine *m, const struct jobspec *spec, const struct trainer_options *opt, struct report_go *ret_go,
                 struct err *err);
/* Of a struct that was zero before machine_open(). */
void machine_close(struct machine *m);

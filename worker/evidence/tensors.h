/* SPDX-License-Identifier: Apache-2.0 */ /* worker/evidence/tensors.h - hashes of every gradient and parameter of a step, computed on the device where the numbers pass by anyway: gradients as they
 * are added up, each rank those of its own chunk; weights as they are written, each rank all of them. Ten launches or fewer a step, and no wait. */
#pragma once
#include <stdint.h>

#include "proto/hash/hash.h"

struct device;
struct err;
struct gradients;
struct model;
struct optimizer;
struct tensors;

/* What a rank has of a step, in host memory: [model->nparams] each. */
struct tensor_hashes {
    const struct hash128 *gradient; /* of this rank's part: those of all ranks add up to the tensor's. Zero where it does not train */
    const struct hash128 *weight;
};

/* Makes the optimizer hash what it writes. Gradients were opened to hash theirs. Everything is borrowed. Caller closes, before the optimizer's next step. */
int tensors_open(struct device *dev, const struct model *model, const struct gradients *gradients, struct optimizer *optimizer,
                 struct tensors **ret_tensors, struct err *err);
/* NULL is nothing. */
void tensors_close(struct tensors *t);
/* Hashes all weights as they are now, and waits: before the first step. *ret: [model->nparams] until the next tensors_take(). */
int tensors_begin(struct tensors *t, const struct hash128 **ret_weights, struct err *err);
/* After the update and all else that writes parameters was queued: the step's hashes start on their way. */
int tensors_send(struct tensors *t, struct err *err);
/* Waits until what was sent last is there. *ret until the next tensors_send(). */
int tensors_take(struct tensors *t, struct tensor_hashes *ret, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/evidence/tensors.h - hashes of every gradient and parameter of a
 * step, computed on the device when the numbers pass by anyway. Gradients are hashed as they are added up, each rank
 * its own chunk; weights as they are written, each rank all of them. Ten launches or fewer a step, and no wait. */
#pragma once
#include <stdint.h>

#include "proto/hash/hash.h"

struct device;
struct err;
struct gradients;
struct model;
struct optimizer;
struct tensors;

/* A rank's hashes of a step, in host memory: [model->nparams] each. */
struct tensor_hashes {
    /* of this rank's part: the parts of all ranks add up to the tensor's hash. Zero for a parameter that does not
     * train */
    const struct hash128 *gradient;
    const struct hash128 *weight;
};

/* Makes the optimizer hash the weights it writes. Gradients must have been opened with hashes. Everything is borrowed.
 * Caller closes, before the optimizer's next step. */
int tensors_open(struct device *dev, const struct model *model, const struct gradients *gradients, struct optimizer *optimizer,
                 struct tensors **ret_tensors, struct err *err);
/* NULL is ignored. */
void tensors_close(struct tensors *t);
/* Hashes all weights in their present state, and waits: before the first step. *ret: [model->nparams] until the next
 * tensors_take(). */
int tensors_begin(struct tensors *t, const struct hash128 **ret_weights, struct err *err);
/* To be called after the update and all other writes of parameters were queued: starts sending the step's hashes. */
int tensors_send(struct tensors *t, struct err *err);
/* Waits until the hashes sent last have arrived. *ret is valid until the next tensors_send(). */
int tensors_take(struct tensors *t, struct tensor_hashes *ret, struct err *err);

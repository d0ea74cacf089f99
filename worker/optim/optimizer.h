/* SPDX-License-Identifier: Apache-2.0 */ /* worker/optim/optimizer.h - turns a gradient into a step: the kinds of
 * optimizers, their arrays for each parameter, and the parts of a step that stay on the device: the gradient's length,
 * whether it is finite, the moving averages of the weights.
 *
 * A new optimizer: docs/extending.md. */
#pragma once
#include <stdint.h>

#include "worker/ops/optim.h"

struct ema;
struct err;
struct jobspec;
struct optimizer;
struct gradients;

struct optimizer_kind {
    const char *name;                /* as in train.optimizer */
    const char *state[OPTIM_STATES]; /* names of its arrays for a parameter, in checkpoints: "<name>.<parameter>" */
    /* Queues step t, counted from 1, of all items. */
    int (*step)(struct device *dev, const struct jobspec *spec, int64_t t, const struct optim_item *items, int nitems,
                const struct clip *clip, struct err *err);
};

extern const struct optimizer_kind optimizer_sgd, optimizer_adam, optimizer_adamw;
/* The kind of that name, or NULL. */
const struct optimizer_kind *optimizer_kind_of(const char *name);

/* For the parameters that train. Arrays start as zeros, averages (train.ema > 0) as the weights. groups: by
 * param.group. spec, params and groups stay the caller's and must outlive the optimizer; so must the device.
 * ERR_DEVICE: out of memory, names the parameter; ERR_UNSUPPORTED: the optimizer is unknown. */
int optimizer_open(struct device *dev, const struct jobspec *spec, struct param *const *params, int nparams,
                   const struct param_group *groups, struct optimizer **ret_optimizer, struct err *err);
void optimizer_close(struct optimizer *o);

/* Queues step t, counted from 1: with the gradient of `from` times `weight`, clipped, at the rate lr times the
 * group's. A gradient that is not finite changes nothing but the versions of the parameters; t counts such steps too.
 * Does not wait. */
int optimizer_step(struct optimizer *o, const struct gradients *from, double weight, float lr, int64_t t, struct err *err);
/* From now on a step leaves hashes of the weights it writes: the hashes of a parameter's blocks at blocks[param.index],
 * in device memory. */
void optimizer_hash(struct optimizer *o, struct hash128 *const *blocks);
/* Device memory, for other writers of the step: not 0 = the step is skipped. */
const int32_t *optimizer_skip(const struct optimizer *o);
/* Waits until the last step's gradient has been examined, and returns the result. */
int optimizer_found(struct optimizer *o, struct clip *ret, struct err *err);

/* NULL: no averages are kept. */
struct ema *optimizer_ema(const struct optimizer *o);

/* An array that a checkpoint holds. */
struct optimizer_array {
    const char *of; /* name of the state */
    const struct param *param;
    float *data; /* device memory, [param->count] */
};
/* Array i of all, state after state in the order of the parameters; false: there are no more. */
bool optimizer_array(const struct optimizer *o, int i, struct optimizer_array *ret);

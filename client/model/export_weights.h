/* SPDX-License-Identifier: Apache-2.0 */ /* client/model/export_weights.h - the other half of export: the weights of a job as a file for other programs, which detd-worker writes. */
#pragma once
#include <stdint.h>

struct context;

struct export_weights {
    const char *form, *out, *checkpoint; /* checkpoint NULL: the best */
};

/* Returns an exit code, after complaining where it is not 0. */
int export_weights(struct context *ctx, int64_t id, const struct export_weights *w);

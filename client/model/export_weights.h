/* SPDX-License-Identifier: Apache-2.0 */ /* client/model/export_weights.h - the part of export that writes the weights
 * of a job for other programs; detd-worker writes the file. */
#pragma once
#include <stdint.h>

struct context;

struct export_weights {
    const char *form, *out, *checkpoint; /* checkpoint NULL: the best */
};

/* Returns 0, or another exit code after complaining. */
int export_weights(struct context *ctx, int64_t id, const struct export_weights *w);

/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/best.h - the best values of a job, by what detd has stored of it. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct context;

/* The metric that a list shows: of what is evaluated the one that is looked at first. */
struct best {
    const char *metric; /* static; NULL: it has none */
    double value;
    int64_t step;
};

/* Of its validations so far, once something was asked of detd by ctx. 0 or an exit code after complaining. */
int best_metric(struct context *ctx, int64_t job, struct best *ret);
/* The lowest loss of that split and term; *ret.metric NULL where there is none. */
int best_loss(struct context *ctx, int64_t job, const char *split, const char *term, struct best *ret);

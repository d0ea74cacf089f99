/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/best.h - the best values of a job, from the values stored in
 * detd. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct context;

struct best {
    const char *metric; /* borrowed; NULL: there is no value */
    double value;
    int64_t step;
};

/* The best value in the validations of a job so far, of the metric that detd chose. Lives as long as the job. */
struct best best_metric(const json_t *job);
/* The lowest loss of that split and term; *ret.metric is NULL if there is no loss. */
int best_loss(struct context *ctx, int64_t job, const char *split, const char *term, struct best *ret);

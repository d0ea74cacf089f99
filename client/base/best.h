/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/best.h - the best values of a job, from the values stored in
 * detd. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct context;

/* The metric in lists: the most important one of the metrics that the job has. */
struct best {
    const char *metric; /* static; NULL: the job has no metric */
    double value;
    int64_t step;
};

/* The best value in the job's validations so far. ctx must have made a call to detd before. 0, or an exit code after
 * complaining. */
int best_metric(struct context *ctx, int64_t job, struct best *ret);
/* The lowest loss of that split and term; *ret.metric is NULL if there is no loss. */
int best_loss(struct context *ctx, int64_t job, const char *split, const char *term, struct best *ret);

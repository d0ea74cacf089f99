/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/curve.h - loss rows of a job, read from detd page by page, and
 * curves to draw. */
#pragma once
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct context;
struct plot;

struct curve_query {
    int64_t job;
    const char *split, *term; /* NULL: all */
    int64_t from;             /* first step; 0: all */
    int64_t to;               /* last step; 0: all */
    int64_t points;           /* approximate number of rows of each curve; 0: every row */
};
/* Calls fn for each row in order. 0, or an exit code after complaining. If fn returns non-zero, it stops and returns
 * that value. */
int curve_rows(struct context *ctx, const struct curve_query *q, int (*fn)(void *arg, const json_t *row), void *arg);

struct curve {
    double *x, *y;
    size_t n;
};
/* The values of one split and term over the step; the caller frees with curve_free(). Rows that are not finite become
 * NAN. */
int curve_fetch(struct context *ctx, const struct curve_query *q, struct curve *ret);
void curve_free(struct curve *c);
/* Marks the changes of the deterministic tier in a plot. job: an object of job.get; it must outlive the plot. */
void curve_tiers(const json_t *job, struct plot *p);

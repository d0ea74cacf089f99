/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/curve.h - loss rows of a job as they come from detd, page by page, and curves to draw. */
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
    int64_t points;           /* about so many rows of each curve; 0: every row */
};
/* Calls fn for each row in order. 0, or an exit code after complaining; fn may stop it by returning non-zero, which is returned. */
int curve_rows(struct context *ctx, const struct curve_query *q, int (*fn)(void *arg, const json_t *row), void *arg);

struct curve {
    double *x, *y;
    size_t n;
};
/* The values of one split and term against the step; the caller frees with curve_free(). Rows that are not finite become NAN. */
int curve_fetch(struct context *ctx, const struct curve_query *q, struct curve *ret);
void curve_free(struct curve *c);
/* Marks in a plot where the deterministic tier changed, of a job object of job.get, which must outlive the plot. */
void curve_tiers(const json_t *job, struct plot *p);

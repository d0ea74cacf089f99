/* SPDX-License-Identifier: Apache-2.0 */ /* client/proof/verdict.h - what a job that verifies found, for people and for scripts. */
#pragma once
#include <jansson.h>
#include <stdint.h>

struct context;
struct run;

struct verdict {
    const struct run *of;        /* the run that is verified; this, id and recorded are the caller's */
    int64_t id;                  /* of the job that verifies */
    int64_t recorded;            /* steps that the run has evidence of */
    const char *state, *reason;  /* of the job, borrowed from it */
    const char *outcome;         /* "equal", "differs", or the state */
    long long first, last, step; /* equal: first .. last; differs: step */
    const char *rest;            /* differs: what does; equal: "", or how less than all was compared */
    char *identity;              /* what the bits depend on and is another than in that run, as the job told; NULL: nothing */
};

/* job: as it ended; it must outlive *v. 0 with a verdict to be freed, or an exit code after complaining: nothing to be freed. */
int verdict_take(struct context *ctx, const json_t *job, struct verdict *v);
void verdict_free(struct verdict *v);
/* The exit code that belongs to it. */
int verdict_code(const struct verdict *v);
void verdict_print(const struct verdict *v);
void verdict_print_json(const struct verdict *v);

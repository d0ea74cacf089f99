/* SPDX-License-Identifier: Apache-2.0 */ /* client/proof/verdict.h - the result of a verifying job, for people and for
 * scripts. */
#pragma once
#include <jansson.h>
#include <stdint.h>

struct context;
struct run;

struct verdict {
    const struct run *of;        /* the verified run; this, id and recorded are set by the caller */
    int64_t id;                  /* of the verifying job */
    int64_t recorded;            /* number of steps with evidence in the run */
    const char *state, *reason;  /* of the job, borrowed from it */
    const char *outcome;         /* "equal", "differs", or the state */
    long long first, last, step; /* equal: steps first .. last; differs: step */
    const char *rest;            /* differs: the part that differs; equal: "", or a note that not all was compared */
    char *identity;              /* differences to the run in things that the bits depend on, from the job; NULL: no differences */
};

/* job: in its final state; it must outlive *v. 0 with a verdict that the caller frees, or an exit code after
 * complaining, with nothing to free. */
int verdict_take(struct context *ctx, const json_t *job, struct verdict *v);
void verdict_free(struct verdict *v);
/* The exit code for the verdict. */
int verdict_code(const struct verdict *v);
void verdict_print(const struct verdict *v);
void verdict_print_json(const struct verdict *v);

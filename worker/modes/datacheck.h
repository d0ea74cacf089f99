/* SPDX-License-Identifier: Apache-2.0 */ /* worker/modes/datacheck.h - what `detctl check` runs: the job file's model and both splits, looked at as a job would, but trained on by nobody. */
#pragma once
#include <stdio.h>

struct checkprogress;
struct dataset;
struct err;
struct jobspec;
struct model_registry;

/* Output of a check. */
struct datacheck_out {
    FILE *facts;                    /* counts of the splits */
    FILE *warnings;                 /* problems and possible mistakes */
    struct checkprogress *progress; /* NULL: no progress is told */
    const char *files;              /* where to list the files that a good check rests on (checkedfiles.h); NULL: nowhere */
};
/* Prints a line per split and every problem kept. Errors as a job would fail with. */
int datacheck_run(const struct model_registry *models, const struct jobspec *spec, const struct datacheck_out *out, struct err *err);
/* Whether a job that checked its data finds it as it was, by the indexes in its folder: ERR_DATA or -ENOENT where not. What the caller may not read, and what the
 * job has not checked, is no difference. */
int datacheck_same(const struct model_registry *models, const struct jobspec *spec, const char *job_dir, struct err *err);
/* The training split as its annotations have it, no picture opened; a caller frees it, also after an error. Why it cannot be read goes to `complaints`. */
int datacheck_list(const struct model_registry *models, const struct jobspec *spec, struct dataset **ret_set, FILE *complaints,
                   struct err *err);
/* The same with every picture read, as a job does it first. */
int datacheck_train(const struct model_registry *models, const struct jobspec *spec, struct dataset **ret_set, FILE *complaints,
                    struct err *err);
/* Images of the training split that a job would train on, at least 1. Why they cannot be counted, problem by problem, goes to `complaints`. */
int datacheck_count(const struct model_registry *models, const struct jobspec *spec, int *ret_images, FILE *complaints, struct err *err);

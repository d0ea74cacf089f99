/* SPDX-License-Identifier: Apache-2.0 */ /* worker/modes/datacheck.h - runs `detctl check`: examines the job file's
 * model and both splits like a job would, without training. */
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
    struct checkprogress *progress; /* NULL: no progress is reported */
    /* path for the list of files that a good check depends on (checkedfiles.h); NULL: no list */
    const char *files;
};
/* Prints a line per split and every problem kept. Fails with the errors of a job. */
int datacheck_run(const struct model_registry *models, const struct jobspec *spec, const struct datacheck_out *out, struct err *err);
/* Does a job that checked its data find it unchanged, by the indexes in its folder? ERR_DATA or -ENOENT if not. Data
 * that the caller may not read, or that the job has not checked, counts as unchanged. */
int datacheck_same(const struct model_registry *models, const struct jobspec *spec, const char *job_dir, struct err *err);
/* The training split from its annotations, without opening a picture; the caller frees it, also after an error. The
 * reasons of a failure go to `complaints`. */
int datacheck_list(const struct model_registry *models, const struct jobspec *spec, struct dataset **ret_set, FILE *complaints,
                   struct err *err);
/* The same with every picture read, like a job's first check. */
int datacheck_train(const struct model_registry *models, const struct jobspec *spec, struct dataset **ret_set, FILE *complaints,
                    struct err *err);
/* Images of the training split that a job would train on, at least 1. If they cannot be counted, the problems go to
 * `complaints`. */
int datacheck_count(const struct model_registry *models, const struct jobspec *spec, int *ret_images, FILE *complaints, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/inits.h - job:12 in place of a file of weights: a checkpoint of another job. */
#pragma once
#include <jansson.h>
#include <stdio.h>

struct context;

/* In the object of a job, puts the weights' path for each value job:ID, job:ID@best, job:ID@last or job:ID@STEP of model.init and its kin, as it is
 * now; without @, best where validation has chosen one, else last. Where no step was named, a line in `tell` says which it is; NULL: nowhere. 0, or an exit code after complaining: no such job or checkpoint, not allowed. */
int inits_find(struct context *ctx, json_t *root, FILE *tell);
/* The checkpoints of jobs that these name are kept for a job that is submitted, under names of their own in the folders of those jobs, which are put in their place. */
void inits_hold(json_t *root);

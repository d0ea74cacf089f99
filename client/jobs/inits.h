/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/inits.h - job:12 in the place of a file of weights: a
 * checkpoint of another job. */
#pragma once
#include <jansson.h>
#include <stdio.h>

struct context;

/* In the object of a job, replaces each value job:ID, job:ID@best, job:ID@last or job:ID@STEP of model.init and similar
 * keys by the present path of the weights. Without @: best if validation has chosen one, otherwise last. If the value
 * names no step, a line in `tell` gives the step; tell NULL: no line. 0, or an exit code after complaining: no such job
 * or checkpoint, or not allowed. */
int inits_find(struct context *ctx, json_t *root, FILE *tell);
/* Keeps these checkpoints for a submitted job, by further names in the folders of their jobs, and puts the new paths
 * into the object. */
void inits_hold(json_t *root);

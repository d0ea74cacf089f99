/* SPDX-License-Identifier: Apache-2.0 */ /* client/results/evaluate.h - evaluates a checkpoint of a job on a data set.
 * detd runs a job for it, and its results are listed under the set's name. */
#pragma once

struct context;

struct evaluation {
    const char *on, *images; /* the set: values for data.val.annotations and data.val.images; images NULL: the job's, if it has that form */
    const char *format;      /* value for data.val.format; NULL: by the set's file, data_format() */
    char *const *changes;    /* KEY=VALUE of data and val, [nchanges] */
    int nchanges;
    const char *checkpoint; /* for checkpoint_find() */
    const char *set;        /* its name; NULL: the name of its file up to the last dot */
};

/* Waits for the end. *ret_set (64 bytes and a zero) is the name, *ret_step the checkpoint's step. 0, or an exit code
 * after complaining. */
int evaluate(struct context *ctx, const char *id, const struct evaluation *e, char ret_set[65], long long *ret_step);

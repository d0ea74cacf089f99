/* SPDX-License-Identifier: Apache-2.0 */ /* client/results/evaluate.h - a checkpoint of a job on a data set: detd runs a job for it, whose results are listed under the set's name. */
#pragma once

struct context;

struct evaluation {
    const char *on, *images; /* the set: as data.val.annotations and data.val.images; images NULL: the job's, where it has that form */
    const char *format;      /* as data.val.format; NULL: by its file, data_format() */
    char *const *changes;    /* KEY=VALUE of data and val, [nchanges] */
    int nchanges;
    const char *checkpoint; /* as checkpoint_find() */
    const char *set;        /* its name; NULL: that of its file, without what follows the last dot */
};

/* Waits for the end. *ret_set (64 bytes and a zero) is the name, *ret_step the checkpoint's step. 0 or an exit code after complaining. */
int evaluate(struct context *ctx, const char *id, const struct evaluation *e, char ret_set[65], long long *ret_step);

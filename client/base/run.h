/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/run.h - a run that is taken up again: a job of detd, or a folder with what a job left (detctl evidence export). */
#pragma once
#include <jansson.h>
#include <limits.h>
#include <stdint.h>

struct context;
struct err;

struct run {
    int64_t id;         /* 0: a folder */
    char name[80];      /* "job 12", or the folder as it was given */
    char dir[PATH_MAX]; /* absolute: of the job, or the folder */
    json_t *spec;       /* its job file with all keys; one that is younger than the run has its neutral value, a secret of run.env null */
    json_t *identity;   /* of its newest attempt that told one, NULL: none did */
    char data_hash[33]; /* of the training data, "": not known */
};

/* text: a job's id, or a folder (not of digits alone). 0 with a run to be freed, or an exit code after complaining. */
int run_take(struct context *ctx, const char *text, struct run *ret);
void run_free(struct run *r);
/* For what leaves the node: the values of run.env become null, and run.on_end goes. Out of memory ends the program. */
void run_hide_secrets(json_t *spec);
/* Whether a job file like the run's can be made of it; name: of the run. */
int run_check_secrets(const json_t *spec, const char *name, struct err *err);

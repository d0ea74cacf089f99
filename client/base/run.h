/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/run.h - an earlier run that is used again: a job of detd, or a
 * folder of an exported job (detctl evidence export). */
#pragma once
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct context;
struct err;

struct run {
    int64_t id;         /* 0: a folder */
    bool program;       /* of the user: it has no model and no evidence */
    char name[80];      /* "job 12", or the folder in the user's words */
    char dir[PATH_MAX]; /* absolute: folder of the job, or the folder */
    char user[80];      /* owner of the job; "": a folder */
    json_t *spec;       /* its job file with all keys; a key newer than the run has its neutral value, a hidden value of run.env is null */
    json_t *hidden;     /* of a job: names of its keys with code, if it belongs to another user */
    json_t *identity;   /* of its newest attempt with an identity; NULL: there is no such attempt */
    char data_hash[33]; /* of the training data, "": not known */
};

/* text: a job's id, or a folder (with a name not of digits alone). 0 with a run that the caller frees, or an exit code
 * after complaining. */
int run_take(struct context *ctx, const char *text, struct run *ret);
/* The same, but also for a job that is a program of the caller, which run_take() refuses. */
int run_take_any(struct context *ctx, const char *text, struct run *ret);
/* Refuses a job that is a program, an answer of job.get: the command is about models of detd. Returns 0, or an exit
 * code after complaining. */
int run_check_model(const json_t *job);
void run_free(struct run *r);
/* For exports from the node: jobspec_hide_code(). Out of memory ends the program. */
void run_hide_code(json_t *spec);
/* For views of jobs: of the variables in run.env only the names stay, each with the value "set". spec: or NULL. */
void run_hide_values(json_t *spec);
/* Refuses to submit a job again that has code of another user. Returns 0, or an exit code after complaining. */
int run_check_owner(const struct run *r);
/* Returns 0 if the spec can be used for a new job. ERR_DENIED: a value of run.env is hidden. name: of the run. */
int run_check_env(const json_t *spec, const char *name, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/ranks/program.h - a program of other people: its command, its
 * folder, and the environment of its ranks. */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "supervisor/ranks/port.h"

struct err;
struct jobspec;

struct program {
    const struct jobspec *spec; /* borrowed */
    char **argv;                /* NULL-terminated; of the spec */
    char path[PATH_MAX];        /* of argv[0], found by program_find() */
    char module[PATH_MAX];      /* folder of the Python module detd; "": it is not beside this program */
    int64_t job;
    int stop_signal;
    struct port port;      /* of this attempt */
    int64_t resume_step;   /* of this attempt; 0: from the beginning */
    char resume[PATH_MAX]; /* path of that checkpoint; "": there is none */
};

/* What differs between the ranks of an attempt. */
struct program_rank {
    int rank, attempt;
    const char *job_dir;
    ino_t report, page; /* of the descriptors */
    char *const *gpus;  /* NULL-terminated, of the whole job; NULL: none were granted */
};

/* s: of a program; it stays as long as *ret, which the caller frees. */
int program_new(const struct jobspec *s, int64_t job, struct program **ret, struct err *err);
void program_free(struct program *p);
/* Before each start: looks for the folder, the virtual environment and the program. env: of the ranks, "NAME=VALUE".
 * ERR_INPUT names what is missing, and what to do. */
int program_find(struct program *p, char *const *env, struct err *err);
/* The error after execve() has failed with that errno: names the interpreter of a script. */
int program_explain(const struct program *p, int number, struct err *err);
/* The environment of a rank: that of spawn_env(), in which the rank's own variables win. The caller frees *ret with
 * spawn_free_env(). */
int program_env(const struct program *p, const struct program_rank *r, char ***ret, struct err *err);

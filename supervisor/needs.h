/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/needs.h - what ranks need to be started: the job file and the
 * environment; for a model the trainer, its plugin and the tiers, for a program its command. */
#pragma once
#include <stdint.h>

struct err;
struct jobspec;
struct program;
struct tiers;

struct needs {
    struct jobspec *spec; /* NULL: not read */
    char **env;
    struct program *program;  /* NULL: the job trains a model */
    int worker_fd, plugin_fd; /* as of spawn_open_program() and spawn_open_plugin() */
    struct tiers *tiers;      /* NULL: a program */
};

#define NEEDS_NONE                       \
    {                                    \
        .worker_fd = -1, .plugin_fd = -1 \
    }

/* Reads all from the working directory. worker: path of the trainer. May be called again, also after a failure. */
int needs_read(struct needs *n, const char *worker, int64_t job, struct err *err);
void needs_drop(struct needs *n);

/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/ranks/ranks.h - the processes of one attempt: starts them,
 * carries lines to and from them, sees them end.
 *
 * Every callback comes from the loop. Lines of a rank come in order; after its process has ended its socket is read to
 * the end, and only then `gone` is called, so no report is lost. All ranks share this process's session and process
 * group and die with it. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

struct err;
struct line;
struct program;
struct progress;
struct ranks;

struct ranks_config {
    uv_loop_t *loop;
    const char *job_dir;
    int nranks, attempt;
    const char *worker_path;       /* argv[0] and messages */
    int worker_fd;                 /* executed; -1: worker_path is a script and executed by name */
    int plugin_fd;                 /* the CUDA plugin beside it, or -1 */
    int tty;                       /* of a program with a terminal; 0: none */
    const struct program *program; /* what runs instead of the trainer; NULL: the trainer */
    int lock_fd;
    const json_t *run_env; /* as spawn_env() takes it */
    char *const *gpus;     /* UUIDs, NULL-terminated; dealt out evenly in order, but to all ranks of a program. NULL: none granted */
    /* A whole line of a rank. */
    void (*line)(void *arg, int rank, const char *text, size_t len);
    /* The rank sent what no trainer sends (a line without end). Called once; its lines are not read any more. Of a
     * program only that line is left out. */
    void (*broken)(void *arg, int rank, const char *why);
    /* The rank has closed its socket, all its lines were given, and its process may still live. */
    void (*closed)(void *arg, int rank);
    /* The process is reaped (status as of waitpid()) and all its lines were given. Last call for this rank. */
    void (*gone)(void *arg, int rank, int status);
    /* Whether lines may be given now; ranks_resume() is called when they may again. */
    bool (*ready)(void *arg);
    void *arg;
};

/* Starts all ranks or none. *config is copied, what it points to has to stay. */
int ranks_start(const struct ranks_config *config, struct ranks **ret, struct err *err);
/* Once all are gone (or after ranks_kill() at the very end). Memory goes when libuv has closed its handles. */
void ranks_free(struct ranks *r);

/* Ends the line and queues it. A rank that does not read for long loses nothing, but its queue is bounded: a line that
 * does not fit is dropped and logged. */
void ranks_say(struct ranks *r, int rank, struct line *l);
void ranks_resume(struct ranks *r);
/* Whether lines of it wait for ready(). */
bool ranks_is_held(const struct ranks *r, int rank);
/* To every rank that still runs. */
void ranks_kill(struct ranks *r, int signal);
/* After SIGCHLD: takes in who has ended. */
void ranks_reap(struct ranks *r);

/* UUID of the GPU that was given to the rank, NULL: none. */
const char *ranks_gpu(const struct ranks *r, int rank);
pid_t ranks_pid(const struct ranks *r, int rank); /* 0: ended */
struct progress *ranks_page(struct ranks *r, int rank);

/* Usage of all ranks: exact for ranks that have ended, from /proc for the others. The CPU time of a process that a rank
 * left behind is added when that process ends. */
struct ranks_usage {
    double cpu_seconds;
    long long max_rss; /* bytes, of the largest rank */
    long long rss;     /* bytes, now, of all that live together */
};
void ranks_usage(const struct ranks *r, struct ranks_usage *ret);

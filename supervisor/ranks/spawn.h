/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/ranks/spawn.h - starts one rank: descriptors, environment,
 * arguments, and death with its parent. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct err;
struct program;

enum { SPAWN_FDS = 5 };

struct spawn {
    const char *path; /* argv[0]; executed by name when exec_fd is -1 */
    int exec_fd;
    const char *job_dir;
    int rank, nranks, attempt;
    int log_fd;
    int fds[SPAWN_FDS]; /* become 3, 4, 5, 6, 7: control, comm, progress, lock, plugin; -1: closed */
    char *const *env;
    const struct program *program; /* NULL: detd-worker */
    int tty;                       /* if above 0: its terminal, in a session of its own */
};

/* Forks and executes. The child is in this session and process group, and SIGKILL follows the death of the calling
 * thread. When the program cannot be executed, the error says so and no child is left. */
int spawn_rank(const struct spawn *s, pid_t *ret_pid, struct err *err);

/* In a child: when memory runs out it is the first to go, whatever detd-job has from detd; a rank begins again at its
 * checkpoint. */
void spawn_go_first(void);

/* log/rank-N.log in the working directory, for appending, with a line that names the attempt. Caller closes. */
int spawn_open_log(int rank, int nranks, int attempt, int *ret_fd, struct err *err);

/* The environment of ranks: the few variables that every program needs, as this process has them, and run_env (an
 * object of strings, or NULL), which wins. program: without those that only detd-worker needs. NULL-terminated; freed
 * with spawn_free_env(). */
int spawn_env(const json_t *run_env, bool program, char ***ret_env, struct err *err);
void spawn_free_env(char **env);

/* Opens the trainer for spawn.exec_fd: -1 where it is a script, which its interpreter has to find by name. */
int spawn_open_program(const char *path, int *ret_fd, struct err *err);
/* Opens the CUDA plugin beside that program: -1 where there is none. */
int spawn_open_plugin(const char *program, int *ret_fd, struct err *err);

#include "client/base/worker.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/base/command.h"
#include "proto/host/tasks.h"

/* The path of detd-worker, beside this program. */
bool worker_path(char ret_path[PATH_MAX])
{
    static const char name[] = "detd-worker";
    ssize_t n = readlink("/proc/self/exe", ret_path, PATH_MAX - sizeof name - 1);
    char *slash;

    if (n <= 0)
        return false;
    ret_path[n] = '\0';
    slash = strrchr(ret_path, '/');
    memcpy(slash + 1, name, sizeof name);
    return access(ret_path, X_OK) == 0;
}

struct child {
    pid_t pid;
    void (*on_interrupt)(int); /* our handler, for when the worker is gone */
};

/* Starts the worker, with its standard output going to `out`. Returns 0, or -1 after complaining. */
static int start(struct child *c, char **argv, int out)
{
    static char path[PATH_MAX];

    if (!worker_path(path)) {
        fprintf(stderr, "detctl: detd-worker is not beside detctl: %s\n", strerror(errno));
        return -1;
    }
    argv[0] = "detctl"; /* the worker's messages look like ours */
    fflush(stdout);
    c->on_interrupt = signal(SIGINT, SIG_IGN); /* Ctrl-C is for the worker; we report how it ended */
    c->pid = fork();
    if (c->pid == 0) {
        signal(SIGINT, SIG_DFL);
        if (out == STDOUT_FILENO || dup2(out, STDOUT_FILENO) >= 0)
            execv(path, argv);
        fprintf(stderr, "detctl: run '%s': %s\n", path, strerror(errno));
        _exit(127);
    }
    if (c->pid > 0)
        return 0;
    fprintf(stderr, "detctl: run '%s': %s\n", path, process_lacks(errno));
    signal(SIGINT, c->on_interrupt);
    return -1;
}

/* Waits for the end of the worker and reports failures. */
static int end(const struct child *c)
{
    int status;
    pid_t rc;

    while ((rc = waitpid(c->pid, &status, 0)) < 0 && errno == EINTR)
        ;
    signal(SIGINT, c->on_interrupt);
    if (rc < 0) {
        fprintf(stderr, "detctl: wait for detd-worker: %s\n", strerror(errno));
        return CODE_REFUSED;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT)
        return CODE_INTERRUPTED;
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGPIPE) /* SIGPIPE: as from `| head` */
        fprintf(stderr, "detctl: detd-worker was ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? CODE_DONE : CODE_REFUSED;
}

int worker_run(char **argv)
{
    struct child c;

    return start(&c, argv, STDOUT_FILENO) < 0 ? CODE_REFUSED : end(&c);
}

/* Reads the stream to its end. It must hold one number above 0, on a line of its own. */
static int read_count(FILE *in, int64_t *ret)
{
    char line[32], *stop;

    if (!fgets(line, sizeof line, in) || line[0] < '1' || line[0] > '9')
        return -1;
    errno = 0;
    *ret = strtoll(line, &stop, 10);
    return errno || *stop != '\n' || fgetc(in) != EOF ? -1 : 0;
}

int worker_count(char **argv, int64_t *ret_count)
{
    int ends[2], rc;
    FILE *in = NULL;
    struct child c;
    bool counted;

    if (pipe2(ends, O_CLOEXEC) < 0 || !(in = fdopen(ends[0], "r"))) {
        fprintf(stderr, "detctl: a pipe for detd-worker: %s\n", strerror(errno));
        return CODE_REFUSED;
    }
    rc = start(&c, argv, ends[1]);
    close(ends[1]);
    counted = rc == 0 && read_count(in, ret_count) == 0;
    fclose(in);
    if (rc < 0 || (rc = end(&c)) != CODE_DONE)
        return rc < 0 ? CODE_REFUSED : rc;
    if (!counted)
        fputs("detctl: detd-worker is of another version: it says no number\n", stderr);
    return counted ? CODE_DONE : CODE_REFUSED;
}

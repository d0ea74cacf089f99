#include "client/worker.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/command.h"

/* The program beside this one. */
static int find(char path[PATH_MAX])
{
    static const char name[] = "detd-worker";
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - sizeof name - 1);
    char *slash;

    if (n <= 0)
        return -1;
    path[n] = '\0';
    slash = strrchr(path, '/');
    memcpy(slash + 1, name, sizeof name);
    return 0;
}

int worker_run(char **argv)
{
    char path[PATH_MAX];
    int status;
    pid_t pid;

    if (find(path) < 0 || access(path, X_OK) < 0) {
        fprintf(stderr, "detctl: detd-worker is not beside detctl: %s\n", strerror(errno));
        return CODE_REFUSED;
    }
    argv[0] = path;
    fflush(stdout);
    signal(SIGINT, SIG_IGN); /* Ctrl-C is for the worker; we say how it ended */
    pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        execv(path, argv);
        fprintf(stderr, "detctl: run '%s': %s\n", path, strerror(errno));
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            pid = -1;
    if (pid < 0) {
        fprintf(stderr, "detctl: run '%s': %s\n", path, strerror(errno));
        return CODE_REFUSED;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT)
        return CODE_INTERRUPTED;
    if (WIFSIGNALED(status))
        fprintf(stderr, "detctl: detd-worker was ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? CODE_DONE : CODE_REFUSED;
}

#include "supervisor/ranks/spawn.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/limits.h"
#include "proto/job/jobspec.h"
#include "proto/report.h"
#include "proto/host/tasks.h"
#include "supervisor/ranks/program.h"

#define RANK_OOM_SCORE_ADJ "500"
enum { ARGS = 12, ARG_TEXT = 16 };

struct args {
    char number[4][ARG_TEXT];
    char *argv[ARGS];
};

static void fill_args(const struct spawn *s, struct args *a)
{
    static const char *const names[] = { "--rank", "--ranks", "--local-rank", "--attempt" };
    int values[] = { s->rank, s->nranks, s->rank, s->attempt }, n = 0;

    a->argv[n++] = (char *)s->path;
    a->argv[n++] = (char *)"--job-dir";
    a->argv[n++] = (char *)s->job_dir;
    for (int i = 0; i < 4; i++) {
        snprintf(a->number[i], ARG_TEXT, "%d", values[i]);
        a->argv[n++] = (char *)names[i];
        a->argv[n++] = a->number[i];
    }
    a->argv[n] = NULL;
}

/* In the child: only calls that are safe after fork(). Sources are first moved out of the way of the numbers they will
 * get. */
static int place_fds(const struct spawn *s)
{
    enum { ABOVE = WORKER_FD_PLUGIN + 1 };
    int from[SPAWN_FDS + 1], null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    for (int i = 0; i < SPAWN_FDS; i++) {
        from[i] = s->fds[i] < 0 ? -1 : fcntl(s->fds[i], F_DUPFD_CLOEXEC, ABOVE);
        if (from[i] < 0 && s->fds[i] >= 0)
            return -1;
    }
    from[SPAWN_FDS] = fcntl(s->log_fd, F_DUPFD_CLOEXEC, ABOVE);
    if (null < 0 || from[SPAWN_FDS] < 0 || dup2(null, 0) < 0 || dup2(from[SPAWN_FDS], 1) < 0 || dup2(from[SPAWN_FDS], 2) < 0)
        return -1;
    for (int i = 0; i < SPAWN_FDS; i++)
        if (from[i] >= 0 && dup2(from[i], WORKER_FD_CONTROL + i) < 0)
            return -1;
    return 0;
}

/* SIGTERM and SIGHUP come to all of a session. A worker ignores them, since detd-job tells it what to do; a program has
 * them as anywhere else. */
static void reset_signals(bool program)
{
    sigset_t none;

    for (int i = 1; i < NSIG; i++)
        if (i != SIGKILL && i != SIGSTOP)
            signal(i, !program && (i == SIGTERM || i == SIGHUP) ? SIG_IGN : SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

void spawn_go_first(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : write(fd, RANK_OOM_SCORE_ADJ, sizeof RANK_OOM_SCORE_ADJ - 1);

    (void)n; /* refused where it would be less than it is */
    if (fd >= 0)
        close(fd);
}

/* In the child: the terminal becomes its standard input and output, and controls it. */
static int take_terminal(int tty)
{
    return setsid() < 0 || ioctl(tty, TIOCSCTTY, 0) < 0 || dup2(tty, 0) < 0 || dup2(tty, 1) < 0 || dup2(tty, 2) < 0 ? -1 : 0;
}

/* In the child: what a program finds as its submitter had it. */
static bool enter(const struct program *p)
{
    const struct jobspec *s = p->spec;

    if (s->program_umask)
        umask((mode_t)strtol(s->program_umask, NULL, 8));
    limits_set(s->program_limits);
    return chdir(s->program_directory) == 0;
}

static void child(const struct spawn *s, int exec_fd, char *const *argv, char *const *env, pid_t parent, int error_fd)
{
    char path[32];
    int saved;

    reset_signals(s->program != NULL);
    spawn_go_first();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && place_fds(s) == 0 && (s->tty <= 0 || take_terminal(s->tty) == 0) &&
        (!s->program || enter(s->program))) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", exec_fd);
        execve(exec_fd >= 0 ? path : s->path, argv, env);
    }
    saved = errno;
    while (write(error_fd, &saved, sizeof saved) < 0 && errno == EINTR)
        continue;
    _exit(127);
}

/* The pipe closes when the program is executed; before that it carries errno. */
static int await_exec(int fd, const char *path, struct err *err)
{
    int code = 0;
    ssize_t n;

    do
        n = read(fd, &code, sizeof code);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return 0;
    errno = code;
    return err_sys(err, "execute '%s'", path);
}

int spawn_rank(const struct spawn *s, pid_t *ret_pid, struct err *err)
{
    int status[2] = { -1, -1 }, exec_fd = -1, rc = 0;
    struct args args;
    pid_t pid, parent = getpid();

    fill_args(s, &args);
    if (s->exec_fd >= 0) /* out of the way of the low numbers too */
        exec_fd = fcntl(s->exec_fd, F_DUPFD_CLOEXEC, WORKER_FD_PLUGIN + 1);
    if ((s->exec_fd >= 0 && exec_fd < 0) || pipe2(status, O_CLOEXEC) < 0) {
        rc = err_set(err, -errno, "start rank %d: %s", s->rank, process_lacks(errno));
        goto out;
    }
    if (status[1] <= WORKER_FD_PLUGIN) { /* the child must not overwrite it with one of its own */
        int high = fcntl(status[1], F_DUPFD_CLOEXEC, WORKER_FD_PLUGIN + 1);

        close(status[1]);
        status[1] = high;
    }
    pid = fork();
    if (pid == 0)
        child(s, exec_fd, s->program ? s->program->argv : args.argv, s->env, parent, status[1]);
    if (pid < 0)
        rc = err_sys(err, "start rank %d", s->rank);
    close(status[1]);
    status[1] = -1;
    if (rc == 0)
        rc = await_exec(status[0], s->path, err);
    if (rc == 0)
        *ret_pid = pid;
    else if (pid > 0)
        waitpid(pid, NULL, 0);
out:
    for (int i = 0; i < 2; i++)
        if (status[i] >= 0)
            close(status[i]);
    if (exec_fd >= 0)
        close(exec_fd);
    return rc;
}

int spawn_open_log(int rank, int nranks, int attempt, int *ret_fd, struct err *err)
{
    char path[64], head[128];
    time_t now = time(NULL);
    struct tm tm;
    int fd, n;

    snprintf(path, sizeof path, "log/rank-%d.log", rank);
    if (mkdir("log", 0700) < 0 && errno != EEXIST)
        return err_sys(err, "make folder 'log'");
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return err_sys(err, "open '%s'", path);
    n = snprintf(head, sizeof head, "---- attempt %d, rank %d of %d, ", attempt, rank, nranks);
    n += (int)strftime(head + n, sizeof head - (size_t)n, "%Y-%m-%d %H:%M:%S UTC ----\n", gmtime_r(&now, &tm));
    if (write(fd, head, (size_t)n) < 0) {
        int rc = err_sys(err, "write '%s'", path);

        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

static int add_var(char **env, size_t *n, const char *name, const char *value, struct err *err)
{
    if (asprintf(&env[*n], "%s=%s", name, value) < 0) {
        env[*n] = NULL;
        return err_set(err, -ENOMEM, "out of memory");
    }
    (*n)++;
    return 0;
}

int spawn_env(const json_t *run_env, bool program, char ***ret_env, struct err *err)
{
    static const char *const kept[] = { "PATH", "HOME",           "USER",      "LOGNAME",   "TMPDIR",      "LANG",
                                        "TZ",   "DETD_CUDA_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX" };
    /* The first is for programs, too: GPUs are numbered as NVML does. Queues that wait for each other need a channel
     * each; all ranks are on this machine. */
    static const char *const set[][2] = { { "CUDA_DEVICE_ORDER", "PCI_BUS_ID" },
                                          { "CUDA_DEVICE_MAX_CONNECTIONS", "32" },
                                          { "NCCL_SOCKET_IFNAME", "lo" } };
    size_t n = 0, room = json_object_size(run_env) + sizeof kept / sizeof *kept + sizeof set / sizeof *set + 1;
    size_t nset = program ? 1 : sizeof set / sizeof *set;
    char **env = calloc(room, sizeof *env);
    const char *name;
    json_t *value;
    int rc = 0;

    if (!env)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; rc == 0 && i < sizeof kept / sizeof *kept; i++)
        if (getenv(kept[i]) && !json_object_get(run_env, kept[i]))
            rc = add_var(env, &n, kept[i], getenv(kept[i]), err);
    for (size_t i = 0; rc == 0 && i < nset; i++)
        if (!json_object_get(run_env, set[i][0]))
            rc = add_var(env, &n, set[i][0], set[i][1], err);
    json_object_foreach ((json_t *)run_env, name, value) {
        if (rc == 0 && (!name[0] || strchr(name, '=') || !json_is_string(value)))
            rc = err_field(err, ERR_INPUT, "run.env", "run.env: '%s' is no variable with a text", name);
        if (rc == 0)
            rc = add_var(env, &n, name, json_string_value(value), err);
    }
    if (rc < 0)
        spawn_free_env(env);
    else
        *ret_env = env;
    return rc;
}

void spawn_free_env(char **env)
{
    for (size_t i = 0; env && env[i]; i++)
        free(env[i]);
    free(env);
}

int spawn_open_program(const char *path, int *ret_fd, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char two[2] = { 0 };

    if (fd < 0)
        return err_sys(err, "open '%s'", path);
    if (read(fd, two, sizeof two) == sizeof two && two[0] == '#' && two[1] == '!') {
        close(fd);
        fd = -1;
    }
    *ret_fd = fd;
    return 0;
}

int spawn_open_plugin(const char *program, int *ret_fd, struct err *err)
{
    const char *slash = strrchr(program, '/');
    char path[4096];
    int fd;

    if ((size_t)snprintf(path, sizeof path, "%.*s" WORKER_PLUGIN, slash ? (int)(slash + 1 - program) : 0, program) >= sizeof path)
        return err_set(err, -ENAMETOOLONG, "the path of '%.80s...' is too long", program);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
        return err_sys(err, "open '%s'", path);
    *ret_fd = fd;
    return 0;
}

#include "supervisor/ranks/program.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "proto/report.h"
#include "supervisor/ranks/errorfile.h"

enum { VARIABLES = 40, SHOWN = 200 };

int program_signal(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = { { "SIGTERM", SIGTERM }, { "SIGINT", SIGINT },   { "SIGHUP", SIGHUP },
                    { "SIGQUIT", SIGQUIT }, { "SIGUSR1", SIGUSR1 }, { "SIGUSR2", SIGUSR2 } };

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (strcmp(signals[i].name, name) == 0)
            return signals[i].number;
    return 0;
}

/* ---- what the spec says ---- */

static int copy_command(struct program *p, const json_t *command)
{
    size_t n = json_array_size(command);

    p->argv = calloc(n + 1, sizeof *p->argv);
    for (size_t i = 0; p->argv && i < n; i++)
        if (!(p->argv[i] = strdup(json_string_value(json_array_get(command, i)))))
            return -ENOMEM;
    return p->argv ? 0 : -ENOMEM;
}

/* Installed, the module lies in ../share/detd/python; in a tree of sources in ../python. */
static void find_module(struct program *p)
{
    static const char *const places[] = { "../share/detd/python", "../python" };
    char self[PATH_MAX - 64], file[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        slash[1] = '\0';
        snprintf(file, sizeof file, "%s%s/detd/__init__.py", self, places[i]);
        if (access(file, R_OK) == 0) {
            snprintf(p->module, sizeof p->module, "%s%s", self, places[i]);
            return;
        }
    }
}

int program_new(const struct jobspec *s, int64_t job, struct program **ret, struct err *err)
{
    struct program *p = calloc(1, sizeof *p);

    if (!p)
        return err_set(err, -ENOMEM, "out of memory");
    *p = (struct program){ .job = job,
                           .steps = s->train_steps,
                           .every = s->checkpoint_every,
                           .terminal = s->program_terminal,
                           .nranks = (int)s->run_ranks,
                           .restarts = (int)s->run_restarts,
                           .threads = s->run_threads > 0 ? (int)s->run_threads : 1,
                           .stop_signal = program_signal(s->program_stop_signal),
                           .mask = s->program_umask ? (int)strtol(s->program_umask, NULL, 8) : -1,
                           .stop_grace_s = s->program_stop_grace,
                           .silent_after_s = s->program_silent_after,
                           .directory = strdup(s->program_directory),
                           .port.lock_fd = -1 };
    find_module(p);
    if (copy_command(p, s->program_command) < 0 || !p->directory) {
        program_free(p);
        return err_set(err, -ENOMEM, "out of memory");
    }
    *ret = p;
    return 0;
}

void program_free(struct program *p)
{
    if (!p)
        return;
    program_free_variables(p->argv);
    free(p->directory);
    port_drop(&p->port);
    free(p);
}

/* ---- what a start needs ---- */

static const char *value_in(char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (; env && *env; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* A name without a slash is looked for in PATH, another one in the folder, as a shell does. */
static bool search(struct program *p, const char *name, const char *path)
{
    if (strchr(name, '/')) {
        int n =
            name[0] == '/' ? snprintf(p->path, sizeof p->path, "%s", name) : snprintf(p->path, sizeof p->path, "%s/%s", p->directory, name);

        return n < (int)sizeof p->path && is_program(p->path);
    }
    for (size_t len; path && *path; path += len + (path[len] == ':')) {
        len = strcspn(path, ":");
        if (len > 0 && (size_t)snprintf(p->path, sizeof p->path, "%.*s/%s", (int)len, path, name) < sizeof p->path && is_program(p->path))
            return true;
    }
    return false;
}

int program_find(struct program *p, char *const *env, struct err *err)
{
    const char *name = p->argv[0], *venv = value_in(env, "VIRTUAL_ENV"), *path = value_in(env, "PATH");

    if (!is_folder(p->directory))
        return err_field(err, ERR_INPUT, "program.directory",
                         "program.directory: the folder '%.*s' is gone; make it again and use detctl resume", SHOWN, p->directory);
    if (venv && venv[0] && !is_folder(venv))
        return err_field(err, ERR_INPUT, "run.env",
                         "run.env: the virtual environment '%.*s' (VIRTUAL_ENV) is gone; make it again and use detctl resume", SHOWN, venv);
    if (search(p, name, path))
        return 0;
    if (strchr(name, '/'))
        return err_field(err, ERR_INPUT, "program.command", "program.command: '%.*s' is no file that this user may execute", SHOWN,
                         p->path);
    return err_field(err, ERR_INPUT, "program.command", "program.command: there is no program '%.*s' in the PATH of the job, %.*s", SHOWN,
                     name, SHOWN, path ? path : "which is empty");
}

int program_explain(const struct program *p, int number, struct err *err)
{
    char line[PATH_MAX] = "", *name = line + 2;
    int fd = open(p->path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);

    if (fd >= 0)
        close(fd);
    line[n > 0 ? n : 0] = '\0';
    name += strspn(name, " \t");
    name[strcspn(name, " \t\r\n")] = '\0';
    if (number == ENOENT && strncmp(line, "#!", 2) == 0)
        return err_field(err, ERR_INPUT, "program.command", "program.command: the interpreter '%.*s' of '%.*s' is gone", SHOWN, name, SHOWN,
                         p->path);
    errno = number;
    err_sys(err, "execute '%.*s'", SHOWN, p->path);
    if (number == ENOEXEC || number == EACCES || number == ENOENT)
        err->code = ERR_INPUT; /* another try would find the same */
    return err->code;
}

/* ---- the environment of a rank ---- */

struct list {
    char **all;
    int n;
    bool failed;
};

static void add(struct list *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct list *l, const char *fmt, ...)
{
    va_list ap;

    if (l->failed)
        return;
    va_start(ap, fmt);
    l->failed = vasprintf(&l->all[l->n], fmt, ap) < 0;
    va_end(ap);
    if (l->failed)
        l->all[l->n] = NULL;
    else
        l->n++;
}

/* As torchrun sets them for the ranks of one node. */
static void add_ranks(struct list *l, const struct program *p, const struct program_rank *r)
{
    char file[64];

    errorfile_name(r->attempt, r->rank, file, sizeof file);
    add(l, "RANK=%d", r->rank);
    add(l, "LOCAL_RANK=%d", r->rank);
    add(l, "ROLE_RANK=%d", r->rank);
    add(l, "GROUP_RANK=0");
    add(l, "ROLE_NAME=default");
    add(l, "WORLD_SIZE=%d", p->nranks);
    add(l, "LOCAL_WORLD_SIZE=%d", p->nranks);
    add(l, "ROLE_WORLD_SIZE=%d", p->nranks);
    add(l, "GROUP_WORLD_SIZE=1");
    add(l, "MASTER_ADDR=127.0.0.1");
    add(l, "MASTER_PORT=%d", p->port.number);
    add(l, "TORCHELASTIC_RUN_ID=detd-%lld", (long long)p->job);
    add(l, "TORCHELASTIC_RESTART_COUNT=%d", r->attempt - 1);
    add(l, "TORCHELASTIC_MAX_RESTARTS=%d", p->restarts);
    add(l, "TORCHELASTIC_USE_AGENT_STORE=False");
    add(l, "TORCHELASTIC_ERROR_FILE=%s/%s", r->job_dir, file);
}

static void add_job(struct list *l, const struct program *p, const struct program_rank *r)
{
    add(l, PROGRAM_ENV_REPORT "=%d:%llu", PROGRAM_FD_REPORT, (unsigned long long)r->report);
    add(l, PROGRAM_ENV_PAGE "=%d:%llu", PROGRAM_FD_PAGE, (unsigned long long)r->page);
    add(l, "DETD_JOB_ID=%lld", (long long)p->job);
    add(l, "DETD_JOB_DIR=%s", r->job_dir);
    add(l, "DETD_ATTEMPT=%d", r->attempt);
    add(l, "DETD_RESUME_STEP=%lld", (long long)p->resume_step);
    if (p->resume[0])
        add(l, "DETD_RESUME=%s", p->resume);
    if (p->every > 0)
        add(l, "DETD_CHECKPOINT_EVERY=%lld", (long long)p->every);
    if (p->steps > 0)
        add(l, "DETD_STEPS=%lld", (long long)p->steps);
}

/* An instance of MIG is a device of its own, of which CUDA sees one: each rank gets its own. Else all ranks see all
 * GPUs, and LOCAL_RANK counts. Without GPUs of its own the job must not use those of others. */
static void add_gpus(struct list *l, const struct program *p, const struct program_rank *r)
{
    char text[4096] = "";
    size_t used = 0;
    int n = 0, each;

    while (r->gpus && r->gpus[n])
        n++;
    each = n / p->nranks;
    for (int i = 0; i < n && used < sizeof text; i++)
        if (strncmp(r->gpus[i], "MIG-", 4) != 0 || (i >= r->rank * each && i < (r->rank + 1) * each))
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? "," : "", r->gpus[i]);
    add(l, "CUDA_VISIBLE_DEVICES=%s", text);
}

int program_variables(const struct program *p, const struct program_rank *r, char *const *env, char ***ret, struct err *err)
{
    struct list l = { .all = calloc(VARIABLES, sizeof *l.all) };
    const char *path = value_in(env, "PYTHONPATH");

    if (!l.all)
        return err_set(err, -ENOMEM, "out of memory");
    add_ranks(&l, p, r);
    add_job(&l, p, r);
    add_gpus(&l, p, r);
    add(&l, "PWD=%s", p->directory);
    if (!value_in(env, "OMP_NUM_THREADS"))
        add(&l, "OMP_NUM_THREADS=%d", p->threads);
    if (!value_in(env, "PYTHONUNBUFFERED"))
        add(&l, "PYTHONUNBUFFERED=1");
    if (p->module[0])
        add(&l, "PYTHONPATH=%s%s%s", path ? path : "", path && path[0] ? ":" : "", p->module);
    if (l.failed) {
        program_free_variables(l.all);
        return err_set(err, -ENOMEM, "out of memory");
    }
    *ret = l.all;
    return 0;
}

void program_free_variables(char **variables)
{
    for (size_t i = 0; variables && variables[i]; i++)
        free(variables[i]);
    free(variables);
}

#include "supervisor/ranks/program.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/which.h"
#include "proto/job/jobspec.h"
#include "proto/report.h"
#include "supervisor/ranks/errorfile.h"

enum { VARIABLES = 40, SHOWN = 200 };

static int signal_of(const char *name)
{
    for (int i = 1; i < NSIG; i++)
        if (sigabbrev_np(i) && strcmp(sigabbrev_np(i), name + strlen("SIG")) == 0)
            return i;
    return 0;
}

/* ---- what the spec says ---- */

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
    size_t n = json_array_size(s->program_command);
    struct program *p = calloc(1, sizeof *p);

    if (!p || !(p->argv = calloc(n + 1, sizeof *p->argv))) {
        free(p);
        return err_set(err, -ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < n; i++)
        p->argv[i] = (char *)json_string_value(json_array_get(s->program_command, i));
    p->spec = s;
    p->job = job;
    p->stop_signal = signal_of(s->program_stop_signal);
    p->mask = s->program_umask ? (int)strtol(s->program_umask, NULL, 8) : -1;
    p->port.lock_fd = -1;
    find_module(p);
    *ret = p;
    return 0;
}

void program_free(struct program *p)
{
    if (!p)
        return;
    free(p->argv);
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

int program_find(struct program *p, char *const *env, struct err *err)
{
    const char *name = p->argv[0], *venv = value_in(env, "VIRTUAL_ENV"), *path = value_in(env, "PATH");

    if (!which_is_folder(p->spec->program_directory))
        return err_field(err, ERR_INPUT, "program.directory",
                         "program.directory: the folder '%.*s' is gone; make it again and use detctl resume", SHOWN,
                         p->spec->program_directory);
    if (venv && venv[0] && !which_is_folder(venv))
        return err_field(err, ERR_INPUT, "run.env",
                         "run.env: the virtual environment '%.*s' (VIRTUAL_ENV) is gone; make it again and use detctl resume", SHOWN, venv);
    if (which_find(name, p->spec->program_directory, path, p->path))
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
    add(l, "WORLD_SIZE=%lld", (long long)p->spec->run_ranks);
    add(l, "LOCAL_WORLD_SIZE=%lld", (long long)p->spec->run_ranks);
    add(l, "ROLE_WORLD_SIZE=%lld", (long long)p->spec->run_ranks);
    add(l, "GROUP_WORLD_SIZE=1");
    add(l, "MASTER_ADDR=127.0.0.1");
    add(l, "MASTER_PORT=%d", p->port.number);
    add(l, "TORCHELASTIC_RUN_ID=detd-%lld", (long long)p->job);
    add(l, "TORCHELASTIC_RESTART_COUNT=%d", r->attempt - 1);
    add(l, "TORCHELASTIC_MAX_RESTARTS=%lld", (long long)p->spec->run_restarts);
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
    if (p->spec->checkpoint_every > 0)
        add(l, "DETD_CHECKPOINT_EVERY=%lld", (long long)p->spec->checkpoint_every);
    if (p->spec->train_steps > 0)
        add(l, "DETD_STEPS=%lld", (long long)p->spec->train_steps);
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
    each = n / (int)p->spec->run_ranks;
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
    add(&l, "PWD=%s", p->spec->program_directory);
    if (!value_in(env, "OMP_NUM_THREADS"))
        add(&l, "OMP_NUM_THREADS=%d", p->spec->run_threads > 0 ? (int)p->spec->run_threads : 1);
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

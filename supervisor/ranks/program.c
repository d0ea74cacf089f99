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
#include "supervisor/ranks/spawn.h"

enum { SHOWN = 200 };

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
        return err_field(err, ERR_INPUT, "program.directory", "program.directory: the folder '%.*s' is gone; make it again", SHOWN,
                         p->spec->program_directory);
    if (venv && venv[0] && !which_is_folder(venv))
        return err_field(err, ERR_INPUT, "run.env", "run.env: the virtual environment '%.*s' (VIRTUAL_ENV) is gone; make it again", SHOWN,
                         venv);
    if (which_find(name, p->spec->program_directory, path, p->path))
        return 0;
    if (strchr(name, '/') && access(p->path, F_OK) < 0 && errno == ENOENT)
        return err_field(err, ERR_INPUT, "program.command", "program.command: '%.*s' is gone; make it again", SHOWN, p->path);
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
    if (number == ENOEXEC)
        return err_field(err, ERR_INPUT, "program.command",
                         "program.command: '%.*s' is neither a program nor a script that begins with #! and its interpreter", SHOWN / 2,
                         p->path);
    errno = number;
    err_sys(err, "execute '%.*s'", SHOWN, p->path);
    if (number == EACCES || number == ENOENT)
        err->code = ERR_INPUT; /* another try would find the same */
    return err->code;
}

/* ---- the environment of a rank ---- */

struct env {
    json_t *all;
    bool failed;
};

static void set(struct env *e, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void set(struct env *e, const char *name, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    e->failed |= json_object_set_new(e->all, name, json_vsprintf(fmt, ap)) < 0;
    va_end(ap);
}

/* As torchrun sets them for the ranks of one node. */
static void add_ranks(struct env *e, const struct program *p, const struct program_rank *r)
{
    char file[64];

    errorfile_name(r->attempt, r->rank, file, sizeof file);
    set(e, "RANK", "%d", r->rank);
    set(e, "LOCAL_RANK", "%d", r->rank);
    set(e, "ROLE_RANK", "%d", r->rank);
    set(e, "GROUP_RANK", "0");
    set(e, "ROLE_NAME", "default");
    set(e, "WORLD_SIZE", "%lld", (long long)p->spec->run_ranks);
    set(e, "LOCAL_WORLD_SIZE", "%lld", (long long)p->spec->run_ranks);
    set(e, "ROLE_WORLD_SIZE", "%lld", (long long)p->spec->run_ranks);
    set(e, "GROUP_WORLD_SIZE", "1");
    set(e, "MASTER_ADDR", "127.0.0.1");
    set(e, "MASTER_PORT", "%d", p->port.number);
    set(e, "TORCHELASTIC_RUN_ID", "detd-%lld", (long long)p->job);
    set(e, "TORCHELASTIC_RESTART_COUNT", "%d", r->attempt - 1);
    set(e, "TORCHELASTIC_MAX_RESTARTS", "%lld", (long long)p->spec->run_restarts);
    set(e, "TORCHELASTIC_USE_AGENT_STORE", "False");
    set(e, "TORCHELASTIC_ERROR_FILE", "%s/%s", r->job_dir, file);
}

static void add_job(struct env *e, const struct program *p, const struct program_rank *r)
{
    set(e, PROGRAM_ENV_REPORT, "%d:%llu", PROGRAM_FD_REPORT, (unsigned long long)r->report);
    set(e, PROGRAM_ENV_PAGE, "%d:%llu", PROGRAM_FD_PAGE, (unsigned long long)r->page);
    set(e, "DETD_JOB_ID", "%lld", (long long)p->job);
    set(e, "DETD_JOB_DIR", "%s", r->job_dir);
    set(e, "DETD_ATTEMPT", "%d", r->attempt);
    set(e, "DETD_RESUME_STEP", "%lld", (long long)p->resume_step);
    if (p->resume[0])
        set(e, "DETD_RESUME", "%s", p->resume);
    if (p->spec->checkpoint_every > 0)
        set(e, "DETD_CHECKPOINT_EVERY", "%lld", (long long)p->spec->checkpoint_every);
    if (p->spec->train_steps > 0)
        set(e, "DETD_STEPS", "%lld", (long long)p->spec->train_steps);
}

/* An instance of MIG is a device of its own, of which CUDA sees one: each rank gets its own. Else all ranks see all
 * GPUs, and LOCAL_RANK counts. Without GPUs of its own the job must not use those of others. */
static void add_gpus(struct env *e, const struct program *p, const struct program_rank *r)
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
    set(e, "CUDA_VISIBLE_DEVICES", "%s", text);
}

int program_env(const struct program *p, const struct program_rank *r, char ***ret, struct err *err)
{
    const json_t *given = p->spec->run_env;
    const char *path = json_string_value(json_object_get(given, "PYTHONPATH"));
    struct env own = { .all = json_object() }, *e = &own;
    int rc;

    set(e, "OMP_NUM_THREADS", "%d", p->spec->run_threads > 0 ? (int)p->spec->run_threads : 1);
    set(e, "PYTHONUNBUFFERED", "1");
    e->failed |= given && json_object_update(e->all, (json_t *)given) < 0;
    add_ranks(e, p, r);
    add_job(e, p, r);
    add_gpus(e, p, r);
    set(e, "PWD", "%s", p->spec->program_directory);
    if (p->module[0])
        set(e, "PYTHONPATH", "%s%s%s", path ? path : "", path && path[0] ? ":" : "", p->module);
    rc = e->failed ? err_set(err, -ENOMEM, "out of memory") : spawn_env(e->all, true, ret, err);
    json_decref(e->all);
    return rc;
}

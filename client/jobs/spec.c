#include <errno.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/jobs/epochs.h"
#include "client/jobs/inits.h"
#include "client/jobs/program.h"
#include "client/base/print.h"
#include "client/jobs/spec.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"

/* A folder `shapes` does not hide shapes.json: data often lies in a folder of the job's name. */
int spec_find(const char *file, char ret_path[PATH_MAX], struct err *err)
{
    char with[PATH_MAX];
    struct stat st;
    int why = stat(file, &st) < 0 ? errno : S_ISDIR(st.st_mode) ? EISDIR : 0;

    if ((why == ENOENT || why == EISDIR) && snprintf(with, sizeof with, "%s.json", file) < (int)sizeof with && realpath(with, ret_path))
        return 0;
    if (why == 0 && realpath(file, ret_path))
        return 0;
    errno = why ? why : errno;
    return err_sys(err, "job file '%s'", file);
}

/* Paths are relative to the folder of the job file. */
static int make_absolute(json_t *root, const char *path, struct err *err)
{
    char folder[PATH_MAX], *slash;

    snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    if (program_is(root) && !json_object_get(json_object_get(root, "program"), "directory"))
        json_object_set_new(json_object_get(root, "program"), "directory", json_string(folder));
    return jobspec_absolute(root, folder, err);
}

/* Annotations of the formats voc and yolo may be a file or a folder. */
static bool may_be_either(const struct jobspec *s, const char *key)
{
    const char *format = strcmp(key, "data.train.annotations") == 0 ? s->data_train_format
                         : strcmp(key, "data.val.annotations") == 0 ? s->data_val_format
                                                                    : "";

    return strcmp(format, "voc") == 0 || strcmp(format, "yolo") == 0;
}

/* Opens one path as the user, so that a missing file is named before anything is queued. */
static int try_path(const struct jobspec *s, const char *key, const char *path, struct err *err)
{
    const char *last = strrchr(key, '.');
    bool folder = last && (strcmp(last, ".images") == 0 || strcmp(last, ".evidence") == 0 || strcmp(last, ".run") == 0 ||
                           strcmp(last, ".directory") == 0);
    struct stat st;
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &st) < 0)
        rc = err_sys(err, "%s: open '%s'", key, path);
    else if (S_ISDIR(st.st_mode) != folder && !may_be_either(s, key))
        rc = err_set(err, ERR_INPUT, "%s: '%s' is %s", key, path, folder ? "not a folder" : "a folder, not a file");
    if (fd >= 0)
        close(fd);
    return rc;
}

/* A job that evaluates another job's checkpoint opens neither that job's training data nor its initial weights. */
static int try_paths(const struct jobspec *s, struct err *err)
{
    const char *key, *path;
    int rc = 0;

    for (size_t i = 0; rc == 0 && jobspec_next_path(s, &i, &key, &path);)
        if (!s->eval_run || (strncmp(key, "data.train.", 11) != 0 && strncmp(key, "model.init", 10) != 0))
            rc = try_path(s, key, path, err);
    return rc;
}

/* Checks everything that can be known of the job here. The caller frees *ret. */
static int check(const json_t *root, const char *path, struct jobspec **ret, struct err *err)
{
    int rc = jobspec_parse_uncounted(&job_presets, root, ret, err);

    if (rc == 0)
        rc = jobspec_check_best(*ret, err);
    if (rc < 0)
        err_prefix(err, "%s", path);
    return rc == 0 ? try_paths(*ret, err) : rc;
}

int spec_check(const json_t *root, const char *name, struct err *err)
{
    struct jobspec *s = NULL;
    int rc = jobspec_parse(root, &s, err);

    if (rc < 0)
        err_prefix(err, "%s", name);
    else
        rc = try_paths(s, err);
    jobspec_free(s);
    return rc;
}

int spec_read(const char *file, json_t **ret_root, struct err *err)
{
    char path[PATH_MAX];
    int rc = spec_find(file, path, err);

    return rc == 0 ? jobspec_read(path, ret_root, err) : rc;
}

static int read_job(const char *file, char ret_path[PATH_MAX], json_t **ret_root, struct err *err)
{
    const char *dot = strrchr(file, '.');
    int rc;

    if (dot && (strcmp(dot, ".py") == 0 || strcmp(dot, ".sh") == 0))
        return err_set(err, ERR_INPUT, "%.100s is no job file; detctl run queues a program", file);
    rc = spec_find(file, ret_path, err);
    if (rc == 0)
        rc = jobspec_read(ret_path, ret_root, err);
    return rc == 0 ? make_absolute(*ret_root, ret_path, err) : rc;
}

static int refuse_errand(struct err *err)
{
    return err_field(err, ERR_INPUT, JOB_ERRAND, JOB_ERRAND ": not a key of a job file; verify, eval --on and clone --same-data set it");
}

int spec_assign(json_t *root, char *const *assignments, int count, struct err *err)
{
    char here[PATH_MAX];
    int rc = getcwd(here, sizeof here) ? 0 : err_sys(err, "folder");

    for (int i = 0; i < count && rc == 0; i++)
        rc = job_word_is_errand(assignments[i]) ? refuse_errand(err) : jobspec_override(root, assignments[i], err);
    return rc == 0 ? jobspec_absolute(root, here, err) : rc;
}

static void tell_notes(const struct jobspec *s, const char *path)
{
    struct jobspec_idle idle[JOB_MAX_IDLE];
    const char *doubt = jobspec_doubt(s);

    for (int i = 0, n = jobspec_idle(s, idle); i < n; i++) {
        print_clean(stderr, path);
        fprintf(stderr, ": note: %s has no effect here: it needs %s\n", idle[i].key, idle[i].needs);
    }
    if (doubt) {
        print_clean(stderr, path);
        fprintf(stderr, ": note: %s\n", doubt);
    }
}

static int complete(json_t *root, const char *path, struct err *err)
{
    struct jobspec *s = NULL, *counted = NULL;
    bool epochs;
    int rc = check(root, path, &s, err);

    if (rc == 0 && jobspec_has_units(root, &epochs)) {
        rc = epochs_count(root, s, path, err);
        if (rc == 0)
            rc = check(root, path, &counted, err);
    }
    if (rc == 0)
        tell_notes(counted ? counted : s, path);
    jobspec_free(s);
    jobspec_free(counted);
    return rc;
}

int spec_load(struct context *ctx, const char *file, char *const *assignments, int count, json_t **ret_spec)
{
    struct err err = { 0 };
    char path[PATH_MAX];
    json_t *root = NULL;
    int rc;

    rc = read_job(file, path, &root, &err);
    if (rc == 0 && json_object_get(root, JOB_ERRAND))
        rc = refuse_errand(&err);
    rc = rc < 0 ? complain(&err) : spec_change(ctx, root, path, assignments, count, ret_spec);
    json_decref(root);
    return rc;
}

int spec_change(struct context *ctx, const json_t *spec, const char *name, char *const *assignments, int count, json_t **ret_spec)
{
    json_t *root = json_deep_copy(spec);
    struct err err = { 0 };
    int rc = spec_assign(root, assignments, count, &err) < 0 ? complain(&err) : 0;

    if (!rc && !(rc = inits_find(ctx, root, stderr)) && complete(root, name, &err) < 0)
        rc = complain(&err);
    if (rc == 0)
        *ret_spec = root;
    else
        json_decref(root);
    return rc;
}

json_t *spec_group(json_t *root, const char *name)
{
    if (!json_is_object(json_object_get(root, name)))
        json_object_set_new(root, name, json_object());
    return json_object_get(root, name);
}

void spec_drop_wishes(json_t *run)
{
    static const char *const keys[] = { "after", "after_ok", "time_limit", "on_end", "priority" };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        json_object_del(run, keys[i]);
}

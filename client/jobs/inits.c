#include <errno.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/base/checkpoint.h"
#include "client/base/command.h"
#include "client/base/run.h"
#include "client/jobs/inits.h"
#include "client/base/print.h"
#include "proto/err.h"

struct wish {
    const char *key;
    int64_t job;
    char which[32]; /* best, last, a step, or "": the same as best */
};

/* Returns 1 for a job's weights, 0 for a file. */
static int read_wish(const char *key, const char *text, struct wish *ret, struct err *err)
{
    const char *at;
    char *end;

    if (!text || strncmp(text, "job:", 4) != 0)
        return 0;
    *ret = (struct wish){ .key = key };
    errno = 0;
    ret->job = strtoll(text + 4, &end, 10);
    at = *end == '@' ? end + 1 : "";
    if (end == text + 4 || errno || ret->job < 1 || (*end && *end != '@') || (*end == '@' && !*at) || strlen(at) >= sizeof ret->which)
        return err_set(err, ERR_INPUT, "model.%s: '%s' should be job:ID, job:ID@best, job:ID@last or job:ID@STEP", key, text);
    memcpy(ret->which, at, strlen(at) + 1);
    return 1;
}

/* Tells the step, unless it was given by its number. */
static void tell_step(const struct wish *w, const json_t *checkpoint, FILE *tell)
{
    if (!tell || (w->which[0] && strcmp(w->which, "best") != 0 && strcmp(w->which, "last") != 0))
        return;
    fprintf(tell, "model.%s: checkpoint of step %lld of job %" PRId64 ", its %s\n", w->key, int_of(checkpoint, "step"), w->job,
            strcmp(w->which, "last") != 0 && json_is_true(json_object_get(checkpoint, "best")) ? "best" : "newest");
}

static int put(json_t *model, const struct wish *w, const json_t *checkpoints, FILE *tell, struct err *err)
{
    const json_t *c = checkpoint_find(checkpoints, w->which);

    if (!c)
        return err_set(err, ERR_NOTFOUND,
                       "model.%s: job %" PRId64 " has no checkpoint '%s' on the disk; detctl show %" PRId64 " lists them", w->key, w->job,
                       w->which[0] ? w->which : "best", w->job);
    tell_step(w, c, tell);
    return json_object_set_new(model, w->key, json_sprintf("%s/model.safetensors", json_string_value(json_object_get(c, "path")))) < 0
               ? err_set(err, ERR_INPUT, "model.%s: out of memory", w->key)
               : 0;
}

int inits_find(struct context *ctx, json_t *root, FILE *tell)
{
    json_t *model = json_object_get(root, "model"), *value, *job;
    struct err err = { 0 };
    const char *key;
    struct wish w;
    void *next;
    int rc;

    json_object_foreach_safe(model, next, key, value)
    {
        if (strncmp(key, "init", 4) != 0 || (rc = read_wish(key, json_string_value(value), &w, &err)) == 0)
            continue;
        if (rc < 0)
            return complain(&err);
        if ((rc = call(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)w.job), &job)))
            return rc;
        if ((rc = run_check_model(job))) {
            json_decref(job);
            return rc;
        }
        rc = put(model, &w, json_object_get(job, "checkpoints"), tell, &err);
        json_decref(job);
        if (rc < 0)
            return complain(&err);
    }
    return 0;
}

/* ---- keeping checkpoints ---- */

enum { NAMES = 9 }; /* names for checkpoints of one step: a job that was extended or resumed may write it anew */

/* Gives the file another name in that folder: stem.safetensors, or stem-2 ... if a name belongs to another file. */
static bool hold_in(const char *folder, const char *stem, const char *path, char ret[PATH_MAX])
{
    struct stat is, has;

    if (stat(path, &is) < 0 || (mkdir(folder, 0777) < 0 && errno != EEXIST))
        return false;
    for (int k = 1; k <= NAMES; k++) {
        char number[8] = "";

        if (k > 1)
            snprintf(number, sizeof number, "-%d", k);
        if (snprintf(ret, PATH_MAX, "%s/%s%s.safetensors", folder, stem, number) >= PATH_MAX)
            return false;
        if (link(path, ret) == 0 || (errno == EEXIST && stat(ret, &has) == 0 && has.st_ino == is.st_ino && has.st_dev == is.st_dev))
            return true;
        if (errno != EEXIST)
            return false;
    }
    return false;
}

/* A checkpoint may be removed before the job begins that starts from it. So its file gets another name in the folder of
 * its own job, which is removed with that job. If that is not possible, for example for a file of another user, the
 * path stays as it is. */
static void hold(json_t *model, const char *key, const char *path)
{
    static const char in[] = "/checkpoints/", file[] = "/model.safetensors";
    const char *at = strstr(path, in), *step = at ? at + strlen(in) : "", *end = strchr(step, '/');
    char folder[PATH_MAX], stem[64], name[PATH_MAX], spec[PATH_MAX];
    struct stat of;

    if (!end || strncmp(step, "step-", 5) != 0 || strcmp(end, file) != 0 || end - step >= (ptrdiff_t)sizeof stem)
        return;
    snprintf(stem, sizeof stem, "%.*s", (int)(end - step), step);
    if (snprintf(spec, sizeof spec, "%.*s/spec.json", (int)(at - path), path) >= (int)sizeof spec || access(spec, F_OK) < 0)
        return; /* it belongs to no job */
    snprintf(folder, sizeof folder, "%.*s", (int)(at - path), path);
    if (geteuid() == 0 && (stat(folder, &of) < 0 || of.st_uid != 0))
        return; /* the folder's owner may have put a link in the place of inits/ */
    if (snprintf(folder, sizeof folder, "%.*s/inits", (int)(at - path), path) < (int)sizeof folder && hold_in(folder, stem, path, name))
        json_object_set_new(model, key, json_string(name));
}

void inits_hold(json_t *root)
{
    json_t *model = json_object_get(root, "model"), *value;
    const char *key;
    void *next;

    json_object_foreach_safe(model, next, key, value)
    {
        if (strncmp(key, "init", 4) == 0 && json_is_string(value))
            hold(model, key, json_string_value(value));
    }
}

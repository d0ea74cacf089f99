#include "client/results/evaluate.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/checkpoint.h"
#include "client/base/command.h"
#include "client/base/print.h"
#include "client/base/run.h"
#include "client/base/user.h"
#include "client/jobs/spec.h"
#include "client/jobs/submit.h"
#include "client/jobs/watch.h"
#include "proto/clean.h"
#include "proto/job/data_format.h"
#include "proto/err.h"

static int put_text(json_t *to, const char *key, const char *text, const char *what, struct err *err)
{
    return json_object_set_new(to, key, json_string(text)) == 0 ? 0 : err_set(err, ERR_INPUT, "%s: not valid UTF-8", what);
}

/* Puts the absolute path. A path that does not exist is put as it is, for the check to name. */
static int put_path(json_t *to, const char *key, const char *path, const char *what, struct err *err)
{
    char real[PATH_MAX];

    return put_text(to, key, realpath(path, real) ? real : path, what, err);
}

/* Writes "test" for "sets/test.json". */
static void name_of(const struct evaluation *e, char ret[65])
{
    const char *slash = strrchr(e->on, '/'), *base = slash ? slash + 1 : e->on, *dot = strrchr(base, '.');
    char name[NAME_MAX + 1];

    snprintf(name, sizeof name, "%.*s", dot && dot != base ? (int)(dot - base) : (int)strlen(base), base);
    clean_copy(ret, 65, e->set ? e->set : name);
}

/* Puts the set in the place of the validation split. The job's folder of pictures and its names of classes hold only
 * for a set of the same format. */
static int put_set(json_t *root, const struct evaluation *e, struct err *err)
{
    json_t *data = spec_group(root, "data"), *train = spec_group(data, "train"), *val = spec_group(data, "val");
    const json_t *like = json_is_string(json_object_get(val, "annotations")) ? val : train;
    const char *like_format = json_string_value(json_object_get(like, "format")), *format;
    json_t *images = json_incref(json_object_get(like, "images"));

    like_format = like_format ? like_format : "coco";
    format = e->format ? e->format : data_format(e->on, like_format);
    json_object_del(val, "fraction");
    json_object_del(val, "images");
    if (strcmp(format, like_format) == 0)
        json_object_set(val, "images", images);
    else
        json_object_del(data, "names");
    json_decref(images);
    json_object_set_new(val, "format", json_string(format));
    if (e->images && put_path(val, "images", e->images, "--images", err) < 0)
        return ERR_INPUT;
    return put_path(val, "annotations", e->on, "--on", err);
}

static int build(const struct run *r, const struct evaluation *e, const char *set, long long step, json_t **ret, struct err *err)
{
    json_t *root = json_deep_copy(r->spec), *errand;
    char short_set[41], name[65];
    int rc;

    clean_copy(short_set, sizeof short_set, set);
    snprintf(name, sizeof name, "eval %lld on %s", (long long)r->id, short_set);
    json_object_del(root, "errand"); /* the run's own errand */
    spec_drop_wishes(spec_group(root, "run"));
    json_object_set_new(spec_group(root, "run"), "evidence", json_string("off")); /* nothing is trained */
    errand = spec_group(root, "errand");
    json_object_set_new(errand, "run", json_string(r->dir));
    json_object_set_new(errand, "step", json_integer(step));
    json_object_set_new(errand, "job", json_integer(r->id));
    rc = put_set(root, e, err);
    if (rc == 0)
        rc = e->nchanges > 0 ? spec_assign(root, e->changes, e->nchanges, err) : 0;
    if (rc == 0)
        rc = put_text(errand, "set", set, "--set", err);
    if (rc == 0)
        rc = put_text(root, "name", name, "--set", err);
    if (rc == 0)
        rc = run_check_env(root, r->name, err);
    if (rc == 0)
        rc = spec_check(root, r->name, err);
    if (rc == 0)
        *ret = root;
    else
        json_decref(root);
    return rc;
}

static int choose(struct context *ctx, const struct run *r, const struct evaluation *e, long long *ret_step)
{
    const char *which = e->checkpoint;
    const json_t *c;
    json_t *job;
    int rc = call(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)r->id), &job);

    if (rc)
        return rc;
    c = checkpoint_find(json_object_get(job, "checkpoints"), which);
    if (!c) {
        fprintf(stderr, "detctl: %s has no checkpoint '%s' on the disk; detctl show %lld lists them\n", r->name, which ? which : "best",
                (long long)r->id);
        json_decref(job);
        return CODE_REFUSED;
    }
    *ret_step = int_of(c, "step");
    fprintf(stderr, "checkpoint of step %lld: %s\n", *ret_step,
            which && strcmp(which, "last") == 0                                            ? "the newest"
            : which && strcmp(which, "best") != 0                                          ? "as asked for"
            : !json_is_true(json_object_get(c, "best"))                                    ? "the newest; no checkpoint was validated"
            : strcmp(text_of(json_object_get(r->spec, "checkpoint"), "best"), "loss") == 0 ? "the lowest validation loss"
                                                                                           : "the best validation by checkpoint.best");
    json_decref(job);
    return 0;
}

/* Waits for the end of the job, and tells it unless the job completed. */
static int wait_for(struct context *ctx, int64_t id)
{
    json_t *job = NULL;
    int rc;

    fprintf(stderr, "job %lld evaluates\n", (long long)id);
    rc = watch_until_end(ctx, id, WATCH_STEPS, NULL, &job);
    if (rc == 0 && strcmp(text_of(job, "state"), "completed") != 0) {
        fprintf(stderr, "detctl: job %lld %s: ", (long long)id, text_of(job, "state"));
        print_clean(stderr, text_of(job, "reason"));
        fputc('\n', stderr);
        rc = strcmp(text_of(job, "state"), "cancelled") == 0 ? CODE_JOB_CANCELLED : CODE_JOB_FAILED;
    }
    json_decref(job);
    return rc;
}

int evaluate(struct context *ctx, const char *id, const struct evaluation *e, char ret_set[65], long long *ret_step)
{
    struct err err = { 0 };
    json_t *spec = NULL;
    struct run r;
    int64_t by = 0;
    int rc = user_may_submit(ctx);

    if (rc || (rc = run_take(ctx, id, &r)))
        return rc;
    name_of(e, ret_set);
    rc = run_check_owner(&r);
    if (r.id == 0) {
        fprintf(stderr, "detctl: '%s' is not a job of detd: results are listed under a job\n", id);
        rc = CODE_REFUSED;
    }
    if (rc == 0)
        rc = choose(ctx, &r, e, ret_step);
    if (rc == 0 && build(&r, e, ret_set, *ret_step, &spec, &err) < 0)
        rc = complain(&err);
    if (rc == 0) {
        catch_interrupt();
        rc = submit_spec(ctx, spec, &by);
    }
    if (rc == 0)
        rc = wait_for(ctx, by);
    run_free(&r);
    return rc;
}

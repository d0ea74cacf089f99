/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/extend.c - extend: more steps for a completed job; clone: a new
 * job from a job's keys, with some changed. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/jobs/check.h"
#include "client/base/command.h"
#include "client/jobs/epochs.h"
#include "client/base/print.h"
#include "client/base/run.h"
#include "client/jobs/spec.h"
#include "client/jobs/submit.h"
#include "client/base/user.h"
#include "client/base/worker.h"
#include "proto/err.h"
#include "proto/host/memory.h"
#include "proto/job/jobspec.h"

/* ---- extend ---- */

/* Counts the steps as a submission does. */
static int steps_of_epochs(const json_t *job, double epochs, int64_t *ret, struct err *err)
{
    json_t *spec = json_deep_copy(json_object_get(job, "spec")), *train = json_object_get(spec, "train");
    struct jobspec *s = NULL;
    char name[40];
    int rc;

    snprintf(name, sizeof name, "job %lld", int_of(job, "id"));
    json_object_del(train, "steps");
    json_object_set_new(train, "epochs", json_real(epochs));
    rc = jobspec_parse_uncounted(&job_presets, spec, &s, err);
    if (rc == 0)
        rc = epochs_count(spec, s, name, err);
    if (rc == 0)
        *ret = json_integer_value(json_object_get(train, "steps"));
    jobspec_free(s);
    json_decref(spec);
    return rc;
}

struct more {
    int64_t steps; /* 0: not given */
    double epochs; /* 0: not given */
    bool wait, watch;
};

static int take_more(struct context *ctx, int argc, char **argv, struct more *ret)
{
    static const struct option options[] = { { "steps", required_argument, NULL, 's' },
                                             { "epochs", required_argument, NULL, 'e' },
                                             { "wait", no_argument, NULL, 'w' },
                                             { "watch", no_argument, NULL, 'W' },
                                             { 0 } };
    char *end;
    int o;

    *ret = (struct more){ 0 };
    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        ret->wait |= o == 'w';
        ret->watch |= o == 'W';
        errno = 0;
        if (o == 's' && ((ret->steps = strtoll(optarg, &end, 10)) < 1 || errno || *end))
            return misuse(ctx, "--steps: '%s' is not a number of steps", optarg);
        if (o == 'e' && (!isfinite(ret->epochs = strtod(optarg, &end)) || ret->epochs <= 0 || end == optarg || *end))
            return misuse(ctx, "--epochs: '%s' is not a number of epochs", optarg);
    }
    return (ret->steps > 0) + (ret->epochs > 0) == 1
               ? 0
               : misuse(ctx, "--steps N or --epochs N is required: the new length, counted from the job's beginning");
}

/* A job that finds its data changed fails, and a failed job cannot get more steps. So its data are checked before.
 * Files that cannot be read from here are left to the job. */
static int check_data(const json_t *job)
{
    char *folder = strdup(text_of(job, "dir")), spec[PATH_MAX];
    long long id = int_of(job, "id");
    int n = folder ? snprintf(spec, sizeof spec, "%s/spec.json", folder) : -1, rc = 0;

    if (n < 0)
        memory_out();
    if ((size_t)n < sizeof spec && access(spec, R_OK) == 0)
        rc = worker_run((char *[]){ NULL, (char *)"--check", (char *)"--job-dir", folder, NULL });
    if (rc == CODE_REFUSED)
        fprintf(stderr,
                "detctl: job %lld is not extended, because it would fail; put its data back as it was, or train a new job on it with "
                "`detctl clone %lld`\n",
                id, id);
    free(folder);
    return rc;
}

/* The value of a key in a new job of so many steps that does not give the key; -1: unknown. */
static long long default_of(const json_t *spec, const char *section, const char *key, int64_t steps)
{
    json_t *root = json_deep_copy(spec), *whole;
    struct jobspec *s = NULL;
    long long value = -1;
    struct err ignored;

    json_object_del(json_object_get(root, section), key);
    json_object_set_new(json_object_get(root, "train"), "steps", json_integer(steps));
    if (jobspec_parse_for(&job_presets, root, false, &s, &ignored) == 0) {
        whole = jobspec_json(s);
        value = int_of(json_object_get(whole, section), key);
        json_decref(whole);
    }
    jobspec_free(s);
    json_decref(root);
    return value;
}

/* Tells which keys stay as they are, though they were derived from the number of steps. A new job of `steps` steps has
 * other defaults, and other results. job: as it was before. */
static void tell_kept_keys(const json_t *job, int64_t steps)
{
    static const char *const keys[][2] = { { "train", "burn_in" }, { "val", "every" }, { "checkpoint", "every" } };
    const json_t *spec = json_object_get(job, "spec");

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *section = keys[i][0], *key = keys[i][1];
        long long has = int_of(json_object_get(spec, section), key), now = default_of(spec, section, key, steps);

        if (now >= 0 && now != has && default_of(spec, section, key, int_of(job, "steps")) == has)
            fprintf(stderr, "%s.%s stays %lld; a new job of %lld steps has %lld by default\n", section, key, has, (long long)steps, now);
    }
}

/* Once detd has granted the steps, no further call is made that might fail. job: as it was before. */
static int extend(struct context *ctx, int64_t id, const json_t *job, struct more *more)
{
    struct err err = { 0 };
    json_t *result;
    int rc = 0;

    if (more->epochs > 0 && steps_of_epochs(job, more->epochs, &more->steps, &err) < 0)
        return complain(&err);
    if ((rc = call(ctx, "job.extend", json_pack("{s:I, s:I}", "id", (json_int_t)id, "steps", (json_int_t)more->steps), &result)))
        return rc;
    if (int_of(result, "from") > 0)
        fprintf(stderr, "job %lld goes on after step %lld, to step %lld\n", (long long)id, int_of(result, "from"), (long long)more->steps);
    json_decref(result);
    tell_kept_keys(job, more->steps);
    return 0;
}

int command_extend(struct context *ctx, int argc, char **argv)
{
    struct more more;
    int64_t id = 0;
    json_t *job;
    int rc;

    if ((rc = take_more(ctx, argc, argv, &more)))
        return rc;
    if (argc - optind != 1)
        return misuse(ctx, "one job id is needed; keys stay as they are (clone changes them)");
    if ((rc = take_id(ctx, argv[optind], &id)) || (rc = call(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)id), &job)))
        return rc;
    if (!(rc = run_check_model(job)) && !(rc = user_owns_job(ctx, job)) && !(rc = check_data(job)))
        rc = extend(ctx, id, job, &more);
    json_decref(job);
    return rc ? rc : submitted(ctx, id, more.wait, more.watch);
}

/* ---- clone ---- */

static bool given(char *const *assignments, int n, const char *key)
{
    size_t length = strlen(key);

    for (int i = 0; i < n; i++)
        if (strncmp(assignments[i], key, length) == 0 && assignments[i][length] == '=')
            return true;
    return false;
}

/* Keys that follow from another key are derived anew when that key is given anew. */
static const struct {
    const char *given, *section, *key; /* section and key: the key that follows */
} followers[] = { { "train.epochs", "train", "steps" }, { "model.preset", "model", "cfg" }, { "model.cfg", "model", "preset" } };

static void forget_followers(json_t *spec, char *const *assignments, int n)
{
    json_t *augment = json_object_get(json_object_get(spec, "data"), "augment");

    for (size_t i = 0; i < sizeof followers / sizeof *followers; i++)
        if (given(assignments, n, followers[i].given))
            json_object_del(json_object_get(spec, followers[i].section), followers[i].key);
    if (!json_is_true(json_object_get(augment, "multiscale"))) { /* without multiscale they have no effect */
        json_object_del(augment, "size_min");
        json_object_del(augment, "size_max");
    }
}

/* Old values of intervals that are derived anew; 0: they stay. */
struct followed {
    long long val, checkpoint;
    bool of_val; /* checkpoint.every follows val.every, else the number of steps */
};

/* Intervals that were not given are derived from other keys. An interval that has the default for the old keys gets the
 * default for the new ones. */
static struct followed forget_intervals(json_t *spec, char *const *assignments, int n)
{
    json_t *val = json_object_get(spec, "val"), *checkpoint = json_object_get(spec, "checkpoint");
    const long long tenth = jobspec_default_every(int_of(json_object_get(spec, "train"), "steps"));
    const long long every = int_of(val, "every"), saved = int_of(checkpoint, "every");
    const bool of_steps = given(assignments, n, "train.steps") || given(assignments, n, "train.epochs"),
               told = given(assignments, n, "val.every");
    struct followed f = { .val = of_steps && every == tenth && !told ? every : 0 };

    f.of_val = f.val || told;
    if ((f.of_val || (of_steps && every <= 0)) && saved == (every > 0 ? every : tenth) && !given(assignments, n, "checkpoint.every"))
        f.checkpoint = saved;
    if (f.val)
        json_object_del(val, "every");
    if (f.checkpoint)
        json_object_del(checkpoint, "every");
    return f;
}

static void tell_followed(struct followed f)
{
    if (f.val)
        fprintf(stderr, "val.every, which was %lld, is a tenth of the steps again\n", f.val);
    if (f.checkpoint)
        fprintf(stderr, "checkpoint.every, which was %lld, is %s again\n", f.checkpoint,
                f.of_val ? "the value of val.every" : "a tenth of the steps");
}

/* Makes the spec of a new job, a new reference: the run's spec with changes. same_data: the job must refuse other
 * training data. Returns 0, or an exit code after complaining. */
static int clone_spec(struct context *ctx, const struct run *r, char *const *assignments, int n, bool same_data, json_t **ret)
{
    json_t *run = json_object_get(r->spec, "run"), *errand = json_object_get(r->spec, JOB_ERRAND);
    struct err err;
    int rc;

    json_object_del(run, "after"); /* it concerned the old job alone */
    if (!given(assignments, n, "run.after"))
        json_object_del(run, "after_ok");
    json_object_del(errand, "data_hash");
    if (same_data && !r->data_hash[0]) {
        fprintf(stderr, "detctl: %s did not tell which data it was trained on\n", r->name);
        return CODE_REFUSED;
    }
    if (same_data && !errand)
        json_object_set_new(r->spec, JOB_ERRAND, errand = json_object());
    if (same_data)
        json_object_set_new(errand, "data_hash", json_string(r->data_hash));
    forget_followers(r->spec, assignments, n);
    rc = spec_change(ctx, r->spec, r->name, assignments, n, ret);
    if (rc == 0 && run_check_env(*ret, r->name, &err) < 0) {
        json_decref(*ret);
        return complain(&err);
    }
    return rc;
}

/* A user of this node may not give every priority that the old job had, perhaps from an admin. */
static int lower_priority(struct context *ctx, json_t *spec, char *const *assignments, int n)
{
    json_t *run = json_object_get(spec, "run"), *info;
    const long long had = int_of(run, "priority");
    long long most;
    int rc;

    if (had <= 0 || given(assignments, n, "run.priority"))
        return 0;
    if ((rc = call(ctx, "daemon.info", json_object(), &info)))
        return rc;
    most = json_object_get(info, "priority_max") ? int_of(info, "priority_max") : had;
    json_decref(info);
    if (had <= most)
        return 0;
    fprintf(stderr, "run.priority, which was %lld, is %lld: users of this node may not give more (user_priority)\n", had, most);
    json_object_set_new(run, "priority", json_integer(most));
    return 0;
}

int command_clone(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { QUEUEING_OPTIONS, { "same-data", no_argument, NULL, 'd' }, { 0 } };
    struct queueing q = { 0 };
    struct followed followed;
    bool same_data = false;
    json_t *spec = NULL;
    char **assignments;
    int64_t id = 0;
    struct run r;
    int rc, o, n;

    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        take_queueing(o, &q);
        same_data |= o == 'd';
    }
    if (optind >= argc)
        return misuse(ctx, "no job id given");
    assignments = argv + optind + 1;
    n = argc - optind - 1;
    if ((rc = take_id(ctx, argv[optind], &id)) || (rc = user_may_submit(ctx)) || (rc = run_take_any(ctx, argv[optind], &r)))
        return rc;
    followed = forget_intervals(r.spec, assignments, n); /* looks at the steps, which may be dropped next */
    if (!(rc = run_check_owner(&r)))
        rc = clone_spec(ctx, &r, assignments, n, same_data, &spec);
    run_free(&r);
    if (rc == 0 && (rc = lower_priority(ctx, spec, assignments, n)))
        json_decref(spec);
    if (rc || (rc = submit_checked(ctx, spec, &q, &id)))
        return rc;
    tell_followed(followed);
    return submitted(ctx, id, q.wait, q.watch);
}

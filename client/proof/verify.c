/* SPDX-License-Identifier: Apache-2.0 */ /* client/proof/verify.c - trains a run once more, to compare it with
 * itself. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/jobs/inits.h"
#include "client/base/print.h"
#include "client/base/run.h"
#include "client/base/user.h"
#include "client/jobs/spec.h"
#include "client/jobs/submit.h"
#include "client/proof/verdict.h"
#include "client/proof/verify.h"
#include "client/jobs/watch.h"
#include "proto/err.h"
#include "proto/evidence/evidence.h"
#include "proto/job/jobspec.h"

/* Options of the command; -1 and NULL: not given. */
struct wish {
    int64_t from, steps, ranks, stress;
    const char *isa, *device;
    bool json;
};

static int take_number(const struct context *ctx, const char *text, int64_t least, int64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoll(text, &end, 10);
    return errno || end == text || *end || *ret < least ? misuse(ctx, "'%s' is not a number from %lld on", text, (long long)least) : 0;
}

/* ---- the job ---- */

/* Steps *ret_from + 1 .. *ret_to of the run can be compared; *ret_recorded is the number of all its recorded steps. */
static int take_steps(const struct run *r, const struct wish *w, int64_t *ret_from, int64_t *ret_to, int64_t *ret_recorded, struct err *err)
{
    const json_t *of = json_object_get(json_object_get(r->spec, "errand"), "evidence");
    struct evidence *e = NULL;
    int64_t last;
    int rc;

    if (json_is_string(of))
        return err_set(err, ERR_INPUT, "%s verifies another run itself: '%s'", r->name, json_string_value(of));
    rc = evidence_open(r->dir, &e, err);
    if (rc < 0) {
        err_prefix(err, "%s", r->name);
        return rc;
    }
    last = evidence_steps(e);
    evidence_close(e);
    *ret_recorded = last;
    *ret_from = w->from > 0 ? w->from : 0;
    *ret_to = w->steps > 0 && w->steps < last - *ret_from ? *ret_from + w->steps : last;
    if (*ret_from >= last)
        return err_set(err, ERR_INPUT, "%s has evidence of %lld steps, but not of steps after %lld", r->name, (long long)last,
                       (long long)*ret_from);
    if (w->steps > last - *ret_from)
        return err_set(err, ERR_INPUT, "%s has evidence of %lld steps, which are %lld after step %lld", r->name, (long long)last,
                       (long long)(last - *ret_from), (long long)*ret_from);
    return 0;
}

/* *ret: the job that compares, a new reference. *ret_recorded: the number of steps with evidence. Returns 0, or an exit
 * code after complaining. */
static int build(struct context *ctx, const struct run *r, const struct wish *w, char *const *assignments, int count, json_t **ret,
                 int64_t *ret_recorded)
{
    struct err why = { 0 }, *err = &why;
    json_t *root = json_deep_copy(r->spec), *run = spec_group(root, "run"), *errand = spec_group(root, "errand");
    int64_t from = 0, to = 0;
    char name[65];
    int rc = take_steps(r, w, &from, &to, ret_recorded, err);

    snprintf(name, sizeof name, "verify %.*s", r->id ? 40 : 56, r->id ? r->name + strlen("job ") : r->name);
    json_object_set_new(root, "name", json_string(name));
    json_object_set_new(errand, "evidence", json_string(r->dir));
    spec_drop_wishes(run);
    json_object_set_new(errand, "from", json_integer(from));
    json_object_set_new(errand, "to", json_integer(to));
    if (w->ranks > 0)
        json_object_set_new(run, "ranks", json_integer(w->ranks));
    if (w->stress >= 0)
        json_object_set_new(errand, "stress", json_integer(w->stress));
    if (w->isa)
        json_object_set_new(run, "isa", json_string(w->isa));
    if (w->device)
        json_object_set_new(run, "device", json_string(w->device));
    if (rc == 0)
        rc = spec_assign(root, assignments, count, err);
    if (rc == 0)
        rc = run_check_env(root, r->name, err);
    if (rc < 0)
        rc = complain(err);
    if (rc == 0)
        rc = inits_find(ctx, root, stderr);
    if (rc == 0 && spec_check(root, r->name, err) < 0)
        rc = complain(err);
    if (rc == 0)
        *ret = root;
    else
        json_decref(root);
    return rc;
}

int verify_step(struct context *ctx, const struct run *r, int64_t step, int64_t *ret_id)
{
    struct wish w = { .from = step - 1, .steps = 1, .ranks = -1, .stress = -1 };
    int64_t recorded;
    json_t *spec;
    int rc = user_may_submit(ctx);

    return rc || (rc = run_check_owner(r)) || (rc = build(ctx, r, &w, NULL, 0, &spec, &recorded)) ? rc : submit_spec(ctx, spec, ret_id);
}

/* Tells where the verify job begins, and how long it will take at the run's own pace. For a folder neither is known.
 * The job is queued by now, so a failure here ends nothing. */
static void tell_way(struct context *ctx, const struct run *r, const json_t *verify)
{
    long long from = int_of(verify, "from"), begin = 0, steps;
    json_t *job, *c;
    double a_step;
    size_t i;

    if (!r->id || call(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)r->id), &job))
        return;
    json_array_foreach (json_object_get(job, "checkpoints"), i, c) {
        if (begin == 0 && int_of(c, "step") <= from && !json_is_false(json_object_get(c, "there")))
            begin = int_of(c, "step"); /* they come newest first */
    }
    steps = int_of(verify, "to") - begin;
    a_step = int_of(job, "step") > 0 ? real_of(job, "seconds") / (double)int_of(job, "step") : 0;
    if (begin > 0)
        fprintf(stderr, "it begins at the checkpoint of step %lld and trains %lld steps", begin, steps);
    else if (from > 0)
        fprintf(stderr, "no checkpoint of step %lld or before is kept: it begins with step 1 and trains %lld steps", from, steps);
    else
        fprintf(stderr, "it begins with step 1 and trains %lld steps", steps);
    if (a_step > 0)
        fprintf(stderr, "; the run took %s for as many", text_duration(a_step * (double)steps).s);
    fputc('\n', stderr);
    json_decref(job);
}

/* Runs the job to its end and tells its findings. recorded: steps that the run has evidence of. */
static int compare(struct context *ctx, const struct run *r, json_t *spec, int64_t recorded, bool json)
{
    struct verdict v = { .of = r, .recorded = recorded };
    json_t *job = NULL, *errand = json_incref(json_object_get(spec, "errand"));
    int rc;

    catch_interrupt();
    rc = submit_spec(ctx, spec, &v.id);
    if (rc) {
        json_decref(errand);
        return rc;
    }
    fprintf(stderr, "job %lld verifies ", (long long)v.id);
    print_clean(stderr, r->name);
    fputc('\n', stderr);
    tell_way(ctx, r, errand);
    json_decref(errand);
    rc = watch_until_end(ctx, v.id, WATCH_STEPS, NULL, &job);
    if (rc == 0)
        rc = verdict_take(ctx, job, &v);
    if (rc == 0) {
        rc = verdict_code(&v);
        (json ? verdict_print_json : verdict_print)(&v);
    }
    verdict_free(&v);
    json_decref(job);
    return rc;
}

int command_verify(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "from", required_argument, NULL, 'f' },   { "steps", required_argument, NULL, 's' },
                                             { "ranks", required_argument, NULL, 'r' },  { "isa", required_argument, NULL, 'i' },
                                             { "device", required_argument, NULL, 'd' }, { "stress", required_argument, NULL, 'S' },
                                             { "json", no_argument, NULL, 'j' },         { 0 } };
    struct wish w = { .from = -1, .steps = -1, .ranks = -1, .stress = -1 };
    json_t *spec = NULL;
    struct run r;
    int64_t recorded = 0;
    int rc, o;

    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?' || (o == 'f' && take_number(ctx, optarg, 0, &w.from)) || (o == 's' && take_number(ctx, optarg, 1, &w.steps)) ||
            (o == 'r' && take_number(ctx, optarg, 1, &w.ranks)) || (o == 'S' && take_number(ctx, optarg, 0, &w.stress)))
            return CODE_USAGE;
        w.isa = o == 'i' ? optarg : w.isa;
        w.device = o == 'd' ? optarg : w.device;
        w.json |= o == 'j';
    }
    if (optind >= argc)
        return misuse(ctx, "no job id or folder given");
    if ((rc = user_may_submit(ctx)) || (rc = run_take(ctx, argv[optind], &r)))
        return rc;
    if (!(rc = run_check_owner(&r)))
        rc = build(ctx, &r, &w, argv + optind + 1, argc - optind - 1, &spec, &recorded);
    if (rc == 0)
        rc = compare(ctx, &r, spec, recorded, w.json);
    run_free(&r);
    return rc;
}

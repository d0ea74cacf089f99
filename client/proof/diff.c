/* SPDX-License-Identifier: Apache-2.0 */ /* client/proof/diff.c - two runs side by side: keys and identities that
 * differ, then the first step at which they part, and the part that differs. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/command.h"
#include "client/proof/differences.h"
#include "client/base/print.h"
#include "client/base/run.h"
#include "client/proof/verify.h"
#include "client/jobs/watch.h"
#include "proto/err.h"
#include "proto/evidence/evidence_diff.h"

/* ---- evidence ---- */

/* Compares from step `from` on. */
static int diff_runs(const struct run s[2], int64_t from, json_t **ret)
{
    struct evidence *e[2] = { NULL, NULL };
    struct evidence_diff d;
    struct err err = { 0 };
    int rc = 0;

    for (int k = 0; k < 2 && rc == 0; k++) {
        rc = evidence_open(s[k].dir, &e[k], &err);
        if (rc < 0 && s[k].id)
            err_prefix(&err, "%s", s[k].name);
    }
    if (rc == 0)
        rc = evidence_diff(e[0], e[1], from, &interrupted, &d, &err);
    *ret = rc == 0 ? evidence_diff_json(evidence_head(e[0]), &d) : NULL;
    if (rc == 0 && !*ret)
        rc = err_set(&err, -ENOMEM, "out of memory");
    evidence_close(e[0]);
    evidence_close(e[1]);
    return rc == 0 ? 0 : complain(&err);
}

static bool differs(const json_t *run, const char *what)
{
    return json_is_false(json_object_get(json_object_get(run, "same"), what));
}

/* The step of a difference if its shard, tensor and state are unknown, as its details are not kept; else 0. */
static int64_t unlocated_step(const json_t *run)
{
    const json_t *d = json_object_get(run, "difference");
    bool alike = !differs(run, "tensors") && !differs(run, "shards") && !differs(run, "level");

    return json_is_object(d) && alike && !json_is_true(json_object_get(d, "located")) ? json_integer_value(json_object_get(d, "step")) : 0;
}

static bool is_kept(const json_t *run, size_t k)
{
    return json_is_true(json_object_get(json_array_get(json_object_get(run, "sides"), k), "kept"));
}

/* ---- training the step again ---- */

/* Waits for the job that trains the step again. *ret: the run of that job. */
static int take_again(struct context *ctx, const struct run *of, int64_t id, struct run *ret)
{
    json_t *job;
    char text[24];
    const char *state, *reason;
    int rc = watch_until_end(ctx, id, WATCH_STEPS, NULL, &job);

    if (rc)
        return rc;
    state = json_string_value(json_object_get(job, "state"));
    reason = json_string_value(json_object_get(job, "reason"));
    if (!state || strcmp(state, "completed") != 0) {
        fputs("detctl: ", stderr);
        print_clean(stderr, of->name);
        fprintf(stderr, " did not come out as before: job %lld: ", (long long)id);
        print_clean(stderr, reason && *reason ? reason : state ? state : "");
        fputc('\n', stderr);
        rc = CODE_REFUSED;
    }
    json_decref(job);
    snprintf(text, sizeof text, "%lld", (long long)id);
    return rc ? rc : run_take(ctx, text, ret);
}

static int submit_again(struct context *ctx, const struct run *of, int64_t step, int64_t *ret_id)
{
    int rc = verify_step(ctx, of, step, ret_id);

    if (rc)
        return rc;
    fprintf(stderr, "job %lld trains step %lld of ", (long long)*ret_id, (long long)step);
    print_clean(stderr, of->name);
    fputs(" again\n", stderr);
    return 0;
}

/* Finds the difference at that step in the jobs that trained it again, and replaces *run. */
static int locate(const struct run again[2], int64_t step, json_t **run)
{
    json_t *found;
    int rc = diff_runs(again, step, &found);

    if (rc)
        return rc;
    if (unlocated_step(found) == 0 && json_is_object(json_object_get(found, "difference"))) {
        json_decref(*run);
        *run = found;
        return 0;
    }
    json_decref(found);
    fprintf(stderr, "detctl: step %lld, trained again, does not show the difference\n", (long long)step);
    return CODE_REFUSED;
}

/* Queues both jobs before it waits for the first. A side that has the details is not trained again. */
static int rerun(struct context *ctx, const struct run s[2], json_t **run)
{
    struct run again[2] = { 0 }, pair[2] = { s[0], s[1] };
    int64_t step = unlocated_step(*run), id[2] = { 0 };
    int rc = 0;

    for (size_t k = 0; k < 2 && rc == 0; k++)
        if (!is_kept(*run, k))
            rc = submit_again(ctx, &s[k], step, &id[k]);
    for (size_t k = 0; k < 2 && rc == 0; k++)
        if (id[k] && (rc = take_again(ctx, &s[k], id[k], &again[k])) == 0)
            pair[k] = again[k];
    if (rc == 0)
        rc = locate(pair, step, run);
    run_free(&again[0]);
    run_free(&again[1]);
    return rc;
}

/* ---- output ---- */

static json_t *side_json(const struct run *s)
{
    return s->id ? json_pack("{s:I, s:s}", "job", (json_int_t)s->id, "dir", s->dir) : json_pack("{s:n, s:s}", "job", "dir", s->dir);
}

static json_t *whole_json(const struct run s[2], const json_t *keys, const json_t *run)
{
    return json_pack("{s:o, s:o, s:O, s:O}", "a", side_json(&s[0]), "b", side_json(&s[1]), "keys", keys, "run", run);
}

/* Prints differences in the runs' beginnings, beyond keys and identities. */
static void print_heads(const json_t *run)
{
    if (differs(run, "data"))
        puts("the data differ: the index of a training or validation set is another one");
    if (differs(run, "tensors"))
        puts("the networks differ: their tensors are other ones");
    if (differs(run, "level"))
        puts("one of them keeps no hashes of gradients and weights: data, losses and state are compared");
}

/* Prints advice if the step is known and the tensor is not. */
static void print_hint(const struct run s[2], const json_t *run)
{
    long long step = unlocated_step(run);

    for (size_t k = 0; k < 2 && step > 0; k++) {
        if (is_kept(run, k))
            continue;
        print_clean(stdout, s[k].name);
        printf(" keeps no hashes of single tensors and shards of step %lld; detctl verify ", step);
        print_clean(stdout, s[k].id ? s[k].name + strlen("job ") : s[k].name);
        printf(" --from %lld --steps 1 trains that step again, as a job that does\n", step - 1);
    }
    if (step > 0)
        puts("detctl diff --rerun does so where it is needed, and compares");
}

/* Names values that detd tells to their owner alone. */
static void print_secrets(const struct run s[2])
{
    const char *key;
    json_t *value;

    for (size_t k = 0; k < 2; k++) {
        json_t *env = json_object_get(json_object_get(s[k].spec, "run"), "env");

        json_object_foreach (env, key, value) {
            if (!json_is_null(value))
                continue;
            print_clean(stdout, s[k].name);
            fputs(": run.env.", stdout);
            print_clean(stdout, key);
            puts(" is visible to its owner only, and is not compared");
        }
    }
}

static void print_all(const struct run s[2], const json_t *keys, const json_t *run)
{
    differences_print(keys, s[0].name, s[1].name);
    print_secrets(s);
    print_heads(run);
    print_clean(stdout, json_string_value(json_object_get(run, "text")) ? json_string_value(json_object_get(run, "text")) : "");
    putchar('\n');
    print_hint(s, run);
}

/* Leaves out members that say no more than the rest (hashes of the whole and of keys), and the list of choices, which
 * only files have. */
static void compare_keys(const struct run s[2], json_t *keys)
{
    static const char *const left_out[] = { "hash", "spec", "plans" };

    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
            json_object_del(s[k].identity, left_out[i]);
    if (s[0].spec && s[1].spec)
        differences_add(keys, "", s[0].spec, s[1].spec);
    if (s[0].identity && s[1].identity)
        differences_add(keys, "identity", s[0].identity, s[1].identity);
}

/* Options of the command. */
struct wish {
    bool json, rerun;
};

static void print(const struct run s[2], const json_t *run, bool json)
{
    json_t *keys = json_array(), *whole;

    compare_keys(s, keys);
    if (json) {
        whole = whole_json(s, keys, run);
        print_json(whole);
        json_decref(whole);
    } else {
        print_all(s, keys, run);
    }
    json_decref(keys);
}

/* If the runs neither differ nor are equal, there was nothing to compare, or it was not compared to the end. */
static int code_of(const json_t *run)
{
    if (json_is_true(json_object_get(run, "equal")))
        return CODE_DONE;
    return json_is_object(json_object_get(run, "difference")) || json_is_true(json_object_get(run, "apart")) ? CODE_DIFFERS : CODE_REFUSED;
}

static int diff(struct context *ctx, const struct run s[2], const struct wish *w)
{
    json_t *run = NULL;
    int rc = diff_runs(s, 1, &run);

    if (rc)
        return rc;
    if (w->rerun && unlocated_step(run) > 0)
        rc = rerun(ctx, s, &run);
    if (rc != CODE_INTERRUPTED)
        print(s, run, w->json);
    rc = rc ? rc : code_of(run);
    json_decref(run);
    return rc;
}

/* Compares the submitted jobs of two programs. Values of variables are not compared, only names. */
static int diff_programs(const struct run s[2], bool json)
{
    json_t *keys = json_array(), *value, *none = json_null();
    size_t n;

    for (int k = 0; k < 2; k++)
        run_hide_values(s[k].spec);
    compare_keys(s, keys);
    n = json_array_size(keys);
    if (json) {
        value = whole_json(s, keys, none);
        print_json(value);
        json_decref(value);
    } else {
        differences_print(keys, s[0].name, s[1].name);
        puts(n > 0 ? "the programs differ" : "code, command, keys and names of variables are the same");
    }
    json_decref(keys);
    return n > 0 ? CODE_DIFFERS : CODE_DONE;
}

static int diff_any(struct context *ctx, const struct run s[2], const struct wish *w)
{
    if (!s[0].program && !s[1].program)
        return diff(ctx, s, w);
    if (s[0].program && s[1].program)
        return diff_programs(s, w->json);
    fprintf(stderr, "detctl: %s is a program, %s is not\n", s[s[1].program].name, s[s[0].program].name);
    return CODE_REFUSED;
}

int command_diff(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { "rerun", no_argument, NULL, 'r' }, { 0 } };
    struct run s[2] = { 0 };
    struct wish w = { 0 };
    int rc, o;

    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        w.json |= o == 'j';
        w.rerun |= o == 'r';
    }
    if (argc - optind != 2)
        return misuse(ctx, "two jobs or folders are needed");
    catch_interrupt();
    rc = run_take_any(ctx, argv[optind], &s[0]);
    if (rc == 0)
        rc = run_take_any(ctx, argv[optind + 1], &s[1]);
    if (rc == 0)
        rc = diff_any(ctx, s, &w);
    run_free(&s[0]);
    run_free(&s[1]);
    return rc;
}

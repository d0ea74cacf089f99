/* client/diff.c - two runs side by side: keys and identities that differ, then the first step where they part, and in what. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/command.h"
#include "client/differences.h"
#include "client/print.h"
#include "proto/err.h"
#include "proto/evidence_diff.h"
#include "proto/jobspec.h"

enum { RECORDS_A_LOOK = 1 << 16 };

/* One of the two: a job of detd, or a folder with evidence. */
struct side {
    int64_t id; /* 0: a folder */
    char *dir;
    json_t *spec, *identity; /* NULL: not known */
    char name[80];           /* "job 7" */
};

static void side_free(struct side *s)
{
    free(s->dir);
    json_decref(s->spec);
    json_decref(s->identity);
}

/* Of the newest attempt that told one; they come newest first. New reference, or NULL. */
static json_t *identity_of(const json_t *attempts)
{
    json_t *attempt, *found = NULL;
    size_t i;

    json_array_foreach (attempts, i, attempt) {
        if (!found && json_is_object(json_object_get(attempt, "identity")))
            found = json_copy(json_object_get(attempt, "identity"));
    }
    return found;
}

static int take_job(struct context *ctx, int64_t id, struct side *s)
{
    json_t *job;
    int rc = call(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)id), &job);

    if (rc)
        return rc;
    s->id = id;
    s->spec = json_incref(json_object_get(job, "spec"));
    s->identity = identity_of(json_object_get(job, "attempts"));
    s->dir = strdup(json_string_value(json_object_get(job, "dir")) ? json_string_value(json_object_get(job, "dir")) : "");
    snprintf(s->name, sizeof s->name, "job %lld", (long long)id);
    json_decref(job);
    return 0;
}

/* A file of the folder; *ret NULL: it has none. */
static int read_file(const char *dir, const char *name, json_t **ret)
{
    struct err err = { 0 };
    char *path;
    int rc;

    if (asprintf(&path, "%s/%s", dir, name) < 0)
        abort();
    rc = jobspec_read(path, ret, &err);
    free(path);
    return rc == 0 || rc == -ENOENT ? 0 : complain(&err);
}

static int take_folder(const char *dir, struct side *s)
{
    int rc;

    s->dir = strdup(dir);
    snprintf(s->name, sizeof s->name, "%.79s", dir);
    rc = read_file(dir, "spec.json", &s->spec);
    return rc ? rc : read_file(dir, "identity.json", &s->identity);
}

static int take_side(struct context *ctx, const char *text, struct side *s)
{
    int64_t id;
    int rc;

    if (strspn(text, "0123456789") < strlen(text))
        return take_folder(text, s);
    rc = take_id(ctx, text, &id);
    return rc ? rc : take_job(ctx, id, s);
}

/* ---- evidence ---- */

/* Both by detd, which may read what the caller may not; several calls where the runs are long. */
static int diff_jobs(struct context *ctx, const struct side s[2], json_t **ret)
{
    json_int_t from = 1;
    int rc;

    while ((rc = call(ctx, "run.diff", json_pack("{s:I, s:I, s:I}", "a", (json_int_t)s[0].id, "b", (json_int_t)s[1].id, "from", from),
                      ret)) == 0) {
        json_t *next = json_object_get(*ret, "next");

        if (!json_is_integer(next) || json_integer_value(next) <= from)
            return 0;
        from = json_integer_value(next);
        json_decref(*ret);
    }
    return rc;
}

static int diff_opened(const struct evidence *a, const struct evidence *b, json_t **ret, struct err *err)
{
    struct evidence_diff_options opt = { .from = 1, .limit = RECORDS_A_LOOK, .stop = &interrupted };
    struct evidence_diff d;
    int rc;

    while ((rc = evidence_diff(a, b, &opt, &d, err)) == 0 && d.next > 0)
        opt.from = d.next;
    if (rc < 0)
        return rc;
    *ret = evidence_diff_json(evidence_head(a), &d);
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int diff_folders(const struct side s[2], json_t **ret)
{
    struct evidence *a = NULL, *b = NULL;
    struct err err = { 0 };
    int rc = evidence_open(s[0].dir, &a, &err);

    if (rc == 0)
        rc = evidence_open(s[1].dir, &b, &err);
    if (rc == 0)
        rc = diff_opened(a, b, ret, &err);
    evidence_close(a);
    evidence_close(b);
    return rc == 0 ? 0 : complain(&err);
}

/* ---- what is printed ---- */

static json_t *side_json(const struct side *s)
{
    return s->id ? json_pack("{s:I, s:s}", "job", (json_int_t)s->id, "dir", s->dir) : json_pack("{s:n, s:s}", "job", "dir", s->dir);
}

static json_t *whole_json(const struct side s[2], json_t *keys, json_t *run)
{
    return json_pack("{s:o, s:o, s:O, s:O}", "a", side_json(&s[0]), "b", side_json(&s[1]), "keys", keys, "run", run);
}

static bool differs(const json_t *run, const char *what)
{
    return json_is_false(json_object_get(json_object_get(run, "same"), what));
}

/* What the runs start from, beyond keys and identities. */
static void print_heads(const json_t *run)
{
    if (differs(run, "data"))
        puts("the data differ: the index of a training or validation set is another one");
    if (differs(run, "tensors"))
        puts("the networks differ: their tensors are other ones");
    if (differs(run, "level"))
        puts("one of them keeps no hashes of gradients and weights: data, losses and state are compared");
}

/* Where the step is known and the tensor is not. */
static void print_hint(const struct side s[2], const json_t *run)
{
    const json_t *d = json_object_get(run, "difference"), *sides = json_object_get(run, "sides");
    long long step = json_integer_value(json_object_get(d, "step"));

    if (!json_is_object(d) || json_is_true(json_object_get(d, "located")) || differs(run, "tensors") || differs(run, "shards") ||
        differs(run, "level"))
        return;
    for (size_t k = 0; k < 2; k++) {
        if (json_is_true(json_object_get(json_array_get(sides, k), "kept")))
            continue;
        print_clean(stdout, s[k].name);
        printf(" keeps no hashes of single tensors and shards of step %lld", step);
        if (s[k].id)
            printf("; detctl verify %lld --from %lld --steps 1 trains that step again, as a job that does", (long long)s[k].id, step - 1);
        putchar('\n');
    }
}

static void print_all(const struct side s[2], const json_t *keys, const json_t *run)
{
    differences_print(keys, s[0].name, s[1].name);
    print_heads(run);
    print_clean(stdout, json_string_value(json_object_get(run, "text")) ? json_string_value(json_object_get(run, "text")) : "");
    putchar('\n');
    print_hint(s, run);
}

/* Without what says no more than the rest (hashes of all of it and of keys), and without the list of choices, which only files have. */
static void compare_keys(const struct side s[2], json_t *keys)
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

static int diff(const struct side s[2], struct context *ctx, bool json)
{
    json_t *run = NULL, *keys = json_array(), *whole;
    int rc = s[0].id && s[1].id ? diff_jobs(ctx, s, &run) : diff_folders(s, &run);

    if (rc == 0)
        compare_keys(s, keys);
    if (rc == 0 && json) {
        whole = whole_json(s, keys, run);
        print_json(whole);
        json_decref(whole);
    } else if (rc == 0) {
        print_all(s, keys, run);
    }
    if (rc == 0 && !json_is_true(json_object_get(run, "equal")))
        rc = CODE_REFUSED;
    json_decref(run);
    json_decref(keys);
    return rc;
}

int command_diff(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { 0 } };
    struct side s[2] = { 0 };
    bool json = false;
    int rc, o;

    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        json = true;
    }
    if (argc - optind != 2)
        return misuse(ctx, "two jobs or folders are needed");
    catch_interrupt();
    rc = take_side(ctx, argv[optind], &s[0]);
    if (rc == 0)
        rc = take_side(ctx, argv[optind + 1], &s[1]);
    if (rc == 0)
        rc = diff(s, ctx, json);
    side_free(&s[0]);
    side_free(&s[1]);
    return rc;
}

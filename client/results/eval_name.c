#include "client/results/eval_name.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/print.h"
#include "proto/clean.h"

/* A pattern for the names of evaluate()'s jobs, which may be cut after their first bytes. */
static json_t *pattern_of(int64_t job, const char *set)
{
    char short_set[33], name[80];

    clean_copy(short_set, sizeof short_set, set);
    for (char *p = short_set; *p; p++)
        if (strchr("*?[", *p))
            *p = '?';
    snprintf(name, sizeof name, "eval %lld on %s*", (long long)job, short_set);
    return json_string(name);
}

/* The first two evaluations that count in a page, newest first. */
struct found {
    json_int_t id[2];
    char *file[2]; /* to be freed */
    int n;
};

static int look_at(struct context *ctx, json_int_t by, int64_t job, const char *set, struct found *f)
{
    const json_t *spec, *eval;
    json_t *got;
    int rc = call(ctx, "job.get", json_pack("{s:I}", "id", by), &got);

    if (rc)
        return rc;
    spec = json_object_get(got, "spec");
    eval = json_object_get(spec, "errand");
    if (int_of(eval, "job") == job && strcmp(text_of(eval, "set"), set) == 0) {
        f->id[f->n] = by;
        f->file[f->n++] = strdup(text_of(json_object_get(json_object_get(spec, "data"), "val"), "annotations"));
    }
    json_decref(got);
    return 0;
}

static void tell(int64_t job, const char *set, const struct found *f)
{
    fprintf(stderr, "detctl: '");
    print_clean(stderr, set);
    fprintf(stderr, "' of job %lld was the name of results on '", (long long)job);
    print_clean(stderr, f->file[1]);
    fprintf(stderr, "' (job %lld), which those on '", (long long)f->id[1]);
    print_clean(stderr, f->file[0]);
    fprintf(stderr, "' replace where they are of the same step; --set NAME gives another\n");
}

void eval_name_tell(struct context *ctx, int64_t job, const char *set)
{
    struct found f = { 0 };
    json_t *result, *one;
    size_t i;
    int rc = call(ctx, "job.list", json_pack("{s:s, s:o}", "state", "completed", "name", pattern_of(job, set)), &result);

    if (rc)
        return;
    json_array_foreach (json_object_get(result, "jobs"), i, one) {
        if (rc == 0 && f.n < 2)
            rc = look_at(ctx, int_of(one, "id"), job, set, &f);
    }
    if (f.n == 2 && f.file[0] && f.file[1] && strcmp(f.file[0], f.file[1]) != 0)
        tell(job, set, &f);
    free(f.file[0]);
    free(f.file[1]);
    json_decref(result);
}

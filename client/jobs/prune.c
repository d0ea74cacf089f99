/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/prune.c - prune: removes jobs that ended a while ago, page by
 * page. */
#include <getopt.h>
#include <stdio.h>

#include "client/base/command.h"
#include "client/base/print.h"

struct prune {
    double older_s;
    bool keep_best, dry_run;
    const char *user; /* NULL: all users that the caller may name */
    size_t gone, refused;
};

static json_t *params_of(const struct prune *p, const json_t *cursor)
{
    json_t *params = json_pack("{s:f, s:b, s:b}", "older", p->older_s, "keep_best", p->keep_best, "dry_run", p->dry_run);

    if (p->keep_best && !p->dry_run) /* detd removes files before it answers */
        json_object_set_new(params, "limit", json_integer(10));
    if (p->user)
        json_object_set_new(params, "user", json_string(p->user));
    if (json_is_integer(cursor))
        json_object_set_new(params, "cursor", json_integer(json_integer_value(cursor)));
    return params;
}

static const char *verb(const struct prune *p)
{
    if (p->keep_best)
        return p->dry_run ? "would keep its best checkpoint only" : "keeps its best checkpoint only";
    return p->dry_run ? "would be removed" : "removed";
}

static void print_text(FILE *out, const json_t *obj, const char *name)
{
    const char *text = json_string_value(json_object_get(obj, name));

    print_clean(out, text ? text : "");
}

static void tell(struct prune *p, const json_t *page)
{
    json_t *job;
    size_t i;

    json_array_foreach (json_object_get(page, "jobs"), i, job) {
        printf("job %lld (", (long long)json_integer_value(json_object_get(job, "id")));
        print_text(stdout, job, "name");
        fputs(" of ", stdout);
        print_text(stdout, job, "user");
        fputs(", ", stdout);
        print_text(stdout, job, "state");
        printf(" %s): %s\n", text_time(json_number_value(json_object_get(job, "ended"))).s, verb(p));
        p->gone++;
    }
    json_array_foreach (json_object_get(page, "refused"), i, job) {
        fputs("detctl: ", stderr);
        print_text(stderr, job, "message");
        fputc('\n', stderr);
        p->refused++;
    }
}

static int prune_all(struct context *ctx, struct prune *p)
{
    json_t *cursor = NULL, *page;
    int rc;

    do {
        rc = call(ctx, "job.prune", params_of(p, cursor), &page);
        json_decref(cursor);
        if (rc)
            return rc;
        tell(p, page);
        cursor = json_incref(json_object_get(page, "cursor"));
        json_decref(page);
    } while (json_is_integer(cursor));
    json_decref(cursor);
    if (p->gone == 0 && p->refused == 0)
        fputs("no job ended so long ago\n", stderr);
    return p->refused ? CODE_REFUSED : CODE_DONE;
}

int command_prune(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "older", required_argument, NULL, 'o' },
                                             { "keep-best", no_argument, NULL, 'k' },
                                             { "user", required_argument, NULL, 'u' },
                                             { "dry-run", no_argument, NULL, 'n' },
                                             { 0 } };
    struct prune p = { .older_s = -1 };
    int o;

    while ((o = next_option(argc, argv, "n", options)) != -1) {
        if (o == '?' || (o == 'o' && take_duration(ctx, optarg, &p.older_s)))
            return CODE_USAGE;
        p.keep_best |= o == 'k';
        p.dry_run |= o == 'n';
        p.user = o == 'u' ? optarg : p.user;
    }
    if (optind < argc)
        return misuse(ctx, "'%s' is not an option; detctl rm ID removes one job", argv[optind]);
    if (p.older_s < 0)
        return misuse(ctx, "--older is missing");
    return prune_all(ctx, &p);
}

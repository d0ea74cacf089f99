/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/control.c - wishes: cancel, pause, resume, checkpoint, and the
 * deterministic tier. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/print.h"

void tell_asked(int64_t id, const char *what, const char *state)
{
    long long n = id;

    if (strcmp(state, "paused") == 0)
        printf("job %lld is paused: %s is kept in mind till it runs again; `detctl resume %lld` queues it\n", n, what, n);
    else if (strcmp(state, "queued") == 0)
        printf("job %lld is queued: %s is kept in mind till it runs\n", n, what);
    else
        printf("job %lld: %s asked for, state %s\n", n, what, state);
}

/* `detctl pause 3 4` calls job.pause for each job. If one is refused, the others are still paused. */
int command_control(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { 0 } };
    char method[40];
    int rc = CODE_DONE;

    if (next_option(argc, argv, "", options) != -1)
        return CODE_USAGE;
    if (optind >= argc)
        return misuse(ctx, "no job id given");
    snprintf(method, sizeof method, "job.%s", ctx->command->name);
    for (int i = optind; i < argc; i++) { /* checks all ids before anything is asked for */
        int64_t id;

        if (take_id(ctx, argv[i], &id))
            return CODE_USAGE;
    }
    for (int i = optind; i < argc && rc != CODE_NO_DAEMON && rc != CODE_INTERRUPTED; i++) {
        json_t *result;
        int64_t id = 0;
        int failed = take_id(ctx, argv[i], &id);

        if (!failed)
            failed = call(ctx, method, json_pack("{s:I}", "id", (json_int_t)id), &result);
        if (failed) {
            rc = failed;
            continue;
        }
        const char *state = json_string_value(json_object_get(result, "state"));
        if (state && strcmp(state, "removed") == 0)
            printf("job %lld: removed\n", (long long)id);
        else if (state && strcmp(ctx->command->name, "checkpoint") == 0)
            tell_asked(id, "a checkpoint", state);
        else
            printf("job %lld: %s asked for, state %s\n", (long long)id, ctx->command->name, state ? state : "unknown");
        if (*text_of(result, "unstored"))
            printf("job %lld: %s\n", (long long)id, text_of(result, "unstored"));
        json_decref(result);
    }
    return rc;
}

int command_priority(struct context *ctx, int argc, char **argv)
{
    long long priority;
    json_t *result;
    int64_t id = 0;
    char *end;
    int rc;

    for (int i = 1; i < argc; i++) /* a negative number is no option */
        if (argv[i][0] == '-' && !(argv[i][1] >= '0' && argv[i][1] <= '9'))
            return misuse(ctx, "no option '%s'", argv[i]);
    if (argc != 3)
        return misuse(ctx, "a job id and a number are needed");
    if ((rc = take_id(ctx, argv[1], &id)))
        return rc;
    priority = strtoll(argv[2], &end, 10);
    if (end == argv[2] || *end)
        return misuse(ctx, "'%s' is not a number", argv[2]);
    rc = call(ctx, "job.priority", json_pack("{s:I, s:I}", "id", (json_int_t)id, "priority", (json_int_t)priority), &result);
    if (rc)
        return rc;
    json_decref(result);
    printf("job %lld: priority %lld\n", (long long)id, priority);
    return CODE_DONE;
}

/* ---- deterministic ---- */

static void print_tier(int64_t id, const json_t *result)
{
    const char *tier = json_string_value(json_object_get(result, "tier"));
    json_t *entry;
    size_t i;

    if (id > 0)
        printf("job %lld: %s\n", (long long)id, tier ? tier : "-");
    else
        printf("%s\n", tier ? tier : "-");
    json_array_foreach (json_object_get(result, "history"), i, entry) {
        const char *then = json_string_value(json_object_get(entry, "tier"));

        printf("  from step %s: %s\n", text_number(json_object_get(entry, "step")).s, then ? then : "-");
    }
}

int command_deterministic(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = {
        { "tier", required_argument, NULL, 't' }, { "job", required_argument, NULL, 'i' }, { "json", no_argument, NULL, 'j' }, { 0 }
    };
    const char *tier = NULL, *word = NULL;
    bool json = false;
    json_t *params, *result;
    int64_t id = 0;
    int rc, o;

    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?' || (o == 'i' && take_id(ctx, optarg, &id)))
            return CODE_USAGE;
        json |= o == 'j';
        tier = o == 't' ? optarg : tier;
    }
    word = argv[optind];
    if (word && strcmp(word, "on") != 0 && strcmp(word, "off") != 0)
        return misuse(ctx, "'%s' is neither on nor off", word);
    if (word && strcmp(word, "off") == 0) {
        if (tier && strcmp(tier, "off") != 0)
            return misuse(ctx, "off has no other tier");
        tier = "off";
    }
    if (word && !tier)
        tier = "rerun";
    params = json_object();
    if (id > 0)
        json_object_set_new(params, "id", json_integer(id));
    if (tier)
        json_object_set_new(params, "tier", json_string(tier));
    if ((rc = call(ctx, tier ? "deterministic.set" : "deterministic.get", params, &result)))
        return rc;
    if (json)
        print_json(result);
    else
        print_tier(id, result);
    json_decref(result);
    return CODE_DONE;
}

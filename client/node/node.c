/* SPDX-License-Identifier: Apache-2.0 */ /* client/node/node.c - info: the node's equipment and the state of detd;
 * drain and undrain: whether detd starts jobs. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/print.h"

/* Prints lines of name: value, and members of objects as name.member. daemon.info has no deeper levels. */
static void print_members(const char *prefix, const json_t *obj)
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)obj, name, value) {
        char label[80], *text;

        snprintf(label, sizeof label, "%s%s%s", prefix, *prefix ? "." : "", name);
        if (json_is_object(value) && !*prefix) {
            print_members(name, value);
            continue;
        }
        text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        printf("%-24s ", label);
        print_clean(stdout, text ? text : json_is_string(value) ? json_string_value(value) : "");
        putchar('\n');
        free(text);
    }
}

int command_info(struct context *ctx, int argc, char **argv)
{
    json_t *result = NULL;
    bool json;
    int rc;

    if (take_json(argc, argv, &json))
        return CODE_USAGE;
    if (optind < argc)
        return misuse(ctx, "'%s' is not expected", argv[optind]);
    rc = call(ctx, "daemon.info", json_object(), &result);
    if (rc)
        return rc;
    if (json)
        print_json(result);
    else
        print_members("", result);
    json_decref(result);
    return CODE_DONE;
}

/* ---- drain ---- */

enum { LOOK_MS = 1000, REASON_MAX = 1000 };

/* Returns how many jobs run, or an exit code below 0 after complaining. */
static int count_running(struct context *ctx)
{
    static const char *const states[] = { "starting", "running", "stopping" };
    int n = 0;

    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        json_t *result = NULL;
        int rc = call_patiently(ctx, "job.list", json_pack("{s:s, s:i}", "state", states[i], "limit", 1), &result);

        if (rc)
            return -rc;
        n += (int)json_array_size(json_object_get(result, "jobs"));
        json_decref(result);
    }
    return n;
}

static int set_drained(struct context *ctx, const char *method, json_t *params)
{
    json_t *result = NULL;
    int rc = call(ctx, method, params, &result);

    if (rc == 0 && *text_of(result, "unstored"))
        puts(text_of(result, "unstored"));
    json_decref(result);
    return rc;
}

int command_drain(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "wait", no_argument, NULL, 'w' }, { 0 } };
    char reason[REASON_MAX] = "";
    bool wait = false;
    int o, rc;

    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        wait = true;
    }
    if (optind == argc)
        return misuse(ctx, "a reason is required: detctl why and queue show it to users");
    for (int i = optind; i < argc; i++) {
        size_t len = strlen(reason);

        snprintf(reason + len, sizeof reason - len, "%s%s", len ? " " : "", argv[i]);
    }
    catch_interrupt();
    rc = set_drained(ctx, "daemon.drain", json_pack("{s:s}", "reason", reason));
    while (rc == 0 && wait && (rc = count_running(ctx)) > 0) {
        sleep_ms(LOOK_MS);
        rc = interrupted ? CODE_INTERRUPTED : 0;
    }
    if (rc == 0)
        puts(wait ? "drained; no job runs" : "drained; running jobs continue");
    return rc < 0 ? -rc : rc;
}

int command_undrain(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { 0 } };
    int rc;

    if (next_option(argc, argv, "", options) != -1)
        return CODE_USAGE;
    if (optind < argc)
        return misuse(ctx, "'%s' is not expected", argv[optind]);
    rc = set_drained(ctx, "daemon.undrain", json_object());
    if (rc == 0)
        puts("jobs are started again");
    return rc;
}

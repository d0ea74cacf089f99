/* client/node.c - info: what the node has and how detd does. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/command.h"
#include "client/print.h"

/* name: value lines; members of objects as name.member. One level is all that daemon.info has. */
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
    static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { 0 } };
    json_t *result = NULL;
    bool json = false;
    int o, rc;

    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        json = true;
    }
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

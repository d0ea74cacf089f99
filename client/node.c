/* client/node.c - gpus and info: what the node has and how detd does. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/command.h"
#include "client/print.h"

static int fetch(struct context *ctx, int argc, char **argv, const char *method, bool *ret_json, json_t **ret)
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { 0 } };
    int o;

    *ret_json = false;
    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        *ret_json = true;
    }
    if (optind < argc)
        return misuse(ctx, "'%s' is not expected", argv[optind]);
    return call(ctx, method, json_object(), ret);
}

static void print_gpus(const json_t *gpus)
{
    static const char *const headers[] = { ">GPU", "<NAME", ">MEMORY", "<STATE", ">JOB", "<UUID", "<REASON" };
    struct table *t = table_new(sizeof headers / sizeof *headers, headers);
    json_t *gpu;
    size_t i;

    json_array_foreach (gpus, i, gpu) {
        static const char *const texts[] = { "name", "state", "uuid", "reason" };
        const char *text[4];

        for (int k = 0; k < 4; k++)
            text[k] = json_string_value(json_object_get(gpu, texts[k]));
        table_add(t, text_number(json_object_get(gpu, "index")).s);
        table_add(t, text[0]);
        table_add(t, text_bytes(json_number_value(json_object_get(gpu, "memory_bytes"))).s);
        table_add(t, text[1]);
        table_add(t, text_number(json_object_get(gpu, "job")).s);
        table_add(t, text[2]);
        table_add(t, text[3]);
    }
    table_print(t, stdout);
    table_free(t);
}

int command_gpus(struct context *ctx, int argc, char **argv)
{
    json_t *result = NULL, *gpus;
    bool json;
    int rc = fetch(ctx, argc, argv, "gpu.list", &json, &result);

    if (rc)
        return rc;
    gpus = json_object_get(result, "gpus");
    if (json)
        print_json(gpus);
    else if (json_array_size(gpus) == 0)
        fputs("no GPUs; jobs run on the CPU (detctl info shows its slots)\n", stderr);
    else
        print_gpus(gpus);
    json_decref(result);
    return CODE_DONE;
}

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
    json_t *result = NULL;
    bool json;
    int rc = fetch(ctx, argc, argv, "daemon.info", &json, &result);

    if (rc)
        return rc;
    if (json)
        print_json(result);
    else
        print_members("", result);
    json_decref(result);
    return CODE_DONE;
}

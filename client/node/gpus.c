/* SPDX-License-Identifier: Apache-2.0 */ /* client/node/gpus.c - gpus: the state of the node's GPUs, and lifting the
 * quarantine of one. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/print.h"

static struct text_buf memory_text(const json_t *gpu)
{
    const json_t *used = json_object_get(gpu, "memory_used"), *total = json_object_get(gpu, "memory_bytes");
    struct text_buf b = { "-" };

    if (json_is_number(used) && json_is_number(total))
        snprintf(b.s, sizeof b.s, "%.12s / %.12s", text_bytes(json_number_value(used)).s, text_bytes(json_number_value(total)).s);
    else if (json_is_number(total))
        b = text_bytes(json_number_value(total));
    return b;
}

static void print_gpus(const json_t *gpus)
{
    static const char *const headers[] = { ">GPU", "<NAME", ">MEMORY", ">USE", "<STATE", ">JOB", "<UUID", "<REASON" };
    static const char *const texts[] = { "name", "state", "uuid", "reason" };
    struct table *t = table_new(sizeof headers / sizeof *headers, headers);
    json_t *gpu;
    size_t i;

    json_array_foreach (gpus, i, gpu) {
        const json_t *use = json_object_get(gpu, "utilisation");
        const char *text[4];

        for (int k = 0; k < 4; k++) {
            text[k] = json_string_value(json_object_get(gpu, texts[k]));
            text[k] = text[k] ? text[k] : "-";
        }
        table_add(t, text_number(json_object_get(gpu, "index")).s);
        table_add(t, text[0]);
        table_add(t, memory_text(gpu).s);
        table_addf(t, "%s%s", text_number(use).s, json_is_integer(use) ? " %" : "");
        table_add(t, text[1]);
        table_add(t, text_number(json_object_get(gpu, "job")).s);
        table_add(t, text[2]);
        table_add(t, text[3]);
    }
    table_print(t, stdout);
    table_free(t);
}

static void print_note(const json_t *result, const char *key, const char *before, const char *after)
{
    const char *text = json_string_value(json_object_get(result, key));

    if (!text || !text[0])
        return;
    fputs(before, stderr);
    print_clean(stderr, text);
    fputs(after, stderr);
}

static int list(struct context *ctx, bool json)
{
    json_t *result = NULL, *gpus;
    int rc = call(ctx, "gpu.list", json_object(), &result);

    if (rc)
        return rc;
    gpus = json_object_get(result, "gpus");
    if (json)
        print_json(gpus);
    else if (json_array_size(gpus) > 0)
        print_gpus(gpus);
    else
        fputs("no GPUs; jobs run on the CPU (detctl info shows its slots)\n", stderr);
    if (!json) {
        print_note(result, "absent", "", "\n");
        print_note(result, "trouble", "", "; no GPU is granted, and the table shows an earlier state\n");
    }
    json_decref(result);
    return CODE_DONE;
}

static int release(struct context *ctx, const char *uuid)
{
    json_t *result = NULL;
    int rc = call(ctx, "gpu.release", json_pack("{s:s}", "uuid", uuid), &result);

    if (rc)
        return rc;
    const char *state = json_string_value(json_object_get(result, "state"));
    printf("GPU %s: quarantine lifted, state %s\n", uuid, state ? state : "unknown");
    json_decref(result);
    return CODE_DONE;
}

int command_gpus(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { "release", required_argument, NULL, 'r' }, { 0 } };
    const char *uuid = NULL;
    bool json = false;
    int o;

    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        json = json || o == 'j';
        uuid = o == 'r' ? optarg : uuid;
    }
    if (optind < argc)
        return misuse(ctx, "'%s' is not expected", argv[optind]);
    if (uuid && json)
        return misuse(ctx, "--json shows the list; it does not go with --release");
    return uuid ? release(ctx, uuid) : list(ctx, json);
}

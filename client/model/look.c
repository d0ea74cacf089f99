/* SPDX-License-Identifier: Apache-2.0 */ /* client/model/look.c - layers, anchors, sample: detd-worker describes or
 * draws a job file, a job, or a file of weights. detd trains nothing for it. */
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/jobs/inits.h"
#include "client/model/predict.h"
#include "client/jobs/spec.h"
#include "client/base/user.h"
#include "client/base/worker.h"
#include "proto/err.h"
#include "proto/host/memory.h"

enum { WORDS = 12 }; /* most options that we pass to detd-worker */

/* The command line of detd-worker: words[0] is its own name. */
struct look {
    char *words[WORDS];
    int n;
    char name[PATH_MAX]; /* the job or file to look at */
};

static void add(struct look *l, const char *word)
{
    l->words[l->n++] = (char *)word;
}

static bool is_number(const char *text)
{
    size_t len = strspn(text, "0123456789");

    return len > 0 && text[len] == '\0';
}

static bool is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* Writes the name for detd-worker: the file of a job's keys, FILE, FILE.json, or else the word as it is, such as a
 * preset. */
static int find(struct context *ctx, const char *what, char ret_name[PATH_MAX])
{
    char with[PATH_MAX], *folder;
    int64_t id;
    int rc;

    if (is_number(what)) {
        if ((rc = take_id(ctx, what, &id)) || (rc = job_folder(ctx, id, &folder)))
            return rc;
        snprintf(ret_name, PATH_MAX, "%s/spec.json", folder);
        free(folder);
        return 0;
    }
    if (!is_file(what) && snprintf(with, sizeof with, "%s.json", what) < (int)sizeof with && is_file(with))
        what = with;
    if ((rc = user_owns_file(ctx, what)))
        return rc;
    if (!is_file(what) || !realpath(what, ret_name))
        snprintf(ret_name, PATH_MAX, "%s", what);
    return 0;
}

/* If a job file, or a change of its keys, names weights by a job (job:12), makes changes that name the files: strings
 * of the new array *ret. Errors in reading are left to detd-worker. */
static int name_inits(struct context *ctx, const char *name, char *const *changes, int count, json_t **ret)
{
    json_t *root = NULL, *before, *value;
    const char *key;
    struct err err;
    int rc;

    *ret = json_array();
    if (spec_read(name, &root, &err) < 0)
        root = json_object();
    if (spec_assign(root, changes, count, &err) < 0) {
        json_decref(root);
        return 0;
    }
    before = json_deep_copy(root);
    rc = inits_find(ctx, root, NULL);
    json_object_foreach (json_object_get(root, "model"), key, value) {
        if (rc == 0 && !json_equal(value, json_object_get(json_object_get(before, "model"), key)))
            json_array_append_new(*ret, json_sprintf("model.%s=%s", key, json_string_value(value)));
    }
    json_decref(before);
    json_decref(root);
    return rc;
}

/* rest: the thing to look at, and changes of its keys. */
static int run(struct context *ctx, struct look *l, char **rest, int count)
{
    json_t *more = NULL;
    char **argv;
    int rc = find(ctx, rest[0], l->name), n = l->n;

    if (rc == 0)
        rc = name_inits(ctx, l->name, rest + 1, count - 1, &more);
    argv = rc == 0 ? calloc((size_t)(n + count) + json_array_size(more) + 1, sizeof *argv) : NULL;
    if (rc == 0 && !argv)
        memory_out();
    if (rc == 0) {
        memcpy(argv, l->words, (size_t)n * sizeof *argv);
        argv[n++] = l->name;
        memcpy(argv + n, rest + 1, (size_t)(count - 1) * sizeof *argv);
        n += count - 1;
        for (size_t i = 0; i < json_array_size(more); i++)
            argv[n++] = (char *)json_string_value(json_array_get(more, i));
        rc = worker_run(argv);
    }
    free(argv);
    json_decref(more);
    return rc;
}

/* Takes options of all three commands. Returns 0, or an exit code after complaining. */
static int take(struct context *ctx, const struct option *options, int argc, char **argv, struct look *l)
{
    int o;

    while ((o = next_option(argc, argv, "n:o:", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        if ((o == 'n' || o == 'c') && (!is_number(optarg) || strlen(optarg) > 6 || atoi(optarg) == 0))
            return misuse(ctx, "%s is a count above 0, not '%s'", o == 'n' ? "-n" : "--classes", optarg);
        if (l->n + 2 > WORDS)
            return misuse(ctx, "the same options again and again");
        add(l, o == 'n' ? "--count" : o == 'c' ? "--classes" : o == 'o' ? "--out" : "--json");
        if (o != 'j')
            add(l, optarg);
    }
    if (optind == argc)
        return misuse(ctx, "a job id, job file, preset or file is missing");
    return refuse_name(ctx, argv[optind], "the job id, job file, preset or file comes first");
}

static bool has(const struct look *l, const char *word)
{
    for (int i = 1; i < l->n; i++)
        if (strcmp(l->words[i], word) == 0)
            return true;
    return false;
}

int command_layers(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { "classes", required_argument, NULL, 'c' }, { 0 } };
    struct look l = { .words = { NULL, (char *)"--layers" }, .n = 2 };
    int rc = take(ctx, options, argc, argv, &l);

    if (rc == 0 && (has(&l, "--count") || has(&l, "--out")))
        return misuse(ctx, "this command has no options -n and -o");
    return rc ? rc : run(ctx, &l, argv + optind, argc - optind);
}

int command_anchors(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { "count", required_argument, NULL, 'n' }, { 0 } };
    struct look l = { .words = { NULL, (char *)"--anchors" }, .n = 2 };
    int rc = take(ctx, options, argc, argv, &l);

    if (rc == 0 && has(&l, "--out"))
        return misuse(ctx, "this command has no option -o");
    return rc ? rc : run(ctx, &l, argv + optind, argc - optind);
}

int command_sample(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "out", required_argument, NULL, 'o' }, { "count", required_argument, NULL, 'n' }, { 0 } };
    struct look l = { .words = { NULL, (char *)"--sample" }, .n = 2 };
    int rc = take(ctx, options, argc, argv, &l);

    if (rc == 0 && !has(&l, "--out"))
        return misuse(ctx, "-o DIR is required: the folder for the pictures");
    return rc ? rc : run(ctx, &l, argv + optind, argc - optind);
}

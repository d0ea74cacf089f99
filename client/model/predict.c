/* SPDX-License-Identifier: Apache-2.0 */ /* client/model/predict.c - draws the findings of a job's network in pictures:
 * detd names the job's folder, detd-worker does the work as the caller. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/run.h"
#include "client/model/predict.h"
#include "client/base/user.h"
#include "client/base/worker.h"
#include "proto/host/memory.h"

/* Options that are passed to the worker as they are. */
enum { OUT, CONF, RESULTS_CONF, CHECKPOINT, ON, IMAGES, FORMAT, SPLIT, NO_PICTURES, QUIET, ENLARGE, OPTIONS };

static const struct option options[] = { [OUT] = { "out", required_argument, NULL, 'o' },
                                         [CONF] = { "conf", required_argument, NULL, CONF },
                                         [RESULTS_CONF] = { "results-conf", required_argument, NULL, RESULTS_CONF },
                                         [CHECKPOINT] = { "checkpoint", required_argument, NULL, CHECKPOINT },
                                         [ON] = { "on", required_argument, NULL, ON },
                                         [IMAGES] = { "images", required_argument, NULL, IMAGES },
                                         [FORMAT] = { "format", required_argument, NULL, FORMAT },
                                         [SPLIT] = { "split", required_argument, NULL, SPLIT },
                                         [NO_PICTURES] = { "no-pictures", no_argument, NULL, NO_PICTURES },
                                         [QUIET] = { "quiet", no_argument, NULL, QUIET },
                                         [ENLARGE] = { "enlarge", no_argument, NULL, ENLARGE },
                                         [OPTIONS] = { 0 } };

struct request {
    const char *value[OPTIONS]; /* NULL: not given; "": an option without a value */
    char **images;
    int count;
};

int job_folder(struct context *ctx, int64_t id, char **ret)
{
    json_t *job;
    const char *dir;
    int rc = call(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)id), &job);

    if (rc)
        return rc;
    if ((rc = run_check_model(job)) || (rc = user_owns_job(ctx, job))) {
        json_decref(job);
        return rc;
    }
    dir = json_string_value(json_object_get(job, "dir"));
    *ret = dir ? strdup(dir) : NULL;
    json_decref(job);
    if (!*ret) {
        fprintf(stderr, "detctl: detd does not say where job %lld lies\n", (long long)id);
        return CODE_REFUSED;
    }
    return 0;
}

static int run(const struct request *r, char *folder)
{
    char name[OPTIONS][32], **argv = calloc((size_t)r->count + 2 * OPTIONS + 6, sizeof *argv);
    int n = 1, rc;

    if (!argv)
        memory_out();
    argv[n++] = "--predict";
    argv[n++] = "--job-dir";
    argv[n++] = folder;
    for (int k = 0; k < OPTIONS; k++) {
        if (!r->value[k])
            continue;
        snprintf(name[k], sizeof name[k], "--%s", options[k].name);
        argv[n++] = name[k];
        if (options[k].has_arg == required_argument)
            argv[n++] = (char *)r->value[k];
    }
    argv[n++] = "--";
    for (int i = 0; i < r->count; i++)
        argv[n++] = r->images[i];
    rc = worker_run(argv);
    free(argv);
    return rc;
}

static int check_score(const struct context *ctx, const struct request *r, int option)
{
    const char *text = r->value[option];
    char *end;
    double score = text ? strtod(text, &end) : 0;

    if (text && (end == text || *end || !(score >= 0 && score <= 1)))
        return misuse(ctx, "--%s is a score between 0 and 1, not '%s'", options[option].name, text);
    return 0;
}

static int check(const struct context *ctx, const struct request *r)
{
    const char *const *v = r->value;
    bool set = v[ON] || v[SPLIT];
    int rc;

    for (int i = 0; i < r->count; i++)
        if (refuse_name(ctx, r->images[i], "predict takes the keys as the job has them"))
            return CODE_USAGE;
    if (r->count < 0 || (r->count == 0 && !set))
        return misuse(ctx, "an id and at least one picture are needed");
    if (set && r->count > 0)
        return misuse(ctx, "pictures by name, or those of a set: not both");
    if (v[ON] && v[SPLIT])
        return misuse(ctx, "--on another set, or the job's own --split: not both");
    if ((v[IMAGES] || v[FORMAT]) && !v[ON])
        return misuse(ctx, "--images and --format need --on SET");
    if (v[SPLIT] && strcmp(v[SPLIT], "train") != 0 && strcmp(v[SPLIT], "val") != 0)
        return misuse(ctx, "--split is train or val, not '%s'", v[SPLIT]);
    if (!v[OUT])
        return misuse(ctx, "-o DIR is required: the folder for the pictures");
    rc = check_score(ctx, r, CONF);
    return rc ? rc : check_score(ctx, r, RESULTS_CONF);
}

int command_predict(struct context *ctx, int argc, char **argv)
{
    struct request r = { 0 };
    char *folder = NULL;
    int64_t id = 0;
    int rc, o;

    while ((o = next_option(argc, argv, "o:", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        r.value[o == 'o' ? OUT : o] = optarg ? optarg : "";
    }
    if (optind < argc && (rc = take_id(ctx, argv[optind], &id)))
        return rc;
    r.images = argv + optind + 1;
    r.count = argc - optind - 1;
    if ((rc = check(ctx, &r)) || (rc = job_folder(ctx, id, &folder)))
        return rc;
    rc = run(&r, folder);
    free(folder);
    return rc;
}

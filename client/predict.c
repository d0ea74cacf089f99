/* client/predict.c - draws what a job's network sees in pictures: detd names the job's folder, detd-worker does the work as the caller. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/command.h"
#include "client/worker.h"

struct request {
    const char *out, *conf, *checkpoint;
    char **images;
    int count;
};

/* The folder of the job; the caller frees. */
static int job_folder(struct context *ctx, int64_t id, char **ret)
{
    json_t *job;
    const char *dir;
    int rc = call(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)id), &job);

    if (rc)
        return rc;
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
    char **argv = calloc((size_t)r->count + 12, sizeof *argv);
    int n = 1, rc;

    if (!argv)
        abort();
    argv[n++] = "--predict";
    argv[n++] = "--job-dir";
    argv[n++] = folder;
    argv[n++] = "--out";
    argv[n++] = (char *)r->out;
    if (r->conf) {
        argv[n++] = "--conf";
        argv[n++] = (char *)r->conf;
    }
    if (r->checkpoint) {
        argv[n++] = "--checkpoint";
        argv[n++] = (char *)r->checkpoint;
    }
    for (int i = 0; i < r->count; i++)
        argv[n++] = r->images[i];
    rc = worker_run(argv);
    free(argv);
    return rc;
}

static int check(const struct context *ctx, const struct request *r)
{
    char *end;
    double conf = r->conf ? strtod(r->conf, &end) : 0;

    if (r->count <= 0)
        return misuse(ctx, "an id and at least one picture are needed");
    if (!r->out)
        return misuse(ctx, "-o DIR is needed: that is where the pictures go");
    if (r->conf && (end == r->conf || *end || !(conf >= 0 && conf <= 1)))
        return misuse(ctx, "--conf is a score between 0 and 1, not '%s'", r->conf);
    return 0;
}

int command_predict(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "out", required_argument, NULL, 'o' },
                                             { "conf", required_argument, NULL, 'c' },
                                             { "checkpoint", required_argument, NULL, 'k' },
                                             { 0 } };
    struct request r = { 0 };
    char *folder = NULL;
    int64_t id = 0;
    int rc, o;

    while ((o = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        *(o == 'o' ? &r.out : o == 'c' ? &r.conf : &r.checkpoint) = optarg;
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

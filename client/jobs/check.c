#include "client/jobs/check.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/jobs/checked.h"
#include "client/jobs/program.h"
#include "client/base/command.h"
#include "client/jobs/spec.h"
#include "client/base/user.h"
#include "client/base/worker.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"

/* Runs detd-worker. entry: the file in which a good check is remembered; NULL: it is not remembered. */
static int run(const json_t *spec, bool brief, const char *entry)
{
    char *argv[8] = { NULL, (char *)"--check" }, path[PATH_MAX];
    struct err err = { 0 };
    int n = 2, rc = spec_file(spec, path, &err);

    if (rc < 0)
        return complain(&err);
    if (brief)
        argv[n++] = (char *)"--brief";
    if (entry) {
        argv[n++] = (char *)"--files";
        argv[n++] = (char *)entry;
    }
    argv[n++] = path;
    rc = worker_run(argv);
    unlink(path);
    if (entry)
        checked_prune(entry);
    return rc;
}

static int check(const json_t *spec, const struct jobspec *s)
{
    char worker[PATH_MAX], entry[PATH_MAX];
    bool remembered;
    int rc;

    if (!worker_path(worker)) {
        fprintf(stderr, "detctl: data and weights are not checked: detd-worker is not beside detctl: %s\n", strerror(errno));
        return CODE_DONE;
    }
    remembered = checked_path(s, worker, entry);
    if (remembered && checked_still(entry))
        return CODE_DONE;
    rc = run(spec, true, remembered ? entry : NULL);
    if (rc != CODE_DONE)
        fprintf(stderr, "detctl: nothing is queued%s\n", rc == CODE_REFUSED ? "; --no-check queues a job unchecked" : "");
    return rc;
}

int check_first(const json_t *spec)
{
    struct jobspec *s;
    struct err err;
    int rc = CODE_DONE;

    if (jobspec_parse(spec, &s, &err) < 0)
        return CODE_DONE; /* detd says why */
    if (jobspec_is_program(s))
        rc = program_check(spec);
    else if (!s->eval_run) /* an eval job opens no training data of the other job */
        rc = check(spec, s);
    jobspec_free(s);
    return rc;
}

/* Finds the entry for a good check, so that submitting the same job next does not check again. */
static bool remember(const json_t *spec, char ret_entry[PATH_MAX])
{
    char worker[PATH_MAX];
    struct jobspec *s;
    struct err err;
    bool ret;

    if (!worker_path(worker) || jobspec_parse(spec, &s, &err) < 0)
        return false;
    ret = checked_path(s, worker, ret_entry);
    jobspec_free(s);
    return ret;
}

int command_check(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { 0 } };
    char entry[PATH_MAX], path[PATH_MAX];
    struct err err = { 0 };
    json_t *spec;
    int rc;

    if (next_option(argc, argv, "", options) != -1)
        return CODE_USAGE;
    if (optind >= argc)
        return misuse(ctx, "no job file given");
    if (refuse_name(ctx, argv[optind], "the job file comes first"))
        return CODE_USAGE;
    if (spec_find(argv[optind], path, &err) < 0)
        return complain(&err);
    if ((rc = user_owns_file(ctx, path)) || (rc = spec_load(ctx, path, argv + optind + 1, argc - optind - 1, &spec)))
        return rc;
    if (program_is(spec))
        rc = program_check(spec);
    else
        rc = run(spec, false, remember(spec, entry) ? entry : NULL);
    if (rc == CODE_DONE && program_is(spec))
        puts("the folder and the command are there; detd knows no more of a program");
    json_decref(spec);
    return rc;
}

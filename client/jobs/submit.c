#include "client/jobs/submit.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/jobs/check.h"
#include "client/jobs/code.h"
#include "client/base/command.h"
#include "client/jobs/inits.h"
#include "client/jobs/program.h"
#include "client/base/print.h"
#include "client/base/user.h"
#include "client/jobs/spec.h"
#include "client/jobs/watch.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "proto/host/memory.h"
#include "proto/job/presets.h"

/* A random name for this submission that no other one will have: repeated calls give the same job. */
static int make_token(char ret_token[33], struct err *err)
{
    unsigned char random[16];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_sys(err, "random token");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(ret_token + 2 * i, 3, "%02x", random[i]);
    return 0;
}

int submit_spec(struct context *ctx, json_t *spec, int64_t *ret_id)
{
    char token[33];
    struct err err = { 0 };
    json_t *result;
    int rc;

    if (make_token(token, &err) < 0) {
        json_decref(spec);
        return complain(&err);
    }
    inits_hold(spec);
    rc = call(ctx, "job.submit", json_pack("{s:s, s:o}", "token", token, "spec", spec), &result);
    if (rc)
        return rc;
    *ret_id = json_integer_value(json_object_get(result, "id"));
    json_decref(result);
    return 0;
}

int submit_checked(struct context *ctx, json_t *spec, const struct queueing *q, int64_t *ret_id)
{
    int rc = q->no_check ? CODE_DONE : check_first(spec);

    if (program_is(spec))
        code_record(spec);
    if (rc == CODE_DONE)
        return submit_spec(ctx, spec, ret_id);
    json_decref(spec);
    return rc;
}

void take_queueing(int option, struct queueing *q)
{
    q->wait |= option == 'w';
    q->watch |= option == 'W';
    q->no_check |= option == 'n';
}

int submitted(struct context *ctx, int64_t id, bool wait, bool watch)
{
    if (watch || wait)
        catch_interrupt(); /* once the id is shown, the user may interrupt */
    if (printf("%lld\n", (long long)id) < 0 || fflush(stdout) != 0)
        fprintf(stderr, "detctl: job %lld is queued; its id cannot be written to standard output\n", (long long)id);
    if (watch)
        return watch_job(ctx, id, "total", print_moves(stdout) ? WATCH_SCREEN : WATCH_LINES);
    return wait ? watch_job(ctx, id, "total", WATCH_QUIETLY) : CODE_DONE;
}

/* Reads a job file, or takes the name of a preset instead. */
static int read_file_or_preset(const char *word, json_t **ret_root, struct err *err)
{
    int rc = spec_read(word, ret_root, err);
    struct err why = *err;

    if (rc != -ENOENT)
        return rc;
    if (!job_preset_find(&job_presets, word))
        return err_set(err, rc, "%s; nor is it a preset (%s)", why.msg, JOB_PRESET_WORDS);
    *ret_root = json_pack("{s:{s:s}}", "model", "preset", word);
    return *ret_root ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* --help-keys [FILE | PRESET] [KEY=VALUE ...]: prints the keys of the preset that these name, or all keys. */
static int help_keys(int count, char *const *words)
{
    json_t *root = NULL;
    struct err err = { 0 };
    int rc = 0;

    if (count > 0 && !strchr(words[0], '=')) {
        rc = read_file_or_preset(words[0], &root, &err);
        count--, words++;
    } else {
        root = json_object();
    }
    for (int i = 0; i < count && rc == 0; i++)
        rc = jobspec_override(root, words[i], &err);
    if (rc == 0)
        rc = jobspec_write_help(stdout, jobspec_preset(root)) < 0 ? CODE_REFUSED : CODE_DONE;
    else
        rc = complain(&err);
    json_decref(root);
    return rc;
}

static int take_limit(const struct context *ctx, const char *text, json_t *run)
{
    double seconds = 0;
    int rc = take_duration(ctx, text, &seconds);

    json_object_set_new(run, "time_limit", json_real(seconds));
    return rc;
}

/* text: ID or ID:ok. */
static int take_after(const struct context *ctx, const char *text, json_t *run)
{
    size_t len = strcspn(text, ":");
    char number[24];
    int64_t id = 0;

    if (len >= sizeof number || (text[len] && strcmp(text + len, ":ok") != 0))
        return misuse(ctx, "--after: '%s' is neither ID nor ID:ok", text);
    snprintf(number, sizeof number, "%.*s", (int)len, text);
    if (take_id(ctx, number, &id))
        return CODE_USAGE;
    json_object_set_new(run, "after", json_integer(id));
    json_object_set_new(run, "after_ok", json_boolean(text[len]));
    return 0;
}

int take_wish(const struct context *ctx, int option, const char *text, json_t *run)
{
    return option == 't' ? take_limit(ctx, text, run) : option == 'a' ? take_after(ctx, text, run) : 0;
}

/* words: the job file, and changes of its keys. init: value for model.init; NULL: not given. */
static int load(struct context *ctx, char **words, int count, const char *init, json_t **ret_spec)
{
    char **changes = calloc((size_t)count + 1, sizeof *changes), *last = NULL;
    int rc;

    if (!changes || (init && asprintf(&last, "model.init=%s", init) < 0))
        memory_out();
    memcpy(changes, words + 1, (size_t)(count - 1) * sizeof *changes);
    changes[count - 1] = last;
    rc = spec_load(ctx, words[0], changes, count - 1 + (init != NULL), ret_spec);
    free(changes);
    free(last);
    return rc;
}

int command_submit(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { QUEUEING_OPTIONS,
                                             { "help-keys", no_argument, NULL, 'k' },
                                             { "time", required_argument, NULL, 't' },
                                             { "after", required_argument, NULL, 'a' },
                                             { "init", required_argument, NULL, 'i' },
                                             { 0 } };
    json_t *spec, *wishes = json_object(); /* keys of run that the options stand for */
    const char *init = NULL;
    struct queueing q = { 0 };
    bool keys = false;
    int64_t id = 0;
    int rc = 0, o;

    while (rc == 0 && (o = next_option(argc, argv, "", options)) != -1) {
        keys |= o == 'k';
        take_queueing(o, &q);
        init = o == 'i' ? optarg : init;
        rc = o == '?' ? CODE_USAGE : take_wish(ctx, o, optarg, wishes);
    }
    if (rc == 0 && keys) {
        json_decref(wishes);
        return help_keys(argc - optind, argv + optind);
    }
    if (rc == 0 && optind >= argc)
        rc = misuse(ctx, "no job file given");
    if (rc == 0 && refuse_name(ctx, argv[optind], "the job file comes first"))
        rc = CODE_USAGE;
    if (rc == 0 && !(rc = user_may_submit(ctx)) && !(rc = load(ctx, argv + optind, argc - optind, init, &spec))) {
        json_object_update(spec_group(spec, "run"), wishes);
        rc = submit_checked(ctx, spec, &q, &id);
    }
    json_decref(wishes);
    return rc ? rc : submitted(ctx, id, q.wait, q.watch);
}

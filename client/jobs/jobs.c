/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/jobs.c - ls, show, why, events, usage: facts that detd knows
 * about jobs. */
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/base/best.h"
#include "client/base/command.h"
#include "client/base/print.h"
#include "proto/host/memory.h"
#include "proto/identity.h"

enum { LS_DEFAULT = 50, EVENTS_DEFAULT = 50, USAGE_DEFAULT = 60, CHECKPOINTS_SHOWN = 3 };

/* With fractions of a second, as in the times of submission that detd notes. */
static double wall_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int take_limit(const struct context *ctx, const char *text, long *ret)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (end == text || *end || n <= 0)
        return misuse(ctx, "'%s' is not a number of rows", text);
    *ret = n;
    return 0;
}

/* ---- ls ---- */

static json_t *loss_of(const json_t *job, const char *split)
{
    return json_object_get(json_object_get(json_object_get(job, "losses"), split), "total");
}

enum {
    LS_ID,
    LS_NAME,
    LS_STATE,
    LS_STEP,
    LS_TRAIN,
    LS_VAL,
    LS_BEST,
    LS_TIME,
    LS_RATE,
    LS_DEVICE,
    LS_USER,
    LS_SUBMITTED,
    LS_TAGS,
    LS_COLUMNS
};

static void add_best(struct table *t, const json_t *job)
{
    struct best best = best_metric(job);

    if (best.metric) /* masks have a score of their own: segm_AP */
        table_addf(t, "%s%s %.4g", json_object_get(json_object_get(json_object_get(job, "losses"), "val"), "mask") ? "box " : "",
                   best.metric, best.value);
    else
        table_add(t, "-");
}

/* On a terminal lines must not be broken: the least important columns are hidden first. */
static void fit(struct table *t)
{
    static const int spare[] = { LS_SUBMITTED, LS_RATE, LS_DEVICE, LS_USER, LS_TRAIN, LS_TAGS, LS_TIME };
    int columns, rows;

    print_size(&columns, &rows);
    for (size_t i = 0; isatty(STDOUT_FILENO) && i < sizeof spare / sizeof *spare && table_width(t) > columns; i++)
        table_hide(t, spare[i]);
}

static void print_jobs(const json_t *jobs)
{
    static const char *const headers[] = {
        [LS_ID] = ">ID",     [LS_NAME] = "<NAME",           [LS_STATE] = "<STATE", [LS_STEP] = ">STEP",  [LS_TRAIN] = ">TRAIN",
        [LS_VAL] = ">VAL",   [LS_BEST] = "<BEST",           [LS_TIME] = ">TIME",   [LS_RATE] = ">IMG/S", [LS_DEVICE] = "<DEVICE",
        [LS_USER] = "<USER", [LS_SUBMITTED] = "<SUBMITTED", [LS_TAGS] = "<TAGS"
    };
    struct table *t = table_new(LS_COLUMNS, headers);
    bool tagged = false;
    json_t *job;
    size_t i;

    json_array_foreach (jobs, i, job) {
        table_addf(t, "%lld", int_of(job, "id"));
        table_add(t, text_of(job, "name"));
        table_add(t, text_of(job, "state"));
        table_add(t, text_step(job).s);
        table_add(t, text_number(loss_of(job, "train")).s);
        table_add(t, text_number(loss_of(job, "val")).s);
        add_best(t, job);
        table_add(t, text_taken(job).s);
        if (strcmp(text_of(job, "state"), "running") == 0 && real_of(job, "images_per_s") > 0)
            table_addf(t, "%.1f", real_of(job, "images_per_s"));
        else
            table_add(t, "-");
        table_addf(t, "%lld %s", int_of(job, "ranks"), text_of(job, "device"));
        table_add(t, text_of(job, "user"));
        table_add(t, text_time(real_of(job, "submitted")).s);
        table_add(t, text_tags(job).s);
        tagged |= json_array_size(json_object_get(job, "tags")) > 0;
    }
    if (!tagged)
        table_hide(t, LS_TAGS);
    fit(t);
    table_print(t, stdout);
    table_free(t);
}

/* True for an ended verify or eval job: the commands have told its result, and it has no other use. */
static bool is_spent(const json_t *job)
{
    const char *kind = text_of(job, "kind"), *state = text_of(job, "state");

    return (strcmp(kind, "verify") == 0 || strcmp(kind, "eval") == 0) &&
           (strcmp(state, "completed") == 0 || strcmp(state, "failed") == 0 || strcmp(state, "cancelled") == 0);
}

int command_ls(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' },        { "state", required_argument, NULL, 's' },
                                             { "limit", required_argument, NULL, 'n' }, { "user", required_argument, NULL, 'u' },
                                             { "name", required_argument, NULL, 'N' },  { "since", required_argument, NULL, 'S' },
                                             { "mine", no_argument, NULL, 'm' },        { "tag", required_argument, NULL, 't' },
                                             { "all", no_argument, NULL, 'a' },         { 0 } };
    struct list l = { .method = "job.list", .member = "jobs", .limit = LS_DEFAULT };
    bool all = false;
    const char *state = NULL, *user = NULL, *name = NULL, *tag = NULL;
    bool json = false, mine = false;
    double ago = -1;
    json_t *jobs;
    int rc, o;

    while ((o = next_option(argc, argv, "n:", options)) != -1) {
        if (o == '?' || (o == 'n' && take_limit(ctx, optarg, &l.limit)) || (o == 'S' && take_duration(ctx, optarg, &ago)))
            return CODE_USAGE;
        json |= o == 'j';
        mine |= o == 'm';
        all |= o == 'a';
        user = o == 'u' ? optarg : user;
        name = o == 'N' ? optarg : name;
        tag = o == 't' ? optarg : tag;
        state = o == 's' ? optarg : state;
    }
    if (optind < argc)
        return misuse(ctx, "'%s' is not an option; detctl show ID shows one job", argv[optind]);
    l.params = json_object();
    if (state)
        json_object_set_new(l.params, "state", json_string(state));
    if (user)
        json_object_set_new(l.params, "user", json_string(user));
    if (name)
        json_object_set_new(l.params, "name", json_string(name));
    if (tag)
        json_object_set_new(l.params, "tag", json_string(tag));
    if (ago >= 0)
        json_object_set_new(l.params, "since", json_real(wall_s() - ago));
    if (mine)
        json_object_set_new(l.params, "mine", json_true());
    l.leaves_out = all || json || state || name || tag ? NULL : is_spent;
    if ((rc = call_list(ctx, &l, &jobs)))
        return rc;
    if (l.left_out > 0)
        fprintf(stderr, "left out: %ld jobs of verify and eval; --all lists them\n", l.left_out);
    if (json)
        print_json(jobs);
    else if (json_array_size(jobs) == 0 && l.left_out == 0)
        fputs("no jobs\n", stderr);
    else
        print_jobs(jobs);
    json_decref(jobs);
    return CODE_DONE;
}

/* ---- show ---- */

static void field(const char *name, const char *value)
{
    if (!*value)
        return;
    printf("%-12s ", name);
    print_clean(stdout, value);
    putchar('\n');
}

static void print_losses(const json_t *job)
{
    static const char *const splits[] = { "train", "val" };

    for (int k = 0; k < 2; k++) {
        json_t *terms = json_object_get(json_object_get(job, "losses"), splits[k]), *value;
        const char *term;

        if (json_object_size(terms) == 0)
            continue;
        printf("%-12s total %s", splits[k], text_number(json_object_get(terms, "total")).s);
        json_object_foreach (terms, term, value) {
            if (strcmp(term, "total") == 0)
                continue;
            putchar(' ');
            print_clean(stdout, term);
            printf(" %s", text_number(value).s);
        }
        putchar('\n');
    }
}

/* The oldest attempt that told its identity; NULL: no attempt did. */
static const json_t *first_told(const json_t *attempts)
{
    for (size_t i = json_array_size(attempts); i-- > 0;)
        if (json_is_object(json_object_get(json_array_get(attempts, i), "identity")))
            return json_array_get(attempts, i);
    return NULL;
}

/* Prints the identity in short; --json has all of it. */
static void print_identity(const json_t *attempt, const json_t *first)
{
    const json_t *identity = json_object_get(attempt, "identity");
    char said[1000], text[1400];

    if (!json_is_object(identity))
        return;
    snprintf(text, sizeof text, "%.100s, %.20s, worker %.40s, %.8s", text_of(identity, "device"), text_of(identity, "precision"),
             text_of(json_object_get(json_object_get(identity, "files"), "worker"), "version"), text_of(identity, "hash"));
    if (identity_compare(json_object_get(first, "identity"), identity, said, sizeof said) > 0)
        snprintf(text + strlen(text), sizeof text - strlen(text), "; differs from attempt %lld: %s", int_of(first, "attempt"), said);
    field("identity", text);
}

static void print_attempts(const json_t *attempts)
{
    const json_t *first = first_told(attempts);
    json_t *a;
    size_t i;

    json_array_foreach (attempts, i, a) {
        printf("attempt %-4lld from step %lld, %s", int_of(a, "attempt"), int_of(a, "resume_step"), text_time(real_of(a, "started")).s);
        fputs(*text_of(a, "outcome") ? ": " : "", stdout);
        print_clean(stdout, text_of(a, "outcome"));
        fputs(*text_of(a, "reason") ? ", " : "", stdout);
        print_clean(stdout, text_of(a, "reason"));
        putchar('\n');
        print_identity(a, first);
    }
}

/* Checkpoints come newest first. Prints a few of those on the disk, and the best. */
static void print_checkpoints(const json_t *checkpoints)
{
    bool best_seen = false;
    int shown = 0;
    json_t *c;
    size_t i;

    json_array_foreach (checkpoints, i, c) {
        json_t *loss = json_object_get(c, "val_loss");
        bool best = !best_seen && json_is_true(json_object_get(c, "best")); /* each was the best when it was written */

        best_seen |= best;
        if (json_is_false(json_object_get(c, "there")) || (shown >= CHECKPOINTS_SHOWN && !best))
            continue;
        shown++;
        printf("checkpoint   step %lld, %s", int_of(c, "step"), text_bytes(real_of(c, "bytes")).s);
        if (json_is_number(loss))
            printf(", val loss %s%s", text_number(loss).s, best ? ", the best" : "");
        putchar('\n');
    }
}

static void print_times(const json_t *job)
{
    double started = real_of(job, "started"), ended = real_of(job, "ended");

    field("submitted", text_time(real_of(job, "submitted")).s);
    field("started", started > 0 ? text_time(started).s : "");
    if (ended > 0)
        printf("%-12s %s, after %s\n", "ended", text_time(ended).s, text_duration(ended - (started > 0 ? started : ended)).s);
    field("ran", started > 0 ? text_taken(job).s : "");
}

/* Prints the tiers if they have changed. */
static void print_tiers(const json_t *tiers)
{
    json_t *entry;
    size_t i;

    if (json_array_size(tiers) < 2)
        return;
    printf("%-12s ", "tiers");
    json_array_foreach (tiers, i, entry) {
        printf("%s%s from step %lld", i ? ", " : "", text_of(entry, "tier"), int_of(entry, "step"));
    }
    putchar('\n');
}

static void print_evaluation(const json_t *eval)
{
    if (!json_is_string(json_object_get(eval, "run")))
        return;
    printf("%-12s step %lld of ", "evaluates", int_of(eval, "step"));
    if (json_is_integer(json_object_get(eval, "job")))
        printf("job %lld", int_of(eval, "job"));
    else
        print_clean(stdout, text_of(eval, "run"));
    fputs(*text_of(eval, "set") ? " on " : "", stdout);
    print_clean(stdout, text_of(eval, "set"));
    putchar('\n');
}

/* Tells how a failed job can go on. Checkpoints come newest first. */
static void print_way_on(const json_t *job)
{
    json_t *c;
    size_t i;

    if (strcmp(text_of(job, "state"), "failed") != 0)
        return;
    json_array_foreach (json_object_get(job, "checkpoints"), i, c) {
        if (json_is_false(json_object_get(c, "there")))
            continue;
        printf("%-12s `detctl resume %lld` lets it go on after step %lld, once the cause is mended\n", "next", int_of(job, "id"),
               int_of(c, "step"));
        return;
    }
    printf("%-12s `detctl resume %lld` lets it begin once more, once the cause is mended\n", "next", int_of(job, "id"));
}

/* As it was at submission. */
static void print_code(const json_t *program)
{
    const char *commit = text_of(program, "commit"), *changes = text_of(program, "changes"), *script = text_of(program, "script");
    char text[200] = "";
    int n = 0;

    if (*commit)
        n = snprintf(text, sizeof text, "commit %.12s%s%.12s", commit, *changes ? " with changes " : "", changes);
    if (*script)
        snprintf(text + n, sizeof text - (size_t)n, "%sscript %.12s", n ? ", " : "", script);
    field("code", text);
}

/* As bash takes it. */
static void print_word(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    static const char odd[] = "\n\r\t\\'", after[] = "nrt\\'"; /* a backslash */
    const char *begin = strpbrk(word, "\n\r\t") ? "$'" : "'";
    char *text = malloc(4 * strlen(word) + 4), *at = text;

    if (!text)
        memory_out();
    at += sprintf(at, "%s", begin);
    for (const char *c = word; *c; c++) {
        const char *special = begin[0] == '$' ? strchr(odd, *c) : NULL;

        if (*c == '\'' && !special)
            at += sprintf(at, "'\\''");
        else if (special)
            at += sprintf(at, "\\%c", after[special - odd]);
        else
            *at++ = *c;
    }
    sprintf(at, "'");
    print_clean(stdout, *word && word[strspn(word, plain)] == '\0' ? word : text);
    free(text);
}

/* The command is the owner's alone, as are the values of variables. */
static void print_program(const json_t *spec)
{
    const json_t *program = json_object_get(spec, "program"), *command = json_object_get(program, "command"), *arg;
    json_t *env = json_object_get(json_object_get(spec, "run"), "env"), *value;
    const char *name;
    size_t i;

    if (!program)
        return;
    printf("%-12s", "command");
    json_array_foreach (command, i, arg) {
        putchar(' ');
        print_word(json_string_value(arg));
    }
    puts(command && !json_is_null(command) ? "" : " (known to its owner)");
    field("directory", text_of(program, "directory"));
    print_code(program);
    if (json_object_size(env) == 0)
        return;
    printf("%-12s", "variables");
    json_object_foreach (env, name, value) {
        putchar(' ');
        print_clean(stdout, name);
    }
    putchar('\n');
}

static void print_job(const json_t *job)
{
    printf("%-12s %lld\n", "id", int_of(job, "id"));
    field("name", text_of(job, "name"));
    field("user", text_of(job, "user"));
    field("note", text_of(job, "note"));
    field("tags", text_tags(job).s);
    field("state", text_of(job, "state"));
    field("reason", text_of(job, "reason"));
    print_way_on(job);
    field("step", text_step(job).s);
    print_evaluation(json_object_get(json_object_get(job, "spec"), "errand"));
    field("phase", text_of(job, "phase"));
    printf("%-12s %lld rank%s on %s, tier %s\n", "run", int_of(job, "ranks"), int_of(job, "ranks") == 1 ? "" : "s", text_of(job, "device"),
           text_of(job, "tier"));
    print_tiers(json_object_get(job, "tiers"));
    field("gpus", text_of(job, "gpus"));
    printf("%-12s ", "use");
    if (strcmp(text_of(job, "state"), "running") == 0)
        printf("%.1f images/s, ", real_of(job, "images_per_s"));
    printf("%s of CPU, at most %s a rank\n", text_duration(real_of(job, "cpu_seconds")).s, text_bytes(real_of(job, "max_rss")).s);
    print_times(job);
    print_losses(job);
    field("init", text_of(job, "init"));
    print_program(json_object_get(job, "spec"));
    print_attempts(json_object_get(job, "attempts"));
    print_checkpoints(json_object_get(job, "checkpoints"));
    field("folder", text_of(job, "dir"));
}

static void print_why(const json_t *result)
{
    print_clean(stdout, text_of(result, "text"));
    putchar('\n');
}

/* Runs a command that takes an optional id and --json, and makes one call. */
static int show_with(struct context *ctx, int argc, char **argv, const char *method, void (*print)(const json_t *result))
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { 0 } };
    bool json = false;
    int64_t id = 0;
    json_t *result;
    int rc, o;

    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        json = true;
    }
    if (argc - optind > 1)
        return misuse(ctx, "one job at a time");
    if ((rc = take_id_or_newest(ctx, argv[optind], &id)))
        return rc;
    if ((rc = call(ctx, method, json_pack("{s:I}", "id", (json_int_t)id), &result)))
        return rc;
    if (!json && !argv[optind] && print == print_why)
        printf("job %lld: ", (long long)id);
    if (json)
        print_json(result);
    else
        print(result);
    json_decref(result);
    return CODE_DONE;
}

int command_show(struct context *ctx, int argc, char **argv)
{
    return show_with(ctx, argc, argv, "job.get", print_job);
}

int command_why(struct context *ctx, int argc, char **argv)
{
    return show_with(ctx, argc, argv, "job.why", print_why);
}

/* ---- events ---- */

static void print_events(const json_t *events)
{
    for (size_t i = json_array_size(events); i-- > 0;) { /* they come newest first */
        const json_t *e = json_array_get(events, i);

        printf("%s  ", text_time(real_of(e, "time")).s);
        if (json_is_integer(json_object_get(e, "job")))
            printf("job %lld  ", int_of(e, "job"));
        printf("%-7s  ", text_of(e, "level"));
        print_clean(stdout, text_of(e, "kind"));
        fputs("  ", stdout);
        print_clean(stdout, text_of(e, "text"));
        putchar('\n');
    }
}

static void print_usage(const json_t *rows)
{
    static const char *const headers[] = { "<TIME", ">CPU", ">MEMORY", ">GPU", ">GPU MEMORY" };
    struct table *t = table_new(sizeof headers / sizeof *headers, headers);

    for (size_t i = json_array_size(rows); i-- > 0;) { /* they come newest first */
        const json_t *r = json_array_get(rows, i), *gpu = json_object_get(r, "gpu"), *memory = json_object_get(r, "gpu_memory");

        table_add(t, text_time(real_of(r, "time")).s);
        table_addf(t, "%.2f", real_of(r, "cpu"));
        table_add(t, text_bytes(real_of(r, "memory")).s);
        table_addf(t, json_is_number(gpu) ? "%.0f %%" : "-", json_number_value(gpu));
        table_add(t, json_is_number(memory) ? text_bytes(json_number_value(memory)).s : "-");
    }
    table_print(t, stdout);
}

/* Takes the options of events. Returns 0, or CODE_USAGE after complaining. */
static int take_rows_options(struct context *ctx, int argc, char **argv, struct list *l, bool *ret_json)
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { "limit", required_argument, NULL, 'n' }, { 0 } };
    int o;

    *ret_json = false;
    while ((o = next_option(argc, argv, "n:", options)) != -1) {
        if (o == '?' || (o == 'n' && take_limit(ctx, optarg, &l->limit)))
            return CODE_USAGE;
        *ret_json |= o == 'j';
    }
    return 0;
}

static int show_rows(struct context *ctx, struct list *l, bool json, void (*print)(const json_t *rows))
{
    json_t *rows;
    int rc = call_list(ctx, l, &rows);

    if (rc)
        return rc;
    if (json)
        print_json(rows);
    else
        print(rows);
    json_decref(rows);
    return CODE_DONE;
}

static void print_users(const json_t *rows)
{
    static const char *const headers[] = { "<USER", ">GPU HOURS", ">CPU SLOT HOURS" };
    struct table *t = table_new(sizeof headers / sizeof *headers, headers);
    json_t *r;
    size_t i;

    json_array_foreach ((json_t *)rows, i, r) {
        table_add(t, text_of(r, "user"));
        table_addf(t, "%.1f", real_of(r, "gpu_hours"));
        table_addf(t, "%.1f", real_of(r, "cpu_slot_hours"));
    }
    table_print(t, stdout);
}

/* ago: seconds; below 0: all. */
static int usage_by_user(struct context *ctx, double ago, bool json)
{
    json_t *result, *params = json_object();
    int rc;

    if (ago >= 0)
        json_object_set_new(params, "hours", json_integer((json_int_t)ceil(fmax(ago / 3600, 1))));
    rc = call(ctx, "user.usage", params, &result);
    if (rc)
        return rc;
    if (json)
        print_json(json_object_get(result, "rows"));
    else
        print_users(json_object_get(result, "rows"));
    json_decref(result);
    return CODE_DONE;
}

int command_usage(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' },
                                             { "limit", required_argument, NULL, 'n' },
                                             { "by", required_argument, NULL, 'b' },
                                             { "since", required_argument, NULL, 'S' },
                                             { 0 } };
    struct list l = { .method = "job.usage", .member = "rows", .limit = USAGE_DEFAULT };
    bool json = false, by_user = false;
    double ago = -1;
    int64_t id = 0;
    int rc, o;

    while ((o = next_option(argc, argv, "n:", options)) != -1) {
        if (o == '?' || (o == 'n' && take_limit(ctx, optarg, &l.limit)) || (o == 'S' && take_duration(ctx, optarg, &ago)))
            return CODE_USAGE;
        if (o == 'b' && strcmp(optarg, "user") != 0)
            return misuse(ctx, "--by: must be user, is '%s'", optarg);
        json |= o == 'j';
        by_user |= o == 'b';
    }
    if (by_user && optind < argc)
        return misuse(ctx, "'%s': --by user tells about all jobs", argv[optind]);
    if (by_user)
        return usage_by_user(ctx, ago, json);
    if (ago >= 0)
        return misuse(ctx, "--since belongs to --by user");
    if (argc - optind > 1)
        return misuse(ctx, "one job at a time");
    if ((rc = take_id_or_newest(ctx, argv[optind], &id)))
        return rc;
    l.params = json_pack("{s:I}", "id", (json_int_t)id);
    return show_rows(ctx, &l, json, print_usage);
}

int command_events(struct context *ctx, int argc, char **argv)
{
    struct list l = { .method = "event.query", .member = "events", .limit = EVENTS_DEFAULT };
    int64_t id = 0;
    bool json;

    if (take_rows_options(ctx, argc, argv, &l, &json) || (optind < argc && take_id(ctx, argv[optind], &id)))
        return CODE_USAGE;
    l.params = json_object();
    if (id > 0)
        json_object_set_new(l.params, "id", json_integer(id));
    return show_rows(ctx, &l, json, print_events);
}

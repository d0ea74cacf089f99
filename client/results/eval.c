/* SPDX-License-Identifier: Apache-2.0 */ /* client/results/eval.c - evaluation results of a job, and asking for another
 * evaluation. */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/checkpoint.h"
#include "client/results/classes.h"
#include "client/base/command.h"
#include "client/results/eval_name.h"
#include "client/results/evaluate.h"
#include "client/base/print.h"
#include "client/jobs/program.h"

struct wish {
    const char *metric, *set; /* set NULL: results of validations */
    struct evaluation on;
    int how; /* 'c': CSV, 'j': JSON, 0: a table */
    bool now, per_class;
};

static void print_csv(int64_t id, const json_t *rows)
{
    json_t *row;
    size_t i;

    puts("job,step,metric,value,time");
    json_array_foreach (rows, i, row) {
        printf("%lld,", (long long)id);
        print_real(stdout, json_object_get(row, "step"));
        putchar(',');
        print_csv_text(text_of(row, "metric"));
        putchar(',');
        print_real(stdout, json_object_get(row, "value"));
        putchar(',');
        print_real(stdout, json_object_get(row, "time"));
        putchar('\n');
    }
}

/* A table shows AP50 alone of classes; --per-class has the rest. */
static bool is_shown(const char *metric)
{
    return !strchr(metric, ':') || strncmp(metric, "AP50:", 5) == 0 || strncmp(metric, "segm_AP50:", 10) == 0;
}

/* Prints the whole history of one metric, or the newest evaluation of all metrics. */
static void print_table(const json_t *rows, bool history)
{
    static const char *const headers[] = { ">STEP", "<METRIC", ">VALUE", "<TIME" };
    struct table *t = table_new(sizeof headers / sizeof *headers, headers);
    json_int_t newest = classes_newest(rows);
    json_t *row;
    size_t i;

    json_array_foreach (rows, i, row) {
        if (!history && (json_integer_value(json_object_get(row, "step")) != newest || !is_shown(text_of(row, "metric"))))
            continue;
        table_add(t, text_number(json_object_get(row, "step")).s);
        table_add(t, text_of(row, "metric"));
        table_add(t, text_number(json_object_get(row, "value")).s);
        table_add(t, text_time(json_number_value(json_object_get(row, "time"))).s);
    }
    table_print(t, stdout);
    table_free(t);
}

static int ask_for_one(struct context *ctx, int64_t id)
{
    json_t *result;
    int rc = call(ctx, "job.eval", json_pack("{s:I}", "id", (json_int_t)id), &result);

    if (rc)
        return rc;
    tell_asked(id, "an evaluation", text_of(result, "state"));
    json_decref(result);
    return CODE_DONE;
}

/* Keeps the rows of one step. */
static void keep_step(json_t *rows, long long step)
{
    for (size_t i = json_array_size(rows); i-- > 0;)
        if (int_of(json_array_get(rows, i), "step") != step)
            json_array_remove(rows, i);
}

/* If they differ, names the steps of the newest validation and of the best checkpoint, which other commands take if the
 * job is a model. A failure of this note ends nothing. */
static void tell_step(struct context *ctx, int64_t id, json_int_t newest)
{
    const json_t *best;
    json_t *job;

    if (call(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)id), &job))
        return;
    best = checkpoint_find(json_object_get(job, "checkpoints"), "best");
    if (best && int_of(best, "step") != newest && strcmp(text_of(job, "kind"), "program") != 0)
        fprintf(stderr, "step %lld is the newest validation; predict, export and job:%lld take the best checkpoint, of step %lld\n",
                (long long)newest, (long long)id, (long long)int_of(best, "step"));
    json_decref(job);
}

/* step: shows that step alone; 0: all steps. */
static int show(struct context *ctx, int64_t id, const struct wish *w, long long step)
{
    struct list l = { .method = "eval.query", .member = "rows", .params = json_pack("{s:I}", "id", (json_int_t)id), .limit = LONG_MAX };
    json_t *rows;
    int rc;

    if (w->metric)
        json_object_set_new(l.params, "metric", json_string(w->metric));
    if (w->set)
        json_object_set_new(l.params, "set", json_string(w->set));
    if ((rc = call_list(ctx, &l, &rows)))
        return rc;
    if (step > 0)
        keep_step(rows, step);
    if (w->per_class)
        rc = classes_print(id, rows, w->how);
    else if (w->how == 'j')
        print_json(rows);
    else if (w->how == 'c')
        print_csv(id, rows);
    else if (json_array_size(rows) == 0 && !program_tell_none(ctx, id, "scores", "run.metrics()"))
        fprintf(stderr,
                w->set ? "job %lld has no evaluation on '%s' yet\n"
                       : "job %lld has no evaluation yet; a validation makes one where the set has boxes, masks, measured depth or poses "
                         "to compare with\n",
                (long long)id, w->set);
    else if (json_array_size(rows) > 0)
        print_table(rows, w->metric != NULL);
    if (!rc && !w->how && !w->set && !w->metric && json_array_size(rows) > 0)
        tell_step(ctx, id, classes_newest(rows));
    json_decref(rows);
    return rc;
}

static int check(const struct context *ctx, const struct wish *w)
{
    const struct evaluation *on = &w->on;

    for (int i = 0; i < on->nchanges; i++) {
        if (!strchr(on->changes[i], '='))
            return misuse(ctx, "one job at a time");
        if (!on->on || (strncmp(on->changes[i], "data.", 5) != 0 && strncmp(on->changes[i], "val.", 4) != 0))
            return misuse(ctx, "'%s': only keys of data and val may be changed, and only with --on SET", on->changes[i]);
    }
    if ((on->images || on->format || on->checkpoint) && !on->on)
        return misuse(ctx, "--images, --format and --checkpoint need --on SET");
    if (w->set && (!*w->set || strlen(w->set) > 64))
        return misuse(ctx, "a set's name has 1 to 64 bytes");
    if (w->now && (on->on || w->set || w->metric || w->per_class))
        return misuse(ctx, "--now goes alone");
    return w->metric && w->per_class ? misuse(ctx, "one metric, or all --per-class: not both") : 0;
}

int command_eval(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "metric", required_argument, NULL, 'm' },
                                             { "set", required_argument, NULL, 's' },
                                             { "on", required_argument, NULL, 'o' },
                                             { "images", required_argument, NULL, 'i' },
                                             { "format", required_argument, NULL, 'f' },
                                             { "checkpoint", required_argument, NULL, 'k' },
                                             { "per-class", no_argument, NULL, 'p' },
                                             { "csv", no_argument, NULL, 'c' },
                                             { "json", no_argument, NULL, 'j' },
                                             { "now", no_argument, NULL, 'n' },
                                             { 0 } };
    struct wish w = { 0 };
    char set[65];
    const char *job = NULL;
    long long step = 0;
    int64_t id = 0;
    int rc, o;

    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        w.metric = o == 'm' ? optarg : w.metric;
        w.set = o == 's' ? optarg : w.set;
        w.on.on = o == 'o' ? optarg : w.on.on;
        w.on.images = o == 'i' ? optarg : w.on.images;
        w.on.format = o == 'f' ? optarg : w.on.format;
        w.on.checkpoint = o == 'k' ? optarg : w.on.checkpoint;
        w.per_class |= o == 'p';
        w.now |= o == 'n';
        w.how = o == 'c' || o == 'j' ? o : w.how;
    }
    if (optind < argc && !strchr(argv[optind], '='))
        job = argv[optind++];
    w.on.changes = argv + optind;
    w.on.nchanges = argc - optind;
    if ((rc = check(ctx, &w)) || (rc = take_id_or_newest(ctx, job, &id)))
        return rc;
    if (w.now)
        return ask_for_one(ctx, id);
    if (w.on.on) {
        char number[24];

        snprintf(number, sizeof number, "%lld", (long long)id);
        w.on.set = w.set;
        if ((rc = evaluate(ctx, number, &w.on, set, &step)))
            return rc;
        eval_name_tell(ctx, id, set);
        w.set = set;
    }
    return show(ctx, id, &w, step);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* client/results/loss.c - the losses of a job: as a table, CSV, JSON or a
 * curve. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/curve.h"
#include "client/base/plot.h"
#include "client/base/print.h"
#include "client/jobs/program.h"
#include "proto/host/memory.h"

enum { PLOT_ROWS = 20, SPLITS = 2 };

struct output {
    int64_t job;
    struct table *table;
    size_t rows;
};

static int csv_row(void *arg, const json_t *row)
{
    const struct output *out = arg;

    printf("%lld,%s,", (long long)out->job, text_of(row, "split"));
    print_csv_text(text_of(row, "term"));
    putchar(',');
    print_real(stdout, json_object_get(row, "step"));
    putchar(',');
    print_real(stdout, json_object_get(row, "epoch"));
    putchar(',');
    print_real(stdout, json_object_get(row, "value"));
    printf(",%s,", text_of(row, "tier"));
    print_real(stdout, json_object_get(row, "time"));
    putchar('\n');
    return 0;
}

static int json_row(void *arg, const json_t *row)
{
    struct output *out = arg;

    fputs(out->rows++ ? ",\n" : "", stdout);
    print_json_as(row, JSON_COMPACT);
    return 0;
}

static int table_row(void *arg, const json_t *row)
{
    struct output *out = arg;

    table_add(out->table, text_number(json_object_get(row, "step")).s);
    table_add(out->table, text_number(json_object_get(row, "epoch")).s);
    table_add(out->table, text_of(row, "split"));
    table_add(out->table, text_of(row, "term"));
    table_add(out->table, text_number(json_object_get(row, "value")).s);
    table_add(out->table, text_of(row, "tier"));
    table_add(out->table, text_time(json_number_value(json_object_get(row, "time"))).s);
    out->rows++;
    return 0;
}

static int print_csv(struct context *ctx, const struct curve_query *q)
{
    struct output out = { .job = q->job };

    puts("job,split,term,step,epoch,value,tier,time");
    return curve_rows(ctx, q, csv_row, &out);
}

static int print_as_json(struct context *ctx, const struct curve_query *q)
{
    struct output out = { .job = q->job };
    int rc;

    fputs("[", stdout);
    rc = curve_rows(ctx, q, json_row, &out);
    puts("]");
    return rc;
}

static void tell_none(struct context *ctx, int64_t id)
{
    if (!program_tell_none(ctx, id, "such losses", "run.loss()"))
        fprintf(stderr, "job %lld has no such losses yet\n", (long long)id);
}

static int print_table(struct context *ctx, const struct curve_query *q)
{
    static const char *const headers[] = { ">STEP", ">EPOCH", "<SPLIT", "<TERM", ">VALUE", "<TIER", "<TIME" };
    struct output out = { .job = q->job, .table = table_new(sizeof headers / sizeof *headers, headers) };
    int rc = curve_rows(ctx, q, table_row, &out);

    if (rc == 0 && out.rows == 0)
        tell_none(ctx, q->job);
    else if (rc == 0)
        table_print(out.table, stdout);
    table_free(out.table);
    return rc;
}

static int print_plot(struct context *ctx, const struct curve_query *q)
{
    static const char *const splits[SPLITS] = { "train", "val" };
    struct curve curve[SPLITS] = { 0 };
    struct plot p = { .height = PLOT_ROWS, .utf8 = print_utf8(), .colour = print_colour(stdout), .title = q->term };
    struct curve_query one = *q;
    json_t *job = NULL;
    char *text;
    int rows, rc = call(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)q->job), &job);

    curve_tiers(job, &p);
    print_size(&p.width, &rows);
    for (int k = 0; k < SPLITS && rc == 0; k++) {
        one.split = splits[k];
        one.points = q->points ? q->points : 2 * p.width;
        if (!q->split || strcmp(q->split, one.split) == 0)
            rc = curve_fetch(ctx, &one, &curve[k]);
        p.curve[k] = (struct plot_curve){ splits[k], curve[k].x, curve[k].y, curve[k].n, k == 1 };
    }
    if (rc == 0 && p.curve[0].n + p.curve[1].n == 0) {
        tell_none(ctx, q->job);
        json_decref(job);
        return CODE_DONE;
    }
    text = rc == 0 ? plot_text(&p) : NULL;
    if (text)
        fputs(text, stdout);
    free(text);
    json_decref(job);
    for (int k = 0; k < SPLITS; k++)
        curve_free(&curve[k]);
    return rc;
}

static int take_points(const struct context *ctx, const char *text, int64_t *ret)
{
    char *end;

    *ret = strtoll(text, &end, 10);
    return end == text || *end || *ret <= 0 ? misuse(ctx, "'%s' is not a number of points", text) : 0;
}

int command_loss(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "split", required_argument, NULL, 's' },
                                             { "term", required_argument, NULL, 't' },
                                             { "points", required_argument, NULL, 'n' },
                                             { "csv", no_argument, NULL, 'c' },
                                             { "json", no_argument, NULL, 'j' },
                                             { "plot", no_argument, NULL, 'p' },
                                             { 0 } };
    struct curve_query q = { 0 };
    int rc, o, how = 0;

    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?' || (o == 'n' && take_points(ctx, optarg, &q.points)))
            return CODE_USAGE;
        if (o == 's')
            q.split = optarg;
        else if (o == 't')
            q.term = optarg;
        else if (o != 'n')
            how = o;
    }
    if (q.split && strcmp(q.split, "train") != 0 && strcmp(q.split, "val") != 0)
        return misuse(ctx, "--split is train or val, not '%s'", q.split);
    if (argc - optind > 1)
        return misuse(ctx, "one job at a time");
    if (!q.term && how != 'c' && how != 'j')
        q.term = "total";
    if (q.term && strcmp(q.term, "all") == 0 && how != 'p')
        q.term = NULL;
    if ((rc = take_id_or_newest(ctx, argv[optind], &q.job)))
        return rc;
    switch (how) {
    case 'c':
        return print_csv(ctx, &q);
    case 'j':
        return print_as_json(ctx, &q);
    case 'p':
        return print_plot(ctx, &q);
    default:
        return print_table(ctx, &q);
    }
}

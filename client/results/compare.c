/* SPDX-License-Identifier: Apache-2.0 */ /* client/results/compare.c - jobs side by side: keys that differ, curves,
 * best values. diff tells whether two runs have the same bits. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/best.h"
#include "client/base/command.h"
#include "client/base/curve.h"
#include "client/base/plot.h"
#include "client/base/print.h"
#include "client/base/run.h"

enum { MOST = PLOT_CURVES, PLOT_ROWS = 20, VALUE_CHARS = 120, KEY_BYTES = 256, DEPTH = 8 };

struct comparison {
    struct context *ctx;
    const char *split, *term;
    int n;
    int64_t id[MOST];
    json_t *job[MOST];
    struct best loss[MOST], metric[MOST];
};

/* ---- keys ---- */

static bool differ(json_t *const *value, int n)
{
    for (int i = 1; i < n; i++)
        if ((!value[0] != !value[i]) || (value[0] && !json_equal(value[0], value[i])))
            return true;
    return false;
}

static bool is_group(json_t *const *value, int n, int depth)
{
    for (int i = 0; i < n; i++)
        if (json_is_object(value[i]) && depth < DEPTH)
            return true;
    return false;
}

static void add_keys(json_t *out, const char *prefix, json_t *const *group, int n, int depth);

/* Compares one key in all groups. add_keys() calls it only for the first group that has the key. */
static void add_key(json_t *out, const char *prefix, const char *key, json_t *const *group, int n, int depth)
{
    json_t *value[MOST], *row;
    char path[KEY_BYTES];

    snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
    for (int i = 0; i < n; i++)
        value[i] = json_object_get(group[i], key);
    if (is_group(value, n, depth)) {
        add_keys(out, path, value, n, depth + 1);
        return;
    }
    if (!differ(value, n))
        return;
    row = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(row, value[i] ? json_incref(value[i]) : json_null());
    json_array_append_new(out, json_pack("{s:s, s:o}", "key", path, "values", row));
}

static bool is_seen(json_t *const *group, int before, const char *key)
{
    for (int i = 0; i < before; i++)
        if (json_object_get(group[i], key))
            return true;
    return false;
}

static void add_keys(json_t *out, const char *prefix, json_t *const *group, int n, int depth)
{
    const char *key;
    json_t *value;

    for (int i = 0; i < n; i++)
        json_object_foreach (group[i], key, value)
            if (!is_seen(group, i, key))
                add_key(out, prefix, key, group, n, depth);
}

static json_t *keys_of(const struct comparison *c)
{
    json_t *out = json_array(), *spec[MOST];

    for (int i = 0; i < c->n; i++) {
        spec[i] = json_object_get(c->job[i], "spec");
        run_hide_values(spec[i]);
    }
    add_keys(out, "", spec, c->n, 0);
    return out;
}

/* ---- as text ---- */

static void add_cell(struct table *t, const json_t *v)
{
    char *text = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));

    table_addf(t, "%.*s", VALUE_CHARS, json_is_string(v) ? json_string_value(v) : json_is_null(v) || !text ? "-" : text);
    free(text);
}

static void print_keys(const struct comparison *c)
{
    char heads[MOST][40];
    const char *headers[MOST + 1] = { "<KEY" };
    json_t *keys = keys_of(c), *row, *value;
    struct table *t;
    size_t i, k;

    for (int j = 0; j < c->n; j++) {
        snprintf(heads[j], sizeof heads[j], "<JOB %lld", (long long)c->id[j]);
        headers[j + 1] = heads[j];
    }
    t = table_new(c->n + 1, headers);
    json_array_foreach (keys, i, row) {
        table_add(t, text_of(row, "key"));
        json_array_foreach (json_object_get(row, "values"), k, value) {
            add_cell(t, value);
        }
    }
    if (json_array_size(keys) > 0)
        table_print(t, stdout);
    else
        puts("no key differs");
    table_free(t);
    json_decref(keys);
}

static void add_best(struct table *t, const struct best *b, bool named)
{
    if (b->metric)
        table_addf(t, "%s%s%.6g at %lld", named ? b->metric : "", named ? " " : "", b->value, (long long)b->step);
    else
        table_add(t, "-");
}

static void print_values(const struct comparison *c)
{
    static const char *const headers[] = { ">JOB", "<NAME", "<STATE", ">STEP", "<BEST LOSS", "<BEST METRIC", ">TIME", "<TAGS" };
    struct table *t = table_new(sizeof headers / sizeof *headers, headers);

    for (int i = 0; i < c->n; i++) {
        table_addf(t, "%lld", (long long)c->id[i]);
        table_add(t, text_of(c->job[i], "name"));
        table_add(t, text_of(c->job[i], "state"));
        table_add(t, text_step(c->job[i]).s);
        add_best(t, &c->loss[i], false);
        add_best(t, &c->metric[i], true);
        table_add(t, text_taken(c->job[i]).s);
        table_add(t, text_tags(c->job[i]).s);
    }
    table_print(t, stdout);
    table_free(t);
}

static int print_plot(const struct comparison *c)
{
    struct plot p = { .height = PLOT_ROWS, .utf8 = print_utf8(), .colour = print_colour(stdout) };
    struct curve curve[MOST] = { 0 };
    char label[MOST][40], title[120], *text;
    int rows, rc = 0;

    print_size(&p.width, &rows);
    snprintf(title, sizeof title, "%s %s", c->split, c->term);
    p.title = title;
    for (int i = 0; i < c->n && rc == 0; i++) {
        struct curve_query q = { .job = c->id[i], .split = c->split, .term = c->term, .points = 2 * p.width };

        rc = curve_fetch(c->ctx, &q, &curve[i]);
        snprintf(label[i], sizeof label[i], "job %lld", (long long)c->id[i]);
        p.curve[i] = (struct plot_curve){ label[i], curve[i].x, curve[i].y, curve[i].n, false };
    }
    text = rc == 0 ? plot_text(&p) : NULL;
    if (text)
        fputs(text, stdout);
    free(text);
    for (int i = 0; i < c->n; i++)
        curve_free(&curve[i]);
    return rc;
}

/* ---- for scripts ---- */

struct writing {
    int64_t job;
    json_t *rows; /* NULL: CSV */
};

static int take_row(void *arg, const json_t *row)
{
    struct writing *w = arg;

    if (w->rows) {
        json_array_append_new(w->rows,
                              json_pack("{s:O, s:O}", "step", json_object_get(row, "step"), "value", json_object_get(row, "value")));
        return 0;
    }
    printf("%lld,%s,", (long long)w->job, text_of(row, "split"));
    print_csv_text(text_of(row, "term"));
    putchar(',');
    print_real(stdout, json_object_get(row, "step"));
    putchar(',');
    print_real(stdout, json_object_get(row, "value"));
    putchar('\n');
    return 0;
}

static int print_csv(const struct comparison *c)
{
    int rc = 0;

    puts("job,split,term,step,value");
    for (int i = 0; i < c->n && rc == 0; i++) {
        struct curve_query q = { .job = c->id[i], .split = c->split, .term = c->term };
        struct writing w = { .job = c->id[i] };

        rc = curve_rows(c->ctx, &q, take_row, &w);
    }
    return rc;
}

static json_t *best_json(const struct best *b)
{
    return b->metric ? json_pack("{s:s, s:f, s:I}", "metric", b->metric, "value", b->value, "step", (json_int_t)b->step) : json_null();
}

static int print_as_json(const struct comparison *c)
{
    json_t *jobs = json_array(), *all;
    int rc = 0;

    for (int i = 0; i < c->n && rc == 0; i++) {
        struct curve_query q = { .job = c->id[i], .split = c->split, .term = c->term };
        struct writing w = { .job = c->id[i], .rows = json_array() };

        rc = curve_rows(c->ctx, &q, take_row, &w);
        json_array_append_new(jobs, json_pack("{s:I, s:s, s:s, s:I, s:I, s:o, s:o, s:O?, s:o}", "id", (json_int_t)c->id[i], "name",
                                              text_of(c->job[i], "name"), "state", text_of(c->job[i], "state"), "step",
                                              (json_int_t)int_of(c->job[i], "step"), "steps", (json_int_t)int_of(c->job[i], "steps"),
                                              "best_loss", best_json(&c->loss[i]), "best_metric", best_json(&c->metric[i]), "tags",
                                              json_object_get(c->job[i], "tags"), "curve", w.rows));
    }
    all = json_pack("{s:s, s:s, s:o, s:o}", "split", c->split, "term", c->term, "keys", keys_of(c), "jobs", jobs);
    if (rc == 0)
        print_json(all);
    json_decref(all);
    return rc;
}

/* ---- the command ---- */

static int fetch(struct comparison *c)
{
    int rc = 0;

    for (int i = 0; i < c->n && rc == 0; i++)
        rc = call(c->ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)c->id[i]), &c->job[i]);
    for (int i = 0; i < c->n && rc == 0; i++) {
        rc = best_loss(c->ctx, c->id[i], c->split, c->term, &c->loss[i]);
        c->metric[i] = best_metric(c->job[i]);
    }
    return rc;
}

static int print_text(const struct comparison *c, bool plot)
{
    print_keys(c);
    putchar('\n');
    print_values(c);
    if (!plot)
        return CODE_DONE;
    putchar('\n');
    return print_plot(c);
}

static int take_jobs(struct comparison *c, int count, char **words)
{
    if (count < 2 || count > MOST)
        return misuse(c->ctx, "2 to %d jobs are compared, not %d", MOST, count);
    for (c->n = 0; c->n < count; c->n++)
        if (take_id(c->ctx, words[c->n], &c->id[c->n]))
            return CODE_USAGE;
    return 0;
}

int command_compare(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "split", required_argument, NULL, 's' }, { "term", required_argument, NULL, 't' },
                                             { "csv", no_argument, NULL, 'c' },         { "json", no_argument, NULL, 'j' },
                                             { "plot", no_argument, NULL, 'p' },        { 0 } };
    struct comparison c = { .ctx = ctx, .split = "val", .term = "total" };
    int rc, o, how = 0;

    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        if (o == 's')
            c.split = optarg;
        else if (o == 't')
            c.term = optarg;
        else
            how = o;
    }
    if (strcmp(c.split, "train") != 0 && strcmp(c.split, "val") != 0)
        return misuse(ctx, "--split is train or val, not '%s'", c.split);
    rc = take_jobs(&c, argc - optind, argv + optind);
    if (rc == 0)
        rc = fetch(&c);
    if (rc == 0)
        rc = how == 'c' ? print_csv(&c) : how == 'j' ? print_as_json(&c) : print_text(&c, how == 'p');
    for (int i = 0; i < c.n; i++)
        json_decref(c.job[i]);
    return rc;
}

/* client/eval.c - evaluation results of a job, and asking for another evaluation. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "client/command.h"
#include "client/print.h"

/* All rows of the job, page after page, to be dropped by the caller. */
static int fetch(struct context *ctx, int64_t id, const char *metric, json_t **ret_rows)
{
    json_t *all = json_array(), *cursor = NULL, *result;
    int rc;

    do {
        json_t *params = json_pack("{s:I}", "id", (json_int_t)id);

        if (metric)
            json_object_set_new(params, "metric", json_string(metric));
        if (cursor)
            json_object_set_new(params, "cursor", cursor);
        cursor = NULL;
        if ((rc = call(ctx, "eval.query", params, &result)))
            break;
        json_array_extend(all, json_object_get(result, "rows"));
        if (json_is_string(json_object_get(result, "cursor")))
            cursor = json_incref(json_object_get(result, "cursor"));
        json_decref(result);
    } while (cursor);
    if (rc)
        json_decref(all);
    else
        *ret_rows = all;
    return rc;
}

static void print_csv(int64_t id, const json_t *rows)
{
    json_t *row;
    size_t i;

    puts("job,step,metric,value,time");
    json_array_foreach (rows, i, row) {
        printf("%lld,", (long long)id);
        print_real(stdout, json_object_get(row, "step"));
        printf(",%s,", text_of(row, "metric"));
        print_real(stdout, json_object_get(row, "value"));
        putchar(',');
        print_real(stdout, json_object_get(row, "time"));
        putchar('\n');
    }
}

/* Of one metric the whole history, of all metrics the newest evaluation. */
static void print_table(const json_t *rows, bool history)
{
    static const char *const headers[] = { ">STEP", "<METRIC", ">VALUE", "<TIME" };
    struct table *t = table_new(sizeof headers / sizeof *headers, headers);
    json_int_t newest = 0;
    json_t *row;
    size_t i;

    json_array_foreach (rows, i, row) {
        if (json_integer_value(json_object_get(row, "step")) > newest)
            newest = json_integer_value(json_object_get(row, "step"));
    }
    json_array_foreach (rows, i, row) {
        if (!history && json_integer_value(json_object_get(row, "step")) != newest)
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

int command_eval(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "metric", required_argument, NULL, 'm' },
                                             { "csv", no_argument, NULL, 'c' },
                                             { "json", no_argument, NULL, 'j' },
                                             { "now", no_argument, NULL, 'n' },
                                             { 0 } };
    const char *metric = NULL;
    json_t *rows;
    int64_t id = 0;
    int rc, o, how = 0;

    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        if (o == 'm')
            metric = optarg;
        else
            how = o;
    }
    if (argc - optind > 1)
        return misuse(ctx, "one job at a time");
    if ((rc = take_id_or_newest(ctx, argv[optind], &id)))
        return rc;
    if (how == 'n')
        return ask_for_one(ctx, id);
    if ((rc = fetch(ctx, id, metric, &rows)))
        return rc;
    if (how == 'j')
        print_json(rows);
    else if (how == 'c')
        print_csv(id, rows);
    else if (json_array_size(rows) == 0)
        fprintf(stderr, metric ? "job %lld has no metric '%s' yet\n" : "job %lld has no evaluation yet\n", (long long)id, metric);
    else
        print_table(rows, metric != NULL);
    json_decref(rows);
    return CODE_DONE;
}

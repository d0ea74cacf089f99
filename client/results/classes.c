#include "client/results/classes.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/print.h"
#include "proto/host/memory.h"

/* The names that evaluators give, and the names here. */
static const struct {
    const char *metric, *column, *header;
} scores[] = { { "n:", "count", ">COUNT" },           { "AP:", "ap", ">AP" },          { "AP50:", "ap50", ">AP50" },
               { "P50:", "precision", ">PRECISION" }, { "R50:", "recall", ">RECALL" }, { "conf:", "conf", ">CONF" } };
enum { SCORES = sizeof scores / sizeof *scores };

json_int_t classes_newest(const json_t *rows)
{
    json_int_t newest = 0;
    json_t *row;
    size_t i;

    json_array_foreach (rows, i, row) {
        json_int_t step = json_integer_value(json_object_get(row, "step"));

        newest = step > newest ? step : newest;
    }
    return newest;
}

/* The row of that class in `all`. Rows are in the order in which their classes were first met. */
static json_t *class_of(json_t *all, json_t *places, const char *of, const char *name, json_int_t step)
{
    char key[256];
    json_t *at, *row;

    snprintf(key, sizeof key, "%s %s", of, name);
    at = json_object_get(places, key);
    if (at)
        return json_array_get(all, (size_t)json_integer_value(at));
    row = json_pack("{s:s, s:s, s:I}", "of", of, "class", name, "step", step);
    if (!row)
        memory_out();
    json_object_set_new(places, key, json_integer((json_int_t)json_array_size(all)));
    json_array_append_new(all, row);
    return row;
}

static json_t *gather(const json_t *rows)
{
    json_int_t newest = classes_newest(rows);
    json_t *all = json_array(), *places = json_object(), *row;
    size_t i;

    json_array_foreach (rows, i, row) {
        const char *metric = text_of(row, "metric"), *name = strncmp(metric, "segm_", 5) == 0 ? metric + 5 : metric;

        if (json_integer_value(json_object_get(row, "step")) != newest)
            continue;
        for (int k = 0; k < SCORES; k++) {
            size_t n = strlen(scores[k].metric);

            if (strncmp(name, scores[k].metric, n) == 0)
                json_object_set(class_of(all, places, name == metric ? "boxes" : "masks", name + n, newest), scores[k].column,
                                json_object_get(row, "value"));
        }
    }
    json_decref(places);
    return all;
}

static void print_csv(int64_t job, const json_t *all)
{
    json_t *row;
    size_t i;

    printf("job,step,of,class");
    for (int k = 0; k < SCORES; k++)
        printf(",%s", scores[k].column);
    putchar('\n');
    json_array_foreach (all, i, row) {
        printf("%lld,%lld,%s,", (long long)job, int_of(row, "step"), text_of(row, "of"));
        print_csv_text(text_of(row, "class"));
        for (int k = 0; k < SCORES; k++) {
            putchar(',');
            print_real(stdout, json_object_get(row, scores[k].column));
        }
        putchar('\n');
    }
}

static void print_table(const json_t *all)
{
    const char *headers[SCORES + 2] = { "<CLASS", "<OF" };
    struct table *t;
    json_t *row;
    size_t i;

    for (int k = 0; k < SCORES; k++)
        headers[2 + k] = scores[k].header;
    t = table_new(SCORES + 2, headers);
    json_array_foreach (all, i, row) {
        table_add(t, text_of(row, "class"));
        table_add(t, text_of(row, "of"));
        for (int k = 0; k < SCORES; k++)
            table_add(t, text_number(json_object_get(row, scores[k].column)).s);
    }
    table_print(t, stdout);
    table_free(t);
}

int classes_print(int64_t job, const json_t *rows, int how)
{
    json_t *all = gather(rows);

    if (how == 'j')
        print_json(all);
    else if (how == 'c')
        print_csv(job, all);
    else if (json_array_size(all) == 0)
        fprintf(stderr, "job %lld has no evaluation of classes yet\n", (long long)job);
    else
        print_table(all);
    json_decref(all);
    return CODE_DONE;
}

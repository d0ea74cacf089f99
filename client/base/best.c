#include "client/base/best.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/curve.h"
#include "client/base/link.h"
#include "client/base/print.h"
#include "proto/err.h"

enum { PAGE = 1000 };

/* In the order of preference. A job has the metrics of one kind. */
static const struct metric {
    const char *name;
    bool lower; /* a lower value is better */
} metrics[] = { { "AP", false }, { "mAP", false }, { "abs_rel", true } };

static void take(struct best *b, const struct metric *m, const json_t *row)
{
    const json_t *value = json_object_get(row, "value");
    double v = json_number_value(value);

    if (!json_is_number(value) || (b->metric && (m->lower ? v >= b->value : v <= b->value)))
        return;
    *b = (struct best){ m->name, v, int_of(row, "step") };
}

/* Fetches one page. A job that has other metrics, or was removed meanwhile, has no page: *ret_result is NULL. */
static int page(struct context *ctx, json_t *params, json_t **ret_result)
{
    struct err err = { 0 };
    int rc = link_call(ctx->link, "eval.query", params, ret_result, &err);

    if (rc == 0)
        return 0;
    *ret_result = NULL;
    return strcmp(err.field, "metric") == 0 || err.code == ERR_NOTFOUND ? 0 : complain(&err);
}

static int each_page(struct context *ctx, int64_t job, const struct metric *m, struct best *ret)
{
    json_t *cursor = NULL, *result, *row, *params;
    size_t i;
    int rc = 0;

    do {
        params = json_pack("{s:I, s:s, s:i}", "id", (json_int_t)job, "metric", m->name, "limit", (int)PAGE);
        if (cursor)
            json_object_set_new(params, "cursor", cursor);
        cursor = NULL;
        if ((rc = page(ctx, params, &result)) || !result)
            return rc;
        json_array_foreach (json_object_get(result, "rows"), i, row) {
            take(ret, m, row);
        }
        if (json_is_string(json_object_get(result, "cursor")))
            cursor = json_incref(json_object_get(result, "cursor"));
        json_decref(result);
    } while (cursor);
    return rc;
}

int best_metric(struct context *ctx, int64_t job, struct best *ret)
{
    int rc = 0;

    *ret = (struct best){ NULL, NAN, 0 };
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics && rc == 0 && !ret->metric; i++)
        rc = each_page(ctx, job, &metrics[i], ret);
    return rc;
}

static int lower_loss(void *arg, const json_t *row)
{
    static const struct metric loss = { "loss", true };

    take(arg, &loss, row);
    return 0;
}

int best_loss(struct context *ctx, int64_t job, const char *split, const char *term, struct best *ret)
{
    const struct curve_query q = { .job = job, .split = split, .term = term };

    *ret = (struct best){ NULL, NAN, 0 };
    return curve_rows(ctx, &q, lower_loss, ret);
}

#include "client/base/curve.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdlib.h>

#include "client/base/command.h"
#include "client/base/plot.h"
#include "proto/grow.h"
#include "proto/host/memory.h"

static json_t *params_of(const struct curve_query *q, json_t *cursor)
{
    json_t *p = json_pack("{s:I}", "id", (json_int_t)q->job);

    if (q->split)
        json_object_set_new(p, "split", json_string(q->split));
    if (q->term)
        json_object_set_new(p, "term", json_string(q->term));
    if (q->from > 0)
        json_object_set_new(p, "from", json_integer(q->from));
    if (q->to > 0)
        json_object_set_new(p, "to", json_integer(q->to));
    if (q->points > 0)
        json_object_set_new(p, "points", json_integer(q->points));
    if (cursor)
        json_object_set(p, "cursor", cursor);
    return p;
}

int curve_rows(struct context *ctx, const struct curve_query *q, int (*fn)(void *arg, const json_t *row), void *arg)
{
    json_t *cursor = NULL, *result, *row;
    size_t i;
    int rc;

    do {
        rc = call_patiently(ctx, "loss.query", params_of(q, cursor), &result);
        json_decref(cursor);
        cursor = NULL;
        if (rc)
            return rc;
        json_array_foreach (json_object_get(result, "rows"), i, row) {
            if ((rc = fn(arg, row)))
                break;
        }
        if (rc == 0 && json_is_string(json_object_get(result, "cursor")))
            cursor = json_incref(json_object_get(result, "cursor"));
        json_decref(result);
    } while (cursor);
    return rc;
}

struct growing {
    struct curve *curve;
    size_t xs, ys;
};

static int add_row(void *arg, const json_t *row)
{
    struct growing *g = arg;
    struct curve *c = g->curve;
    json_t *value = json_object_get(row, "value");

    if (!GROW(c->x, g->xs, c->n + 1) || !GROW(c->y, g->ys, c->n + 1))
        memory_out();
    c->x[c->n] = (double)json_integer_value(json_object_get(row, "step"));
    c->y[c->n++] = json_is_number(value) ? json_number_value(value) : NAN;
    return 0;
}

int curve_fetch(struct context *ctx, const struct curve_query *q, struct curve *ret)
{
    struct growing g = { .curve = ret };
    int rc;

    *ret = (struct curve){ 0 };
    rc = curve_rows(ctx, q, add_row, &g);
    if (rc)
        curve_free(ret);
    return rc;
}

void curve_free(struct curve *c)
{
    free(c->x);
    free(c->y);
    *c = (struct curve){ 0 };
}

/* If there are many changes, takes the newest. The first entry is the tier that the job began with, and no change. */
void curve_tiers(const json_t *job, struct plot *p)
{
    const json_t *tiers = json_object_get(job, "tiers");
    size_t n = json_array_size(tiers), i = n > PLOT_CHANGES ? n - PLOT_CHANGES : 1;

    for (p->nchanges = 0; i < n; i++) {
        const json_t *entry = json_array_get(tiers, i);
        const char *tier = json_string_value(json_object_get(entry, "tier"));

        if (tier)
            p->change[p->nchanges++] = (struct plot_change){ json_number_value(json_object_get(entry, "step")), tier };
    }
}

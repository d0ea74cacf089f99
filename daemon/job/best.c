#include "daemon/job/best.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <string.h>

enum { METRICS = 3 };

/* In the order of preference; BEST_SELECT of store_read.c has the same order. */
static const struct metric {
    const char *name;
    bool lower; /* a lower value is better */
} metrics[METRICS] = { { "AP", false }, { "mAP", false }, { "abs_rel", true } };

static int place(const char *name)
{
    int i = 0;

    while (i < METRICS && (!name || strcmp(metrics[i].name, name) != 0))
        i++;
    return i;
}

bool best_take(json_t *losses, const char *metric, double value, int64_t step)
{
    const json_t *best = json_object_get(losses, "best");
    int at = place(metric), before = place(json_string_value(json_object_get(best, "metric")));
    double old = json_number_value(json_object_get(best, "value"));

    if (at == METRICS || at > before || !isfinite(value))
        return false;
    if (at == before && (metrics[at].lower ? value >= old : value <= old))
        return false;
    return json_object_set_new(losses, "best", json_pack("{s:s, s:f, s:I}", "metric", metric, "value", value, "step", (json_int_t)step)) ==
           0;
}

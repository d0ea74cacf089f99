#include "client/base/best.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stddef.h>

#include "client/base/command.h"
#include "client/base/curve.h"
#include "client/base/print.h"

struct best best_metric(const json_t *job)
{
    const json_t *best = json_object_get(json_object_get(job, "losses"), "best");

    return (struct best){ json_string_value(json_object_get(best, "metric")), real_of(best, "value"), int_of(best, "step") };
}

static int lower_loss(void *arg, const json_t *row)
{
    const json_t *value = json_object_get(row, "value");
    struct best *b = arg;

    if (json_is_number(value) && !(b->metric && json_number_value(value) >= b->value))
        *b = (struct best){ "loss", json_number_value(value), int_of(row, "step") };
    return 0;
}

int best_loss(struct context *ctx, int64_t job, const char *split, const char *term, struct best *ret)
{
    const struct curve_query q = { .job = job, .split = split, .term = term };

    *ret = (struct best){ NULL, NAN, 0 };
    return curve_rows(ctx, &q, lower_loss, ret);
}

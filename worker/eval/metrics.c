#include "worker/eval/metrics.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/grow.h"

bool metric_is_error(const char *name)
{
    static const char *const errors[] = { "abs_rel", "sq_rel", "rmse", "rmse_log", "ate", "ate_std" };

    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(errors[i], name) == 0)
            return true;
    return false;
}

int metrics_add(struct metrics *m, const char *name, double value, struct err *err)
{
    if (!GROW(m->row, m->room, m->n + 1))
        return err_set(err, -ENOMEM, "out of memory: scores");
    snprintf(m->row[m->n].name, sizeof m->row[m->n].name, "%s", name);
    m->row[m->n++].value = value;
    return 0;
}

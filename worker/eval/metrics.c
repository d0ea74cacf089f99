#include "worker/eval/metrics.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"

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
    if (m->n == m->room) {
        int room = m->room ? 2 * m->room : 64;
        struct metric *more = realloc(m->row, (size_t)room * sizeof *more);

        if (!more)
            return err_set(err, -ENOMEM, "out of memory: scores");
        m->row = more;
        m->room = room;
    }
    snprintf(m->row[m->n].name, sizeof m->row[m->n].name, "%s", name);
    m->row[m->n++].value = value;
    return 0;
}

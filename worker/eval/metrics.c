#include "worker/eval/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/err.h"

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

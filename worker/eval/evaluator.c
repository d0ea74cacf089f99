#include "worker/eval/evaluator.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>

#include "proto/err.h"

int evaluators_open(const struct evaluator_ops *const *list, const struct eval_split *split, struct evaluators **ret, struct err *err)
{
    struct evaluators *all;
    size_t n = 0;
    int rc = 0;

    while (list[n])
        n++;
    all = calloc(1, sizeof *all + n * sizeof all->each[0]);
    if (!all)
        return err_set(err, -ENOMEM, "out of memory: scores");
    for (size_t i = 0; i < n && rc >= 0; i++) {
        rc = list[i]->open(split, &all->each[i], err);
        all->n += rc >= 0;
    }
    if (rc < 0)
        evaluators_close(all);
    else
        *ret = all;
    return rc;
}

void evaluators_close(struct evaluators *all)
{
    for (int i = 0; all && i < all->n; i++)
        if (all->each[i]->ops->close)
            all->each[i]->ops->close(all->each[i]);
        else
            free(all->each[i]);
    free(all);
}

int evaluators_add(struct evaluators *all, const struct result *r, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < all->n && rc >= 0; i++)
        rc = all->each[i]->ops->add(all->each[i], r, err);
    return rc;
}

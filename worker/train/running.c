#include "worker/train/running.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <stdlib.h>

#include "proto/err.h"
#include "worker/layers/layers.h"

static size_t place(const struct norm *n)
{
    return 2 * n->mean->count + 1;
}

/* Normalisations that are used more than `use` times. */
static int used(const struct running *r, int use)
{
    int n = 0;

    for (int i = 0; i < r->nnorms; i++)
        n += !r->norms[i].frozen && r->norms[i].uses > use;
    return n;
}

static void lay_out(struct running *r)
{
    for (int i = 0; i < r->nnorms; i++) {
        const struct norm *n = &r->norms[i];

        assert(n->uses >= 1 && n->index == i);
        r->at[i] = r->doubles;
        r->doubles += n->frozen ? 0 : (size_t)n->uses * place(n);
        r->widest = n->sync && place(n) > r->widest ? place(n) : r->widest;
    }
}

int running_open(struct running *r, const struct norm *norms, int nnorms, struct err *err)
{
    int nitems = 0, n;

    *r = (struct running){ .norms = norms, .nnorms = nnorms };
    for (int use = 0; (n = used(r, use)) > 0; use++)
        nitems += n;
    r->item = calloc((size_t)nitems + 1, sizeof *r->item);
    r->at = calloc((size_t)nnorms + 1, sizeof *r->at);
    if (!r->item || !r->at)
        return err_set(err, ERR_DEVICE, "out of memory");
    lay_out(r);
    for (int use = 0; r->nitems < nitems; use++)
        for (int i = 0; i < nnorms; i++)
            if (!norms[i].frozen && use < norms[i].uses)
                r->item[r->nitems++] = (struct running_item){ norms[i].mean, norms[i].var, running_at(r, i, use), norms[i].sync };
    return 0;
}

void running_close(struct running *r)
{
    free(r->item);
    free(r->at);
}

size_t running_at(const struct running *r, int index, int use)
{
    assert(use < r->norms[index].uses);
    return r->at[index] + (size_t)use * place(&r->norms[index]);
}

int running_update(const struct running *r, struct device *dev, const double *const *records, int nrecords, float momentum,
                   const int32_t *skip, struct err *err)
{
    int rc = 0;

    for (int use = 0, from = 0; from < r->nitems && rc >= 0; from += used(r, use++))
        rc = dev->on->norm->running(dev, r->item + from, used(r, use), records, nrecords, momentum, skip, err);
    return rc;
}

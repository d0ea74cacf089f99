/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/wide.c - see wide.h. */
#include "worker/cpu/wide.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/carve.h"

static struct tensor *tensor_at(const void *structs, size_t each, int v)
{
    return (struct tensor *)(uintptr_t)((const char *)structs + (size_t)v * each);
}

static void layout(struct wide *w, int n, int nshards, struct carve *c)
{
    for (int i = 0; i < n; i++) {
        if (!w[i].of)
            continue;
        w[i].as = carve(c, (size_t)nshards * w[i].each);
        if (w[i].as)
            memcpy(w[i].as, w[i].of, (size_t)nshards * w[i].each);
        for (int v = 0; v < nshards; v++) {
            void *data = carve(c, tensor_count(tensor_at(w[i].of, w[i].each, v)) * sizeof(float));

            if (data) {
                struct tensor *t = tensor_at(w[i].as, w[i].each, v);

                t->data = data;
                t->stride = t->c;
                t->dtype = DTYPE_F32;
            }
        }
    }
}

static int take_memory(struct cpu_device *d, size_t bytes, struct err *err)
{
    if (bytes <= d->wide_bytes)
        return 0;
    free(d->wide);
    d->wide_bytes = 0;
    d->wide = cpu_memory(bytes);
    if (!d->wide)
        return err_set(err, -ENOMEM, "out of memory: %zu bytes of working memory on the CPU device", bytes);
    d->wide_bytes = bytes;
    return 0;
}

int cpu_widen(struct device *dev, struct wide *w, int n, int nshards, struct err *err)
{
    struct carve c = { 0 };
    int rc;

    layout(w, n, nshards, &c);
    rc = take_memory(cpu_device(dev), c.used, err);
    c = (struct carve){ cpu_device(dev)->wide, 0 };
    if (rc >= 0)
        layout(w, n, nshards, &c);
    for (int i = 0; i < n && rc >= 0; i++)
        for (int v = 0; v < nshards && w[i].of && w[i].read && rc >= 0; v++)
            rc = cpu_map_cast(dev, tensor_at(w[i].as, w[i].each, v), tensor_at(w[i].of, w[i].each, v), 1, err);
    return rc;
}

void cpu_narrow(struct device *dev, const struct wide *w, int nshards)
{
    struct err err;

    for (int v = 0; v < nshards && w->of; v++)
        (void)cpu_map_cast(dev, tensor_at(w->of, w->each, v), tensor_at(w->as, w->each, v), 1, &err); /* cannot fail */
}

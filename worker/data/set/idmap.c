#include "worker/data/set/idmap.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>

void idmap_free(struct idmap *m)
{
    free(m->slot);
    *m = (struct idmap){ 0 };
}

/* The slot of the id, or the free slot for it. */
static struct idmap_slot *find(const struct idmap *m, int64_t id)
{
    uint64_t h = (uint64_t)id * 0x9e3779b97f4a7c15;
    size_t i = (size_t)(h ^ h >> 32) & (m->size - 1);

    while (m->slot[i].value && m->slot[i].id != id)
        i = (i + 1) & (m->size - 1);
    return &m->slot[i];
}

int32_t idmap_get(const struct idmap *m, int64_t id)
{
    return m->size ? find(m, id)->value - 1 : -1;
}

static int grow(struct idmap *m)
{
    struct idmap bigger = { .size = m->size ? m->size * 2 : 64 };

    bigger.slot = calloc(bigger.size, sizeof *bigger.slot);
    if (!bigger.slot)
        return -ENOMEM;
    for (size_t i = 0; i < m->size; i++)
        if (m->slot[i].value)
            *find(&bigger, m->slot[i].id) = m->slot[i];
    bigger.used = m->used;
    free(m->slot);
    *m = bigger;
    return 0;
}

int idmap_put(struct idmap *m, int64_t id, int32_t value)
{
    if (m->used * 2 >= m->size && grow(m) < 0)
        return -ENOMEM;
    *find(m, id) = (struct idmap_slot){ id, value + 1 };
    m->used++;
    return 0;
}

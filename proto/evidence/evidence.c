#include "proto/evidence/evidence.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"

struct hash128 evidence_start(const struct evidence_head *h)
{
    struct hash128 c = hash_fold(hash_fold(hash_fold_u64((struct hash128){ { 0, 0 } }, EVIDENCE_FORMAT), h->spec), h->data);

    c = hash_fold_u64(hash_fold_u64(hash_fold_u64(c, h->tensors), (uint64_t)h->shards), (uint64_t)h->ntensors);
    for (int i = 0; i < h->ntensors; i++) {
        const struct evidence_tensor *t = &h->tensor[i];

        c = hash_fold_u64(hash_fold_u64(hash_fold_u64(c, hash_name(t->name)), (uint64_t)t->count), t->gradient);
    }
    return c;
}

static uint32_t bits(float v)
{
    uint32_t b;

    memcpy(&b, &v, sizeof b);
    return b;
}

struct hash128 evidence_chain(struct hash128 before, const struct evidence_record *r)
{
    struct hash128 c = hash_fold_u64(hash_fold_u64(before, (uint64_t)r->step), r->skipped);

    c = hash_fold_u64(c, (uint64_t)bits(r->lr) << 32 | bits(r->loss));
    for (int i = 0; i < EVIDENCE_PARTS; i++)
        c = hash_fold(c, r->part[i]);
    return c;
}

int evidence_detail_new(const struct evidence_head *h, struct evidence_detail *ret, struct err *err)
{
    size_t shards = (size_t)h->shards, tensors = (size_t)h->ntensors;
    struct hash128 *all = calloc(2 * (shards + tensors), sizeof *all);

    if (!all)
        return err_set(err, -ENOMEM, "out of memory");
    *ret =
        (struct evidence_detail){ .data = all, .loss = all + shards, .gradient = all + 2 * shards, .weight = all + 2 * shards + tensors };
    return 0;
}

void evidence_detail_free(struct evidence_detail *d)
{
    free(d->data);
    *d = (struct evidence_detail){ 0 };
}

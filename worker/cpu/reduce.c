/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/reduce.c - sums over flat arrays with a fixed shape, and
 * evidence hashes. */
#include "worker/kernels/reduce.h"

#include "proto/hash/hash_keys.h"
#include "worker/core/tree.h"
#include "worker/cpu/hash.h"
#include "worker/cpu/rows.h"

_Static_assert((int)SUM_BLOCK == (int)HASH_BLOCK, "a block is squared and hashed in one pass");

enum { PARTS_AT_ONCE = 64 };

struct tree_args {
    float *dst;
    const struct tree_part *parts;
    int nparts;
};

/* Adds a slice of every part. More than 64 parts are rare, so their slice is added number by number. */
static void tree_part_run(void *arg, size_t from, size_t to)
{
    const struct tree_args *a = arg;
    struct tree_part slice[PARTS_AT_ONCE];

    if (a->nparts > PARTS_AT_ONCE) {
        for (size_t i = from; i < to; i++)
            a->dst[i] = tree_element(a->parts, a->nparts, i);
        return;
    }
    for (int p = 0; p < a->nparts; p++)
        slice[p] = (struct tree_part){ a->parts[p].lo, a->parts[p].hi, a->parts[p].data + from };
    tree_add_host(a->dst + from, slice, a->nparts, to - from);
}

int cpu_reduce_tree_add(struct device *dev, float *dst, const struct tree_part *parts, int nparts, size_t count, struct err *err)
{
    struct tree_args a = { dst, parts, nparts };

    (void)err;
    threads_run(cpu_threads(dev), count, tree_part_run, &a);
    return 0;
}

struct squares_args {
    double *blocks;
    struct hash128 *hashes;
    const float *g;
    size_t count;
};

static void squares_part(void *arg, size_t from, size_t to)
{
    const struct squares_args *a = arg;

    for (size_t j = from; j < to; j++) {
        size_t rest = a->count - j * SUM_BLOCK, n = rest < SUM_BLOCK ? rest : SUM_BLOCK;

        a->blocks[j] = sum_squares_block(a->g + j * SUM_BLOCK, n);
        if (a->hashes)
            a->hashes[j] = cpu_hash_block(a->g + j * SUM_BLOCK, n);
    }
}

int cpu_reduce_sum_squares(struct device *dev, double *blocks, struct hash128 *hashes, const float *g, size_t count, struct err *err)
{
    struct squares_args a = { blocks, hashes, g, count };

    (void)err;
    threads_run(cpu_threads(dev), (count + SUM_BLOCK - 1) / SUM_BLOCK, squares_part, &a);
    return 0;
}

static size_t blocks_of_item(const void *arg, int i)
{
    return (((const struct hash_item *)arg)[i].count + HASH_BLOCK - 1) / HASH_BLOCK;
}

static void hash_item_blocks(const void *arg, int i, size_t from, size_t to)
{
    const struct hash_item *item = &((const struct hash_item *)arg)[i];

    for (size_t b = from; b < to; b++) {
        size_t rest = item->count - b * HASH_BLOCK;

        item->blocks[b] = cpu_hash_block(item->data + b * HASH_BLOCK, rest < HASH_BLOCK ? rest : HASH_BLOCK);
    }
}

int cpu_reduce_hash_blocks(struct device *dev, const struct hash_item *items, int nitems, struct err *err)
{
    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nitems, blocks_of_item, hash_item_blocks, items });
    return 0;
}

struct pieces_args {
    struct hash128 *ret;
    const struct hash_piece *pieces;
};

static void hash_piece(void *arg, size_t index, int thread)
{
    const struct pieces_args *a = arg;
    const struct hash_piece *p = &a->pieces[index];
    struct hash128 sum = { { 0, 0 } };

    (void)thread;
    for (int i = 0; i < p->nblocks; i++) {
        uint64_t b = (uint64_t)p->first + (uint64_t)i;

        sum.lane[0] += hash_word(p->blocks[i].lane[0], p->kappa, b, HASH_MUL_0);
        sum.lane[1] += hash_word(p->blocks[i].lane[1], p->kappa, b, HASH_MUL_1);
    }
    a->ret[index] = sum;
}

int cpu_reduce_hash_tensors(struct device *dev, struct hash128 *ret, const struct hash_piece *pieces, int npieces, struct err *err)
{
    struct pieces_args a = { ret, pieces };

    (void)err;
    threads_each(cpu_threads(dev), (size_t)npieces, hash_piece, &a);
    return 0;
}

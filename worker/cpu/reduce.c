/* worker/cpu/reduce.c - sums over flat arrays with a fixed shape, and the evidence hash. */
#include "worker/kernels/reduce.h"

#include <string.h>

#include "proto/hash.h"
#include "worker/core/tree.h"
#include "worker/cpu/rows.h"
#include "proto/hash_mix.h"

enum { PARTS_AT_ONCE = 64 };

struct tree_args {
    float *dst;
    const struct tree_part *parts;
    int nparts;
};

/* A slice of every part. More than 64 parts at once are rare: their slice is added number by number. */
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
    const float *g;
    size_t count;
};

static void squares_part(void *arg, size_t from, size_t to)
{
    const struct squares_args *a = arg;

    for (size_t j = from; j < to; j++) {
        size_t rest = a->count - j * SUM_BLOCK;

        a->blocks[j] = sum_squares_block(a->g + j * SUM_BLOCK, rest < SUM_BLOCK ? rest : SUM_BLOCK);
    }
}

int cpu_reduce_sum_squares(struct device *dev, double *blocks, const float *g, size_t count, struct err *err)
{
    struct squares_args a = { blocks, g, count };

    (void)err;
    threads_run(cpu_threads(dev), (count + SUM_BLOCK - 1) / SUM_BLOCK, squares_part, &a);
    return 0;
}

struct hash_args {
    uint64_t *out;
    const unsigned char *data;
    uint64_t kappa, first_word;
};

/* Whole words [from, to). Integer sums need no order, so threads add theirs as they finish. */
static void hash_part(void *arg, size_t from, size_t to)
{
    const struct hash_args *a = arg;
    uint64_t s0 = 0, s1 = 0;

    for (size_t i = from; i < to; i++) {
        uint64_t w, j = a->first_word + i;

        memcpy(&w, a->data + i * 8, sizeof(w));
        s0 += hash_word(w, a->kappa, j, HASH_MUL_0);
        s1 += hash_word(w, a->kappa, j, HASH_MUL_1);
    }
    __atomic_fetch_add(&a->out[0], s0, __ATOMIC_RELAXED);
    __atomic_fetch_add(&a->out[1], s1, __ATOMIC_RELAXED);
}

int cpu_reduce_hash(struct device *dev, uint64_t out[2], const void *data, size_t bytes, uint64_t kappa, uint64_t first_word,
                    struct err *err)
{
    struct hash_args a = { out, data, kappa, first_word };
    size_t words = bytes / 8;

    (void)err;
    threads_run(cpu_threads(dev), words, hash_part, &a);
    hash_add(out, a.data + words * 8, bytes % 8, kappa, first_word + words);
    return 0;
}

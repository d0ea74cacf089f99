// cuda/optim.cu - parameter updates: all parameters of a step in one launch, blocks of 4096 numbers of one parameter each. Where
// convolutions read a bf16 copy of a weight, it is written beside the weight.
#include "cuda/cuda.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "cuda/derived.h"
#include "cuda/vec.h"
#include "worker/kernels/optim.h"

enum { THREADS = 256, PER_THREAD = 16, BLOCK_NUMBERS = THREADS * PER_THREAD };

struct step_item {
    float *w, *m;
    const float *g;
    float *ema; /* NULL: none */
    bf16 *copy; /* NULL: none, or stale */
    size_t count;
    unsigned first; /* block */
    bool wide;      /* all may be read and written four at a time */
    struct sgd sgd;
};

/* The item of a block: the last that starts at or before it. Items without numbers have no block. */
DEVICE_FN const struct step_item *item_of_block(const struct step_item *items, int n)
{
    int lo = 0, hi = n;

    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;

        if (items[mid].first <= blockIdx.x)
            lo = mid;
        else
            hi = mid;
    }
    return &items[lo];
}

/* W numbers from index i on. */
template <int W> DEVICE_FN void step_numbers(const struct step_item *t, const struct sgd *sgd, size_t i)
{
    float w[W], m[W], g[W], ema[W];
    pack<float, W> pw = vec_load<W>((const float *)t->w + i), pm = vec_load<W>((const float *)t->m + i), pg = vec_load<W>(t->g + i);

    vec_unpack(w, pw);
    vec_unpack(m, pm);
    vec_unpack(g, pg);
#pragma unroll
    for (int j = 0; j < W; j++)
        sgd_element(&w[j], &m[j], g[j], sgd);
    if (t->ema) {
        vec_unpack(ema, vec_load<W>((const float *)t->ema + i));
#pragma unroll
        for (int j = 0; j < W; j++)
            ema_element(&ema[j], w[j], sgd->ema_decay);
        vec_store(t->ema + i, ema);
    }
    vec_store(t->w + i, w);
    vec_store(t->m + i, m);
    if (t->copy)
        vec_store(t->copy + i, w);
}

static __global__ void __launch_bounds__(THREADS) sgd_blocks_kernel(const struct step_item *items, int n, const int32_t *skip)
{
    const struct step_item *found = item_of_block(items, n);
    struct step_item t = *found;
    size_t first = (size_t)(blockIdx.x - t.first) * BLOCK_NUMBERS, end = t.count - first < BLOCK_NUMBERS ? t.count : first + BLOCK_NUMBERS;
    size_t wide_end = t.wide ? end / 4 * 4 : first;

    if (*skip)
        return;
#pragma unroll
    for (int r = 0; r < PER_THREAD / 4; r++) {
        size_t i = first + ((size_t)r * THREADS + threadIdx.x) * 4;

        if (i < wide_end)
            step_numbers<4>(&t, &t.sgd, i);
    }
    for (size_t i = wide_end + threadIdx.x; i < end; i += THREADS)
        step_numbers<1>(&t, &t.sgd, i);
}

static bool all_aligned(const struct step_item *t)
{
    return (((uintptr_t)t->w | (uintptr_t)t->m | (uintptr_t)t->g | (uintptr_t)t->ema | (uintptr_t)t->copy) & 15) == 0;
}

/* Returns the number of blocks. */
static unsigned fill_items(struct step_item *to, const struct sgd_item *items, int nitems)
{
    unsigned blocks = 0;

    for (int i = 0; i < nitems; i++) {
        struct param *p = items[i].param;

        to[i].w = p->data;
        to[i].m = items[i].momentum;
        to[i].g = items[i].grad;
        to[i].ema = items[i].ema;
        to[i].copy = derived_fresh(p) ? (bf16 *)cuda_derived(p)->bf16 : NULL;
        to[i].count = p->count;
        to[i].first = blocks;
        to[i].wide = all_aligned(&to[i]);
        to[i].sgd = items[i].sgd;
        blocks += (unsigned)((p->count + BLOCK_NUMBERS - 1) / BLOCK_NUMBERS);
    }
    return blocks;
}

/* The copies that were written are those of the new weights. */
static void bump_versions(const struct sgd_item *items, int nitems)
{
    for (int i = 0; i < nitems; i++) {
        struct param *p = items[i].param;
        bool fresh = derived_fresh(p);

        p->version++;
        if (fresh)
            cuda_derived(p)->version = p->version;
    }
}

int cuda_optim_sgd(struct device *dev, const struct sgd_item *items, int nitems, const int32_t *skip, struct err *err)
{
    struct step_item *host = (struct step_item *)calloc((size_t)nitems + 1, sizeof(*host));
    const struct step_item *table;
    unsigned blocks;
    int rc = 0;

    if (!host)
        return err_set(err, -ENOMEM, "sgd_step: out of memory for %d parameters", nitems);
    blocks = fill_items(host, items, nitems);
    if (blocks > 0) {
        table = (const struct step_item *)cuda_table(dev, host, (size_t)nitems * sizeof(*host), err);
        rc = table ? 0 : -ENOMEM;
        if (table)
            CUDA_LAUNCH(sgd_blocks_kernel, blocks, THREADS, cuda_device(dev)->stream, table, nitems, skip);
    }
    if (rc == 0)
        rc = cuda_check(cudaPeekAtLastError(), "sgd_step", err);
    if (rc == 0)
        bump_versions(items, nitems);
    free(host);
    return rc;
}

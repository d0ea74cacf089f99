/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto trainer cuda
 * Gradients reduced over the NCCL link on emulated GPUs, or a real one (tests/stand/emu/nccl_ranks.h): for any number
 * of ranks the bits of the canonical tree, while the other channel is in use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/stand/emu/nccl_ranks.h"
#include "worker/models/model.h"
#include "worker/core/shards.h"
#include "worker/gradients/gradients.h"

enum { NPARAMS = 5, NSHARDS = 8, NSTEPS = 2, NWAVES = 2, SLOT = 96 };

static const size_t counts[NPARAMS] = { 16, 5000, 1024, 20000, 3 };

/* Numbers of very different size, so that every order of additions has its own bits. */
static float leaf(int step, int shard, int param, size_t i)
{
    uint64_t h = (((uint64_t)step * 64 + (uint64_t)shard) * 64 + (uint64_t)param) << 24;

    h += i + 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
    h ^= h >> 31;
    return ((float)(h & 0xFFFFFF) / 16777216.0f - 0.5f) * (float)(1 << (h >> 60));
}

/* T(lo, hi), as the specification has it. */
static float tree_of(int step, int lo, int hi, int param, size_t i)
{
    int mid = (lo + hi) / 2;

    if (hi - lo == 1)
        return leaf(step, lo, param, i);
    return tree_of(step, lo, mid, param, i) + tree_of(step, mid, hi, param, i);
}

struct work {
    struct rank *rank;
    struct gradients *gradients;
    struct param param[NPARAMS];
    float *host;   /* as many as the largest parameter has */
    char *slots;   /* gathered on the other channel */
    int exchanges; /* on it */
};

/* The exchange of SyncBN in the middle of a pass: a small gather on the queue that computes. */
static void exchange(struct work *w)
{
    struct rank *r = w->rank;
    size_t cut[MOST_RANKS + 1];
    unsigned char bytes[MOST_RANKS * SLOT];
    struct err err;

    for (int j = 0; j <= r->nranks; j++)
        cut[j] = (size_t)j * SLOT;
    memset(bytes, w->exchanges + r->rank, SLOT);
    NEED_OK(r->sync->ops->upload(r->sync, w->slots + cut[r->rank], bytes, SLOT, &err));
    NEED_OK(comm_allgather(r->link, COMM_SYNC, w->slots, cut, &err));
    NEED_OK(r->sync->ops->download(r->sync, bytes, w->slots, cut[r->nranks], &err));
    NEED_OK(comm_check(r->link, COMM_SYNC, &err));
    for (int j = 0; j < r->nranks; j++)
        NEED(bytes[j * SLOT] == (unsigned char)(w->exchanges + j));
    w->exchanges++;
}

static void backward(struct work *w, int step, struct span shards)
{
    struct device *dev = w->rank->sync;
    struct err err;

    for (int p = NPARAMS - 1; p >= 0; p--) {
        for (int s = 0; s < shards.hi - shards.lo; s++) {
            bool written = true;
            float *g = gradients_dest(w->gradients, &w->param[p], s, &written);

            NEED(g && !written);
            for (size_t i = 0; i < counts[p]; i++)
                w->host[i] = leaf(step, shards.lo + s, p, i);
            NEED_OK(dev->ops->upload(dev, g, w->host, counts[p] * sizeof(float), &err));
        }
        NEED_OK(gradients_ready(w->gradients, &w->param[p], &err));
        exchange(w);
    }
}

static void check_gradients(struct work *w, int step)
{
    struct device *dev = w->rank->sync;
    struct err err;

    for (int p = 0; p < NPARAMS; p++) {
        NEED_OK(dev->ops->download(dev, w->host, gradients_sum(w->gradients, &w->param[p]), counts[p] * sizeof(float), &err));
        for (size_t i = 0; i < counts[p]; i++) {
            float want = tree_of(step, 0, NSHARDS, p, i);

            NEED(memcmp(&w->host[i], &want, sizeof(want)) == 0);
        }
    }
}

static void reduce_steps(struct rank *r)
{
    struct gradients_options opt = {
        .dev = r->sync, .side = r->grad, .comm = r->link, .nshards = NSHARDS, .nwaves = NWAVES, .first_bytes = 4096, .bucket_bytes = 65536
    };
    struct span mine = rank_shards(r->rank, r->nranks, NSHARDS);
    struct param *list[NPARAMS];
    struct work w = { .rank = r };
    struct err err;

    for (int p = 0; p < NPARAMS; p++) {
        w.param[p] = (struct param){ .kind = PARAM_CONV, .trainable = true, .count = counts[p], .index = p };
        list[p] = &w.param[p];
    }
    w.host = calloc(20000, sizeof(float));
    w.slots = comm_alloc_shared(r->link, MOST_RANKS * SLOT, &err);
    NEED(w.host && w.slots);
    NEED_OK(gradients_open(&opt, list, NPARAMS, &w.gradients, &err));
    for (int step = 0; step < NSTEPS; step++) {
        gradients_begin(w.gradients);
        for (int v = 0; v < NWAVES; v++) {
            struct span shards = wave_shards(mine, v, NWAVES);

            if (shards.lo == shards.hi) {
                for (int p = 0; p < NPARAMS; p++)
                    exchange(&w);
                continue;
            }
            gradients_wave(w.gradients, v);
            backward(&w, step, shards);
        }
        NEED_OK(gradients_wait(w.gradients, &err));
        check_gradients(&w, step);
    }
    gradients_close(w.gradients);
    free(w.host);
}

static void test_any_ranks(void **state)
{
    static const int ranks[] = { 1, 2, 3, 4 };

    (void)state;
    nccl_forget();
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
        assert_int_equal(run_joined(ranks[i], SECONDS_20, reduce_steps, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_any_ranks) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

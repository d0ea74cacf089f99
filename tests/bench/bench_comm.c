/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench_comm.c - uses: proto worker/backend trainer cpu
 * Gradient reduction and collectives between ranks of one node, compared with a copy of the same bytes.
 * Usage: bench_comm [count=720896, floats of each of 12 parameters] [repeats=15] [rounds=2000, of small operations] */
#include "tests/bench/bench.h"
#include "tests/unit/worker/comm/ranks.h"
#include "worker/core/device.h"
#include "worker/backend/devices.h"
#include "worker/core/shards.h"
#include "worker/gradients/gradients.h"
#include "worker/comm/gather.h"

enum { LAYERS = 12, TIMEOUT = 60000 };

static int count, repeats, rounds;

static struct param params[LAYERS];
static struct param *plist[LAYERS];

/* Times of one run, in shared memory; rank 0 writes. */
struct result {
    int nshards, nwaves;
    double best_ms, gather_us, barrier_us;
};

static double now_ms(void)
{
    return 1e3 * bench_now();
}

static double copy_ms(void)
{
    size_t bytes = (size_t)LAYERS * (size_t)count * sizeof(float);
    char *a = malloc(bytes), *b = malloc(bytes);
    double best = 1e9;

    if (!a || !b)
        return 0;
    memset(a, 1, bytes);
    memset(b, 2, bytes);
    for (int i = 0; i < repeats; i++) {
        double from = now_ms(), took;

        memcpy(i & 1 ? a : b, i & 1 ? b : a, bytes);
        took = now_ms() - from;
        best = took < best ? took : best;
    }
    free(a);
    free(b);
    return best;
}

/* A backward that costs nothing: destinations are requested and left as they are. The reduction is the remaining
 * cost. */
static void one_step(struct gradients *r, struct span mine, const struct result *res)
{
    struct err err;
    bool written;

    gradients_begin(r);
    for (int w = 0; w < res->nwaves; w++) {
        struct span shards = wave_shards(mine, w, res->nwaves);

        gradients_wave(r, w);
        for (int p = LAYERS - 1; p >= 0; p--) {
            for (int s = 0; s < shards.hi - shards.lo; s++)
                NEED(gradients_dest(r, plist[p], s, &written));
            NEED_OK(gradients_ready(r, plist[p], &err));
        }
    }
    NEED_OK(gradients_wait(r, &err));
}

static void bench_small(struct comm *c, struct result *res)
{
    const struct gather_options opt = { .comm = c, .nrecords = res->nshards, .buffers = 2, .record_bytes = 64 * sizeof(double) };
    struct gather *g = NULL;
    double from;
    struct err err;

    NEED_OK(gather_open(&opt, &g, &err));
    from = now_ms();
    for (int i = 0; i < rounds; i++)
        NEED_OK(gather_all(g, &err));
    res->gather_us = (now_ms() - from) * 1e3 / rounds;
    from = now_ms();
    for (int i = 0; i < rounds; i++)
        NEED_OK(comm_barrier(c, COMM_SYNC, &err));
    res->barrier_us = (now_ms() - from) * 1e3 / rounds;
    gather_close(g);
}

static void bench_rank(struct comm *c, void *arg)
{
    struct result *shared = arg, res = *shared;
    const struct device_options one = { .threads = 1 };
    const struct device_ops *ops;
    struct device *dev, *side;
    struct gradients_options opt = { .comm = c, .nshards = res.nshards, .nwaves = res.nwaves };
    struct gradients *r = NULL;
    struct span mine = rank_shards(comm_rank(c), comm_ranks(c), res.nshards);
    struct err err;

    NEED_OK(device_backend("cpu", "auto", &ops, &err));
    NEED_OK(ops->open(0, &one, &dev, &err));
    NEED_OK(ops->open(0, &one, &side, &err));
    opt.dev = dev;
    opt.side = side;
    NEED_OK(gradients_open(&opt, plist, LAYERS, &r, &err));
    res.best_ms = 1e9;
    for (int i = 0; i < repeats; i++) {
        double from, took;

        NEED_OK(comm_barrier(c, COMM_SYNC, &err));
        from = now_ms();
        one_step(r, mine, &res);
        took = now_ms() - from;
        res.best_ms = took < res.best_ms ? took : res.best_ms;
    }
    bench_small(c, &res);
    if (comm_rank(c) == 0)
        *shared = res;
    gradients_close(r);
    side->ops->close(side);
    dev->ops->close(dev);
}

int main(int argc, char **argv)
{
    static const struct {
        int ranks, nshards, nwaves;
    } runs[] = { { 1, 1, 1 }, { 1, 4, 1 }, { 1, 8, 1 }, { 1, 8, 2 }, { 2, 2, 1 }, { 2, 8, 1 }, { 4, 8, 1 } };
    struct result *res = shared_memory(sizeof(*res));
    double copy;

    count = bench_count(argc, argv, "count", 720896);
    repeats = bench_count(argc, argv, "repeats", 15);
    rounds = bench_count(argc, argv, "rounds", 2000);
    copy = copy_ms();
    for (int i = 0; i < LAYERS; i++) {
        params[i] = (struct param){ .kind = PARAM_CONV, .trainable = true, .count = (size_t)count, .index = i };
        plist[i] = &params[i];
    }
    printf("memcpy mb=%.1f ms=%.3f\n", (double)LAYERS * count * sizeof(float) / 1e6, copy);
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        *res = (struct result){ .nshards = runs[i].nshards, .nwaves = runs[i].nwaves };
        if (run_ranks(runs[i].ranks, TIMEOUT, bench_rank, res) != 0)
            return 1;
        printf("reduction ranks=%d shards=%d waves=%d ms=%.3f of_memcpy=%.3f gather_us=%.2f barrier_us=%.2f\n", runs[i].ranks,
               runs[i].nshards, runs[i].nwaves, res->best_ms, res->best_ms / copy, res->gather_us, res->barrier_us);
    }
    return 0;
}

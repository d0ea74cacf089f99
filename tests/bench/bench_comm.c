/* Gradient reduction and collectives between ranks of one machine, against one copy of the same bytes.
 * uses: proto worker worker/train worker/models worker/layers worker/data worker/eval worker/comm worker/core cpu */
#include "tests/unit/ranks.h"
#include "worker/core/device.h"
#include "worker/devices.h"
#include "worker/train/reduce.h"
#include "worker/train/slots.h"

enum { LAYERS = 12, COUNT = 720896, REPEATS = 15, TIMEOUT = 60000, SLOT_ROUNDS = 2000 };

static struct param params[LAYERS];
static struct param *plist[LAYERS];

/* Times of one run, in shared memory; rank 0 writes. */
struct result {
    int nshards, nwaves;
    double best_ms, slots_us, barrier_us;
};

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double copy_ms(void)
{
    size_t bytes = (size_t)LAYERS * COUNT * sizeof(float);
    char *a = malloc(bytes), *b = malloc(bytes);
    double best = 1e9;

    if (!a || !b)
        return 0;
    memset(a, 1, bytes);
    memset(b, 2, bytes);
    for (int i = 0; i < REPEATS; i++) {
        double from = now_ms(), took;

        memcpy(i & 1 ? a : b, i & 1 ? b : a, bytes);
        took = now_ms() - from;
        best = took < best ? took : best;
    }
    free(a);
    free(b);
    return best;
}

/* Backward that costs nothing: destinations are asked for and left as they are. What remains is the reduction. */
static void one_step(struct reduce *r, struct span mine, const struct result *res)
{
    struct err err;
    bool written;

    reduce_begin(r);
    for (int w = 0; w < res->nwaves; w++) {
        struct span shards = wave_shards(mine, w, res->nwaves);

        reduce_wave(r, w);
        for (int p = LAYERS - 1; p >= 0; p--) {
            for (int s = 0; s < shards.hi - shards.lo; s++)
                NEED(reduce_dest(r, plist[p], s, &written));
            NEED_OK(reduce_ready(r, plist[p], &err));
        }
    }
    NEED_OK(reduce_wait(r, &err));
}

static void bench_small(struct comm *c, struct result *res)
{
    struct slots *s = NULL;
    double from;
    struct err err;

    NEED_OK(slots_open(c, res->nshards, 64, &s, &err));
    from = now_ms();
    for (int i = 0; i < SLOT_ROUNDS; i++)
        NEED_OK(slots_exchange(s, &err));
    res->slots_us = (now_ms() - from) * 1e3 / SLOT_ROUNDS;
    from = now_ms();
    for (int i = 0; i < SLOT_ROUNDS; i++)
        NEED_OK(comm_barrier(c, COMM_SYNC, &err));
    res->barrier_us = (now_ms() - from) * 1e3 / SLOT_ROUNDS;
    slots_close(s);
}

static void bench_rank(struct comm *c, void *arg)
{
    struct result *shared = arg, res = *shared;
    const struct device_options one = { .threads = 1 };
    const struct device_ops *ops;
    struct device *dev, *side;
    struct reduce_options opt = { .comm = c, .nshards = res.nshards, .nwaves = res.nwaves };
    struct reduce *r = NULL;
    struct span mine = rank_shards(comm_rank(c), comm_ranks(c), res.nshards);
    struct err err;

    NEED_OK(device_backend("cpu", "auto", &ops, &err));
    NEED_OK(ops->open(0, &one, &dev, &err));
    NEED_OK(ops->open(0, &one, &side, &err));
    opt.dev = dev;
    opt.side = side;
    NEED_OK(reduce_open(&opt, plist, LAYERS, &r, &err));
    res.best_ms = 1e9;
    for (int i = 0; i < REPEATS; i++) {
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
    reduce_close(r);
    side->ops->close(side);
    dev->ops->close(dev);
}

int main(void)
{
    static const struct {
        int ranks, nshards, nwaves;
    } runs[] = { { 1, 1, 1 }, { 1, 4, 1 }, { 1, 8, 1 }, { 1, 8, 2 }, { 2, 2, 1 }, { 2, 8, 1 }, { 4, 8, 1 } };
    double copy = copy_ms(), mb = (double)LAYERS * COUNT * sizeof(float) / 1e6;
    struct result *res = shared_memory(sizeof(*res));

    for (int i = 0; i < LAYERS; i++) {
        params[i] = (struct param){ .kind = PARAM_CONV, .count = COUNT, .index = i };
        plist[i] = &params[i];
    }
    printf("comm: %.0f MB of gradients; one memcpy of them takes %.2f ms\n", mb, copy);
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        *res = (struct result){ .nshards = runs[i].nshards, .nwaves = runs[i].nwaves };
        if (run_ranks(runs[i].ranks, TIMEOUT, bench_rank, res) != 0)
            return 1;
        printf("comm: %d rank(s), %d shards, %d wave(s): reduction %.2f ms = %.1f x memcpy; slots %.1f us, barrier %.1f us\n",
               runs[i].ranks, runs[i].nshards, runs[i].nwaves, res->best_ms, res->best_ms / copy, res->slots_us, res->barrier_us);
    }
    return 0;
}

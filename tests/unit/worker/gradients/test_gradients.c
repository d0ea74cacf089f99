/* SPDX-License-Identifier: Apache-2.0 */ /* Gradient reduction: for every number of ranks and waves, and any buckets,
 * the bits of the canonical tree as its definition gives them. uses: proto trainer cpu */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/worker/comm/ranks.h"
#include "worker/core/device.h"
#include "worker/core/tree.h"
#include "worker/kernels/reduce.h"
#include "worker/models/model.h"
#include "worker/core/shards.h"
#include "worker/gradients/layout.h"
#include "worker/ops/families.h"

const struct device_ops *cpu_backend_generic(void);

enum { NPARAMS = 9, STEPS = 3, TIMEOUT = 20000 };

static const size_t counts[NPARAMS] = { 1, 16, 5000, 16, 1024, 70000, 1025, 3, 9000 };

struct config {
    int nshards, nwaves;
    size_t first_bytes, bucket_bytes;
    bool delays, hashes, one_dest; /* one_dest: in every other step the device gives one sum for all shards of a rank */
    int poison;                    /* step in which shard 1 has an infinite gradient, -1: no step */
};

static struct param params[NPARAMS];
static struct param *plist[NPARAMS];

static void make_params(void)
{
    for (int i = 0; i < NPARAMS; i++) {
        params[i] = (struct param){ .kind = PARAM_CONV, .trainable = i != 3, .count = counts[i], .index = i };
        snprintf(params[i].name, sizeof(params[i].name), "p%d", i);
        plist[i] = &params[i];
    }
}

/* The gradient of a shard: numbers of very different size, so that every order of additions has its own bits. */
static float leaf(const struct config *cfg, int step, int shard, int param, size_t i)
{
    uint64_t h = ((uint64_t)step * 64 + (uint64_t)shard) * 64 + (uint64_t)param;

    h = (h << 24) + i + 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
    h ^= h >> 31;
    if (step == cfg->poison && shard == 1 && param == 5 && i == 777)
        return 1e38f * 1e10f;
    if (param == 7)
        return 0; /* a parameter that no shard used */
    return ((float)(h & 0xFFFFFF) / 16777216.0f - 0.5f) * (float)(1 << (h >> 60));
}

/* T(lo, hi), as the specification has it. */
static float tree_of(const struct config *cfg, int step, int lo, int hi, int param, size_t i)
{
    int mid = (lo + hi) / 2;

    if (hi - lo == 1)
        return leaf(cfg, step, lo, param, i);
    return tree_of(cfg, step, lo, mid, param, i) + tree_of(cfg, step, mid, hi, param, i);
}

/* The sum by a rank's device if it adds its shards: here a single chain over its shards. */
static float chain_of(const struct config *cfg, int step, struct span shards, int param, size_t i)
{
    float sum = leaf(cfg, step, shards.lo, param, i);

    for (int v = shards.lo + 1; v < shards.hi; v++)
        sum += leaf(cfg, step, v, param, i);
    return sum;
}

/* The tree over ranks [lo, hi), those from `ranks` on left out. */
static float ranks_of(const struct config *cfg, int step, int ranks, int lo, int hi, int param, size_t i)
{
    int mid = (lo + hi) / 2;

    if (hi - lo == 1)
        return chain_of(cfg, step, rank_shards(lo, ranks, cfg->nshards), param, i);
    if (mid >= ranks)
        return ranks_of(cfg, step, ranks, lo, mid, param, i);
    return ranks_of(cfg, step, ranks, lo, mid, param, i) + ranks_of(cfg, step, ranks, mid, hi, param, i);
}

static bool merged_in(const struct config *cfg, int step)
{
    return cfg->one_dest && step % 2 == 0;
}

static double expected_norm(const struct gradients *r)
{
    double blocks[256];
    int n = 0;

    for (int p = NPARAMS - 1; p >= 0; p--) {
        float padded[LAYOUT_BLOCK];

        for (size_t at = 0; p != 3 && at < counts[p]; at += LAYOUT_BLOCK) {
            size_t len = counts[p] - at < LAYOUT_BLOCK ? counts[p] - at : LAYOUT_BLOCK;

            memset(padded, 0, sizeof(padded));
            memcpy(padded, gradients_sum(r, plist[p]) + at, len * sizeof(float));
            blocks[n++] = sum_squares_block(padded, LAYOUT_BLOCK);
        }
    }
    return tree_sum(blocks, 1, n);
}

/* Compares the hashes of the blocks that this rank adds up with the hashes of the whole sum. */
static void check_hashes(struct device *dev, const struct gradients *r, bool asked)
{
    struct hash128 all[128] = { { { 0, 0 } } };
    struct err err;

    for (int p = 0; p < NPARAMS && asked; p++) {
        const struct hash_piece mine = gradients_hashes(r, plist[p], 0);
        const struct hash_item whole = { gradients_sum(r, plist[p]), counts[p], all };

        if (!whole.data)
            continue;
        NEED_OK(dev->on->reduce->hash_blocks(dev, &whole, 1, &err));
        NEED(mine.nblocks == 0 || memcmp(mine.blocks, all + mine.first, (size_t)mine.nblocks * sizeof *all) == 0);
    }
}

static void check_step(const struct gradients *r, const struct config *cfg, int ranks, int step)
{
    struct square_sums s = gradients_squares(r);
    double norm = tree_sum_ordered(s.blocks, s.order, s.n), want = expected_norm(r);

    for (int p = 0; p < NPARAMS; p++) {
        const float *g = gradients_sum(r, plist[p]);

        NEED((g == NULL) == (p == 3));
        for (size_t i = 0; g && i < counts[p]; i++) {
            float expect = merged_in(cfg, step) ? ranks_of(cfg, step, ranks, 0, 8, p, i) : tree_of(cfg, step, 0, cfg->nshards, p, i);

            NEED(memcmp(&g[i], &expect, sizeof(float)) == 0);
        }
    }
    NEED(memcmp(&norm, &want, sizeof(norm)) == 0);
    NEED((norm - norm == 0) == (step != cfg->poison));
}

/* A backward pass of one wave: every rank in its own order, destinations requested early, memory full of rubbish. */
static int run_wave(struct gradients *r, const struct config *cfg, int step, struct span mine, struct span shards, unsigned *seed,
                    struct err *err)
{
    bool forwards = *seed & 1024;

    rank_delay(seed, 2);
    for (int k = 0; k < NPARAMS; k++) {
        int p = forwards ? k : NPARAMS - 1 - k, rc;

        if (!param_trainable(plist[p]))
            continue;
        for (int s = 0; s < shards.hi - shards.lo; s++) {
            bool written = true, merged = merged_in(cfg, step), add;
            float *g = gradients_dest(r, plist[p], s, &written);

            add = merged && (s > 0 || shards.lo > mine.lo);
            NEED(g && written == (merged && shards.lo > mine.lo));
            NEED(((uintptr_t)g & 63) == 0);
            for (size_t i = 0; i < counts[p]; i++)
                g[i] = add ? g[i] + leaf(cfg, step, shards.lo + s, p, i) : leaf(cfg, step, shards.lo + s, p, i);
            NEED(gradients_dest(r, plist[p], s, &written) == g);
        }
        if (cfg->delays)
            rank_delay(seed, 400);
        rc = gradients_ready(r, plist[p], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int run_step(struct gradients *r, const struct config *cfg, struct span mine, int step, unsigned *seed, struct err *err)
{
    gradients_begin(r);
    for (int w = 0; w < cfg->nwaves; w++) {
        struct span shards = wave_shards(mine, w, cfg->nwaves);
        int rc;

        if (shards.lo == shards.hi)
            continue;
        gradients_wave(r, w);
        rc = run_wave(r, cfg, step, mine, shards, seed, err);
        if (rc < 0)
            return rc;
    }
    return gradients_wait(r, err);
}

struct setup {
    struct device *dev, *side;
    struct gradients *gradients;
};

static struct setup set_up(struct comm *c, const struct config *cfg)
{
    const struct device_ops *ops = cpu_backend_generic();
    const struct device_options one = { .threads = 1 };
    struct setup s = { 0 };
    struct gradients_options opt = { .comm = c,
                                     .nshards = cfg->nshards,
                                     .nwaves = cfg->nwaves,
                                     .first_bytes = cfg->first_bytes,
                                     .bucket_bytes = cfg->bucket_bytes,
                                     .hashes = cfg->hashes };
    struct err err;

    NEED_OK(ops->open(0, &one, &s.dev, &err));
    NEED_OK(ops->open(0, &one, &s.side, &err));
    opt.dev = s.dev;
    opt.side = s.side;
    NEED_OK(gradients_open(&opt, plist, NPARAMS, &s.gradients, &err));
    return s;
}

static void tear_down(struct setup *s)
{
    gradients_close(s->gradients);
    s->side->ops->close(s->side);
    s->dev->ops->close(s->dev);
}

static void reduce_ranks(struct comm *c, void *arg)
{
    const struct config *cfg = arg;
    struct setup s = set_up(c, cfg);
    struct span mine = rank_shards(comm_rank(c), comm_ranks(c), cfg->nshards);
    unsigned seed = (unsigned)comm_rank(c) * 9999 + 1;
    struct err err;

    for (int step = 0; step < STEPS; step++) {
        s.dev->one_dest = merged_in(cfg, step);
        NEED_OK(run_step(s.gradients, cfg, mine, step, &seed, &err));
        check_step(s.gradients, cfg, comm_ranks(c), step);
        check_hashes(s.dev, s.gradients, cfg->hashes);
    }
    tear_down(&s);
}

static void test_ranks_and_waves(void **state)
{
    static const int ranks[] = { 1, 2, 3, 4, 5, 7, 8 };

    (void)state;
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
        for (int waves = 1; waves <= 3; waves++) {
            struct config cfg = { .nshards = 8, .nwaves = waves, .first_bytes = 4096, .bucket_bytes = 65536, .hashes = true, .poison = -1 };

            assert_int_equal(run_ranks(ranks[i], TIMEOUT, reduce_ranks, &cfg), 0);
        }
}

static void test_merged(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 7; ranks++) {
        struct config cfg = { .nshards = 8, .nwaves = 1 + ranks % 3, .bucket_bytes = 65536, .one_dest = true, .poison = -1 };

        assert_int_equal(run_ranks(ranks, TIMEOUT, reduce_ranks, &cfg), 0);
    }
}

static void test_buckets(void **state)
{
    static const size_t bytes[][2] = { { 1, 1 }, { 0, 0 }, { 100000, 20000 } };

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (int ranks = 1; ranks <= 3; ranks += 2) {
            struct config cfg = {
                .nshards = 4, .nwaves = 2, .first_bytes = bytes[i][0], .bucket_bytes = bytes[i][1], .hashes = true, .poison = 1
            };

            assert_int_equal(run_ranks(ranks, TIMEOUT, reduce_ranks, &cfg), 0);
        }
}

static void test_delays(void **state)
{
    struct config cfg = { .nshards = 8, .nwaves = 2, .first_bytes = 1, .bucket_bytes = 1, .delays = true, .poison = 2 };

    (void)state;
    assert_int_equal(run_ranks(5, TIMEOUT, reduce_ranks, &cfg), 0);
    cfg.nshards = 16;
    cfg.nwaves = 5;
    assert_int_equal(run_ranks(3, TIMEOUT, reduce_ranks, &cfg), 0);
}

/* A single rank with a single shard: the gradient is written to the place from which it is read. */
static void test_nothing_copied(void **state)
{
    struct comm *c = rank_open(-1, 0, 1, TIMEOUT);
    struct config cfg = { .nshards = 1, .nwaves = 1, .poison = -1 };
    struct setup s = set_up(c, &cfg);
    struct err err;
    bool written;

    (void)state;
    gradients_begin(s.gradients);
    gradients_wave(s.gradients, 0);
    for (int p = 0; p < NPARAMS; p++)
        if (param_trainable(plist[p]))
            assert_ptr_equal(gradients_dest(s.gradients, plist[p], 0, &written), gradients_sum(s.gradients, plist[p]));
    for (int p = 1; p < NPARAMS; p++)
        if (param_trainable(plist[p]))
            assert_int_equal(gradients_ready(s.gradients, plist[p], &err), 0);
    assert_int_equal(gradients_wait(s.gradients, &err), ERR_STATE); /* p0 was not ready */
    tear_down(&s);
    comm_close(c);
}

static void test_bad_options(void **state)
{
    static const struct gradients_options bad[] = { { .nshards = 6, .nwaves = 1 },
                                                    { .nshards = 2, .nwaves = 1 },
                                                    { .nshards = 4, .nwaves = 0 } };
    struct layout *layout = NULL;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(layout_new(&bad[i], 0, 3, plist, NPARAMS, &layout, &err), ERR_INPUT);
        assert_true(err.field[0] != '\0');
    }
    assert_int_equal(layout_new(&(struct gradients_options){ .nshards = 4, .nwaves = 1 }, 0, 1, plist, 0, &layout, &err), ERR_INPUT);
}

/* Every fold of every layout is a subtree. A shard is never written where an older sum is still needed. */
static void test_plans(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 16; nranks++)
        for (int rank = 0; rank < nranks; rank++)
            for (int waves = 1; waves <= 16; waves++) {
                struct gradients_options opt = { .nshards = 16, .nwaves = waves };
                struct layout *layout = NULL;
                struct err err;

                assert_int_equal(layout_new(&opt, rank, nranks, plist, NPARAMS, &layout, &err), 0);
                assert_true(layout->nplanes - layout->nsegments <= 3); /* fewer than log2 of the shards */
                for (int w = 0; w < waves; w++)
                    for (int f = 0; f < layout->wave[w].nfolds; f++) {
                        const struct layout_fold *fold = &layout->wave[w].fold[f];
                        const struct layout_part *part = layout->wave[w].part + fold->first;
                        struct tree_part parts[16];

                        for (int k = 0; k < fold->nparts; k++)
                            parts[k] = (struct tree_part){ part[k].lo, part[k].hi, NULL };
                        assert_true(tree_parts_adjacent(parts, fold->nparts) && tree_is_segment(fold->lo, fold->hi));
                        assert_int_equal(parts[0].lo, fold->lo);
                        assert_int_equal(parts[fold->nparts - 1].hi, fold->hi);
                    }
                layout_free(layout);
            }
}

/* ---- a rank that dies ---- */

struct death {
    struct config cfg;
    _Atomic int code[4];
};

static void dying_ranks(struct comm *c, void *arg)
{
    struct death *d = arg;
    struct setup s = set_up(c, &d->cfg);
    int me = comm_rank(c), rc = 0;
    struct span mine = rank_shards(me, comm_ranks(c), d->cfg.nshards);
    unsigned seed = 1;
    struct err err = { .msg = "of before" };

    NEED(gradients_state(s.gradients, &err) == 0 && strcmp(err.msg, "of before") == 0); /* nothing has failed, and nothing is said */
    for (int step = 0; rc == 0; step++) {
        if (me == 2 && step == 2) {
            struct span wave = wave_shards(mine, 0, d->cfg.nwaves);

            gradients_begin(s.gradients);
            gradients_wave(s.gradients, 0);
            run_wave(s.gradients, &d->cfg, step, mine, wave, &seed, &err);
            usleep(2000); /* its communication thread is somewhere in the buckets */
            kill(getpid(), SIGKILL);
        }
        rc = run_step(s.gradients, &d->cfg, mine, step, &seed, &err);
    }
    atomic_store(&d->code[me], rc);
    NEED(err.msg[0]);
    NEED(gradients_state(s.gradients, &err) == rc && err.code == rc && gradients_state(s.gradients, NULL) == rc);
    tear_down(&s);
}

static void test_killed_rank(void **state)
{
    struct death *d = shared_memory(sizeof(*d));

    (void)state;
    d->cfg = (struct config){ .nshards = 8, .nwaves = 1, .first_bytes = 1, .bucket_bytes = 1, .poison = -1 };
    assert_int_equal(run_ranks(4, 3000, dying_ranks, d), 1);
    for (int r = 0; r < 4; r++)
        if (r != 2)
            assert_true(d->code[r] == ERR_TIMEOUT || d->code[r] == ERR_ABORTED);
    munmap(d, sizeof(*d));
}

/* Closing in the middle of a step ends the communication thread at any point, and reports it to the others. */
static void leaving_ranks(struct comm *c, void *arg)
{
    const struct config *cfg = arg;
    struct setup s = set_up(c, cfg);
    struct span mine = rank_shards(comm_rank(c), comm_ranks(c), cfg->nshards);
    unsigned seed = 1;
    struct err err;

    gradients_begin(s.gradients);
    gradients_wave(s.gradients, 0);
    if (comm_rank(c) != 0)
        NEED(run_step(s.gradients, cfg, mine, 0, &seed, &err) == ERR_ABORTED);
    else
        comm_abort(c);
    tear_down(&s);
}

static void closing_ranks(struct comm *c, void *arg)
{
    const struct config *cfg = arg;
    struct setup s = set_up(c, cfg);
    struct span mine = rank_shards(comm_rank(c), comm_ranks(c), cfg->nshards);
    unsigned seed = 1;
    struct err err;

    if (comm_rank(c) == 0) { /* rank 0 issues everything and does not wait; no other rank comes */
        gradients_begin(s.gradients);
        gradients_wave(s.gradients, 0);
        NEED_OK(run_wave(s.gradients, cfg, 0, mine, mine, &seed, &err));
    }
    tear_down(&s);
}

static void test_leaving(void **state)
{
    struct config cfg = { .nshards = 4, .nwaves = 1, .poison = -1 };

    (void)state;
    assert_int_equal(run_ranks(3, TIMEOUT, leaving_ranks, &cfg), 0);
    assert_int_equal(run_ranks(2, TIMEOUT, closing_ranks, &cfg), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),   cmocka_unit_test(test_bad_options), cmocka_unit_test(test_nothing_copied),
        cmocka_unit_test(test_buckets), cmocka_unit_test(test_delays),      cmocka_unit_test(test_ranks_and_waves),
        cmocka_unit_test(test_merged),  cmocka_unit_test(test_killed_rank), cmocka_unit_test(test_leaving),
    };

    make_params();
    return cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/winograd_dw.c - weight gradients by Winograd: inputs and output
 * gradients go to points, 36 (or 42, 49) products sum over the tiles of a slab in order, and the transposed transform
 * of the weights brings them back.
 *
 * A slab is a run of strips of one shard, cut by the shard's shape; slabs are summed in a pairwise tree. If the
 * products are small, threads own groups of slabs. Otherwise threads own pieces of up to 64 outputs x 32 inputs and go
 * through all points of a piece at once. So the products, 4 to 5 times as large as the weights, never leave the L2
 * cache. */
#include <errno.h>
#include <string.h>

#include "worker/cpu/conv.h"
#include "worker/cpu/gemm.h"
#include "worker/cpu/winograd.h"

enum {
    SMALL_BYTES = 3 << 19,  /* products that fit a thread's own memory */
    SLAB_ROWS = 512,        /* tiles of a slab, if threads share slabs */
    BLOCK_ROWS = 28,        /* tiles at a time within such a slab */
    ROUND_BYTES = 24 << 20, /* transformed inputs and gradients that stay in the L3 cache */
    PIECE_K = 64,
    PIECE_C = 32,
    PIECE_POINT = PIECE_K * PIECE_C + 32, /* floats, as wino_point() */
    STREAM_BYTES = 4 << 20,
    CHUNK = 6, /* tiles that are transformed at a time */
    GROUPS = 4 /* least groups of slabs for each thread, if there are so many slabs */
};

struct work {
    struct wino g; /* of one shard; images are numbered through all shards */
    const struct conv_call *q;
    int per, nshards, shard_strips;
    int slabs, slab_strips, slab_rows; /* per shard; the last slab may be shorter */
    size_t dw_size;
};

static void cut_slabs(struct work *j, int rows)
{
    int per_strip = wino_max_rows(&j->g, 1), most = rows / per_strip > 0 ? rows / per_strip : 1;

    j->slabs = (j->shard_strips + most - 1) / most;
    j->slab_strips = (j->shard_strips + j->slabs - 1) / j->slabs;
    j->slabs = (j->shard_strips + j->slab_strips - 1) / j->slab_strips;
    j->slab_rows = wino_max_rows(&j->g, j->slab_strips);
}

/* The strips of slab s of shard v: the first, and as return value their number. */
static int slab_strips(const struct work *j, int v, int s, int *ret_first)
{
    int first = s * j->slab_strips, left = j->shard_strips - first;

    *ret_first = v * j->shard_strips + first;
    return left < j->slab_strips ? left : j->slab_strips;
}

/* du[point][pz][ld_du] (+)= z^T v over the tiles of b, for a panel of outputs and a panel of inputs. */
static void multiply(const struct wino *g, const struct wino_block *b, const float *z, int zp, const float *v, int vp, float *du,
                     long ld_point, int ld_du, bool add)
{
    for (int p = 0; p < g->points; p++) {
        int lo, hi;

        wino_block_range(b, p / g->x.pts, p % g->x.pts, &lo, &hi);
        struct gemm mm = { .a = z + ((long)p * g->cz + (long)zp * g->pz) * b->rows + (long)lo * g->pz,
                           .a_row = 1,
                           .a_depth = g->pz,
                           .b = v + ((long)p * g->cv + (long)vp * g->pv) * b->rows + (long)lo * g->pv,
                           .b_depth = g->pv,
                           .c = du + p * ld_point,
                           .c_row = ld_du,
                           .rows = g->pz,
                           .cols = g->pv,
                           .segs = 1,
                           .depth = hi - lo,
                           .add = add };

        gemm_run(&mm);
    }
}

/* ---- threads own groups of slabs ---- */
struct small {
    struct work j;
    int group, groups; /* slabs of a group (a power of two), groups of a shard */
    int block_strips, block_rows;
    struct wino_block *block; /* per thread from here on */
    float *v, *z, *du, *stack;
    size_t v_size, z_size, du_size, stack_size;
    float *part; /* [shards][groups][dw_size] */
};

/* Floats between the products of two points, with padding as in wino_point(). */
static long small_point(const struct wino *g)
{
    return wino_point(g->cz * g->cv / 32);
}

static void small_slab(const struct small *a, int shard, int slab, int thread, float *dw)
{
    const struct wino *g = &a->j.g;
    const struct conv_call *q = a->j.q;
    struct wino_block *b = &a->block[thread];
    float *v = a->v + (size_t)thread * a->v_size, *z = a->z + (size_t)thread * a->z_size, *du = a->du + (size_t)thread * a->du_size;
    int first, strips = slab_strips(&a->j, shard, slab, &first);

    for (int s = 0; s < strips; s += a->block_strips) {
        wino_block_init(g, b, first + s, strips - s < a->block_strips ? strips - s : a->block_strips);
        wino_input(g, b, 0, b->rows, q->x, a->j.per, v);
        wino_gradient(g, b, 0, b->rows, q->dy, a->j.per, z);
        for (int zp = 0; zp < g->cz / g->pz; zp++)
            for (int vp = 0; vp < g->cv / g->pv; vp++)
                multiply(g, b, z, zp, v, vp, du + (long)zp * g->pz * g->cv + vp * g->pv, small_point(g), g->cv, s > 0);
    }
    wino_weights_back(g, du, small_point(g), g->cv, g->k, g->c, &(struct wino_taps){ dw, 9L * g->c, g->c, 0.0f, false });
}

static void small_run(void *arg, size_t index, int thread)
{
    const struct small *a = arg;
    int shard = (int)index / a->groups, first = (int)index % a->groups * a->group;
    struct slabs s = { .stack = a->stack + (size_t)thread * a->stack_size, .n = a->j.dw_size };

    for (int i = first; i < first + a->group && i < a->j.slabs; i++) {
        small_slab(a, shard, i, thread, slab_next(&s));
        slab_push(&s);
    }
    memcpy(a->part + index * a->j.dw_size, slab_finish(&s), a->j.dw_size * sizeof(float));
}

static void small_layout(struct small *a, struct carve *c, size_t threads)
{
    struct wino_tile *tile;

    a->block = carve(c, threads * sizeof *a->block);
    tile = carve(c, threads * (size_t)a->block_rows * sizeof *tile);
    for (size_t t = 0; c->base && t < threads; t++)
        a->block[t].tile = tile + t * (size_t)a->block_rows;
    a->v = carve_floats(c, threads * a->v_size);
    a->z = carve_floats(c, threads * a->z_size);
    a->du = carve_floats(c, threads * a->du_size);
    a->stack = carve_floats(c, threads * a->stack_size);
    a->part = carve_floats(c, (size_t)(a->groups * a->j.nshards) * a->j.dw_size);
}

static void small_sizes(struct small *a, int threads)
{
    const struct wino *g = &a->j.g;
    int per_strip = wino_max_rows(g, 1);

    cut_slabs(&a->j, SLAB_ROWS);
    for (a->group = 1; a->j.slabs * a->j.nshards / (2 * a->group) >= GROUPS * threads;)
        a->group *= 2;
    a->groups = (a->j.slabs + a->group - 1) / a->group;
    a->block_strips = BLOCK_ROWS / per_strip > 0 ? BLOCK_ROWS / per_strip : 1;
    a->block_rows = wino_max_rows(g, a->block_strips);
    a->v_size = (size_t)g->points * (size_t)a->block_rows * (size_t)g->cv;
    a->z_size = (size_t)g->points * (size_t)a->block_rows * (size_t)g->cz;
    a->du_size = (size_t)g->points * (size_t)small_point(g);
    a->stack_size = (size_t)slab_levels(a->group) * a->j.dw_size;
}

static int small_weights(const struct work *j, struct err *err)
{
    struct threads *threads = cpu_threads(j->q->dev);
    struct small a = { .j = *j };

    small_sizes(&a, threads_count(threads));
    for (struct carve c = { 0 };;) {
        c.used = 0;
        small_layout(&a, &c, (size_t)threads_count(threads));
        if (c.base)
            break;
        c.base = cpu_scratch(j->q->dev, c.used, err);
        if (!c.base)
            return -ENOMEM;
    }
    threads_each(threads, (size_t)(a.groups * j->nshards), small_run, &a);
    for (int v = 0; v < j->nshards; v++)
        slab_sum(threads, j->q->dw[v], j->q->beta, a.part + (size_t)(v * a.groups) * j->dw_size, a.groups, j->dw_size);
    return 0;
}

/* ---- threads own pieces of the weights ---- */
struct large {
    struct work j;
    int pieces_k, pieces_c, levels;
    int round_slabs;          /* most slabs of a round, from one or several shards */
    int round_first, round_n; /* of this round, numbered through all shards */
    struct wino_block *block; /* [round_slabs] */
    float *v, *z;             /* [round_slabs] */
    size_t v_size, z_size;
    float *du;           /* per thread: [points][PIECE_K][PIECE_C], points PIECE_POINT apart */
    struct slabs *piece; /* [pieces]; NULL if a shard is one slab, which is written straight to dw */
    float *stack;
};

static size_t piece_size(void)
{
    return (size_t)PIECE_K * 9 * PIECE_C;
}

static void large_transform(void *arg, size_t index, int thread)
{
    const struct large *a = arg;
    const struct conv_call *q = a->j.q;
    int chunks = (a->j.slab_rows + CHUNK - 1) / CHUNK, slab = (int)index / chunks, from = (int)index % chunks * CHUNK;
    const struct wino_block *b = &a->block[slab];
    int to = from + CHUNK < b->rows ? from + CHUNK : b->rows;

    (void)thread;
    wino_input(&a->j.g, b, from, to, q->x, a->j.per, a->v + (size_t)slab * a->v_size);
    wino_gradient(&a->j.g, b, from, to, q->dy, a->j.per, a->z + (size_t)slab * a->z_size);
}

/* Computes one piece of one slab. */
static void piece_slab(const struct large *a, int slab, int zp, int vp, int rows, int cols, float *du, const struct wino_taps *to)
{
    const struct wino *g = &a->j.g;

    multiply(g, &a->block[slab], a->z + (size_t)slab * a->z_size, zp, a->v + (size_t)slab * a->v_size, vp, du, PIECE_POINT, PIECE_C, false);
    wino_weights_back(g, du, PIECE_POINT, PIECE_C, rows, cols, to);
}

static void piece_write(const struct large *a, const float *sum, int shard, int k, int c, int rows, int cols)
{
    const struct wino *g = &a->j.g;

    for (int i = 0; i < rows * 9; i++)
        slab_write(a->j.q->dw[shard] + ((size_t)k * 9 + (size_t)i) * (size_t)g->c + c, a->j.q->beta, sum + (size_t)i * PIECE_C,
                   (size_t)cols);
}

/* True for large gradients, which are not read again soon. */
static bool streams(const struct large *a, int shard)
{
    return VSTREAMS && a->j.q->beta == 0.0f && a->j.g.c % 16 == 0 && (uintptr_t)a->j.q->dw[shard] % 64 == 0 &&
           a->j.dw_size * sizeof(float) >= STREAM_BYTES;
}

static void large_piece(void *arg, size_t index, int thread)
{
    const struct large *a = arg;
    const struct wino *g = &a->j.g;
    int zp = (int)index / a->pieces_c, vp = (int)index % a->pieces_c, k = zp * g->pz, c = vp * g->pv;
    int rows = g->k - k < g->pz ? g->k - k : g->pz, cols = g->c - c < g->pv ? g->c - c : g->pv;
    float *du = a->du + (size_t)thread * (size_t)g->points * PIECE_POINT;

    for (int i = 0; i < a->round_n; i++) {
        int shard = (a->round_first + i) / a->j.slabs, slab = (a->round_first + i) % a->j.slabs;
        struct slabs *s = a->piece ? &a->piece[index] : NULL;

        if (!s) {
            piece_slab(a, i, zp, vp, rows, cols, du,
                       &(struct wino_taps){ a->j.q->dw[shard] + (size_t)k * 9 * (size_t)g->c + c, 9L * g->c, g->c, a->j.q->beta,
                                            streams(a, shard) });
            continue;
        }
        if (slab == 0)
            *s = (struct slabs){ .stack = s->stack, .n = (size_t)(rows * 9 * PIECE_C) };
        piece_slab(a, i, zp, vp, rows, cols, du, &(struct wino_taps){ slab_next(s), 9L * PIECE_C, PIECE_C, 0.0f, false });
        slab_push(s);
        if (slab == a->j.slabs - 1)
            piece_write(a, slab_finish(s), shard, k, c, rows, cols);
    }
}

static void large_layout(struct large *a, struct carve *c, size_t threads)
{
    size_t slabs = (size_t)a->round_slabs, pieces = (size_t)(a->pieces_k * a->pieces_c);
    struct wino_tile *tile;

    a->block = carve(c, slabs * sizeof *a->block);
    tile = carve(c, slabs * (size_t)a->j.slab_rows * sizeof *tile);
    a->v = carve_floats(c, slabs * a->v_size);
    a->z = carve_floats(c, slabs * a->z_size);
    a->du = carve_floats(c, threads * (size_t)a->j.g.points * PIECE_POINT);
    if (a->j.slabs > 1) {
        a->piece = carve(c, pieces * sizeof *a->piece);
        a->stack = carve_floats(c, pieces * (size_t)a->levels * piece_size());
    }
    for (size_t s = 0; c->base && s < slabs; s++)
        a->block[s].tile = tile + s * (size_t)a->j.slab_rows;
    for (size_t p = 0; c->base && a->piece && p < pieces; p++)
        a->piece[p] = (struct slabs){ .stack = a->stack + p * (size_t)a->levels * piece_size(), .n = piece_size() };
}

static void large_sizes(struct large *a)
{
    const struct wino *g = &a->j.g;
    size_t row = (size_t)g->points * (size_t)(g->cv + g->cz) * sizeof(float);
    int most = (int)(ROUND_BYTES / row), all;

    cut_slabs(&a->j, most > SLAB_ROWS ? SLAB_ROWS : most);
    all = a->j.slabs * a->j.nshards;
    a->round_slabs = most / a->j.slab_rows > 0 ? most / a->j.slab_rows : 1;
    if (a->round_slabs > all)
        a->round_slabs = all;
    a->pieces_k = g->cz / g->pz;
    a->pieces_c = g->cv / g->pv;
    a->levels = slab_levels(a->j.slabs);
    a->v_size = (size_t)g->points * (size_t)a->j.slab_rows * (size_t)g->cv;
    a->z_size = (size_t)g->points * (size_t)a->j.slab_rows * (size_t)g->cz;
}

static void large_round(struct large *a, struct threads *threads, int first, int n)
{
    int chunks = (a->j.slab_rows + CHUNK - 1) / CHUNK;

    a->round_first = first;
    a->round_n = n;
    for (int i = 0; i < n; i++) {
        int strip, strips = slab_strips(&a->j, (first + i) / a->j.slabs, (first + i) % a->j.slabs, &strip);

        wino_block_init(&a->j.g, &a->block[i], strip, strips);
    }
    threads_each(threads, (size_t)(n * chunks), large_transform, a);
    threads_each(threads, (size_t)(a->pieces_k * a->pieces_c), large_piece, a);
}

static int large_weights(const struct work *j, struct err *err)
{
    struct threads *threads = cpu_threads(j->q->dev);
    struct large a = { .j = *j };
    int all;

    large_sizes(&a);
    for (struct carve c = { 0 };;) {
        c.used = 0;
        large_layout(&a, &c, (size_t)threads_count(threads));
        if (c.base)
            break;
        c.base = cpu_scratch(j->q->dev, c.used, err);
        if (!c.base)
            return -ENOMEM;
    }
    all = a.j.slabs * a.j.nshards;
    for (int s = 0; s < all; s += a.round_slabs)
        large_round(&a, threads, s, all - s < a.round_slabs ? all - s : a.round_slabs);
    return 0;
}

int wino_conv_bwd_weights(const struct conv_call *q, struct err *err)
{
    const struct tensor *x = &q->x[0].x, *dy = &q->dy[0];
    struct work j = { .q = q, .per = dy->n, .nshards = q->nshards, .dw_size = (size_t)dy->c * 9 * (size_t)x->c };

    wino_init(&j.g, dy->n * q->nshards, dy->h, dy->w, x->h, x->w, q->pad, x->c, dy->c);
    j.shard_strips = j.g.strips / q->nshards;
    if ((size_t)j.g.points * (size_t)dy->c * (size_t)round_up(x->c, 16) * sizeof(float) <= SMALL_BYTES)
        return small_weights(&j, err);
    return large_weights(&j, err);
}

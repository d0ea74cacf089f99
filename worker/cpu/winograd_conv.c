/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/winograd_conv.c - forward and backward-data convolution by
 * Winograd: the same code, with mirrored, transposed weights.
 *
 * There are two orders of work, with the same bits. If the weights' matrices are small, threads own blocks of tiles,
 * and the matrices are kept with the parameter. If they are larger than the L2 cache and all transformed inputs fit
 * the L3, threads own panels of 32 outputs. They then transform their weights once, straight from the parameter:
 * matrices are 4 to 5 times as large as weights, so reading and writing them would cost more than making them. */
#include <errno.h>

#include "worker/cpu/conv.h"
#include "worker/cpu/gemm.h"
#include "worker/cpu/winograd.h"

enum {
    BLOCK_ROWS = 56,          /* tiles of a block: four register tiles high */
    PANEL_BLOCK_ROWS = 112,   /* with panels: products of a block are only 32 wide */
    GROUP = 64,               /* outputs at a time in a block: the products stay in the L2 cache */
    SMALL_U_BYTES = 2 << 20,  /* larger matrices are made panel by panel */
    CHUNK_ONE = 64,           /* depths with matrices that fit the L2 cache, together with the products of one block */
    CHUNK_MANY = 128,         /* the same, when products of several blocks are read and written for each chunk */
    LARGE_V_BYTES = 24 << 20, /* transformed inputs that stay in the L3 cache */
};

struct work {
    struct wino g;
    const struct operand *x;
    struct wino_sink sink;
    struct param *w;
    bool back, panels;
    int block_strips, nblocks, block_rows; /* the last block may be shorter */
    const float *u;                        /* [panels][points][cv][32], points wino_point() apart; NULL with `panels` */
    struct wino_block *block;              /* [nblocks] with panels; otherwise one per thread */
    float *v, *m, *up, *tmp;               /* v: per block with panels, otherwise per thread; the others per thread */
    size_t v_size, m_size, u_size;         /* floats of one of these */
    size_t block_m;                        /* floats of the products of one block */
    int chunk;                             /* with panels: depths with matrices made and used together */
};

static int outputs_panels(const struct work *j)
{
    return (j->g.k + GEMM_NP - 1) / GEMM_NP;
}

/* Columns of a panel's products: half a panel if there are at most 16 outputs. */
static int panel_width(const struct work *j)
{
    return j->g.k <= 16 ? 16 : GEMM_NP;
}

static void cut_blocks(struct work *j)
{
    int want = j->panels ? PANEL_BLOCK_ROWS : BLOCK_ROWS, per_strip = wino_max_rows(&j->g, 1);
    int strips = want / per_strip > 0 ? want / per_strip : 1;

    j->nblocks = (j->g.strips + strips - 1) / strips;
    j->block_strips = (j->g.strips + j->nblocks - 1) / j->nblocks;
    j->nblocks = (j->g.strips + j->block_strips - 1) / j->block_strips;
    j->block_rows = wino_max_rows(&j->g, j->block_strips);
}

static void block_at(const struct work *j, struct wino_block *b, int index)
{
    int first = index * j->block_strips, left = j->g.strips - first;

    wino_block_init(&j->g, b, first, left < j->block_strips ? left : j->block_strips);
}

/* m[point][rows][cols] (+)= products of depths [d0, d1), for `panels` panels of outputs. u: the matrices of these
 * depths. */
static void multiply(const struct work *j, const struct wino_block *b, const float *v, const float *u, int d0, int d1, int panels, float *m)
{
    const struct wino *g = &j->g;
    int width = panel_width(j), ldm = panels * width;

    for (int p = 0; p < g->points; p++) {
        const float *rows = v + ((long)p * g->cv + d0) * b->rows;
        int lo, hi;

        wino_block_range(b, p / g->x.pts, p % g->x.pts, &lo, &hi);
        for (int q = 0; q < panels; q++) {
            struct gemm mm = { .a = rows + (long)lo * g->pv,
                               .a_row = g->pv,
                               .a_seg = (long)b->rows * g->pv,
                               .a_depth = 1,
                               .b = u + ((long)q * g->points + p) * wino_point(d1 - d0),
                               .b_seg = (long)g->pv * GEMM_NP,
                               .b_depth = GEMM_NP,
                               .c = m + ((long)p * b->rows + lo) * ldm + q * width,
                               .c_row = ldm,
                               .rows = hi - lo,
                               .cols = width,
                               .segs = (d1 - d0) / g->pv,
                               .depth = g->pv,
                               .add = d0 > 0,
                               .next = q + 1 == panels && p + 1 < g->points ? rows + (long)g->cv * b->rows : NULL };

            gemm_run(&mm);
        }
    }
}

/* ---- threads own blocks ---- */
static void block_run(void *arg, size_t index, int thread)
{
    struct work *j = arg;
    struct wino_block *b = &j->block[thread];
    float *v = j->v + (size_t)thread * j->v_size, *m = j->m + (size_t)thread * j->m_size;
    int panels = outputs_panels(j), group = GROUP / GEMM_NP;

    block_at(j, b, (int)index);
    wino_input(&j->g, b, 0, b->rows, j->x, j->sink.per, v);
    for (int q = 0; q < panels; q += group) {
        int n = panels - q < group ? panels - q : group;

        multiply(j, b, v, j->u + (size_t)q * j->u_size, 0, j->g.cv, n, m);
        wino_output(&j->g, b, m, n * panel_width(j), q * GEMM_NP, n * panel_width(j), &j->sink);
    }
}

static void fill_form(void *arg, size_t panel, int thread)
{
    struct work *j = arg;

    wino_weights(&j->g, j->w, j->back, (int)panel * GEMM_NP, 0, j->g.cv, j->up + panel * j->u_size,
                 j->tmp + (size_t)thread * WINO_WEIGHTS_TMP);
}

static int matrices(struct work *j, const struct conv_call *q, struct err *err)
{
    struct form_key key = { j->back ? FORM_WINO_BACK : FORM_WINO_FWD, j->g.y.pts, j->g.x.pts };
    bool stale;

    j->up = cpu_form(q->w, &key, (size_t)outputs_panels(j) * j->u_size, &stale, err);
    if (!j->up)
        return -ENOMEM;
    if (stale)
        threads_each(cpu_threads(q->dev), (size_t)outputs_panels(j), fill_form, j);
    j->u = j->up;
    return 0;
}

/* ---- threads own panels of outputs ---- */
static void panel_input(void *arg, size_t index, int thread)
{
    struct work *j = arg;

    (void)thread;
    block_at(j, &j->block[index], (int)index);
    wino_input(&j->g, &j->block[index], 0, j->block[index].rows, j->x, j->sink.per, j->v + index * j->v_size);
}

static void panel_run(void *arg, size_t panel, int thread)
{
    struct work *j = arg;
    float *u = j->up + (size_t)thread * j->u_size, *m = j->m + (size_t)thread * j->m_size;

    for (int d = 0; d < j->g.cv; d += j->chunk) {
        int end = d + j->chunk < j->g.cv ? d + j->chunk : j->g.cv;

        wino_weights(&j->g, j->w, j->back, (int)panel * GEMM_NP, d, end, u, j->tmp + (size_t)thread * WINO_WEIGHTS_TMP);
        for (int b = 0; b < j->nblocks; b++)
            multiply(j, &j->block[b], j->v + (size_t)b * j->v_size, u, d, end, 1, m + (size_t)b * j->block_m);
    }
    for (int b = 0; b < j->nblocks; b++)
        wino_output(&j->g, &j->block[b], m + (size_t)b * j->block_m, panel_width(j), (int)panel * GEMM_NP, panel_width(j), &j->sink);
}

static void layout(struct work *j, struct carve *c, int threads)
{
    size_t blocks = (size_t)(j->panels ? j->nblocks : threads), nt = (size_t)threads;
    struct wino_tile *tile;

    j->block = carve(c, blocks * sizeof *j->block);
    tile = carve(c, blocks * (size_t)j->block_rows * sizeof *tile);
    for (size_t b = 0; c->base && b < blocks; b++)
        j->block[b].tile = tile + b * (size_t)j->block_rows;
    j->v = carve_floats(c, blocks * j->v_size);
    j->m = carve_floats(c, nt * j->m_size);
    j->tmp = carve_floats(c, nt * WINO_WEIGHTS_TMP);
    if (j->panels)
        j->up = carve_floats(c, nt * j->u_size);
}

static void choose(struct work *j)
{
    size_t u_bytes, v_bytes;

    j->u_size = (size_t)j->g.points * (size_t)wino_point(j->g.cv);
    u_bytes = (size_t)outputs_panels(j) * j->u_size * sizeof(float);
    v_bytes = (size_t)wino_max_rows(&j->g, j->g.strips) * (size_t)j->g.points * (size_t)j->g.cv * sizeof(float);
    j->panels = u_bytes > SMALL_U_BYTES && v_bytes <= LARGE_V_BYTES;
    cut_blocks(j);
    j->v_size = (size_t)j->block_rows * (size_t)j->g.points * (size_t)j->g.cv;
    j->block_m = (size_t)j->block_rows * (size_t)j->g.points * (j->panels ? GEMM_NP : GROUP);
    j->m_size = j->panels ? j->block_m * (size_t)j->nblocks : j->block_m;
    j->chunk = j->nblocks > 1 ? CHUNK_MANY : CHUNK_ONE;
}

/* ---- statistics ---- */
struct stats_mem {
    int *pixels;   /* of each strip of a shard */
    double *stack; /* one per shard */
    int strips;    /* of a shard */
};

static void stats_layout(struct work *j, struct stats_mem *s, struct carve *c, int nshards)
{
    s->strips = j->g.strips / nshards;
    j->sink.ld_moments = round_up(j->g.k, GEMM_NP);
    j->sink.moments = carve_floats(c, (size_t)j->g.strips * 3 * (size_t)j->sink.ld_moments);
    s->pixels = carve(c, (size_t)s->strips * sizeof *s->pixels);
    s->stack = carve(c, (size_t)nshards * (size_t)slab_levels(s->strips) * 2 * (size_t)j->g.k * sizeof *s->stack);
}

struct merge_args {
    const struct work *j;
    const struct stats_mem *s;
    double *const *stats;
};

static void merge_shard(void *arg, size_t v, int thread)
{
    const struct merge_args *a = arg;
    const struct wino_sink *k = &a->j->sink;

    (void)thread;
    cpu_moments(k->moments + v * (size_t)a->s->strips * 3 * (size_t)k->ld_moments, k->ld_moments, a->s->pixels, a->s->strips, a->j->g.k,
                a->s->stack + v * (size_t)slab_levels(a->s->strips) * 2 * (size_t)a->j->g.k, a->stats[v]);
}

static void stats_merge(const struct conv_call *q, const struct work *j, const struct stats_mem *s)
{
    struct merge_args a = { j, s, q->stats };

    for (int i = 0; i < s->strips; i++)
        s->pixels[i] = wino_strip_pixels(&j->g, i);
    threads_each(cpu_threads(q->dev), (size_t)q->nshards, merge_shard, &a);
}

static int run(const struct conv_call *q, struct work *j, struct err *err)
{
    struct threads *threads = cpu_threads(q->dev);
    struct stats_mem s = { 0 };
    int rc;

    choose(j);
    j->sink.stream = conv_streams(q);
    for (struct carve c = { 0 };;) {
        c.used = 0;
        layout(j, &c, threads_count(threads));
        if (q->stats)
            stats_layout(j, &s, &c, q->nshards);
        if (c.base)
            break;
        c.base = cpu_scratch(q->dev, c.used, err);
        if (!c.base)
            return -ENOMEM;
    }
    if (j->panels) {
        threads_each(threads, (size_t)j->nblocks, panel_input, j);
        threads_each(threads, (size_t)outputs_panels(j), panel_run, j);
    } else {
        rc = matrices(j, q, err);
        if (rc < 0)
            return rc;
        threads_each(threads, (size_t)j->nblocks, block_run, j);
    }
    if (q->stats)
        stats_merge(q, j, &s);
    return 0;
}

bool wino_fits(int h, int w, int c, int k)
{
    return c >= 16 && k >= 16 && wino_cost(h, w) * 10 < 72L * h * w;
}

int wino_conv_fwd(const struct conv_call *q, struct err *err)
{
    const struct tensor *x = &q->x[0].x, *y = &q->y[0];
    struct work j = { .x = q->x, .w = q->w, .sink = { .y = q->y, .per = y->n, .bias = q->bias } };

    wino_init(&j.g, y->n * q->nshards, y->h, y->w, x->h, x->w, q->pad, x->c, y->c);
    return run(q, &j, err);
}

/* Makes operands of output gradients without pending operations, a few shards at a time, so that no memory is
 * needed. */
int wino_conv_bwd_data(const struct conv_call *q, struct err *err)
{
    enum { AT_A_TIME = 64 };
    const struct tensor *dx = &q->y[0], *dy = &q->dy[0];

    for (int v = 0; v < q->nshards; v += AT_A_TIME) {
        int n = q->nshards - v < AT_A_TIME ? q->nshards - v : AT_A_TIME, rc;
        struct operand from[AT_A_TIME];
        struct work j = { .x = from, .w = q->w, .back = true, .sink = { .y = q->y + v, .per = dx->n, .beta = q->beta } };

        for (int i = 0; i < n; i++)
            from[i] = (struct operand){ .x = q->dy[v + i] };
        wino_init(&j.g, dx->n * n, dx->h, dx->w, dy->h, dy->w, 2 - q->pad, dy->c, dx->c);
        rc = run(q, &j, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

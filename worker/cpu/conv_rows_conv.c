/* worker/cpu/conv_rows_conv.c - forward and backward-data convolution on rows, in bf16 by tiles (conv_tiles.h). Backward-data with stride is one stride-1
 * convolution of the output gradients for each phase (y mod stride, x mod stride) of the inputs: gathered, one writer an output. */
#include <errno.h>
#include <string.h>

#include "worker/core/simd.h"
#include "worker/cpu/conv.h"
#include "worker/cpu/conv_rows.h"
#include "worker/cpu/conv_tiles.h"
#include "worker/cpu/elem.h"
#include "worker/cpu/tile.h"

/* of tiles */
enum {
    AT_ONCE_MOST = 16,        /* parts */
    WEIGHTS_KEPT = 256 << 10, /* bytes of packed weights that stay in the L2 cache anyway */
    PANELS_BYTES = 1 << 20,   /* of inputs beside a panel of weights */
    UNITS = 2                 /* pieces of work a thread, at least */
};

struct job {
    struct rows g;
    const struct operand *x;
    struct tensor *y;
    float beta;
    bool stream;
    const float *bias;
    const float *panels; /* [k / 32][taps_y][taps_x * c][32] */
    bool half;           /* bf16 */
    struct tiles tiles;  /* where so, and panels are tiles_pack_weights()'s */
    int at_once;         /* parts */
    long *shifts;        /* per thread: [taps] of weights, [parts][taps] of inputs */
    size_t shifts_size;
    tile_fn *multiply;
    float *moments; /* [parts][3][ld_moments], or NULL */
    int ld_moments;
    float *buf; /* per thread */
    size_t buf_size;
    float *out; /* per thread: [pixels of a part][ld_out] */
    int ld_out; /* 32, or 16 where there are no more outputs */
    size_t out_size;
};

/* The first number of a part's row of outputs. */
static void *place(const struct job *j, const struct rows_part *p, int row)
{
    const struct rows *g = &j->g;
    const struct tensor *y = &j->y[p->image / g->per];
    long at = ((long)(p->image % g->per) * g->out_h + (long)(p->y + row) * g->out_step + g->out_y) * g->out_w + (long)p->x * g->out_step;

    return elem_at(y->data, (at + g->out_x) * y->stride, j->half);
}

static void moments_of(const float *out, int ld_out, int pixels, float *to, int ld)
{
    vec shift = vload(out), sum[4], square[4];

    for (int i = 0; i < 4; i++)
        sum[i] = square[i] = vset1(0.0f);
    for (int i = 0; i < pixels; i++) {
        vec d = vsub(vload(out + (long)i * ld_out), shift);

        sum[i & 3] = vadd(sum[i & 3], d);
        square[i & 3] = vfma(d, d, square[i & 3]);
    }
    vstore(to, shift);
    vstore(to + ld, vadd(vadd(sum[0], sum[1]), vadd(sum[2], sum[3])));
    vstore(to + 2 * ld, vadd(vadd(square[0], square[1]), vadd(square[2], square[3])));
}

/* Outputs [k, k + 32) of row i of a part, to c. */
static struct gemm product(const struct job *j, const struct rows_part *p, const struct rows_input *in, int k, int i)
{
    const struct rows *g = &j->g;
    long depth = (long)g->taps_x * g->c;

    return (struct gemm){ .a = in->at + i * in->row,
                          .a_row = in->pixel,
                          .a_seg = rows_width(g, p),
                          .a_depth = 1,
                          .b = j->panels + (long)(k / GEMM_NP) * g->taps_y * depth * GEMM_NP,
                          .b_seg = depth * GEMM_NP,
                          .b_depth = GEMM_NP,
                          .rows = p->w,
                          .cols = g->k - k > 16 ? 32 : 16,
                          .segs = g->taps_y,
                          .depth = (int)depth };
}

/* Straight to where they belong. */
static void multiply_in_place(const struct job *j, const struct rows_part *p, const struct rows_input *in, int k)
{
    const struct gemm_end end = { j->bias ? j->bias + k : NULL, j->beta, j->stream };

    for (int i = 0; i < p->h; i++) {
        struct gemm mm = product(j, p, in, k, i);

        mm.c = (float *)place(j, p, i) + k;
        mm.c_row = (long)j->y[p->image / j->g.per].stride * j->g.out_step;
        mm.end = j->bias || j->beta != 0.0f || j->stream ? &end : NULL;
        gemm_run(&mm);
    }
}

/* Into a buffer. */
static void multiply(const struct job *j, const struct rows_part *p, const struct rows_input *in, int k, float *out)
{
    for (int i = 0; i < p->h; i++) {
        struct gemm mm = product(j, p, in, k, i);

        mm.c = out + (long)i * p->w * j->ld_out;
        mm.c_row = j->ld_out;
        gemm_run(&mm);
    }
}

/* The same of packed inputs. Rows of outputs stand apart until they are all there. */
static void multiply_tiles(const struct job *j, const struct tiles_part *p, const uint16_t *panels, const long *shifts, const long *b_tap,
                           int k, float *out)
{
    const struct tiles *t = &j->tiles;
    struct tile_product mm = { .a = panels, .a_tap = shifts, .b_tap = b_tap, .a_row = TILE_BLOCK, .c = out, .c_row = TILE_COLS };

    mm.a_block = (long)t->phases_y * t->phases_x * p->pixels * TILE_BLOCK;
    mm.b = (const uint16_t *)(const void *)j->panels + (long)(k / TILE_COLS) * tiles_taps(t) * t->blocks * TILE_PANEL;
    mm.b_half = TILE_HALF;
    mm.b_block = TILE_PANEL;
    mm.rows = p->positions;
    mm.taps = tiles_taps(t);
    mm.blocks = t->blocks;
    mm.narrow = j->g.k - k <= TILE_COLS / 2;
    j->multiply(&mm);
    for (int i = 1; i < p->p.h && p->pitch > p->p.w; i++)
        memmove(out + (long)i * p->p.w * TILE_COLS, out + (long)i * p->pitch * TILE_COLS, (size_t)p->p.w * TILE_COLS * sizeof *out);
}

/* How a row of outputs is written. */
struct ending {
    int vecs, lanes; /* of a pixel, and of its last vector */
    bool bias, add, stream, half;
    float beta;
    vec biases[GEMM_NP / VW];
};

/* Moments are of what is stored, so that is left in `from`. A pixel's outputs are written at once: so lines are written whole. */
SIMD_FN void finish_row(const struct ending *e, void *to, long step, float *from, int ld, int pixels)
{
    for (int x = 0; x < pixels; x++, to = elem_at(to, step, e->half), from += ld)
        for (int v = 0; v < e->vecs; v++) {
            const int lanes = v + 1 < e->vecs ? VW : e->lanes;
            vec y = vload(from + v * VW);

            if (e->bias)
                y = vadd(y, e->biases[v]);
            if (e->add)
                y = vfma(vset1(e->beta), elem_load_n(to, v * VW, lanes, e->half), y);
            else if (e->half || e->bias)
                vstore(from + v * VW, elem_kept(y, e->half));
            if (e->stream && e->half)
                vstream_half((uint16_t *)to + v * VW, y);
            else if (e->stream)
                vstream((float *)to + v * VW, y);
            else
                elem_store_n(to, v * VW, y, lanes, e->half);
        }
}

/* Outputs [k, k + 32) of a part go where they belong. */
SIMD_FN void finish(const struct job *j, const struct rows_part *p, int part, int k, float *out, bool half)
{
    const struct rows *g = &j->g;
    const long step = (long)j->y[p->image / g->per].stride * g->out_step;
    const int cols = g->k - k < j->ld_out ? g->k - k : j->ld_out;
    struct ending e = { (cols + VW - 1) / VW,     (cols - 1) % VW + 1, j->bias != NULL, j->beta != 0.0f, j->stream, half, j->beta,
                        .biases = { vset1(0.0f) } };
    const bool usual = !e.bias && !e.add && e.lanes == VW;

    for (int v = 0; v < e.vecs && e.bias; v++)
        e.biases[v] = vload_n(j->bias + k + v * VW, vlanes(g->k, k + v * VW));
    for (int i = 0; i < p->h; i++) {
        void *to = elem_at(place(j, p, i), k, half);
        float *from = out + (long)i * p->w * j->ld_out;

        if (usual && cols == GEMM_NP && e.stream)
            finish_row(&(const struct ending){ GEMM_NP / VW, VW, .stream = true, .half = half }, to, step, from, j->ld_out, p->w);
        else if (usual && cols == 16 && e.stream)
            finish_row(&(const struct ending){ 16 / VW, VW, .stream = true, .half = half }, to, step, from, j->ld_out, p->w);
        else if (usual && cols == GEMM_NP)
            finish_row(&(const struct ending){ GEMM_NP / VW, VW, .half = half }, to, step, from, j->ld_out, p->w);
        else
            finish_row(&e, to, step, from, j->ld_out, p->w);
    }
    for (int v = 0; v < e.vecs && j->moments; v++)
        moments_of(out + v * VW, j->ld_out, p->h * p->w, j->moments + (long)part * 3 * j->ld_moments + k + v * VW, j->ld_moments);
}

/* Do outputs go straight to where they belong? Statistics are quicker of a buffer, and outputs that do not fill vectors need one. */
static bool in_place(const struct job *j, int k)
{
    return !j->moments && (j->g.k - k >= GEMM_NP || j->g.k - k == 16);
}

static void part_run(void *arg, size_t index, int thread)
{
    const struct job *j = arg;
    struct rows_part p = rows_part(&j->g, (int)index);
    float *buf = j->buf + (size_t)thread * j->buf_size, *out = j->out + (size_t)thread * j->out_size;
    struct rows_input in = rows_input(&j->g, &p, j->x, buf);

    for (int k = 0; k < j->g.k; k += GEMM_NP) {
        if (in_place(j, k)) {
            multiply_in_place(j, &p, &in, k);
            continue;
        }
        multiply(j, &p, &in, k, out);
        finish(j, &p, (int)index, k, out, false);
    }
    if (j->stream)
        vstream_end();
}

/* Parts that go by a panel of weights while that is in the cache. */
static void parts_run_tiles(void *arg, size_t index, int thread)
{
    const struct job *j = arg;
    const struct tiles *t = &j->tiles;
    const int taps = tiles_taps(t), first = (int)index * j->at_once, all = rows_parts(&j->g) * j->g.images;
    const int n = all - first < j->at_once ? all - first : j->at_once;
    uint16_t *panels = (uint16_t *)(void *)(j->buf + (size_t)thread * j->buf_size);
    float *out = j->out + (size_t)thread * j->out_size;
    long *b_tap = j->shifts + (size_t)thread * j->shifts_size, *shifts = b_tap + taps;
    struct tiles_part part[AT_ONCE_MOST];

    for (int i = 0; i < taps; i++)
        b_tap[i] = (long)i * t->blocks * TILE_PANEL;
    for (int i = 0; i < n; i++) {
        struct rows_part p = rows_part(&j->g, first + i);

        part[i] = tiles_part(t, &p);
        tiles_pack(t, &part[i], j->x, panels + (size_t)i * tiles_panels(t));
        tiles_shifts(t, &part[i], shifts + i * taps);
    }
    for (int k = 0; k < j->g.k; k += TILE_COLS)
        for (int i = 0; i < n; i++) {
            multiply_tiles(j, &part[i], panels + (size_t)i * tiles_panels(t), shifts + i * taps, b_tap, k, out);
            finish(j, &part[i].p, first + i, k, out, true);
        }
    if (j->stream)
        vstream_end();
}

/* All parts of all images. */
static void run_parts(const struct conv_call *q, struct job *j)
{
    const size_t parts = (size_t)rows_parts(&j->g) * (size_t)j->g.images;

    j->multiply = cpu_device(q->dev)->tiles;
    if (j->half)
        threads_each(cpu_threads(q->dev), (parts + (size_t)j->at_once - 1) / (size_t)j->at_once, parts_run_tiles, j);
    else
        threads_each(cpu_threads(q->dev), parts, part_run, j);
}

/* So many parts at once that weights are read seldom where they are many, and each thread still has work. */
static int at_once(const struct job *j, int threads)
{
    const long parts = (long)rows_parts(&j->g) * j->g.images, panels = (long)(tiles_panels(&j->tiles) * sizeof(uint16_t));
    const long weights = (long)tiles_taps(&j->tiles) * j->tiles.blocks * round_up(j->g.k, TILE_COLS) * TILE_BLOCK * (long)sizeof(uint16_t);
    int n = 1;

    while (weights > WEIGHTS_KEPT && n < AT_ONCE_MOST && (n + 1) * panels <= PANELS_BYTES && parts >= (long)(n + 1) * UNITS * threads)
        n++;
    return n;
}

static void layout_tiles(struct job *j, struct carve *c, int threads)
{
    j->at_once = at_once(j, threads);
    j->buf_size = (size_t)j->at_once * tiles_panels(&j->tiles) / 2;
    j->shifts_size = (size_t)(j->at_once + 1) * (size_t)tiles_taps(&j->tiles);
    j->ld_out = TILE_COLS;
    j->out_size = (size_t)tiles_positions(&j->tiles) * TILE_COLS;
    j->buf = carve_floats(c, (size_t)threads * j->buf_size);
    j->out = carve_floats(c, (size_t)threads * j->out_size);
    j->shifts = carve(c, (size_t)threads * j->shifts_size * sizeof *j->shifts);
}

static void layout(struct job *j, struct carve *c, int threads)
{
    if (j->half) {
        layout_tiles(j, c, threads);
        return;
    }
    j->buf_size = rows_buffer(&j->g) + 16;
    j->ld_out = j->g.k > 16 ? GEMM_NP : 16;
    j->out_size = (size_t)j->g.band_rows * (size_t)rows_widest(&j->g) * (size_t)j->ld_out;
    j->buf = carve_floats(c, (size_t)threads * j->buf_size);
    j->out = carve_floats(c, (size_t)threads * j->out_size);
}

/* ---- packed weights ---- */
struct pack {
    const struct param *w;
    float *dst;
    int stride, pad;
    int taps_y, taps_x, r0, s0; /* back: tap (t, u) of this phase is w's (r0 - t * stride, s0 - u * stride) */
};

static void pack_fwd(void *arg, size_t panel, int thread)
{
    const struct pack *a = arg;
    int first = (int)panel * GEMM_NP, depth = a->w->r * a->w->s * a->w->c, outs = a->w->k - first;
    float *dst = a->dst + panel * (size_t)depth * GEMM_NP;

    (void)thread;
    for (int d = 0; d < depth; d += VW)
        for (int k = 0; k < GEMM_NP; k += VW) {
            vec t[VW];

            for (int i = 0; i < VW; i++)
                t[i] = k + i < outs ? vload_n(a->w->data + (long)(first + k + i) * depth + d, vlanes(depth, d)) : vset1(0.0f);
            vtranspose(t);
            for (int i = 0; i < vlanes(depth, d); i++)
                vstore(dst + (long)(d + i) * GEMM_NP + k, t[i]);
        }
}

static void pack_back(void *arg, size_t panel, int thread)
{
    const struct pack *a = arg;
    const struct param *w = a->w;
    int first = (int)panel * GEMM_NP;
    float *dst = a->dst + panel * (size_t)(a->taps_y * a->taps_x) * (size_t)w->k * GEMM_NP;

    (void)thread;
    for (int t = 0; t < a->taps_y; t++)
        for (int u = 0; u < a->taps_x; u++)
            for (int k = 0; k < w->k; k++, dst += GEMM_NP) {
                const float *from = w->data + (((long)k * w->r + a->r0 - t * a->stride) * w->s + a->s0 - u * a->stride) * w->c + first;

                for (int v = 0; v < GEMM_NP; v += VW)
                    vstore(dst + v, first + v < w->c ? vload_n(from + v, vlanes(w->c, first + v)) : vset1(0.0f));
            }
}

/* The same numbers for tiles. */
struct pack_tiles {
    struct pack p;
    struct tiles t;
    int outputs;
};

static uint16_t *panel_of(const struct pack_tiles *a, size_t panel)
{
    return (uint16_t *)(void *)(a->p.dst + panel * tiles_weights(&a->t, TILE_COLS));
}

static void pack_tiles_fwd(void *arg, size_t panel, int thread)
{
    const struct pack_tiles *a = arg;
    const struct param *w = a->p.w;
    const long row = (long)w->s * w->c;
    const struct tiles_numbers numbers = { w->data, row, w->c, 1, row * w->r };

    (void)thread;
    tiles_pack_weights(&a->t, (int)panel * TILE_COLS, a->outputs, &numbers, panel_of(a, panel));
}

static void pack_tiles_back(void *arg, size_t panel, int thread)
{
    const struct pack_tiles *a = arg;
    const struct pack *p = &a->p;
    const long row = (long)p->w->s * p->w->c;
    const struct tiles_numbers numbers = { p->w->data + p->r0 * row + (long)p->s0 * p->w->c, -p->stride * row, -(long)p->stride * p->w->c,
                                           row * p->w->r, 1 };

    (void)thread;
    tiles_pack_weights(&a->t, (int)panel * TILE_COLS, a->outputs, &numbers, panel_of(a, panel));
}

static size_t panel_count(int outputs)
{
    return (size_t)(outputs + GEMM_NP - 1) / GEMM_NP;
}

/* ---- forward ---- */
struct merge_args {
    const struct job *j;
    double *const *stats;
    const int *pixels;
    double *stack;
    int parts;
};

static void merge_shard(void *arg, size_t v, int thread)
{
    const struct merge_args *a = arg;
    const struct job *j = a->j;

    (void)thread;
    cpu_moments(j->moments + v * (size_t)a->parts * 3 * (size_t)j->ld_moments, j->ld_moments, a->pixels, a->parts, j->g.k,
                a->stack + v * (size_t)slab_levels(a->parts) * 2 * (size_t)j->g.k, a->stats[v]);
}

static void stats_merge(const struct conv_call *q, const struct job *j, int *pixels, double *stack)
{
    struct merge_args a = { j, q->stats, pixels, stack, rows_parts(&j->g) * j->g.per };

    for (int i = 0; i < a.parts; i++) {
        struct rows_part p = rows_part(&j->g, i);

        pixels[i] = p.h * p.w;
    }
    threads_each(cpu_threads(q->dev), (size_t)q->nshards, merge_shard, &a);
}

static int fwd_run(const struct conv_call *q, struct job *j, struct err *err)
{
    struct threads *threads = cpu_threads(q->dev);
    size_t parts = (size_t)rows_parts(&j->g) * (size_t)j->g.images;
    int *pixels = NULL;
    double *stack = NULL;

    for (struct carve c = { 0 };;) {
        c.used = 0;
        layout(j, &c, threads_count(threads));
        if (q->stats) {
            size_t shard = parts / (size_t)q->nshards;

            j->ld_moments = round_up(j->g.k, GEMM_NP);
            j->moments = carve_floats(&c, parts * 3 * (size_t)j->ld_moments);
            pixels = carve(&c, shard * sizeof *pixels);
            stack = carve(&c, (size_t)q->nshards * (size_t)slab_levels((int)shard) * 2 * (size_t)j->g.k * sizeof *stack);
        }
        if (c.base)
            break;
        c.base = cpu_scratch(q->dev, c.used, err);
        if (!c.base)
            return -ENOMEM;
    }
    run_parts(q, j);
    if (q->stats)
        stats_merge(q, j, pixels, stack);
    return 0;
}

int rows_conv_fwd(const struct conv_call *q, struct err *err)
{
    const struct tensor *x = &q->x[0].x, *y = &q->y[0];
    struct job j = { .x = q->x, .y = q->y, .bias = q->bias, .stream = conv_streams(q), .half = y->dtype == DTYPE_BF16 };
    struct form_key key = { j.half ? FORM_TILES_FWD : FORM_ROWS_FWD, 0, 0 };
    struct pack_tiles pack = { .p.w = q->w, .outputs = y->c };
    size_t floats = panel_count(y->c) * GEMM_NP * (size_t)(q->w->r * q->w->s * q->w->c);
    bool stale;

    j.g = rows_of(q, x, y);
    rows_cut(&j.g, j.half);
    j.tiles = pack.t = tiles_of(&j.g);
    pack.p.dst = cpu_form(q->w, &key, j.half ? tiles_weights(&j.tiles, y->c) : floats, &stale, err);
    if (!pack.p.dst)
        return -ENOMEM;
    if (stale)
        threads_each(cpu_threads(q->dev), panel_count(y->c), j.half ? pack_tiles_fwd : pack_fwd, &pack);
    j.panels = pack.p.dst;
    return fwd_run(q, &j, err);
}

/* ---- backward-data ---- */
struct phase_axis {
    int taps, last; /* of the kernel: last, last - stride, ... are this phase's taps, in the order of growing outputs */
    int off, count; /* output of the first tap for the first input of the phase; inputs of the phase */
};

static struct phase_axis phase_axis(int phase, int size, int pad, int stride, int length)
{
    struct phase_axis a = { .count = (length - phase + stride - 1) / stride };
    int top = phase + pad, r = size - 1 - ((size - 1 - top) % stride + stride) % stride; /* the largest tap with (top - r) % stride == 0 */

    if (r < 0)
        return a;
    a.last = r;
    a.taps = r / stride + 1;
    a.off = (top - r) / stride;
    return a;
}

/* The taps of a phase, of which a convolution with stride 1 is made. */
static struct rows phase_taps(const struct conv_call *q, const struct phase_axis *y, const struct phase_axis *x)
{
    return (struct rows){ .taps_y = x->taps ? y->taps : 0, .taps_x = y->taps ? x->taps : 0, .stride = 1, .c = q->w->k, .k = q->w->c };
}

/* Floats of its packed weights. */
static size_t phase_floats(const struct conv_call *q, const struct rows *g)
{
    struct tiles t = tiles_of(g);

    if (q->y->dtype == DTYPE_BF16)
        return tiles_weights(&t, g->k);
    return panel_count(g->k) * GEMM_NP * (size_t)(g->taps_y * g->taps_x) * (size_t)g->c;
}

static int phase_run(const struct conv_call *q, const struct operand *dy, struct tensor *dx, int n, const struct phase_axis *y,
                     const struct phase_axis *x, int py, int px, const float *panels, struct err *err)
{
    struct job j = { .x = dy, .y = dx, .beta = q->beta, .stream = conv_streams(q), .panels = panels, .half = dx->dtype == DTYPE_BF16 };

    j.g = phase_taps(q, y, x);
    j.g.images = dx->n * n;
    j.g.per = dx->n;
    j.g.oh = y->count;
    j.g.ow = x->count;
    j.g.ih = dy->x.h;
    j.g.iw = dy->x.w;
    j.g.off_y = y->off;
    j.g.off_x = x->off;
    j.g.out_step = q->stride;
    j.g.out_y = py;
    j.g.out_x = px;
    j.g.out_h = dx->h;
    j.g.out_w = dx->w;
    rows_cut(&j.g, j.half);
    j.tiles = tiles_of(&j.g);
    for (struct carve c = { 0 };;) {
        c.used = 0;
        layout(&j, &c, threads_count(cpu_threads(q->dev)));
        if (c.base)
            break;
        c.base = cpu_scratch(q->dev, c.used, err);
        if (!c.base)
            return -ENOMEM;
    }
    run_parts(q, &j);
    return 0;
}

/* A phase's number is py * stride + px. */
static void phase_axes(const struct conv_call *q, int phase, struct phase_axis *ret_y, struct phase_axis *ret_x)
{
    *ret_y = phase_axis(phase / q->stride, q->w->r, q->pad, q->stride, q->y->h);
    *ret_x = phase_axis(phase % q->stride, q->w->s, q->pad, q->stride, q->y->w);
}

static int back_shards(const struct conv_call *q, const struct operand *dy, struct tensor *dx, int n, float *panels, bool stale,
                       struct err *err)
{
    for (int phase = 0; phase < q->stride * q->stride; phase++) {
        struct phase_axis y, x;
        struct pack_tiles pack = { .outputs = dx->c };
        struct rows taps;
        int rc;

        phase_axes(q, phase, &y, &x);
        taps = phase_taps(q, &y, &x);
        pack.p = (struct pack){ q->w, panels, q->stride, q->pad, y.taps, x.taps, y.last, x.last };
        pack.t = tiles_of(&taps);
        if (stale && y.taps && x.taps)
            threads_each(cpu_threads(q->dev), panel_count(dx->c), dx->dtype == DTYPE_BF16 ? pack_tiles_back : pack_back, &pack);
        if (y.count > 0 && x.count > 0) {
            rc = phase_run(q, dy, dx, n, &y, &x, phase / q->stride, phase % q->stride, panels, err);
            if (rc < 0)
                return rc;
        }
        panels += phase_floats(q, &taps);
    }
    return 0;
}

int rows_conv_bwd_data(const struct conv_call *q, struct err *err)
{
    enum { AT_A_TIME = 64 };
    struct form_key key = { q->y->dtype == DTYPE_BF16 ? FORM_TILES_BACK : FORM_ROWS_BACK, q->stride, q->pad };
    size_t floats = 0;
    float *panels;
    bool stale;

    for (int phase = 0; phase < q->stride * q->stride; phase++) {
        struct phase_axis y, x;
        struct rows taps;

        phase_axes(q, phase, &y, &x);
        taps = phase_taps(q, &y, &x);
        floats += phase_floats(q, &taps);
    }
    panels = cpu_form(q->w, &key, floats, &stale, err);
    if (!panels)
        return -ENOMEM;
    for (int v = 0; v < q->nshards; v += AT_A_TIME, stale = false) {
        int n = q->nshards - v < AT_A_TIME ? q->nshards - v : AT_A_TIME, rc;
        struct operand dy[AT_A_TIME];

        for (int i = 0; i < n; i++)
            dy[i] = (struct operand){ .x = q->dy[v + i] };
        rc = back_shards(q, dy, q->y + v, n, panels, stale, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv_rows_conv.c - forward and backward-data convolution on
 * rows, for bf16 by tiles (conv_tiles.h). Backward-data with a stride is a stride-1 convolution of output gradients for
 * each phase (y mod stride, x mod stride) of the inputs. It gathers, so each result has one writer. */
#include <errno.h>
#include <string.h>

#include "worker/core/simd.h"
#include "worker/cpu/conv.h"
#include "worker/cpu/conv_forms.h"
#include "worker/cpu/conv_rows.h"
#include "worker/cpu/conv_tiles.h"
#include "worker/cpu/elem.h"
#include "worker/cpu/tile.h"

/* limits for tiles */
enum {
    AT_ONCE_MOST = 16,        /* parts */
    WEIGHTS_KEPT = 256 << 10, /* bytes of packed weights that stay in the L2 cache in any case */
    PANELS_BYTES = 1 << 20,   /* bytes of inputs beside a panel of weights */
    BANDS_BYTES = 256 << 10,  /* bytes of inputs beside all weights */
    UNITS = 2                 /* least pieces of work for each thread */
};

struct work {
    struct rows g;
    const struct operand *x;
    struct tensor *y;
    float beta;
    bool stream;
    const float *bias;
    const float *panels; /* [k / 32][taps_y][taps_x * c][32] */
    bool half;           /* bf16 */
    struct tiles tiles;  /* if half: panels are made by tiles_pack_weights() */
    int at_once;         /* parts in one piece of work */
    long *shifts;        /* per thread: [taps] of weights, [parts][taps] of inputs */
    size_t shifts_size;
    const struct tile_unit *unit;
    float *moments; /* [parts][3][ld_moments], or NULL */
    int ld_moments;
    int outputs; /* fp32: outputs in one piece of work, whole panels */
    float *buf;  /* per thread */
    size_t buf_size;
    float *out; /* per thread: [pixels of a part][ld_out] */
    int ld_out; /* 32; 16 if there are at most 16 outputs */
    size_t out_size;
};

/* The first number of a row of a part's outputs. */
static void *place(const struct work *j, const struct rows_part *p, int row)
{
    const struct rows *g = &j->g;
    const struct tensor *y = &j->y[p->image / g->per];
    long at = ((long)(p->image % g->per) * g->out_h + (long)(p->y + row) * g->out_step + g->out_y) * g->out_w + (long)p->x * g->out_step;

    return elem_at(y->data, (at + g->out_x) * y->stride, j->half);
}

/* Sums of some channels over the pixels of a part. Pixels go to four sums in turn, the i-th pixel to sum i mod 4. */
struct sums {
    vec shift, sum[4], square[4]; /* the sum of the next pixel is first */
    int pixels;
};

SIMD_FN struct sums sums_of(vec shift)
{
    struct sums s = { .shift = shift };

    for (int i = 0; i < 4; i++)
        s.sum[i] = s.square[i] = vset1(0.0f);
    return s;
}

/* Rotates the sums so that the i-th from now comes first. */
SIMD_FN void sums_turn(struct sums *s, int i)
{
    const struct sums was = *s;

    for (int k = 0; k < 4 && i % 4 != 0; k++) {
        s->sum[k] = was.sum[(k + i) % 4];
        s->square[k] = was.square[(k + i) % 4];
    }
}

SIMD_FN void sums_add(struct sums *s, const float *from, int ld, int pixels)
{
    vec sum[4] = { s->sum[0], s->sum[1], s->sum[2], s->sum[3] }, square[4] = { s->square[0], s->square[1], s->square[2], s->square[3] };
    int i = 0;

    for (; i + 4 <= pixels; i += 4, from += 4L * ld)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            vec d = vsub(vload(from + (long)k * ld), s->shift);

            sum[k] = vadd(sum[k], d);
            square[k] = vfma(d, d, square[k]);
        }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        vec d = k < pixels - i ? vsub(vload(from + (long)k * ld), s->shift) : vset1(0.0f);

        s->sum[k] = k < pixels - i ? vadd(sum[k], d) : sum[k];
        s->square[k] = k < pixels - i ? vfma(d, d, square[k]) : square[k];
    }
    sums_turn(s, pixels);
    s->pixels += pixels;
}

SIMD_FN void sums_end(struct sums *s, float *to, int ld)
{
    sums_turn(s, 4 - s->pixels % 4);
    vstore(to, s->shift);
    vstore(to + ld, vadd(vadd(s->sum[0], s->sum[1]), vadd(s->sum[2], s->sum[3])));
    vstore(to + 2 * ld, vadd(vadd(s->square[0], s->square[1]), vadd(s->square[2], s->square[3])));
}

/* The product that gives outputs [k, k + 32) of row i of a part, written to c. */
static struct gemm product(const struct work *j, const struct rows_part *p, const struct rows_input *in, int k, int i)
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

/* Multiplies straight into the result. */
static void multiply_in_place(const struct work *j, const struct rows_part *p, const struct rows_input *in, int k)
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

/* Multiplies into a buffer. */
static void multiply(const struct work *j, const struct rows_part *p, const struct rows_input *in, int k, float *out)
{
    for (int i = 0; i < p->h; i++) {
        struct gemm mm = product(j, p, in, k, i);

        mm.c = out + (long)i * p->w * j->ld_out;
        mm.c_row = j->ld_out;
        gemm_run(&mm);
    }
}

/* The same for packed inputs. Rows of outputs are p->pitch pixels apart. */
static void multiply_tiles(const struct work *j, const struct tiles_part *p, const uint16_t *panels, const long *shifts, const long *b_tap,
                           int k, float *out)
{
    static const long half[2] = { 0, TILE_HALF }, column[2] = { 0, TILE_COLS / 2 };
    const struct tiles *t = &j->tiles;
    struct tile_product mm = { .a = panels, .a_tap = shifts, .b_tap = b_tap, .a_row = tiles_step(t), .c = out, .c_row = j->ld_out };

    mm.a_block = tiles_block(t, p);
    mm.b = (const uint16_t *)(const void *)j->panels + (long)(k / TILE_COLS) * tiles_taps(t) * t->blocks * TILE_PANEL;
    mm.b_column = half;
    mm.b_block = TILE_PANEL;
    mm.c_column = column;
    mm.rows = p->positions;
    mm.taps = tiles_taps(t);
    mm.blocks = t->blocks;
    mm.columns = j->g.k - k <= TILE_COLS / 2 ? 1 : 2;
    j->unit->run(&mm);
}

/* How to write a row of outputs. */
struct ending {
    int vecs, lanes; /* vectors of a pixel; lanes of the last one */
    bool bias, add, stream, half;
    float beta;
    vec biases[GEMM_NP / VW];
};

/* Writes a row of outputs. Moments are of the stored values, so these are left in `from`. All outputs of a pixel are
 * written at once, so that lines are written whole. */
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

/* Finishes a vector of a pixel, the i-th of four. */
SIMD_FN void finish_sum(struct sums *s, int i, vec y, bool stream, uint16_t *to)
{
    vec d = vsub(vkept_half(y), s->shift);

    if (stream)
        vstream_half(to, y);
    else
        vstore_half(to, y);
    s->sum[i] = vadd(s->sum[i], d);
    s->square[i] = vfma(d, d, s->square[i]);
}

/* finish_row() in bf16 without addition, together with sums_add(). `vecs` and `stream` are constants at every call. */
SIMD_FN void finish_row_sums(struct sums *s, int vecs, bool stream, uint16_t *to, long step, const float *from, int ld, int pixels)
{
    struct sums own[GEMM_NP / VW];
    int x = 0;

    for (int v = 0; v < vecs; v++)
        own[v] = s[v];
    for (; x + 4 <= pixels; x += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++, to += step, from += ld)
#pragma GCC unroll 8
            for (int v = 0; v < vecs; v++)
                finish_sum(&own[v], i, vload(from + v * VW), stream, to + v * VW);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++, to += step, from += ld)
        for (int v = 0; v < (x + i < pixels ? vecs : 0); v++)
            finish_sum(&own[v], i, vload(from + v * VW), stream, to + v * VW);
    for (int v = 0; v < vecs; v++) {
        s[v] = own[v];
        sums_turn(&s[v], pixels);
        s[v].pixels += pixels;
    }
}

/* Vectors of a pixel in the usual cases: no bias, no addition, 32 or 16 outputs. */
enum { VECS = GEMM_NP / VW, VECS_HALF = 16 / VW };

/* finish_row() and finish_row_sums() for the usual cases, each in its own loop. */
SIMD_FN void finish_usual(int vecs, bool stream, bool half, void *to, long step, float *from, int ld, int pixels)
{
    if (vecs == VECS && stream)
        finish_row(&(const struct ending){ VECS, VW, .stream = true, .half = half }, to, step, from, ld, pixels);
    else if (vecs == VECS)
        finish_row(&(const struct ending){ VECS, VW, .half = half }, to, step, from, ld, pixels);
    else
        finish_row(&(const struct ending){ VECS_HALF, VW, .stream = stream, .half = half }, to, step, from, ld, pixels);
}

SIMD_FN void finish_usual_sums(struct sums *s, int vecs, bool stream, uint16_t *to, long step, const float *from, int ld, int pixels)
{
    if (vecs == VECS && stream)
        finish_row_sums(s, VECS, true, to, step, from, ld, pixels);
    else if (vecs == VECS)
        finish_row_sums(s, VECS, false, to, step, from, ld, pixels);
    else
        finish_row_sums(s, VECS_HALF, stream, to, step, from, ld, pixels);
}

/* Writes outputs [k, k + 32) of a part to the result. Rows of `out` are `pitch` pixels apart. */
SIMD_FN void finish(const struct work *j, const struct rows_part *p, int part, int k, float *out, int pitch, bool half)
{
    const struct rows *g = &j->g;
    const long step = (long)j->y[p->image / g->per].stride * g->out_step;
    const int cols = g->k - k < j->ld_out ? g->k - k : j->ld_out;
    struct ending e = { (cols + VW - 1) / VW,     (cols - 1) % VW + 1, j->bias != NULL, j->beta != 0.0f, j->stream, half, j->beta,
                        .biases = { vset1(0.0f) } };
    const bool usual = !e.bias && !e.add && (cols == GEMM_NP || cols == 16), at_once = usual && half && j->moments;
    struct sums sums[VECS];

    for (int v = 0; v < e.vecs && e.bias; v++)
        e.biases[v] = vload_n(j->bias + k + v * VW, vlanes(g->k, k + v * VW));
    for (int v = 0; v < e.vecs && at_once; v++)
        sums[v] = sums_of(vkept_half(vload(out + v * VW)));
    for (int i = 0; i < p->h; i++) {
        void *to = elem_at(place(j, p, i), k, half);
        float *from = out + (long)i * pitch * j->ld_out;

        if (at_once)
            finish_usual_sums(sums, e.vecs, e.stream, to, step, from, j->ld_out, p->w);
        else if (usual)
            finish_usual(e.vecs, e.stream, half, to, step, from, j->ld_out, p->w);
        else
            finish_row(&e, to, step, from, j->ld_out, p->w);
        for (int v = 0; v < e.vecs && j->moments && !at_once; v++) {
            if (i == 0)
                sums[v] = sums_of(vload(from + v * VW));
            sums_add(&sums[v], from + v * VW, j->ld_out, p->w);
        }
    }
    for (int v = 0; v < e.vecs && j->moments; v++)
        sums_end(&sums[v], j->moments + (long)part * 3 * j->ld_moments + k + v * VW, j->ld_moments);
}

/* True if outputs are written straight to the result. Statistics are quicker from a buffer, and outputs that do not
 * fill vectors need one. */
static bool in_place(const struct work *j, int k)
{
    return !j->moments && (j->g.k - k >= GEMM_NP || j->g.k - k == 16);
}

static void part_run(void *arg, size_t index, int thread)
{
    const struct work *j = arg;
    const int parts = rows_parts(&j->g) * j->g.images, part = (int)index % parts, first = (int)index / parts * j->outputs;
    struct rows_part p = rows_part(&j->g, part);
    float *buf = j->buf + (size_t)thread * j->buf_size, *out = j->out + (size_t)thread * j->out_size;
    struct rows_input in = rows_input(&j->g, &p, j->x, buf);

    for (int k = first; k < first + j->outputs && k < j->g.k; k += GEMM_NP) {
        if (in_place(j, k)) {
            multiply_in_place(j, &p, &in, k);
            continue;
        }
        multiply(j, &p, &in, k, out);
        finish(j, &p, part, k, out, p.w, false);
    }
    if (j->stream)
        vstream_end();
}

/* Some parts of a job. Parts below each other in the image are neighbours here and are packed together. */
struct group {
    struct tiles_part part[AT_ONCE_MOST];
    int index[AT_ONCE_MOST];          /* numbers of the parts in g */
    const uint16_t *at[AT_ONCE_MOST]; /* the packed inputs */
    const long *shifts[AT_ONCE_MOST];
    int n;
};

static int band_index(const struct rows *g, int i)
{
    const int column = i / g->bands;

    return column / g->segs * rows_parts(g) + i % g->bands * g->segs + column % g->segs;
}

static struct group group_pack(const struct work *j, int first, int n, uint16_t *panels, long *shifts)
{
    const struct rows *g = &j->g;
    const struct tiles *t = &j->tiles;
    struct group r = { .n = n };

    for (int i = 0, end; i < n; i = end) {
        struct rows_part all = rows_part(g, band_index(g, first + i));
        struct tiles_part packed;

        for (end = i + 1; end < n && (first + end) % g->bands != 0; end++)
            all.h += rows_part(g, band_index(g, first + end)).h;
        packed = tiles_part(t, &all);
        packed.pixels += TILE_BLOCK; /* whole tiles of the last part are read, too */
        tiles_pack(t, &packed, j->x, panels);
        tiles_shifts(t, &packed, shifts);
        for (int k = i; k < end; k++) {
            const struct rows_part p = rows_part(g, r.index[k] = band_index(g, first + k));

            r.part[k] = tiles_part(t, &p);
            r.part[k].pixels = packed.pixels;
            r.at[k] = panels + (long)(p.y - all.y) * packed.pitch * tiles_step(t);
            r.shifts[k] = shifts;
        }
        panels += tiles_numbers(t, &packed);
        shifts += tiles_taps(t);
    }
    return r;
}

/* Computes several parts with a panel of weights while it is in the cache. */
static void parts_run_tiles(void *arg, size_t index, int thread)
{
    const struct work *j = arg;
    const struct tiles *t = &j->tiles;
    const int taps = tiles_taps(t), first = (int)index * j->at_once, all = rows_parts(&j->g) * j->g.images;
    float *out = j->out + (size_t)thread * j->out_size;
    long *b_tap = j->shifts + (size_t)thread * j->shifts_size;
    const struct group group = group_pack(j, first, all - first < j->at_once ? all - first : j->at_once,
                                          (uint16_t *)(void *)(j->buf + (size_t)thread * j->buf_size), b_tap + taps);

    for (int i = 0; i < taps; i++)
        b_tap[i] = (long)i * t->blocks * TILE_PANEL;
    j->unit->begin();
    for (int k = 0; k < j->g.k; k += TILE_COLS)
        for (int i = 0; i < group.n; i++) {
            multiply_tiles(j, &group.part[i], group.at[i], group.shifts[i], b_tap, k, out);
            finish(j, &group.part[i].p, group.index[i], k, out, group.part[i].pitch, true);
        }
    j->unit->end();
    if (j->stream)
        vstream_end();
}

/* Pieces of work for each part. */
static size_t pieces(const struct work *j)
{
    return (size_t)(round_up(j->g.k, j->outputs) / j->outputs);
}

/* Computes all parts of all images. Few parts are shared out by outputs, too. */
static void run_parts(const struct conv_call *q, struct work *j)
{
    const size_t parts = (size_t)rows_parts(&j->g) * (size_t)j->g.images;

    j->outputs = round_up(j->g.k, GEMM_NP);
    while (j->outputs > GEMM_NP && parts * pieces(j) < (size_t)(UNITS * threads_count(cpu_threads(q->dev))))
        j->outputs = round_up(j->outputs / 2, GEMM_NP);
    j->unit = cpu_device(q->dev)->tiles;
    if (j->half)
        threads_each(cpu_threads(q->dev), (parts + (size_t)j->at_once - 1) / (size_t)j->at_once, parts_run_tiles, j);
    else
        threads_each(cpu_threads(q->dev), parts * pieces(j), part_run, j);
}

/* The number of parts in one piece of work. More parts read many weights less often, and pack fewer rows twice if parts
 * are low; but each thread must have work. */
static int at_once(const struct work *j, int threads)
{
    const long parts = (long)rows_parts(&j->g) * j->g.images, panels = (long)(tiles_panels(&j->tiles) * sizeof(uint16_t));
    const long weights = (long)tiles_taps(&j->tiles) * j->tiles.blocks * round_up(j->g.k, TILE_COLS) * TILE_BLOCK * (long)sizeof(uint16_t);
    const long room = weights > WEIGHTS_KEPT ? PANELS_BYTES : j->g.taps_y > j->g.stride ? BANDS_BYTES : 0;
    int n = 1;

    while (n < AT_ONCE_MOST && (n + 1) * panels <= room && parts >= (long)(n + 1) * UNITS * threads)
        n++;
    return n;
}

static void layout_tiles(struct work *j, struct carve *c, int threads)
{
    j->at_once = at_once(j, threads);
    j->buf_size = (size_t)j->at_once * (tiles_panels(&j->tiles) + tiles_more(&j->tiles)) / 2;
    j->shifts_size = (size_t)(j->at_once + 1) * (size_t)tiles_taps(&j->tiles);
    j->ld_out = j->g.k > TILE_COLS / 2 ? TILE_COLS : TILE_COLS / 2;
    j->out_size = (size_t)tiles_positions(&j->tiles) * (size_t)j->ld_out;
    j->buf = carve_floats(c, (size_t)threads * j->buf_size);
    j->out = carve_floats(c, (size_t)threads * j->out_size);
    j->shifts = carve(c, (size_t)threads * j->shifts_size * sizeof *j->shifts);
}

static void layout(struct work *j, struct carve *c, int threads)
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

/* ---- forward ---- */
struct merge_args {
    const struct work *j;
    double *const *stats;
    const int *pixels;
    double *stack;
    int parts;
};

static void merge_shard(void *arg, size_t v, int thread)
{
    const struct merge_args *a = arg;
    const struct work *j = a->j;

    (void)thread;
    cpu_moments(j->moments + v * (size_t)a->parts * 3 * (size_t)j->ld_moments, j->ld_moments, a->pixels, a->parts, j->g.k,
                a->stack + v * (size_t)slab_levels(a->parts) * 2 * (size_t)j->g.k, a->stats[v]);
}

static void stats_merge(const struct conv_call *q, const struct work *j, int *pixels, double *stack)
{
    struct merge_args a = { j, q->stats, pixels, stack, rows_parts(&j->g) * j->g.per };

    for (int i = 0; i < a.parts; i++) {
        struct rows_part p = rows_part(&j->g, i);

        pixels[i] = p.h * p.w;
    }
    threads_each(cpu_threads(q->dev), (size_t)q->nshards, merge_shard, &a);
}

static int fwd_run(const struct conv_call *q, struct work *j, struct err *err)
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
    struct work j = { .x = q->x, .y = q->y, .bias = q->bias, .stream = conv_streams(q), .half = y->dtype == DTYPE_BF16 };

    j.g = rows_of(q, x, y);
    rows_cut(&j.g, j.half);
    j.tiles = tiles_of(&j.g);
    j.panels = form_fwd(q, j.half ? &j.tiles : NULL, err);
    return j.panels ? fwd_run(q, &j, err) : -ENOMEM;
}

/* ---- backward-data ---- */
static int phase_run(const struct conv_call *q, const struct operand *dy, struct tensor *dx, int n, const struct phase_axis *y,
                     const struct phase_axis *x, int py, int px, const float *panels, struct err *err)
{
    struct work j = { .x = dy, .y = dx, .beta = q->beta, .stream = conv_streams(q), .panels = panels, .half = dx->dtype == DTYPE_BF16 };

    j.g = phase_taps(q, y, x);
    j.g.images = dx->n * n;
    j.g.per = j.g.joined = dx->n;
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

static int back_shards(const struct conv_call *q, const struct operand *dy, struct tensor *dx, int n, const float *panels, struct err *err)
{
    for (int phase = 0; phase < q->stride * q->stride; phase++) {
        struct phase_axis y, x;
        struct rows taps;
        int rc;

        phase_axes(q, phase, &y, &x);
        taps = phase_taps(q, &y, &x);
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
    const float *panels = form_back(q, err);

    if (!panels)
        return -ENOMEM;
    for (int v = 0; v < q->nshards; v += AT_A_TIME) {
        int n = q->nshards - v < AT_A_TIME ? q->nshards - v : AT_A_TIME, rc;
        struct operand dy[AT_A_TIME];

        for (int i = 0; i < n; i++)
            dy[i] = (struct operand){ .x = q->dy[v + i] };
        rc = back_shards(q, dy, q->y + v, n, panels, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/winograd_out.c - points to outputs, with bias and accumulation.
 * Moments of each strip are computed while its values are in registers. */
#include "worker/cpu/winograd_math.h"

enum { ROW = 5 /* outputs[i * ROW + j] */ };

SIMD_FN void output_tile(const float *m, long ld_point, int px, vec out[ROW * ROW], bool fy, bool fx)
{
    vec mid[5][WINO_SIDE];
    const int py = fy ? 7 : 6, pts = fx ? 7 : 6, hi = fy ? 5 : 4, wi = fx ? 5 : 4;

#pragma GCC unroll 7
    for (int j = 0; j < pts; j++) {
        vec d[WINO_SIDE], y[5];

#pragma GCC unroll 7
        for (int i = 0; i < py; i++)
            d[i] = vload(m + (i * px + j) * ld_point);
        wino_out(d, y, fy);
#pragma GCC unroll 7
        for (int i = 0; i < hi; i++)
            mid[i][j] = y[i];
    }
#pragma GCC unroll 7
    for (int i = 0; i < hi; i++) {
        vec y[5];

        wino_out(mid[i], y, fx);
#pragma GCC unroll 7
        for (int j = 0; j < wi; j++)
            out[i * ROW + j] = y[j];
    }
}

typedef void tile_fn(const float *m, long ld_point, int px, vec *out);

/* clang-format off */
#define TILE(suffix, fy, fx)                                                                                                               \
    static void tile_##suffix(const float *m, long ld_point, int px, vec *out) { output_tile(m, ld_point, px, out, fy, fx); }
TILE(44, false, false)
TILE(45, false, true)
TILE(54, true, false)
TILE(55, true, true)
/* clang-format on */

static tile_fn *const tiles[2][2] = { { tile_44, tile_45 }, { tile_54, tile_55 } }; /* [5 high][5 wide] */

/* Four partial sums by column, so that additions do not wait for each other. */
struct moments {
    vec shift, sum[4], square[4];
};

static void moments_tile(struct moments *mo, const vec *out, int hi, int wi)
{
    for (int i = 0; i < hi; i++)
        for (int j = 0; j < wi; j++) {
            vec d = vsub(out[i * ROW + j], mo->shift);

            mo->sum[j & 3] = vadd(mo->sum[j & 3], d);
            mo->square[j & 3] = vfma(d, d, mo->square[j & 3]);
        }
}

static void moments_store(const struct moments *mo, float *to, int ld)
{
    vstore(to, mo->shift);
    vstore(to + ld, vadd(vadd(mo->sum[0], mo->sum[1]), vadd(mo->sum[2], mo->sum[3])));
    vstore(to + 2 * ld, vadd(vadd(mo->square[0], mo->square[1]), vadd(mo->square[2], mo->square[3])));
}

struct place {
    float *at; /* first output of the tile, at this vector of channels */
    long row, col;
    int hi, wi, lanes;
};

static void store_tile(const struct place *p, const vec *out, const struct wino_sink *sink)
{
    for (int i = 0; i < p->hi; i++) {
        float *y = p->at + i * p->row;
        float beta = sink->beta;

        if (sink->stream)
            for (int j = 0; j < p->wi; j++)
                vstream(y + j * p->col, out[i * ROW + j]);
        else if (p->lanes == VW && beta == 0.0f)
            for (int j = 0; j < p->wi; j++)
                vstore(y + j * p->col, out[i * ROW + j]);
        else if (beta == 0.0f)
            for (int j = 0; j < p->wi; j++)
                vstore_n(y + j * p->col, out[i * ROW + j], p->lanes);
        else
            for (int j = 0; j < p->wi; j++)
                vstore_n(y + j * p->col, vfma(vset1(beta), vload_n(y + j * p->col, p->lanes), out[i * ROW + j]), p->lanes);
    }
}

static struct place place_of(const struct wino *g, const struct wino_tile *q, const struct wino_sink *sink, int ch, int lanes)
{
    const struct tensor *y = &sink->y[q->image / sink->per];
    float *data = y->data;
    struct place p = { .row = (long)g->w * y->stride, .col = y->stride, .lanes = lanes };

    p.at = data + (((long)(q->image % sink->per) * g->h + q->y) * g->w + q->x) * y->stride + ch;
    p.hi = g->h - q->y < q->my ? g->h - q->y : q->my;
    p.wi = g->w - q->x < q->mx ? g->w - q->x : q->mx;
    return p;
}

/* One vector of channels of one strip. m: this vector's column in row 0 of matrix (0, 0). */
static void strip(const struct wino *g, const struct wino_tile *q, int count, const float *m, long ldm, long ld_point, int ch, int lanes,
                  const struct wino_sink *sink, float *moments)
{
    vec out[ROW * ROW], bias = sink->bias ? vload_n(sink->bias + ch, lanes) : vset1(0.0f);
    struct moments mo;

    mo.shift = vset1(0.0f);
    for (int i = 0; i < 4; i++)
        mo.sum[i] = mo.square[i] = vset1(0.0f);
    for (int t = 0; t < count; t++, q++) {
        struct place p = place_of(g, q, sink, ch, lanes);

        tiles[q->my == 5][q->mx == 5](m + q->row * ldm, ld_point, g->x.pts, out);
        if (sink->bias)
            for (int i = 0; i < ROW * ROW; i++)
                if (i / ROW < q->my && i % ROW < q->mx)
                    out[i] = vadd(out[i], bias);
        store_tile(&p, out, sink);
        if (!moments)
            continue;
        if (t == 0)
            mo.shift = out[0];
        moments_tile(&mo, out, p.hi, p.wi);
    }
    if (moments)
        moments_store(&mo, moments, sink->ld_moments);
}

void wino_output(const struct wino *g, const struct wino_block *b, const float *m, int ldm, int k0, int cols, const struct wino_sink *sink)
{
    const struct wino_tile *q = b->tile;

    for (int s = b->first; s < b->first + b->strips; s++) {
        int count = wino_strip_tiles(g, s);

        for (int col = 0; col < cols && k0 + col < g->k; col += VW)
            strip(g, q, count, m + col, ldm, (long)b->rows * ldm, k0 + col, vlanes(g->k, k0 + col), sink,
                  sink->moments ? sink->moments + (long)s * 3 * sink->ld_moments + k0 + col : NULL);
        q += count;
    }
    if (sink->stream)
        vstream_end();
}

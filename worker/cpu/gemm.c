/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/gemm.c - one body, unrolled for every number of rows that fits
 * the registers of the ISA, for one or two vectors of width. */
#include "worker/cpu/gemm.h"

#include <limits.h>
#include <stddef.h>

#include "worker/core/simd.h"

/* Rows of b that a narrow tile prefetches: output gradients in place come from memory, in pieces too short for the
 * hardware to foresee. */
#define FETCH_AHEAD 24

/* If a panel is wider than two vectors and a tile is few rows high, rows of b are read often. So all tiles use
 * DEPTH_KEPT rows of b first; half of each line belongs to another strip. Meanwhile the sums of ROWS_KEPT rows wait. */
enum { DEPTH_KEPT = 128, DEPTH_LEAST = VW == 16 ? INT_MAX : DEPTH_KEPT * 3 / 2, ROWS_KEPT = 96 };

/* Known strides of a: constants leave registers to the tile. */
enum layout {
    ANY_ROWS /* a_depth 1; only this one supports an end */,
    ROWS_16,
    ROWS_32 /* a_row 32, a_depth 1 */,
    COLUMNS /* a_row 1 */,
    LAYOUTS
};

SIMD_FN void end_vec(const struct gemm_end *e, vec y, float *c, long col)
{
    if (e->bias)
        y = vadd(y, vload(e->bias + col));
    if (e->beta != 0.0f)
        y = vfma(vset1(e->beta), vload(c), y);
    if (e->stream)
        vstream(c, y);
    else
        vstore(c, y);
}

/* Start and destination of a tile's sums. */
struct sums {
    const float *from; /* NULL: zeros */
    float *to;
    long from_row, to_row;
};

/* mr, nv and layout are constants at every call. */
SIMD_FN void tile(const struct gemm *g, const float *a, const float *ahead, const float *b, const struct sums *sums, int mr, int nv,
                  enum layout layout)
{
    const long a_row = layout == ANY_ROWS ? g->a_row : layout == ROWS_16 ? 16 : layout == ROWS_32 ? 32 : 1;
    const long a_depth = layout == COLUMNS ? g->a_depth : 1, b_depth = g->b_depth, c_row = sums->to_row;
    const float *const from = sums->from;
    float *const c = sums->to;
    const long col = b - g->b;
    const long a_skip = g->a_seg - g->depth * a_depth, b_skip = g->b_seg - g->depth * b_depth;
    vec x[GEMM_MR], y[GEMM_MR];

    /* Unrolled: the compiler would otherwise keep the two arrays in memory. */
#pragma GCC unroll 16
    for (int i = 0; i < mr; i++) {
        x[i] = vset1(0.0f);
        y[i] = vset1(0.0f);
    }
    if (from) {
        const long from_row = sums->from_row;

#pragma GCC unroll 16
        for (int i = 0; i < mr; i++) {
            x[i] = vload(from + i * from_row);
            if (nv == 2)
                y[i] = vload(from + i * from_row + VW);
        }
    }
    for (int s = g->segs; s > 0; s--) {
        const float *fetch = ahead; /* rows of a panel follow each other: prefetches the next tile's */

        for (int d = g->depth; d > 0; d--) {
            if (layout == ROWS_32 || layout == ROWS_16) {
                __builtin_prefetch(fetch);
                fetch += 16;
            }
            if (layout == COLUMNS && nv == 1)
                __builtin_prefetch(b + FETCH_AHEAD * b_depth);
            vec p = vload(b), q = nv == 2 ? vload(b + VW) : p;

#pragma GCC unroll 16
            for (int i = 0; i < mr; i++) {
                vec f = vset1(a[i * a_row]);

                x[i] = vfma(f, p, x[i]);
                if (nv == 2)
                    y[i] = vfma(f, q, y[i]);
            }
            a += a_depth;
            b += b_depth;
        }
        a += a_skip;
        ahead += g->a_seg;
        b += b_skip;
    }
    if (layout == ANY_ROWS && g->end) {
#pragma GCC unroll 16
        for (int i = 0; i < mr; i++) {
            end_vec(g->end, x[i], c + i * c_row, col);
            if (nv == 2)
                end_vec(g->end, y[i], c + i * c_row + VW, col + VW);
        }
        return;
    }
#pragma GCC unroll 16
    for (int i = 0; i < mr; i++) {
        vstore(c + i * c_row, x[i]);
        if (nv == 2)
            vstore(c + i * c_row + VW, y[i]);
    }
}

typedef void tile_fn(const struct gemm *g, const float *a, const float *ahead, const float *b, const struct sums *sums);

#if GEMM_MR >= 14
#define FOR_MR(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#elif GEMM_MR >= 6
#define FOR_MR(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define FOR_MR(X) X(1) X(2) X(3) X(4)
#endif

/* clang-format off */
#define TILE(name, mr, nv, layout)                                                                                                         \
    static void name##mr(const struct gemm *g, const float *a, const float *ahead, const float *b, const struct sums *sums)                \
    { tile(g, a, ahead, b, sums, mr, nv, layout); }
#define DEFINE(mr)                                                                                                                         \
    TILE(any1_, mr, 1, ANY_ROWS) TILE(any2_, mr, 2, ANY_ROWS) TILE(r16_1_, mr, 1, ROWS_16) TILE(r16_2_, mr, 2, ROWS_16)                    \
    TILE(r32_1_, mr, 1, ROWS_32) TILE(r32_2_, mr, 2, ROWS_32) TILE(cols1_, mr, 1, COLUMNS) TILE(cols2_, mr, 2, COLUMNS)
FOR_MR(DEFINE)
#define ANY1(mr)  any1_##mr,
#define ANY2(mr)  any2_##mr,
#define R16_1(mr) r16_1_##mr,
#define R16_2(mr) r16_2_##mr,
#define R32_1(mr) r32_1_##mr,
#define R32_2(mr) r32_2_##mr,
#define COLS1(mr) cols1_##mr,
#define COLS2(mr) cols2_##mr,
/* clang-format on */

/* [layout][two vectors][rows - 1] */
static tile_fn *const table[LAYOUTS][2][GEMM_MR] = {
    { { FOR_MR(ANY1) }, { FOR_MR(ANY2) } },
    { { FOR_MR(R16_1) }, { FOR_MR(R16_2) } },
    { { FOR_MR(R32_1) }, { FOR_MR(R32_2) } },
    { { FOR_MR(COLS1) }, { FOR_MR(COLS2) } },
};

static enum layout layout_of(const struct gemm *g)
{
    if (g->a_depth != 1)
        return COLUMNS;
    if (g->end)
        return ANY_ROWS;
    return g->a_row == 16 ? ROWS_16 : g->a_row == 32 ? ROWS_32 : ANY_ROWS;
}

/* Computes the tiles of a column. next and next_b: the next data of a, and the next DEPTH_KEPT rows of b, or NULL. */
static void strip(const struct gemm *g, enum layout layout, int col, int nv, struct sums sums, const float *next, const float *next_b)
{
    tile_fn *const *fn = table[layout][nv - 1];
    int tiles = (g->rows + GEMM_MR - 1) / GEMM_MR, base = g->rows / tiles, more = g->rows % tiles; /* near-equal heights waste least */
    const float *a = g->a;

    for (int t = 0; t < tiles; t++) {
        int mr = base + (t < more);
        const float *ahead = a + mr * g->a_row;

        for (int d = t * DEPTH_KEPT / tiles; next_b && d < (t + 1) * DEPTH_KEPT / tiles; d++)
            __builtin_prefetch(next_b + d * g->b_depth);
        fn[mr - 1](g, a, t + 1 < tiles ? ahead : next ? next : a, g->b + col, &sums);
        a = ahead;
        sums.from = sums.from ? sums.from + mr * sums.from_row : NULL;
        sums.to += mr * sums.to_row;
    }
}

/* The part of the chain from segment s and depth d on that is summed at once. */
static struct gemm piece(const struct gemm *g, int s, int d)
{
    struct gemm p = *g;

    p.a += s * g->a_seg + d * g->a_depth;
    p.b += s * g->b_seg + d * g->b_depth;
    p.depth = g->depth - d < DEPTH_KEPT ? g->depth - d : DEPTH_KEPT;
    p.segs = g->depth > DEPTH_KEPT ? 1 : g->segs - s < DEPTH_KEPT / g->depth ? g->segs - s : DEPTH_KEPT / g->depth;
    return p;
}

/* Computes a long chain in pieces, so that the rows of b stay in the L1 cache for all tiles. Sums wait in memory, which
 * does not round them. */
static void strip_in_pieces(const struct gemm *g, int col, int nv)
{
    float waiting[ROWS_KEPT * 2 * VW];

    for (int row = 0; row < g->rows; row += ROWS_KEPT) {
        struct sums sums = { .from = g->add ? g->c + row * g->c_row + col : NULL, .from_row = g->c_row, .to = waiting, .to_row = 2 * VW };

        for (int s = 0, d = 0; s < g->segs;) {
            struct gemm p = piece(g, s, d);
            bool last;

            d += p.depth;
            if (d == g->depth) {
                s += p.segs;
                d = 0;
            }
            last = s == g->segs;
            p.a += row * g->a_row;
            p.rows = g->rows - row < ROWS_KEPT ? g->rows - row : ROWS_KEPT;
            if (last) {
                sums.to = g->c + row * g->c_row + col;
                sums.to_row = g->c_row;
            } else {
                p.end = NULL;
            }
            strip(&p, ANY_ROWS, col, nv, sums, NULL, last ? NULL : g->b + s * g->b_seg + d * g->b_depth + col);
            sums.from = waiting;
            sums.from_row = 2 * VW;
        }
    }
}

static void strip_at_once(const struct gemm *g, int col, int nv)
{
    float *c = g->c + col;

    strip(g, layout_of(g), col, nv, (struct sums){ g->add ? c : NULL, c, g->c_row, g->c_row }, g->next, NULL);
}

void gemm_run(const struct gemm *g)
{
    const bool pieces = (long)g->segs * g->depth > DEPTH_LEAST && g->rows > GEMM_MR && layout_of(g) == ANY_ROWS;

    if (g->rows <= 0)
        return;
    for (int col = 0; col < g->cols; col += 2 * VW)
        (pieces ? strip_in_pieces : strip_at_once)(g, col, g->cols - col >= 2 * VW ? 2 : 1);
}

/* worker/cpu/gemm.c - one body, unrolled for every number of rows that fits the registers of the ISA, one or two vectors wide. */
#include "worker/cpu/gemm.h"

#include "worker/core/simd.h"

/* Rows of b that a narrow tile fetches early: output gradients as they lie come from memory, in pieces too short for the hardware to see. */
#define FETCH_AHEAD 24

/* What is known of a: strides that are constants leave registers to the tile. */
enum layout {
    ANY_ROWS /* a_depth 1; the only one that knows an end */,
    ROWS_16,
    ROWS_32 /* a_row so long, a_depth 1 */,
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

/* mr, nv and layout are constants where this is expanded. */
SIMD_FN void tile(const struct gemm *g, const float *a, const float *ahead, const float *b, float *c, int mr, int nv, enum layout layout)
{
    const long a_row = layout == ANY_ROWS ? g->a_row : layout == ROWS_16 ? 16 : layout == ROWS_32 ? 32 : 1;
    const long a_depth = layout == COLUMNS ? g->a_depth : 1, b_depth = g->b_depth, c_row = g->c_row;
    const long col = b - g->b;
    const long a_skip = g->a_seg - g->depth * a_depth, b_skip = g->b_seg - g->depth * b_depth;
    vec x[GEMM_MR], y[GEMM_MR];

    /* Unrolled, or the compiler keeps the two arrays in memory. */
#pragma GCC unroll 16
    for (int i = 0; i < mr; i++) {
        x[i] = vset1(0.0f);
        y[i] = vset1(0.0f);
    }
    if (g->add) {
#pragma GCC unroll 16
        for (int i = 0; i < mr; i++) {
            x[i] = vload(c + i * c_row);
            if (nv == 2)
                y[i] = vload(c + i * c_row + VW);
        }
    }
    for (int s = g->segs; s > 0; s--) {
        const float *fetch = ahead; /* rows of a panel lie one after the other: the next tile's are fetched meanwhile */

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

typedef void tile_fn(const struct gemm *g, const float *a, const float *ahead, const float *b, float *c);

#if GEMM_MR >= 14
#define FOR_MR(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#elif GEMM_MR >= 6
#define FOR_MR(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define FOR_MR(X) X(1) X(2) X(3) X(4)
#endif

/* clang-format off */
#define TILE(name, mr, nv, layout)                                                                                                         \
    static void name##mr(const struct gemm *g, const float *a, const float *ahead, const float *b, float *c) { tile(g, a, ahead, b, c, mr, nv, layout); }
#define DEFINE(mr)                                                                                                                         \
    TILE(any1_, mr, 1, ANY_ROWS) TILE(any2_, mr, 2, ANY_ROWS) TILE(r16_1_, mr, 1, ROWS_16) TILE(r16_2_, mr, 2, ROWS_16)                     \
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

static void strip(const struct gemm *g, int col, int nv)
{
    tile_fn *const *fn = table[layout_of(g)][nv - 1];
    int tiles = (g->rows + GEMM_MR - 1) / GEMM_MR, base = g->rows / tiles, more = g->rows % tiles; /* near-equal heights waste least */

    for (int t = 0, i = 0; t < tiles; t++) {
        int mr = base + (t < more);
        const float *a = g->a + i * g->a_row, *ahead = t + 1 < tiles ? a + mr * g->a_row : g->next ? g->next : a;

        fn[mr - 1](g, a, ahead, g->b + col, g->c + i * g->c_row + col);
        i += mr;
    }
}

void gemm_run(const struct gemm *g)
{
    if (g->rows <= 0)
        return;
    for (int col = 0; col < g->cols; col += 2 * VW)
        strip(g, col, g->cols - col >= 2 * VW ? 2 : 1);
}

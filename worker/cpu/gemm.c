/* worker/cpu/gemm.c - one body, unrolled for every number of rows that fits the registers of the ISA, one or two vectors wide. */
#include "worker/cpu/gemm.h"

#include "worker/core/simd.h"

/* mr, nv and by_row are constants where this is expanded. by_row: a_depth is 1, otherwise a_row is 1. */
SIMD_FN void tile(const struct gemm *g, const float *a, const float *b, float *c, int mr, int nv, bool by_row)
{
    vec x[GEMM_MR], y[GEMM_MR];
    const long a_row = by_row ? g->a_row : 1, a_depth = by_row ? 1 : g->a_depth, b_depth = g->b_depth;

    for (int i = 0; i < mr; i++) {
        x[i] = g->add ? vload(c + i * g->c_row) : vset1(0.0f);
        if (nv == 2)
            y[i] = g->add ? vload(c + i * g->c_row + VW) : vset1(0.0f);
    }
    for (int s = 0; s < g->segs; s++) {
        const float *as = a + s * g->a_seg, *bs = b + s * g->b_seg;

        for (int d = 0; d < g->depth; d++, bs += b_depth) {
            vec p = vload(bs), q = nv == 2 ? vload(bs + VW) : p;

#pragma GCC unroll 16
            for (int i = 0; i < mr; i++) {
                vec f = vset1(as[i * a_row + d * a_depth]);

                x[i] = vfma(f, p, x[i]);
                if (nv == 2)
                    y[i] = vfma(f, q, y[i]);
            }
        }
    }
    for (int i = 0; i < mr; i++) {
        vstore(c + i * g->c_row, x[i]);
        if (nv == 2)
            vstore(c + i * g->c_row + VW, y[i]);
    }
}

typedef void tile_fn(const struct gemm *g, const float *a, const float *b, float *c);

#if GEMM_MR >= 14
#define FOR_MR(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#elif GEMM_MR >= 6
#define FOR_MR(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define FOR_MR(X) X(1) X(2) X(3) X(4)
#endif

/* clang-format off */
#define DEFINE(mr)                                                                                                                         \
    static void rows1_##mr(const struct gemm *g, const float *a, const float *b, float *c) { tile(g, a, b, c, mr, 1, true); }               \
    static void rows2_##mr(const struct gemm *g, const float *a, const float *b, float *c) { tile(g, a, b, c, mr, 2, true); }               \
    static void cols1_##mr(const struct gemm *g, const float *a, const float *b, float *c) { tile(g, a, b, c, mr, 1, false); }              \
    static void cols2_##mr(const struct gemm *g, const float *a, const float *b, float *c) { tile(g, a, b, c, mr, 2, false); }
FOR_MR(DEFINE)
#define ROWS1(mr) rows1_##mr,
#define ROWS2(mr) rows2_##mr,
#define COLS1(mr) cols1_##mr,
#define COLS2(mr) cols2_##mr,
/* clang-format on */

/* [a_row is 1][two vectors][rows - 1] */
static tile_fn *const table[2][2][GEMM_MR] = {
    { { FOR_MR(ROWS1) }, { FOR_MR(ROWS2) } },
    { { FOR_MR(COLS1) }, { FOR_MR(COLS2) } },
};

static void strip(const struct gemm *g, int col, int nv)
{
    tile_fn *const *fn = table[g->a_depth != 1][nv - 1];
    int tiles = (g->rows + GEMM_MR - 1) / GEMM_MR, base = g->rows / tiles, more = g->rows % tiles; /* near-equal heights waste least */

    for (int t = 0, i = 0; t < tiles; t++) {
        int mr = base + (t < more);

        fn[mr - 1](g, g->a + i * g->a_row, g->b + col, g->c + i * g->c_row + col);
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

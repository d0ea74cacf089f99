/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/gemm.h - the register tile of all convolutions.
 *
 *   c[i][j] = (add ? c[i][j] : 0) + sum over segments g and depth d of a[i, g, d] * b[g, d][j]
 *
 * as one ordered chain of FMAs per output, g outer, d inner: every output has the same bits for any cut of rows and
 * columns. */
#pragma once
#include <stdbool.h>

#define GEMM_NP 32 /* columns of a packed panel, on every ISA */

/* The last steps for a sum y on its way to c. */
struct gemm_end {
    const float *bias; /* y += bias[j]; or NULL */
    float beta;        /* y += beta * c[i][j]; 0: c is not read */
    bool stream;       /* past the caches: rows of c begin and end with whole lines */
};

struct gemm {
    const float *a; /* element (i, g, d) at a[i * a_row + g * a_seg + d * a_depth]; a_row or a_depth is 1 */
    const float *b; /* row (g, d) at b + g * b_seg + d * b_depth; `cols` floats of it are read */
    float *c;       /* row i at c + i * c_row; `cols` floats of it are written */
    long a_row, a_seg, a_depth;
    long b_seg, b_depth;
    long c_row;
    int rows, cols; /* cols: a multiple of 16 */
    int segs, depth;
    bool add;
    const struct gemm_end *end; /* NULL: no steps; only if a_depth is 1 */
    const float *next;          /* first row of a of the following call, to be fetched meanwhile; NULL if not known */
};

static inline int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

/* Floats between rows of packed channels: a multiple of 16, and not of 256, since rows 1 KiB apart meet in the same
 * sets of the L1 cache. */
static inline int gemm_ld(int channels)
{
    int ld = round_up(channels, 16);

    return ld % 256 == 0 ? ld + 16 : ld;
}

void gemm_run(const struct gemm *g);

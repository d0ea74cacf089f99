/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/winograd.h - 3x3 stride 1 convolutions by Winograd's minimal
 * filtering, directly on NHWC.
 *
 * Tiles are 4 or 5 outputs high and wide. Points 0, +-A, +-B, infinity give F(4, 3); a tile of 5 takes one more point,
 * C. The transform of the weights is the same for both, so all tiles of a layer share 36 matrices and only those with a
 * side of 5 also use the other 13: a 13 x 13 image costs (6 + 6 + 7)^2 products instead of 24^2. An axis is cut by its
 * length alone. A = 5/8, B = 5/4, C = 5/2 (a geometric row): with them F(4, 3) is as exact as with the best pair, and
 * F(5, 3) has three times its error, 2.4e-6 of the rms at 64 channels and 6e-6 at 352; with B = 3/2 no C stays below
 * 7e-6 at 256. Method: Lavin and Gray 2015, arXiv:1509.09308. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "worker/core/param.h"
#include "worker/core/simd.h"
#include "worker/cpu/gemm.h"
#include "worker/ops/operand.h"

#define WINO_A2 (25.0 / 64.0)
#define WINO_B2 (25.0 / 16.0)
#define WINO_A  (5.0 / 8.0)
#define WINO_B  (5.0 / 4.0)
#define WINO_C  (5.0 / 2.0)

enum { WINO_SIDE = 7, WINO_STRIP = 28 /* most tiles of a strip */ };

/* The tiles of one axis: the first n5 are 5 long, the others 4; the last may reach over the end. pts: 6, or 7 if n5 >
 * 0. */
struct wino_axis {
    int tiles, n5, pts;
};

/* A batch of equal images. Strips are runs of tiles in one row of tiles, in the order image, row, segment. */
struct wino {
    int images, h, w; /* outputs */
    int ih, iw, pad;  /* inputs */
    int c, k;         /* channels in and out */
    struct wino_axis y, x;
    int segs, strips; /* segments a row of tiles; strips in all */
    int points;       /* y.pts * x.pts matrices, index i * x.pts + j */
    int cv, cz;       /* channels in and out, rounded up to 16: zeros follow the last */
    /* channels of a panel of transformed inputs, and of transformed output gradients: divide cv, cz */
    int pv, pz;
};

struct wino_tile {
    int image, y, x; /* first output */
    int my, mx;      /* outputs: 4 or 5 */
    int row;         /* in the matrices of its block */
};

/* Consecutive strips that share matrices of `rows` rows. Rows lie in the order (5 high, 4 wide), (5, 5), (4, 5), (4,
 * 4), so that the tiles that use a point are neighbours; tile[] lies strip by strip. */
struct wino_block {
    int first, strips, rows;
    int n54, n55, n45;
    struct wino_tile *tile; /* [rows] */
};

struct wino_axis wino_cut(int length);
/* Products for a channel pair, to compare with 9 an output. */
long wino_cost(int h, int w);
void wino_init(struct wino *g, int images, int h, int w, int ih, int iw, int pad, int c, int k);
/* Tiles of a strip, and its outputs inside the image. */
int wino_strip_tiles(const struct wino *g, int strip);
int wino_strip_pixels(const struct wino *g, int strip);
/* Fills b for `strips` strips from `first` on; b->tile has room for them. */
void wino_block_init(const struct wino *g, struct wino_block *b, int first, int strips);
/* Rows [*ret_lo, *ret_hi) of the block use point (i, j). */
void wino_block_range(const struct wino_block *b, int i, int j, int *ret_lo, int *ret_hi);
/* Most tiles of `strips` strips. */
int wino_max_rows(const struct wino *g, int strips);

/* Tiles [from, to) of v[point][cv / pv][b->rows][pv] = transform of act(x), zero outside of the image. per: images per
 * shard. */
void wino_input(const struct wino *g, const struct wino_block *b, int from, int to, const struct operand *x, int per, float *v);
/* Tiles [from, to) of z[point][cz / pz][b->rows][pz] = transform of the output gradient dy. */
void wino_gradient(const struct wino *g, const struct wino_block *b, int from, int to, const struct tensor *dy, int per, float *z);

struct wino_sink {
    struct tensor *y;
    int per; /* images per shard */
    float beta;
    bool stream;       /* see conv_streams() */
    const float *bias; /* or NULL */
    float *moments;    /* [strips][3][ld of k]: shift, sum, sum of squares of y - shift; or NULL */
    int ld_moments;
};

/* Channels [k0, k0 + cols) of y from m[point][b->rows][ldm]. */
void wino_output(const struct wino *g, const struct wino_block *b, const float *m, int ldm, int k0, int cols, const struct wino_sink *sink);

/* Transformed weights of 32 outputs from `first` on and depths [d0, d1): u[point][d1 - d0][32], zero beyond the last.
 * Forward: outputs are w->k, depth is w->c; back: outputs are w->c, depth is w->k, taps mirrored. tmp: WINO_WEIGHTS_TMP
 * floats. */
enum { WINO_WEIGHTS_TMP = 9 * 16 * 16 };
/* Floats from a point's matrix of so many depths, [depth][32], to the next one's. The distance keeps the points of a
 * weight from meeting in one set of the L1 cache. */
static inline long wino_point(int depth)
{
    return (long)depth * 32 + 32;
}
void wino_weights(const struct wino *g, const struct param *w, bool back, int first, int d0, int d1, float *u, float *tmp);
/* Tap i of output k and inputs [0, cols) at dw + k * ld_k + i * ld_tap: beta times itself + transform of
 * du[point][..][ld_du]. Points lie ld_point apart. */
struct wino_taps {
    float *dw;
    long ld_k, ld_tap;
    float beta;
    bool stream; /* past the caches: beta is 0 and the vectors are whole lines */
};
void wino_weights_back(const struct wino *g, const float *du, long ld_point, int ld_du, int rows, int cols, const struct wino_taps *to);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/winograd_weights.c - weights to points in packed panels, and
 * gradients at points back to weights. */
#include <string.h>

#include "worker/cpu/winograd_math.h"

/* Transforms the 3 x 3 vectors g. Point i * px + j goes to u[(i * px + j) * point]. */
SIMD_FN void taps_tile(const vec g[9], float *u, long point, bool sy, bool sx)
{
    vec mid[WINO_SIDE][3];
    const int py = sy ? 7 : 6, px = sx ? 7 : 6;

#pragma GCC unroll 7
    for (int s = 0; s < 3; s++) {
        vec d[3] = { g[s], g[3 + s], g[6 + s] }, r[WINO_SIDE];

        wino_taps(d, r, sy);
#pragma GCC unroll 7
        for (int i = 0; i < py; i++)
            mid[i][s] = r[i];
    }
#pragma GCC unroll 7
    for (int i = 0; i < py; i++) {
        vec r[WINO_SIDE];

        wino_taps(mid[i], r, sx);
#pragma GCC unroll 7
        for (int j = 0; j < px; j++)
            vstore(u + (i * px + j) * point, r[j]);
    }
}

SIMD_FN void taps_back_tile(const vec *u, vec g[9], bool sy, bool sx)
{
    vec mid[WINO_SIDE][3];
    const int py = sy ? 7 : 6, px = sx ? 7 : 6;

#pragma GCC unroll 7
    for (int i = 0; i < py; i++)
        wino_taps_back(u + i * px, mid[i], sx);
#pragma GCC unroll 7
    for (int s = 0; s < 3; s++) {
        vec d[WINO_SIDE], r[3];

#pragma GCC unroll 7
        for (int i = 0; i < py; i++)
            d[i] = mid[i][s];
        wino_taps_back(d, r, sy);
#pragma GCC unroll 7
        for (int i = 0; i < 3; i++)
            g[3 * i + s] = r[i];
    }
}

static void taps(const vec g[9], float *u, long point, bool sy, bool sx)
{
    if (sy && sx)
        taps_tile(g, u, point, true, true);
    else if (sy)
        taps_tile(g, u, point, true, false);
    else if (sx)
        taps_tile(g, u, point, false, true);
    else
        taps_tile(g, u, point, false, false);
}

static void taps_back(const vec *u, vec g[9], bool sy, bool sx)
{
    if (sy && sx)
        taps_back_tile(u, g, true, true);
    else if (sy)
        taps_back_tile(u, g, true, false);
    else if (sx)
        taps_back_tile(u, g, false, true);
    else
        taps_back_tile(u, g, false, false);
}

enum { FETCH_AHEAD = 6 /* outputs k ahead with prefetched weights */ };

/* Forward: memory runs along c, the depth, but lanes run over outputs. So VW x VW weights are transposed, tap by tap,
 * to tmp[9][VW of c][VW of k]. */
static void turn_taps(const struct param *w, int first, int outs, int d, float *tmp)
{
    const int lanes = d < w->c ? vlanes(w->c, d) : 0;

    for (int i = 0; i < 9; i++) {
        const float *from = w->data + ((long)first * 9 + i) * w->c + d;
        vec t[VW];

        for (int k = 0; k < VW; k++) {
            t[k] = k < outs ? vload_n(from + (long)k * 9 * w->c, lanes) : vset1(0.0f);
            if (k < outs)
                __builtin_prefetch(from + (long)k * 9 * w->c + VW); /* for the next d; too short for the hardware to foresee */
        }
        vtranspose(t);
        for (int c = 0; c < VW; c++)
            vstore(tmp + (i * VW + c) * VW, t[c]);
    }
}

static void panel_fwd(const struct wino *g, const struct param *w, int first, int d0, int d1, float *u, float *tmp)
{
    const long point = wino_point(d1 - d0);

    for (int d = d0; d < d1; d += VW)
        for (int k = 0; k < 32; k += VW) {
            turn_taps(w, first + k, w->k - first - k, d, tmp);
            for (int c = 0; c < VW; c++) {
                vec in[9];

                for (int i = 0; i < 9; i++)
                    in[i] = vload(tmp + (i * VW + c) * VW);
                taps(in, u + (d - d0 + c) * 32L + k, point, g->y.pts == 7, g->x.pts == 7);
            }
        }
}

/* Backward: lanes run over c, which are then the outputs; taps are mirrored. */
static void panel_back(const struct wino *g, const struct param *w, int first, int d0, int d1, float *u)
{
    const long point = wino_point(d1 - d0);
    int end = w->k < d1 ? w->k : d1;

    for (int p = 0; p < g->points; p++)
        memset(u + p * point + (end - d0) * 32L, 0, sizeof *u * 32 * (size_t)(d1 - end));
    for (int d = d0; d < end; d++)
        for (int k = 0; k < 32; k += VW) {
            const float *from = w->data + (long)d * 9 * w->c + first + k;
            int lanes = vlanes(w->c, first + k);
            vec in[9];

            for (int i = 0; i < 9; i++)
                __builtin_prefetch(from + ((long)FETCH_AHEAD * 9 + 8 - i) * w->c);
            for (int i = 0; i < 9; i++)
                in[i] = lanes > 0 ? vload_n(from + (long)(8 - i) * w->c, lanes) : vset1(0.0f);
            taps(in, u + (d - d0) * 32L + k, point, g->y.pts == 7, g->x.pts == 7);
        }
}

void wino_weights(const struct wino *g, const struct param *w, bool back, int first, int d0, int d1, float *u, float *tmp)
{
    if (back)
        panel_back(g, w, first, d0, d1, u);
    else
        panel_fwd(g, w, first, d0, d1, u, tmp);
}

void wino_weights_back(const struct wino *g, const float *du, long ld_point, int ld_du, int rows, int cols, const struct wino_taps *to)
{
    for (int k = 0; k < rows; k++)
        for (int c = 0; c < cols; c += VW) {
            int lanes = vlanes(cols, c);
            vec in[WINO_SIDE * WINO_SIDE], out[9];

            for (int p = 0; p < g->points; p++)
                in[p] = vload(du + p * ld_point + (long)k * ld_du + c);
            taps_back(in, out, g->y.pts == 7, g->x.pts == 7);
            for (int i = 0; i < 9; i++) {
                float *dw = to->dw + k * to->ld_k + i * to->ld_tap + c;

                if (to->beta != 0.0f)
                    out[i] = vfma(vset1(to->beta), vload_n(dw, lanes), out[i]);
                if (to->stream)
                    vstream(dw, out[i]);
                else
                    vstore_n(dw, out[i], lanes);
            }
        }
    if (to->stream)
        vstream_end();
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/winograd_math.h - the transforms of one axis, on vectors of
 * channels. Order of points: 0, A, -A, B, -B, infinity, C. `five` (a constant where these are expanded): the tile has 5
 * outputs and 7 points, else 4 and 6. See winograd.h. */
#pragma once
#include <stdbool.h>

#include "worker/cpu/winograd.h"

#define WINO_P ((float)(WINO_A2 * WINO_B2))
#define WINO_S ((float)(WINO_A2 + WINO_B2))

SIMD_FN vec wino_at_infinity(const vec *d)
{
    return vfma(vset1(WINO_P), d[1], vfma(vset1(-WINO_S), d[3], d[5]));
}

SIMD_FN void wino_in6(const vec d[6], vec r[6])
{
    vec ea = vfma(vset1(-(float)WINO_B2), d[2], d[4]), oa = vfma(vset1(-(float)WINO_B2), d[1], d[3]);
    vec eb = vfma(vset1(-(float)WINO_A2), d[2], d[4]), ob = vfma(vset1(-(float)WINO_A2), d[1], d[3]);

    r[0] = vfma(vset1(WINO_P), d[0], vfma(vset1(-WINO_S), d[2], d[4]));
    r[1] = vfma(vset1((float)WINO_A), oa, ea);
    r[2] = vfma(vset1(-(float)WINO_A), oa, ea);
    r[3] = vfma(vset1((float)WINO_B), ob, eb);
    r[4] = vfma(vset1(-(float)WINO_B), ob, eb);
    r[5] = wino_at_infinity(d);
}

/* Inputs. With a seventh point each polynomial gets the factor (x - C): the six rows are applied to d[j + 1] - C d[j],
 * and the rows of finite points are divided by (point - C), which leaves the weights' transform unchanged. */
SIMD_FN void wino_in(const vec *d, vec *r, bool five)
{
    vec e[6];

    if (!five) {
        wino_in6(d, r);
        return;
    }
    for (int j = 0; j < 6; j++)
        e[j] = vfma(vset1(-(float)WINO_C), d[j], d[j + 1]);
    wino_in6(e, r);
    r[0] = vmul(r[0], vset1((float)(1 / -WINO_C)));
    r[1] = vmul(r[1], vset1((float)(1 / (WINO_A - WINO_C))));
    r[2] = vmul(r[2], vset1((float)(1 / (-WINO_A - WINO_C))));
    r[3] = vmul(r[3], vset1((float)(1 / (WINO_B - WINO_C))));
    r[4] = vmul(r[4], vset1((float)(1 / (-WINO_B - WINO_C))));
    r[6] = wino_at_infinity(d);
}

/* Outputs: y[j] = sum of point^j m[point]; infinity adds to the last. */
SIMD_FN void wino_out(const vec *m, vec *y, bool five)
{
    vec sa = vadd(m[1], m[2]), da = vsub(m[1], m[2]), sb = vadd(m[3], m[4]), db = vsub(m[3], m[4]);
    const vec a3 = vset1((float)(WINO_A2 * WINO_A)), b3 = vset1((float)(WINO_B2 * WINO_B));

    y[0] = vadd(m[0], vadd(sa, sb));
    y[1] = vfma(vset1((float)WINO_A), da, vmul(vset1((float)WINO_B), db));
    y[2] = vfma(vset1((float)WINO_A2), sa, vmul(vset1((float)WINO_B2), sb));
    if (!five) {
        y[3] = vfma(a3, da, vfma(b3, db, m[5]));
        return;
    }
    y[0] = vadd(y[0], m[6]);
    y[1] = vfma(vset1((float)WINO_C), m[6], y[1]);
    y[2] = vfma(vset1((float)(WINO_C * WINO_C)), m[6], y[2]);
    y[3] = vfma(a3, da, vfma(b3, db, vmul(vset1((float)(WINO_C * WINO_C * WINO_C)), m[6])));
    y[4] = vfma(vset1((float)(WINO_A2 * WINO_A2)), sa,
                vfma(vset1((float)(WINO_B2 * WINO_B2)), sb, vfma(vset1((float)(WINO_C * WINO_C * WINO_C * WINO_C)), m[6], m[5])));
}

/* The transpose of wino_out(): output gradients to points. */
SIMD_FN void wino_out_back(const vec *y, vec *z, bool five)
{
    vec ea = vfma(vset1((float)WINO_A2), y[2], y[0]), eb = vfma(vset1((float)WINO_B2), y[2], y[0]);
    vec oa = vfma(vset1((float)WINO_A2), y[3], y[1]), ob = vfma(vset1((float)WINO_B2), y[3], y[1]);

    if (five) {
        ea = vfma(vset1((float)(WINO_A2 * WINO_A2)), y[4], ea);
        eb = vfma(vset1((float)(WINO_B2 * WINO_B2)), y[4], eb);
    }
    z[0] = y[0];
    z[1] = vfma(vset1((float)WINO_A), oa, ea);
    z[2] = vfma(vset1(-(float)WINO_A), oa, ea);
    z[3] = vfma(vset1((float)WINO_B), ob, eb);
    z[4] = vfma(vset1(-(float)WINO_B), ob, eb);
    z[5] = five ? y[4] : y[3];
    if (five) {
        vec c = vset1((float)WINO_C);

        z[6] = vfma(c, vfma(c, vfma(c, vfma(c, y[4], y[3]), y[2]), y[1]), y[0]);
    }
}

/* Weights, divided by the product of each point's distances to the others. */
#define WINO_N0 (1 / (WINO_A2 * WINO_B2))
#define WINO_NA (1 / (2 * WINO_A2 * (WINO_A2 - WINO_B2)))
#define WINO_NB (1 / (2 * WINO_B2 * (WINO_B2 - WINO_A2)))
#define WINO_NC (1 / (WINO_C * (WINO_C * WINO_C - WINO_A2) * (WINO_C * WINO_C - WINO_B2)))

SIMD_FN void wino_taps(const vec g[3], vec *u, bool seven)
{
    vec ea = vfma(vset1((float)(WINO_NA * WINO_A2)), g[2], vmul(vset1((float)WINO_NA), g[0])), oa = vset1((float)(WINO_NA * WINO_A));
    vec eb = vfma(vset1((float)(WINO_NB * WINO_B2)), g[2], vmul(vset1((float)WINO_NB), g[0])), ob = vset1((float)(WINO_NB * WINO_B));

    u[0] = vmul(vset1((float)WINO_N0), g[0]);
    u[1] = vfma(oa, g[1], ea);
    u[2] = vfma(vset1(-(float)(WINO_NA * WINO_A)), g[1], ea);
    u[3] = vfma(ob, g[1], eb);
    u[4] = vfma(vset1(-(float)(WINO_NB * WINO_B)), g[1], eb);
    u[5] = g[2];
    if (seven)
        u[6] = vfma(vset1((float)(WINO_NC * WINO_C * WINO_C)), g[2],
                    vfma(vset1((float)(WINO_NC * WINO_C)), g[1], vmul(vset1((float)WINO_NC), g[0])));
}

/* The transpose of wino_taps(). */
SIMD_FN void wino_taps_back(const vec *u, vec g[3], bool seven)
{
    vec sa = vadd(u[1], u[2]), da = vsub(u[1], u[2]), sb = vadd(u[3], u[4]), db = vsub(u[3], u[4]);

    g[0] = vfma(vset1((float)WINO_N0), u[0], vfma(vset1((float)WINO_NA), sa, vmul(vset1((float)WINO_NB), sb)));
    g[1] = vfma(vset1((float)(WINO_NA * WINO_A)), da, vmul(vset1((float)(WINO_NB * WINO_B)), db));
    g[2] = vfma(vset1((float)(WINO_NA * WINO_A2)), sa, vfma(vset1((float)(WINO_NB * WINO_B2)), sb, u[5]));
    if (seven) {
        g[0] = vfma(vset1((float)WINO_NC), u[6], g[0]);
        g[1] = vfma(vset1((float)(WINO_NC * WINO_C)), u[6], g[1]);
        g[2] = vfma(vset1((float)(WINO_NC * WINO_C * WINO_C)), u[6], g[2]);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/pose.h - axis times angle and translation as a 3 x 4 matrix,
 * and the way back. In double, as an image has only one pose. Specs featdepth sections 2.2 and 2.3. */
#pragma once
#include "worker/kernels/act.h"
#include "worker/ops/warp.h"

#define POSE_EPS 1e-7

/* Sine and cosine of an angle of 0 .. 1e6 radians, Taylor to double's precision in the octants beside 0; else NaN. */
KERNEL_FN void pose_sin_cos(double angle, double *ret_sin, double *ret_cos)
{
    double k, x, q, s = 0.0, c = 0.0;
    int quarter;

    *ret_sin = *ret_cos = bits_double(0x7FF8000000000000u);
    if (!(angle >= 0.0 && angle <= 1e6))
        return;
    quarter = (int)(angle * 0.63661977236758134308 + 0.5);
    k = (double)quarter;
    x = fma(-k, 6.123233995736766e-17, fma(-k, 1.57079632679489661923, angle));
    q = -x * x;
    for (int i = 19; i > 1; i -= 2)
        s = (s + 1.0) * (q / (double)(i * (i - 1)));
    for (int i = 20; i > 0; i -= 2)
        c = (c + 1.0) * (q / (double)(i * (i - 1)));
    s = x + x * s;
    c = 1.0 + c;
    *ret_sin = quarter & 1 ? c : s;
    *ret_cos = quarter & 1 ? s : c;
    if (quarter & 2)
        *ret_sin = -*ret_sin;
    if ((quarter + 1) & 2)
        *ret_cos = -*ret_cos;
}

struct pose_turn {
    double a[3], k[3]; /* axis times angle; the axis, a little short */
    double angle, s, c;
    double r[3][3];
};

KERNEL_FN struct pose_turn pose_turn(const float *x)
{
    struct pose_turn p;

    for (int i = 0; i < 3; i++)
        p.a[i] = (double)x[i];
    p.angle = sqrt(p.a[0] * p.a[0] + p.a[1] * p.a[1] + p.a[2] * p.a[2]);
    for (int i = 0; i < 3; i++)
        p.k[i] = p.a[i] / (p.angle + POSE_EPS);
    pose_sin_cos(p.angle, &p.s, &p.c);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            p.r[i][j] = (1.0 - p.c) * p.k[i] * p.k[j];
    for (int i = 0; i < 3; i++) {
        int j = (i + 1) % 3, l = (i + 2) % 3;

        p.r[i][i] += p.c;
        p.r[l][j] += p.s * p.k[i];
        p.r[j][l] -= p.s * p.k[i];
    }
    return p;
}

/* Computes y [POSE_OUT] from x [POSE_IN]. */
KERNEL_FN void pose_matrix(float *y, const float *x, bool invert)
{
    struct pose_turn p = pose_turn(x);

    for (int i = 0; i < 3; i++) {
        double moved = 0.0;

        for (int j = 0; j < 3; j++) {
            y[4 * i + j] = (float)(invert ? p.r[j][i] : p.r[i][j]);
            moved -= p.r[j][i] * (double)x[3 + j];
        }
        y[4 * i + 3] = invert ? (float)moved : x[3 + i];
    }
}

/* da from the gradient g of the rotation. */
KERNEL_FN void pose_axis_grad(double da[3], const struct pose_turn *p, double g[3][3])
{
    double skew[3] = { g[2][1] - g[1][2], g[0][2] - g[2][0], g[1][0] - g[0][1] }, dk[3], dc = 0.0, ds = 0.0, along = 0.0, dangle;

    for (int i = 0; i < 3; i++) {
        double both = 0.0;

        for (int j = 0; j < 3; j++) {
            both += (g[i][j] + g[j][i]) * p->k[j];
            dc -= p->k[i] * g[i][j] * p->k[j];
        }
        dk[i] = (1.0 - p->c) * both + p->s * skew[i];
        dc += g[i][i];
        ds += p->k[i] * skew[i];
        along += dk[i] * p->a[i];
    }
    dangle = p->c * ds - p->s * dc - along / ((p->angle + POSE_EPS) * (p->angle + POSE_EPS));
    for (int i = 0; i < 3; i++)
        da[i] = dk[i] / (p->angle + POSE_EPS) + (p->angle > 0.0 ? p->a[i] / p->angle * dangle : 0.0);
}

KERNEL_FN void pose_grad(float *dx, float beta, const float *dy, const float *x, bool invert)
{
    struct pose_turn p = pose_turn(x);
    double g[3][3], dt[3], da[3];

    for (int i = 0; i < 3; i++) {
        dt[i] = invert ? 0.0 : (double)dy[4 * i + 3];
        for (int j = 0; j < 3; j++) {
            g[i][j] = invert ? (double)dy[4 * j + i] - (double)dy[4 * j + 3] * (double)x[3 + i] : (double)dy[4 * i + j];
            dt[i] -= invert ? p.r[i][j] * (double)dy[4 * j + 3] : 0.0;
        }
    }
    pose_axis_grad(da, &p, g);
    for (int i = 0; i < 3; i++) {
        dx[i] = act_store(beta, &dx[i], (float)da[i]);
        dx[3 + i] = act_store(beta, &dx[3 + i], (float)dt[i]);
    }
}

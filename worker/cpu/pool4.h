/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/pool4.h - the maximum of four values and the destination of its
 * gradient: windows of 2 x 2 with stride 2, like maxpool4_grad() in vectors. For any two numbers, one is greater than
 * the other exactly if their difference is greater than zero. */
#pragma once
#include "worker/core/simd.h"

/* Greater than 0 if that corner is greater than the maximum of the corners before it. */
struct pool4 {
    vec win1, win2, win3;
};

SIMD_FN struct pool4 pool4_wins(vec v0, vec v1, vec v2, vec v3)
{
    struct pool4 w;
    vec best;

    w.win1 = vsub(v1, v0);
    best = vpick(w.win1, v1, v0);
    w.win2 = vsub(v2, best);
    best = vpick(w.win2, v2, best);
    w.win3 = vsub(v3, best);
    return w;
}

/* The old value of corner i, plus the window's gradient if it is the first maximum. */
SIMD_FN vec pool4_grad(const struct pool4 *w, int i, vec old, vec dy)
{
    vec more = vadd(old, dy);

    if (i == 0)
        return vpick(w->win3, old, vpick(w->win2, old, vpick(w->win1, old, more)));
    if (i == 1)
        return vpick(w->win3, old, vpick(w->win2, old, vpick(w->win1, more, old)));
    return i == 2 ? vpick(w->win3, old, vpick(w->win2, more, old)) : vpick(w->win3, more, old);
}

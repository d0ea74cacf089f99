/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/polygon.h - the pixels that a polygon covers, by the exact
 * rule of COCO's tools, one edge and one column of pixels at a time. Edges are walked on a grid five times as fine;
 * where they step over the middle of a column of pixels they cross it, at a row. A pixel (x, y) belongs to the polygon
 * if an odd number of edges cross column x at a row <= y. Each column may therefore be made by itself, with edges in
 * any order. Source: specs rcnn section 8.3; here the crossings are computed instead of looked for point by point. */
#pragma once
#include "worker/kernels/kernel.h"

enum { POLYGON_FINE = 5, POLYGON_FAR = 1 << 29 };

/* An edge on the fine grid, from its left (by_x) or upper end. */
struct polygon_edge {
    int x, y, length; /* steps along the longer axis; 0: the edge is a point, and crosses nothing */
    int by_x;         /* 1: x is the longer axis */
    double slope;     /* of the other axis, per step */
};

/* Pixels to the fine grid. Truncation is towards 0, as in the source. A coordinate that is far out or NaN is moved to a
 * place where its edges still have the same side of every pixel. */
KERNEL_FN int polygon_fine(double v)
{
    double fine = POLYGON_FINE * v + 0.5;

    fine = fine > -POLYGON_FAR ? fine : -POLYGON_FAR;
    return (int)(fine < POLYGON_FAR ? fine : POLYGON_FAR);
}

/* From point a to point b, pixels [2]: x, y. */
KERNEL_FN struct polygon_edge polygon_edge(const double *a, const double *b)
{
    int xa = polygon_fine(a[0]), ya = polygon_fine(a[1]), xb = polygon_fine(b[0]), yb = polygon_fine(b[1]);
    int dx = xb > xa ? xb - xa : xa - xb, dy = yb > ya ? yb - ya : ya - yb;
    int by_x = dx >= dy, turn = by_x ? xa > xb : ya > yb;
    int rise = by_x ? yb - ya : xb - xa, run = by_x ? xb - xa : yb - ya;
    struct polygon_edge e = { turn ? xb : xa, turn ? yb : ya, by_x ? dx : dy, by_x, 0.0 };

    if (run != 0) {
        rise = turn ? -rise : rise;
        e.slope = (double)rise / (double)e.length;
    }
    return e;
}

/* The walk's position on the other axis after t steps. */
KERNEL_FN int polygon_step(const struct polygon_edge *e, int t)
{
    return (int)((e->by_x ? e->y : e->x) + e->slope * t + 0.5);
}

/* Columns first .. last of 0 .. w - 1 that the edge crosses, each once; first > last: it crosses no column. */
KERNEL_FN void polygon_columns(const struct polygon_edge *e, int w, int *ret_first, int *ret_last)
{
    int far = e->by_x ? e->x + e->length : polygon_step(e, e->length), near = e->by_x ? e->x : polygon_step(e, 0);
    int lo = near < far ? near : far, hi = near < far ? far : near;

    /* Column c lies between the fine columns 5c + 2 and 5c + 3. */
    lo = lo < 2 ? 0 : (lo - 2 + POLYGON_FINE - 1) / POLYGON_FINE;
    hi = hi < 3 ? -1 : (hi - 3) / POLYGON_FINE;
    *ret_first = lo;
    *ret_last = e->length == 0 ? -1 : hi < w - 1 ? hi : w - 1;
}

/* The first t whose step is on the far side of column c, for an edge that is walked along y. */
KERNEL_FN int polygon_turn(const struct polygon_edge *e, int c)
{
    int side = POLYGON_FINE * c + 3, right = e->slope > 0.0, t = (int)((side - 0.5 - e->x) / e->slope);

    t = t < 1 ? 1 : t > e->length ? e->length : t;
    /* Rounding may have missed it by a step or two. */
    while (t > 1 && (polygon_step(e, t - 1) >= side) == right)
        t--;
    while (t < e->length && (polygon_step(e, t) >= side) != right)
        t++;
    return t;
}

/* The row, 0 .. h, at which the edge crosses column c of polygon_columns(). */
KERNEL_FN int polygon_row(const struct polygon_edge *e, int c, int h)
{
    int v, next;

    if (e->by_x) {
        v = polygon_step(e, POLYGON_FINE * c + 2 - e->x);
        next = polygon_step(e, POLYGON_FINE * c + 3 - e->x);
        v = next < v ? next : v;
    } else {
        v = e->y + polygon_turn(e, c) - 1;
    }
    if (v <= 2)
        return 0;
    v = (v - 2 + POLYGON_FINE - 1) / POLYGON_FINE; /* ceil((v + 1/2) / 5 - 1/2) */
    return v < h ? v : h;
}

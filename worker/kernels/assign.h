/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/assign.h - one-to-one assignment at the least total cost by
 * shortest augmenting paths, in whole numbers: exact, and ties have one answer. Specs sparse_rcnn section 4.4. Source:
 * Jonker, Volgenant 1987, A shortest augmenting path algorithm for dense and sparse linear assignment problems.
 *
 * One thread solves a problem, or the lanes of a warp do: lane l owns columns l, l + lanes ... For lanes these macros
 * are defined by whoever includes this file. */
#pragma once
#include "worker/kernels/setloss.h"

#ifndef ASSIGN_FN
#define ASSIGN_FN          KERNEL_FN
#define ASSIGN_MEET()      ((void)0) /* all lanes see the writes of the others */
#define ASSIGN_LEAST(keys) (keys)    /* the first of the lanes' keys by assign_before(), for all lanes */
#endif

/* The rows are the smaller set of an image, truths or proposals. With equal sizes the truths are the rows. */
struct assign {
    int rows, cols;
    int64_t *cost;            /* [rows][cols] */
    int64_t *u, *v, *dist;    /* [rows], [cols], [cols]: potentials; lengths of the shortest paths */
    int64_t *prev;            /* [cols] the row before a column on its path; ~row once the column is closed */
    int64_t *row_of, *col_of; /* [cols] or -1: free; [rows]: the result */
};

/* Numbers of memory for the problems of some images with `truths` truths in all. */
KERNEL_FN size_t assign_room(size_t images, size_t proposals, size_t truths)
{
    return (proposals + 4) * truths + 6 * proposals * images;
}

KERNEL_FN struct assign assign_in(int64_t *room, int proposals, int truths)
{
    struct assign a;

    a.rows = truths <= proposals ? truths : proposals;
    a.cols = truths <= proposals ? proposals : truths;
    a.cost = room;
    a.u = a.cost + (size_t)a.rows * (size_t)a.cols;
    a.col_of = a.u + a.rows;
    a.v = a.col_of + a.rows;
    a.dist = a.v + a.cols;
    a.prev = a.dist + a.cols;
    a.row_of = a.prev + a.cols;
    return a;
}

/* A column that the search reaches. place: the column, plus a.cols if it is taken. */
struct assign_key {
    int64_t dist, place;
};

KERNEL_FN int assign_before(struct assign_key a, struct assign_key b)
{
    return a.dist < b.dist || (a.dist == b.dist && a.place < b.place);
}

/* Continues paths from `row`, which is `low` away. Returns the lane's nearest open column. */
KERNEL_FN struct assign_key assign_round(const struct assign *a, int64_t row, int64_t low, int lane, int lanes)
{
    const int64_t *cost = a->cost + row * a->cols;
    struct assign_key best = { INT64_MAX, INT64_MAX }, key;

    low -= a->u[row];
    for (int j = lane; j < a->cols; j += lanes) {
        if (a->prev[j] < 0)
            continue;
        if (low + cost[j] - a->v[j] < a->dist[j]) {
            a->dist[j] = low + cost[j] - a->v[j];
            a->prev[j] = row;
        }
        key.dist = a->dist[j];
        key.place = a->row_of[j] < 0 ? j : a->cols + j;
        best = assign_before(key, best) ? key : best;
    }
    return best;
}

/* Adds the path from row `owner` to column j to the matching. */
KERNEL_FN void assign_augment(const struct assign *a, int64_t owner, int64_t j)
{
    int64_t i, next;

    do {
        i = ~a->prev[j];
        next = a->col_of[i];
        a->row_of[j] = i;
        a->col_of[i] = j;
        j = next;
    } while (i != owner);
}

/* Finds a path from row `owner` to a free column and adds it to the matching. */
ASSIGN_FN void assign_row(const struct assign *a, int64_t owner, int lane, int lanes)
{
    int64_t low = 0, row = owner, col;

    for (int j = lane; j < a->cols; j += lanes) {
        a->dist[j] = INT64_MAX;
        a->prev[j] = 0;
    }
    do {
        struct assign_key next = ASSIGN_LEAST(assign_round(a, row, low, lane, lanes));

        low = next.dist;
        col = next.place % a->cols;
        if (col % lanes == lane)
            a->prev[col] = ~a->prev[col];
        row = a->row_of[col];
    } while (row >= 0);
    ASSIGN_MEET();
    for (int j = lane; j < a->cols; j += lanes)
        if (a->prev[j] < 0 && a->row_of[j] >= 0) { /* all closed columns but the path's end */
            a->u[a->row_of[j]] += low - a->dist[j];
            a->v[j] -= low - a->dist[j];
        }
    ASSIGN_MEET();
    if (lane == 0) {
        a->u[owner] += low;
        assign_augment(a, owner, col);
    }
    ASSIGN_MEET();
}

ASSIGN_FN void assign_solve(const struct assign *a, int lane, int lanes)
{
    for (int i = lane; i < a->rows; i += lanes)
        a->u[i] = 0;
    for (int j = lane; j < a->cols; j += lanes) {
        a->v[j] = 0;
        a->row_of[j] = -1;
    }
    ASSIGN_MEET();
    for (int64_t owner = 0; owner < a->rows; owner++)
        assign_row(a, owner, lane, lanes);
}

/* ---- an image ---- */

/* Costs of proposals first, first + step ... of an image, and clears the matches of these proposals. Returns the number
 * of broken proposals. */
KERNEL_FN int assign_costs(const struct assign *a, const struct set_view *s, const struct set_head *h, int image, int first, int step)
{
    int from = s->truth.offset[image], count = s->truth.offset[image + 1] - from, by_truth = count <= h->proposals, broken = 0;

    for (int p = first; p < h->proposals; p += step) {
        size_t r = (size_t)image * (size_t)h->proposals + (size_t)p;

        s->match.truth[r] = -1;
        broken += set_costs(a->cost + (size_t)p * (size_t)(by_truth ? 1 : count), by_truth ? (size_t)h->proposals : 1, h, set_row(&s->z, r),
                            s->box + 4 * r, &s->truth, from, count, s->size + 2 * image);
    }
    return broken;
}

/* Solves the problem of an image and writes the matches. */
ASSIGN_FN void assign_image(const struct assign *a, const struct set_view *s, const struct set_head *h, int image, int lane, int lanes)
{
    int32_t from = s->truth.offset[image], *match = s->match.truth + (size_t)image * (size_t)h->proposals;
    int by_truth = a->cols == h->proposals;

    assign_solve(a, lane, lanes);
    for (int i = lane; i < a->rows; i += lanes)
        match[by_truth ? a->col_of[i] : i] = from + (int32_t)(by_truth ? i : a->col_of[i]);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/tile.h - products of bf16 matrices in blocks of 32, in the order
 * of kernels/bf16.h: the basis of all convolutions in bf16. Matrices have the layout that the tile unit reads; its
 * replacement reads the same layout. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
    TILE_COLS = 32,                           /* columns of a panel: two tiles */
    TILE_COLUMNS = 6,                         /* most tiles of columns in one product */
    TILE_ROWS = 16,                           /* of a tile; whole tiles of a are read */
    TILE_BLOCK = 32,                          /* numbers of a row of a that are multiplied at once */
    TILE_PANEL = TILE_BLOCK * TILE_COLS,      /* numbers of a block of b */
    TILE_HALF = TILE_BLOCK * (TILE_COLS / 2), /* of these, the numbers of 16 columns */
};

/* c[i][j] = (add ? c[i][j] : 0) + sum over taps t and blocks n of a's block (t, n), row i, times b's block (t, n),
 * column j. Columns are tiles of 16. */
struct tile_product {
    const uint16_t *a, *b;
    const long *a_tap, *b_tap; /* [taps] */
    long a_row, a_block;       /* number d of row i of a's block at a[a_tap[t] + n * a_block + i * a_row + d] */
    long b_block;
    /* [columns] b's block of tile j, [16 pairs][16 columns][2], at b[b_tap[t] + n * b_block + b_column[j]] */
    const long *b_column;
    float *c;
    long c_row;
    const long *c_column; /* [columns] row i of tile j, 16 floats, at c[i * c_row + c_column[j]] */
    int rows, taps, blocks;
    const int *counts; /* [taps] blocks of each tap; NULL: `blocks` */
    int columns;       /* tiles of them */
    bool add;
};

static inline int tile_blocks(const struct tile_product *t, int tap)
{
    return t->counts ? t->counts[tap] : t->blocks;
}

/* Place, in its block of b with two consecutive halves, of the number that multiplies a's number d for column j. */
static inline int tile_place(int d, int j)
{
    return j / 16 * TILE_HALF + d / 2 * 32 + j % 16 * 2 + d % 2;
}

/* A unit that multiplies. A thread calls begin, runs its products, and calls end: between these calls the unit keeps
 * its state. */
struct tile_unit {
    void (*begin)(void), (*end)(void);
    void (*run)(const struct tile_product *t);
};

/* Uses instructions that every CPU of this build has. */
extern const struct tile_unit tile_plain;

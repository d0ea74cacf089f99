/* worker/cpu/tile_unit.h - products of bf16 matrices by a unit of eight tiles of 16 rows of 64 bytes: loops over five instructions, which whoever includes
 * this file defines first. So they can be those of a CPU or a model of them in plain C.
 *
 *   UNIT_ZERO(t)                 tile t is zeros
 *   UNIT_LOAD(t, from, bytes)    its rows, `bytes` apart in memory
 *   UNIT_STORE(t, to, bytes)     the same the other way
 *   UNIT_DOT(c, a, b)            c[i][j] = bf16_dot(c[i][j], row i of a, the pairs j of b's rows)
 *   UNIT_FN                      what a function is declared with that has them
 *   UNIT_BARRIER()               what was written to memory is there: the compiler need not know that UNIT_LOAD() reads it */
#pragma once
#include <string.h>

#include "worker/cpu/tile.h"

enum { UNIT_ROWS = 2 * TILE_ROWS };

/* Rows i ... of a, 32 of them or, not `tall`, 16, to c, 32 of its columns or, not `wide`, 16. Tiles 0 to 3 are sums, 4 and 5 rows of a, 6 and 7 columns of b. */
UNIT_FN static inline __attribute__((always_inline)) void unit_square(const struct tile_product *t, int i, bool tall, bool wide, float *c,
                                                                      long c_row)
{
    const long a_bytes = t->a_row * (long)sizeof *t->a, b_bytes = 2 * TILE_ROWS * (long)sizeof *t->b, c_bytes = c_row * (long)sizeof *c;

    UNIT_BARRIER();
    if (t->add) {
        UNIT_LOAD(0, c, c_bytes);
        if (wide)
            UNIT_LOAD(1, c + 16, c_bytes);
        if (tall)
            UNIT_LOAD(2, c + TILE_ROWS * c_row, c_bytes);
        if (tall && wide)
            UNIT_LOAD(3, c + TILE_ROWS * c_row + 16, c_bytes);
    } else {
        UNIT_ZERO(0);
        UNIT_ZERO(1);
        UNIT_ZERO(2);
        UNIT_ZERO(3);
    }
    for (int tap = 0; tap < t->taps; tap++) {
        const uint16_t *a = t->a + t->a_tap[tap] + i * t->a_row, *b = t->b + t->b_tap[tap];

        for (int n = tile_blocks(t, tap); n > 0; n--, a += t->a_block, b += t->b_block) {
            UNIT_LOAD(4, a, a_bytes);
            if (tall)
                UNIT_LOAD(5, a + TILE_ROWS * t->a_row, a_bytes);
            UNIT_LOAD(6, b, b_bytes);
            UNIT_DOT(0, 4, 6);
            if (wide) {
                UNIT_LOAD(7, b + t->b_half, b_bytes);
                UNIT_DOT(1, 4, 7);
            }
            if (tall)
                UNIT_DOT(2, 5, 6);
            if (tall && wide)
                UNIT_DOT(3, 5, 7);
        }
    }
    UNIT_STORE(0, c, c_bytes);
    if (wide)
        UNIT_STORE(1, c + 16, c_bytes);
    if (tall)
        UNIT_STORE(2, c + TILE_ROWS * c_row, c_bytes);
    if (tall && wide)
        UNIT_STORE(3, c + TILE_ROWS * c_row + 16, c_bytes);
}

/* The last rows, fewer than whole tiles: by way of a buffer, as what follows them in c is somebody else's. */
UNIT_FN static inline __attribute__((always_inline)) void unit_rest(const struct tile_product *t, int i, bool wide)
{
    float own[UNIT_ROWS * TILE_COLS] = { 0 };
    float *c = t->c + i * t->c_row;
    const size_t row = (wide ? TILE_COLS : TILE_COLS / 2) * sizeof *c;
    int rows = t->rows - i;

    for (int r = 0; r < rows && t->add; r++)
        memcpy(own + r * TILE_COLS, c + r * t->c_row, row);
    if (rows > TILE_ROWS)
        unit_square(t, i, true, wide, own, TILE_COLS);
    else
        unit_square(t, i, false, wide, own, TILE_COLS);
    for (int r = 0; r < rows; r++)
        memcpy(c + r * t->c_row, own + r * TILE_COLS, row);
}

UNIT_FN static inline __attribute__((always_inline)) void unit_all(const struct tile_product *t, bool wide)
{
    int i = 0;

    for (; i + UNIT_ROWS <= t->rows; i += UNIT_ROWS)
        unit_square(t, i, true, wide, t->c + i * t->c_row, t->c_row);
    if (i < t->rows)
        unit_rest(t, i, wide);
}

UNIT_FN static void unit_run(const struct tile_product *t)
{
    if (t->narrow)
        unit_all(t, false);
    else
        unit_all(t, true);
}

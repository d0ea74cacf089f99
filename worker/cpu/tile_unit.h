/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/tile_unit.h - products of bf16 matrices by a unit of eight tiles
 * of 16 rows of 64 bytes: loops over five instructions, which the including file must define first. They can thus be a
 * CPU's instructions or a model of them in plain C.
 *
 *   UNIT_ZERO(t)                 tile t is zeros
 *   UNIT_LOAD(t, from, bytes)    its rows, `bytes` apart in memory
 *   UNIT_STORE(t, to, bytes)     the same the other way
 *   UNIT_DOT(c, a, b)            c[i][j] = bf16_dot(c[i][j], row i of a, the pairs j of b's rows)
 *   UNIT_FN  attributes of a function that uses them
 *   UNIT_BARRIER()  everything written to memory is there: the compiler need not know that UNIT_LOAD() reads it */
#pragma once
#include <string.h>

#include "worker/cpu/tile.h"

enum { UNIT_ROWS = 2 * TILE_ROWS, UNIT_COLUMN = 4 * TILE_ROWS };

/* Place of the sums. */
struct unit_sums {
    float *c; /* of the first row */
    long row;
    const long *column;
    bool add;
};

static inline __attribute__((always_inline)) struct unit_sums unit_sums_of(const struct tile_product *t, int i)
{
    return (struct unit_sums){ t->c + i * t->c_row, t->c_row, t->c_column, t->add };
}

/* Multiplies rows i ... of a, 32 of them or, if not `tall`, 16, by two columns or, if not `wide`, one. Tiles 0 to 3 are
 * sums, 4 and 5 rows of a, 6 and 7 columns of b. */
UNIT_FN static inline __attribute__((always_inline)) void unit_square(const struct tile_product *t, int i, bool tall, bool wide,
                                                                      const struct unit_sums *s)
{
    const long a_bytes = t->a_row * (long)sizeof *t->a, b_bytes = 2 * TILE_ROWS * (long)sizeof *t->b, c_bytes = s->row * (long)sizeof *s->c;
    const long second = wide ? t->b_column[1] - t->b_column[0] : 0;
    float *c = s->c + s->column[0], *beside = s->c + s->column[wide], *below = c + TILE_ROWS * s->row, *last = beside + TILE_ROWS * s->row;

    UNIT_BARRIER();
    if (s->add) {
        UNIT_LOAD(0, c, c_bytes);
        if (wide)
            UNIT_LOAD(1, beside, c_bytes);
        if (tall)
            UNIT_LOAD(2, below, c_bytes);
        if (tall && wide)
            UNIT_LOAD(3, last, c_bytes);
    } else {
        UNIT_ZERO(0);
        UNIT_ZERO(1);
        UNIT_ZERO(2);
        UNIT_ZERO(3);
    }
    for (int tap = 0; tap < t->taps; tap++) {
        const uint16_t *a = t->a + t->a_tap[tap] + i * t->a_row, *b = t->b + t->b_tap[tap] + t->b_column[0];

        for (int n = tile_blocks(t, tap); n > 0; n--, a += t->a_block, b += t->b_block) {
            UNIT_LOAD(4, a, a_bytes);
            if (tall)
                UNIT_LOAD(5, a + TILE_ROWS * t->a_row, a_bytes);
            UNIT_LOAD(6, b, b_bytes);
            UNIT_DOT(0, 4, 6);
            if (wide) {
                UNIT_LOAD(7, b + second, b_bytes);
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
        UNIT_STORE(1, beside, c_bytes);
    if (tall)
        UNIT_STORE(2, below, c_bytes);
    if (tall && wide)
        UNIT_STORE(3, last, c_bytes);
}

/* Multiplies 64 rows by one column: as many sums at once as in a square, so that no sum waits for the one before. */
UNIT_FN static inline __attribute__((always_inline)) void unit_column(const struct tile_product *t, int i, const struct unit_sums *s)
{
    const long a_bytes = t->a_row * (long)sizeof *t->a, b_bytes = 2 * TILE_ROWS * (long)sizeof *t->b, c_bytes = s->row * (long)sizeof *s->c;
    const long a_tile = TILE_ROWS * t->a_row, c_tile = TILE_ROWS * s->row;
    float *c = s->c + s->column[0];

    UNIT_BARRIER();
    if (s->add) {
        UNIT_LOAD(0, c, c_bytes);
        UNIT_LOAD(1, c + c_tile, c_bytes);
        UNIT_LOAD(2, c + 2 * c_tile, c_bytes);
        UNIT_LOAD(3, c + 3 * c_tile, c_bytes);
    } else {
        UNIT_ZERO(0);
        UNIT_ZERO(1);
        UNIT_ZERO(2);
        UNIT_ZERO(3);
    }
    for (int tap = 0; tap < t->taps; tap++) {
        const uint16_t *a = t->a + t->a_tap[tap] + i * t->a_row, *b = t->b + t->b_tap[tap] + t->b_column[0];

        for (int n = tile_blocks(t, tap); n > 0; n--, a += t->a_block, b += t->b_block) {
            UNIT_LOAD(6, b, b_bytes);
            UNIT_LOAD(4, a, a_bytes);
            UNIT_DOT(0, 4, 6);
            UNIT_LOAD(5, a + a_tile, a_bytes);
            UNIT_DOT(1, 5, 6);
            UNIT_LOAD(4, a + 2 * a_tile, a_bytes);
            UNIT_DOT(2, 4, 6);
            UNIT_LOAD(5, a + 3 * a_tile, a_bytes);
            UNIT_DOT(3, 5, 6);
        }
    }
    UNIT_STORE(0, c, c_bytes);
    UNIT_STORE(1, c + c_tile, c_bytes);
    UNIT_STORE(2, c + 2 * c_tile, c_bytes);
    UNIT_STORE(3, c + 3 * c_tile, c_bytes);
}

/* Multiplies 16 rows by three columns or more: neighbouring parts of b are read while they are in the L1 cache. Tiles 0
 * to 5 are sums, 6 rows of a, 7 a column of b. */
UNIT_FN static inline __attribute__((always_inline)) void unit_strip(const struct tile_product *t, int i, int columns,
                                                                     const struct unit_sums *s)
{
    const long a_bytes = t->a_row * (long)sizeof *t->a, b_bytes = 2 * TILE_ROWS * (long)sizeof *t->b, c_bytes = s->row * (long)sizeof *s->c;
    const long *at = t->b_column;

#define UNIT_EACH(what)  \
    do {                 \
        what(0);         \
        what(1);         \
        what(2);         \
        if (columns > 3) \
            what(3);     \
        if (columns > 4) \
            what(4);     \
        if (columns > 5) \
            what(5);     \
    } while (0)
#define UNIT_READ(j)  UNIT_LOAD(j, s->c + s->column[j], c_bytes)
#define UNIT_WRITE(j) UNIT_STORE(j, s->c + s->column[j], c_bytes)
#define UNIT_STEP(j)                      \
    do {                                  \
        UNIT_LOAD(7, b + at[j], b_bytes); \
        UNIT_DOT(j, 6, 7);                \
    } while (0)
    UNIT_BARRIER();
    if (s->add)
        UNIT_EACH(UNIT_READ);
    else
        UNIT_EACH(UNIT_ZERO);
    for (int tap = 0; tap < t->taps; tap++) {
        const uint16_t *a = t->a + t->a_tap[tap] + i * t->a_row, *b = t->b + t->b_tap[tap];

        for (int n = tile_blocks(t, tap); n > 0; n--, a += t->a_block, b += t->b_block) {
            UNIT_LOAD(6, a, a_bytes);
            UNIT_EACH(UNIT_STEP);
        }
    }
    UNIT_EACH(UNIT_WRITE);
#undef UNIT_STEP
#undef UNIT_WRITE
#undef UNIT_READ
#undef UNIT_EACH
}

/* The last rows, fewer than whole tiles: through a buffer, as the memory behind them in c must not be written. */
UNIT_FN static inline __attribute__((always_inline)) void unit_rest(const struct tile_product *t, int i, int columns)
{
    static const long column[TILE_COLUMNS] = { 0, 16, 32, 48, 64, 80 };
    float own[TILE_COLUMNS * TILE_ROWS * 16] = { 0 };
    const struct unit_sums s = { own, columns * 16L, column, t->add };
    const int rows = t->rows - i;

    for (int r = 0; r < rows && t->add; r++)
        for (int j = 0; j < columns; j++)
            memcpy(own + r * s.row + column[j], t->c + (i + r) * t->c_row + t->c_column[j], 16 * sizeof *own);
    if (columns > 2)
        unit_strip(t, i, columns, &s);
    else if (rows > TILE_ROWS)
        unit_square(t, i, true, columns == 2, &s);
    else
        unit_square(t, i, false, columns == 2, &s);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j++)
            memcpy(t->c + (i + r) * t->c_row + t->c_column[j], own + r * s.row + column[j], 16 * sizeof *own);
}

UNIT_FN static inline __attribute__((always_inline)) void unit_all(const struct tile_product *t, int columns)
{
    int i = 0;

    for (; columns > 2 && i + TILE_ROWS <= t->rows; i += TILE_ROWS) {
        struct unit_sums s = unit_sums_of(t, i);

        unit_strip(t, i, columns, &s);
    }
    for (; columns == 1 && i + UNIT_COLUMN <= t->rows; i += UNIT_COLUMN) {
        struct unit_sums s = unit_sums_of(t, i);

        unit_column(t, i, &s);
    }
    for (; columns <= 2 && i + UNIT_ROWS <= t->rows; i += UNIT_ROWS) {
        struct unit_sums s = unit_sums_of(t, i);

        unit_square(t, i, true, columns == 2, &s);
    }
    if (i < t->rows)
        unit_rest(t, i, columns);
}

UNIT_FN static void unit_run(const struct tile_product *t)
{
    switch (t->columns) {
    case 1:
        unit_all(t, 1);
        break;
    case 2:
        unit_all(t, 2);
        break;
    case 3:
        unit_all(t, 3);
        break;
    case 4:
        unit_all(t, 4);
        break;
    case 5:
        unit_all(t, 5);
        break;
    default:
        unit_all(t, TILE_COLUMNS);
        break;
    }
}

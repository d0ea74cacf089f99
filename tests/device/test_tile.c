/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_tile.c - uses: proto worker/core
 * Products for a tile unit, on a model of a unit: the loads, multiplications and stores of tile_unit.h give the sums of
 * the definition, and write no other memory. worker/cpu/tile_amx.c itself checks that a CPU's five instructions equal
 * those of the model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/core/philox.h"
#include "worker/kernels/bf16.h"

/* ---- the model ---- */

static uint8_t tile[8][16][64];

static void model_load(int t, const void *from, long bytes)
{
    for (int i = 0; i < 16; i++)
        memcpy(tile[t][i], (const char *)from + i * bytes, 64);
}

static void model_store(int t, void *to, long bytes)
{
    for (int i = 0; i < 16; i++)
        memcpy((char *)to + i * bytes, tile[t][i], 64);
}

static void model_dot(int c, int a, int b)
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            uint16_t row[32], column[32];
            float sum;

            memcpy(row, tile[a][i], sizeof row);
            for (int p = 0; p < 16; p++)
                memcpy(column + 2 * p, tile[b][p] + 4 * j, 4);
            memcpy(&sum, tile[c][i] + 4 * j, sizeof sum);
            sum = bf16_dot(sum, row, column);
            memcpy(tile[c][i] + 4 * j, &sum, sizeof sum);
        }
}

#define UNIT_FN
#define UNIT_ZERO(t)              memset(tile[t], 0, sizeof tile[t])
#define UNIT_LOAD(t, from, bytes) model_load(t, from, bytes)
#define UNIT_STORE(t, to, bytes)  model_store(t, to, bytes)
#define UNIT_DOT(c, a, b)         model_dot(c, a, b)
#define UNIT_BARRIER()            (void)0
#include "worker/cpu/tile_unit.h"

/* ---- the definition ---- */

static void plain(const struct tile_product *t)
{
    for (int i = 0; i < t->rows; i++)
        for (int j = 0; j < 16 * t->columns; j++) {
            float *c = &t->c[i * t->c_row + t->c_column[j / 16] + j % 16], sum = t->add ? *c : 0.0f;

            for (int tap = 0; tap < t->taps; tap++)
                for (int n = 0; n < (t->counts ? t->counts[tap] : t->blocks); n++) {
                    const uint16_t *b = t->b + t->b_tap[tap] + n * t->b_block + t->b_column[j / 16];
                    uint16_t column[TILE_BLOCK];

                    for (int d = 0; d < TILE_BLOCK; d++)
                        column[d] = b[tile_place(d, j % 16)];
                    sum = bf16_dot(sum, t->a + t->a_tap[tap] + n * t->a_block + i * t->a_row, column);
                }
            *c = sum;
        }
}

enum { ROWS = 100, PADDED = 128, ROW = 48, TAPS = 3, BLOCKS = 2, A = PADDED * ROW * BLOCKS + 256 };

/* Numbers from 2^-8 to 2^8 and now and then a number that is far too small, or not finite. */
static uint16_t number(const struct philox_key *key, size_t i, int odd)
{
    float u = philox_uniform(key, i), e = philox_uniform(key, i + (1 << 20));

    if (odd == 1 && e < 0.2f)
        return bf16_round(ldexpf(2 * u - 1, -70));
    if (odd == 2 && e < 0.0005f)
        return u < 0.5f ? 0x7F80 : 0x7FFF;
    return bf16_round(ldexpf(2 * u - 1, (int)(16 * e) - 8));
}

static void equal_sums(void **state)
{
    static const long a_tap[TAPS] = { 0, 96, 17 }, b_tap[TAPS] = { TILE_PANEL, 0, TILE_PANEL + TILE_HALF };
    static const long b_column[][TILE_COLUMNS] = { { 3 * TILE_HALF, 0, 32, TILE_HALF, 64, 2 * TILE_HALF },
                                                   { 0, TILE_HALF, 96, 32, 2 * TILE_HALF, 64 } };
    static const long c_column[][TILE_COLUMNS] = { { 0, 16, 40, 56, 80, 100 }, { 16, 0, 100, 32, 64, 80 } };
    static const int counts[TAPS] = { 2, 0, 1 };
    static uint16_t a[A], b[(TAPS + 2) * BLOCKS * TILE_PANEL];
    static float c[2][PADDED * 120];

    (void)state;
    for (int kind = 0; kind < 6 * 13; kind++) {
        const struct philox_key key = { .seed = (uint64_t)kind + 1 };
        int odd = kind % 3;
        struct tile_product t = { .a = a, .b = b, .a_tap = a_tap, .b_tap = b_tap, .a_row = ROW, .a_block = PADDED * ROW };

        for (size_t i = 0; i < A; i++)
            a[i] = number(&key, i, odd);
        for (size_t i = 0; i < sizeof b / sizeof *b; i++)
            b[i] = number(&key, i + A, odd);
        t.b_column = b_column[kind % 2];
        t.b_block = kind % 2 ? TILE_PANEL : TILE_HALF;
        t.c_column = c_column[kind / 2 % 2];
        t.c_row = 120;
        t.counts = kind % 5 ? NULL : counts;
        t.columns = 1 + kind % TILE_COLUMNS;
        t.rows = (const int[]){ 1, 15, 16, 17, 31, 32, 33, 48, 50, 64, 65, 96, ROWS }[kind / 6];
        t.taps = kind % 4; /* 0 taps, too: then there is no product to add */
        t.blocks = 1 + kind % BLOCKS;
        t.add = kind / 3 % 2;
        for (size_t i = 0; i < sizeof c[0] / sizeof c[0][0]; i++)
            c[0][i] = c[1][i] = (float)i;
        t.c = c[0];
        plain(&t);
        t.c = c[1];
        unit_run(&t);
        for (size_t i = 0; i < sizeof c[0] / sizeof c[0][0]; i++)
            if (!(isnan(c[0][i]) && isnan(c[1][i])) && float_bits(c[0][i]) != float_bits(c[1][i]))
                fail_msg("%d rows by %d columns, %d taps of %d blocks, number %zu: %a, not %a", t.rows, t.columns, t.taps, t.blocks, i,
                         (double)c[1][i], (double)c[0][i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(equal_sums) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

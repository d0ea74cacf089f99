/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/tile.c - products of bf16 matrices without a tile unit. The
 * chains of even and odd products stay in registers. While tile_rows() runs the CPU flushes tiny numbers to zero.
 * tile_rows() only reads and writes memory: the compiler may move arithmetic across the switch of that mode, but not
 * calls. */
#include "worker/cpu/tile.h"

#include <string.h>

#include "worker/core/simd.h"
#include "worker/kernels/bf16.h"

#if VW > 4
enum {
    VECS = 16 / VW,         /* vectors in a row of half a block of b */
    MR = VECS == 1 ? 4 : 2, /* rows of a computed at once */
    FLUSH = 0x8040          /* bits of MXCSR: results and operands below the smallest normal number become zeros */
};

/* Splits pairs of bf16, one in each lane, into floats. */
#if VW == 16
SIMD_FN void pairs(__m512i p, vec *ret_even, vec *ret_odd)
{
    *ret_even = _mm512_castsi512_ps(_mm512_slli_epi32(p, 16));
    *ret_odd = _mm512_castsi512_ps(_mm512_and_si512(p, _mm512_set1_epi32((int)0xFFFF0000)));
}
SIMD_FN void pairs_load(const uint16_t *p, vec *ret_even, vec *ret_odd)
{
    pairs(_mm512_loadu_si512(p), ret_even, ret_odd);
}
SIMD_FN void pairs_set1(int p, vec *ret_even, vec *ret_odd)
{
    pairs(_mm512_set1_epi32(p), ret_even, ret_odd);
}
#else
SIMD_FN void pairs(__m256i p, vec *ret_even, vec *ret_odd)
{
    *ret_even = _mm256_castsi256_ps(_mm256_slli_epi32(p, 16));
    *ret_odd = _mm256_castsi256_ps(_mm256_and_si256(p, _mm256_set1_epi32((int)0xFFFF0000)));
}
SIMD_FN void pairs_load(const uint16_t *p, vec *ret_even, vec *ret_odd)
{
    pairs(_mm256_loadu_si256((const __m256i *)(const void *)p), ret_even, ret_odd);
}
SIMD_FN void pairs_set1(int p, vec *ret_even, vec *ret_odd)
{
    pairs(_mm256_set1_epi32(p), ret_even, ret_odd);
}
#endif

/* mr rows of a block times 16 columns. mr is a constant at every call. */
SIMD_FN void block(const uint16_t *a, long a_row, const uint16_t *b, float *c, long c_row, int mr)
{
    vec even[MR][VECS], odd[MR][VECS];

#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 2
        for (int v = 0; v < VECS; v++)
            even[i][v] = odd[i][v] = vset1(0.0f);
    for (int d = 0; d < TILE_BLOCK; d += 2, b += 32) {
        vec be[VECS], bo[VECS];

#pragma GCC unroll 2
        for (int v = 0; v < VECS; v++)
            pairs_load(b + 2 * v * VW, &be[v], &bo[v]);
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            int pair;
            vec ae, ao;

            memcpy(&pair, a + i * a_row + d, sizeof pair);
            pairs_set1(pair, &ae, &ao);
#pragma GCC unroll 2
            for (int v = 0; v < VECS; v++) {
                even[i][v] = vfma(ae, be[v], even[i][v]);
                odd[i][v] = vfma(ao, bo[v], odd[i][v]);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 2
        for (int v = 0; v < VECS; v++)
            vstore(c + i * c_row + v * VW, vadd(vload(c + i * c_row + v * VW), vadd(even[i][v], odd[i][v])));
}

static void few_rows(const uint16_t *a, long a_row, const uint16_t *b, float *c, long c_row, int rows)
{
    for (int i = 0; i < rows; i++)
        block(a + i * a_row, a_row, b, c + i * c_row, c_row, 1);
}

#else
enum { MR = 1 };

SIMD_FN void block(const uint16_t *a, long a_row, const uint16_t *b, float *c, long c_row, int mr)
{
    float even[16] = { 0 }, odd[16] = { 0 };

    (void)a_row, (void)c_row, (void)mr;
    for (int d = 0; d < TILE_BLOCK; d += 2, b += 32) {
        float ae = bf16_factor(a[d]), ao = bf16_factor(a[d + 1]);

        for (int j = 0; j < 16; j++) {
            even[j] = bf16_fma(ae, bf16_factor(b[2 * j]), even[j]);
            odd[j] = bf16_fma(ao, bf16_factor(b[2 * j + 1]), odd[j]);
        }
    }
    for (int j = 0; j < 16; j++)
        c[j] = bf16_add(c[j], bf16_add(even[j], odd[j]));
}

static void few_rows(const uint16_t *a, long a_row, const uint16_t *b, float *c, long c_row, int rows)
{
    (void)a, (void)a_row, (void)b, (void)c, (void)c_row, (void)rows;
}
#endif

/* Multiplies a tile of a by a block of b while that is in the cache. */
static void tile(const uint16_t *a, long a_row, const uint16_t *b, float *c, long c_row, int rows)
{
    int i = 0;

    for (; i + MR <= rows; i += MR)
        block(a + i * a_row, a_row, b, c + i * c_row, c_row, MR);
    few_rows(a + i * a_row, a_row, b, c + i * c_row, c_row, rows - i);
}

static __attribute__((noinline)) void tile_rows(const struct tile_product *t)
{
    for (int i = 0; i < t->rows; i += TILE_ROWS)
        for (int j = 0; j < t->columns; j++) {
            float *c = t->c + i * t->c_row + t->c_column[j];
            int rows = t->rows - i < TILE_ROWS ? t->rows - i : TILE_ROWS;

            for (int r = 0; r < rows && !t->add; r++)
                memset(c + r * t->c_row, 0, 16 * sizeof *c);
            for (int tap = 0; tap < t->taps; tap++) {
                const uint16_t *a = t->a + t->a_tap[tap] + i * t->a_row, *b = t->b + t->b_tap[tap] + t->b_column[j];

                for (int n = tile_blocks(t, tap); n > 0; n--, a += t->a_block, b += t->b_block)
                    tile(a, t->a_row, b, c, t->c_row, rows);
            }
        }
}

static void run(const struct tile_product *t)
{
#if VW > 4
    unsigned mode = _mm_getcsr();

    _mm_setcsr(mode | FLUSH);
    tile_rows(t);
    _mm_setcsr(mode);
#else
    tile_rows(t);
#endif
}

static void nothing(void)
{
}

const struct tile_unit tile_plain = { nothing, nothing, run };

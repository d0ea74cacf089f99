/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/simd.h - vectors of floats at the width of the ISA this file is
 * compiled for. AVX-512, AVX2 and generic builds of one source give the same bits as long as lanes hold different
 * outputs: every operation below is exact or rounded once, in every build. A sum across lanes must use 16 virtual lanes
 * (16 / VW vectors) on every ISA, or the bits would depend on VW. FMAs are written out; the compiler makes none
 * (-ffp-contract=off). */
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SIMD_FN static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__)
#include <immintrin.h>
#define VW      16 /* lanes */
#define GEMM_MR 14 /* rows of a register tile of two vectors */
typedef __m512 vec;

SIMD_FN vec vload(const float *p)
{
    return _mm512_loadu_ps(p);
}
SIMD_FN void vstore(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}
/* The first n lanes, 0 <= n <= VW; the others read as zero or are not written, and their memory is not touched. */
SIMD_FN vec vload_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
SIMD_FN void vstore_n(float *p, vec v, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
SIMD_FN vec vset1(float f)
{
    return _mm512_set1_ps(f);
}
/* a * b + c, rounded once */
SIMD_FN vec vfma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
SIMD_FN vec vadd(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}
SIMD_FN vec vsub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}
SIMD_FN vec vmul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}
/* a > b ? a : b */
SIMD_FN vec vmax(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}
/* t > 0 ? yes : no */
SIMD_FN vec vpick(vec t, vec yes, vec no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(t, _mm512_setzero_ps(), _CMP_GT_OQ), no, yes);
}
/* t > 0 ? v : slope * v */
SIMD_FN vec vslope(vec t, vec v, vec slope)
{
    return _mm512_mask_mul_ps(v, _mm512_cmp_ps_mask(t, _mm512_setzero_ps(), _CMP_NGT_UQ), slope, v);
}

/* t[i] lane j becomes t[j] lane i */
SIMD_FN void vtranspose(vec t[VW])
{
    __m512 u[16];

#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        __m512 a = _mm512_unpacklo_ps(t[i], t[i + 1]), b = _mm512_unpackhi_ps(t[i], t[i + 1]);
        __m512 c = _mm512_unpacklo_ps(t[i + 2], t[i + 3]), d = _mm512_unpackhi_ps(t[i + 2], t[i + 3]);

        u[i] = _mm512_shuffle_ps(a, c, 0x44);
        u[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        u[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        u[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512 a = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88), b = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd);
        __m512 c = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88), d = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);

        t[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        t[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        t[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

/* bf16 (kernels/bf16.h) in memory. */
SIMD_FN vec vload_half(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
}
SIMD_FN vec vload_half_n(const uint16_t *p, int n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p)), 16));
}
/* Each lane's lower half is bf16_round() of it, the upper one zeros. */
SIMD_FN __m512i vhalf(vec v)
{
    __m512i bits = _mm512_castps_si512(v), down = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
    /* adds one where the last bit that stays is odd, by subtracting minus one: a register of ones needs no load */
    __m512i sum = _mm512_mask_sub_epi32(down, _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000)), down, _mm512_set1_epi32(-1));

    return _mm512_mask_srli_epi32(_mm512_set1_epi32(0x7FFF), _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), sum, 16);
}
SIMD_FN void vstore_half(uint16_t *p, vec v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(vhalf(v)));
}
SIMD_FN void vstore_half_n(uint16_t *p, vec v, int n)
{
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), _mm512_cvtepi32_epi16(vhalf(v)));
}
/* The numbers as they are after storing as bf16. */
SIMD_FN vec vkept_half(vec v)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(vhalf(v), 16));
}
/* Lanes become pairs of bf16, a's first. a and b must hold bf16 values already: bits only move. */
SIMD_FN vec vpair_half(vec a, vec b)
{
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(a), 16), _mm512_castps_si512(b)));
}
/* a's lanes and then b's, rounded: neighbouring lanes form pairs. */
SIMD_FN vec vround_half(vec a, vec b)
{
    __m512i mixed = _mm512_packus_epi32(vhalf(a), vhalf(b)); /* alternately four of a and four of b */

    return _mm512_castsi512_ps(_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), mixed));
}
/* Copies n of 2 * VW bf16; zeros follow them. */
SIMD_FN void vcopy_half_n(uint16_t *to, const uint16_t *from, int n)
{
    _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16((__mmask32)((1ull << n) - 1), from));
}

/* Stores past the caches, for results too large to be found there again: p is 64-byte aligned and the whole line is
 * written. vstream_end() must come before any other thread reads. If a vector is not a whole line this is a plain
 * store. */
#define VSTREAMS 1
SIMD_FN void vstream(float *p, vec v)
{
    _mm512_stream_ps(p, v);
}
/* Half a line, 32-byte aligned: the other half must follow. */
SIMD_FN void vstream_half(uint16_t *p, vec v)
{
    _mm256_stream_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(vhalf(v)));
}
SIMD_FN void vstream_end(void)
{
    _mm_sfence();
}
/* Words of 64 bits. wadd32() adds both halves of each, without a carry between them; wmul32() multiplies a word's lower
 * half by its upper one. */
#define WW 8
typedef __m512i words;

SIMD_FN words wload(const void *p)
{
    return _mm512_loadu_si512(p);
}
SIMD_FN words wzero(void)
{
    return _mm512_setzero_si512();
}
SIMD_FN words wadd(words a, words b)
{
    return _mm512_add_epi64(a, b);
}
SIMD_FN words wadd32(words a, words b)
{
    return _mm512_add_epi32(a, b);
}
SIMD_FN words wmul32(words a)
{
    return _mm512_mul_epu32(a, _mm512_srli_epi64(a, 32));
}

#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define VW      8
#define GEMM_MR 6
typedef __m256 vec;

SIMD_FN __m256i vmask_n(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SIMD_FN vec vload(const float *p)
{
    return _mm256_loadu_ps(p);
}
SIMD_FN void vstore(float *p, vec v)
{
    _mm256_storeu_ps(p, v);
}
SIMD_FN vec vload_n(const float *p, int n)
{
    return n == VW ? vload(p) : _mm256_maskload_ps(p, vmask_n(n));
}
/* On AMD's processors a store with a mask takes twenty times as long as one without. */
SIMD_FN void vstore_n(float *p, vec v, int n)
{
    if (n == VW)
        vstore(p, v);
    else
        _mm256_maskstore_ps(p, vmask_n(n), v);
}
SIMD_FN vec vset1(float f)
{
    return _mm256_set1_ps(f);
}
SIMD_FN vec vfma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}
SIMD_FN vec vadd(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}
SIMD_FN vec vsub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}
SIMD_FN vec vmul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}
SIMD_FN vec vmax(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}
SIMD_FN vec vpick(vec t, vec yes, vec no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(t, _mm256_setzero_ps(), _CMP_GT_OQ));
}
SIMD_FN vec vslope(vec t, vec v, vec slope)
{
    return vpick(t, v, vmul(slope, v));
}

SIMD_FN void vtranspose(vec t[VW])
{
    __m256 u[8];

#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        __m256 a = _mm256_unpacklo_ps(t[i], t[i + 1]), b = _mm256_unpackhi_ps(t[i], t[i + 1]);
        __m256 c = _mm256_unpacklo_ps(t[i + 2], t[i + 3]), d = _mm256_unpackhi_ps(t[i + 2], t[i + 3]);

        u[i] = _mm256_shuffle_ps(a, c, 0x44);
        u[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        u[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        u[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

SIMD_FN vec vload_half(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16));
}
SIMD_FN vec vload_half_n(const uint16_t *p, int n)
{
    uint16_t all[VW] = { 0 };

    if (n == VW)
        return vload_half(p);
    for (int i = 0; i < n; i++)
        all[i] = p[i];
    return vload_half(all);
}
SIMD_FN __m256i vhalf(vec v)
{
    __m256i bits = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i half = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);

    return _mm256_blendv_epi8(half, _mm256_set1_epi32(0x7FFF), _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}
SIMD_FN void vstore_half(uint16_t *p, vec v)
{
    __m256i half = vhalf(v);

    _mm_storeu_si128((__m128i *)(void *)p, _mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}
SIMD_FN void vstore_half_n(uint16_t *p, vec v, int n)
{
    uint16_t all[VW];

    vstore_half(n == VW ? p : all, v);
    for (int i = 0; i < n && n < VW; i++)
        p[i] = all[i];
}
SIMD_FN vec vkept_half(vec v)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(vhalf(v), 16));
}
SIMD_FN vec vpair_half(vec a, vec b)
{
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(a), 16), _mm256_castps_si256(b)));
}
SIMD_FN vec vround_half(vec a, vec b)
{
    __m256i mixed = _mm256_packus_epi32(vhalf(a), vhalf(b)); /* alternately four of a and four of b */

    return _mm256_castsi256_ps(_mm256_permute4x64_epi64(mixed, 0xd8));
}
SIMD_FN void vcopy_half_n(uint16_t *to, const uint16_t *from, int n)
{
    if (n == 2 * VW) {
        memcpy(to, from, 2 * VW * sizeof *to);
        return;
    }
    for (int i = 0; i < 2 * VW; i++)
        to[i] = i < n ? from[i] : 0;
}

#define WW 4
typedef __m256i words;

SIMD_FN words wload(const void *p)
{
    return _mm256_loadu_si256(p);
}
SIMD_FN words wzero(void)
{
    return _mm256_setzero_si256();
}
SIMD_FN words wadd(words a, words b)
{
    return _mm256_add_epi64(a, b);
}
SIMD_FN words wadd32(words a, words b)
{
    return _mm256_add_epi32(a, b);
}
SIMD_FN words wmul32(words a)
{
    return _mm256_mul_epu32(a, _mm256_srli_epi64(a, 32));
}

#else
#define VW      4
#define GEMM_MR 4
typedef struct {
    float f[VW];
} vec; /* a plain array: fmaf() is a call here, so registers would not help */

SIMD_FN vec vload_n(const float *p, int n)
{
    vec v = { { 0 } };

    for (int i = 0; i < n; i++)
        v.f[i] = p[i];
    return v;
}
SIMD_FN void vstore_n(float *p, vec v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = v.f[i];
}
SIMD_FN vec vload(const float *p)
{
    return vload_n(p, VW);
}
SIMD_FN void vstore(float *p, vec v)
{
    vstore_n(p, v, VW);
}
SIMD_FN vec vset1(float f)
{
    return (vec){ { f, f, f, f } };
}
#define SIMD_EACH(expr)          \
    vec v;                       \
    for (int i = 0; i < VW; i++) \
        v.f[i] = (expr);         \
    return v
SIMD_FN vec vfma(vec a, vec b, vec c)
{
    SIMD_EACH(fmaf(a.f[i], b.f[i], c.f[i]));
}
SIMD_FN vec vadd(vec a, vec b)
{
    SIMD_EACH(a.f[i] + b.f[i]);
}
SIMD_FN vec vsub(vec a, vec b)
{
    SIMD_EACH(a.f[i] - b.f[i]);
}
SIMD_FN vec vmul(vec a, vec b)
{
    SIMD_EACH(a.f[i] * b.f[i]);
}
SIMD_FN vec vmax(vec a, vec b)
{
    SIMD_EACH(a.f[i] > b.f[i] ? a.f[i] : b.f[i]);
}
SIMD_FN vec vpick(vec t, vec yes, vec no)
{
    SIMD_EACH(t.f[i] > 0.0f ? yes.f[i] : no.f[i]);
}
SIMD_FN vec vslope(vec t, vec v, vec slope)
{
    return vpick(t, v, vmul(slope, v));
}
SIMD_FN void vtranspose(vec t[VW])
{
    for (int i = 0; i < VW; i++)
        for (int j = 0; j < i; j++) {
            float f = t[i].f[j];

            t[i].f[j] = t[j].f[i];
            t[j].f[i] = f;
        }
}
SIMD_FN uint32_t bits_of(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}
SIMD_FN uint32_t half_of(float f)
{
    uint32_t bits = bits_of(f);

    return (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFFu : (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
}
SIMD_FN float float_of(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}
SIMD_FN vec vload_half_n(const uint16_t *p, int n)
{
    SIMD_EACH(i < n ? float_of((uint32_t)p[i] << 16) : 0.0f);
}
SIMD_FN vec vload_half(const uint16_t *p)
{
    return vload_half_n(p, VW);
}
SIMD_FN void vstore_half_n(uint16_t *p, vec v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (uint16_t)half_of(v.f[i]);
}
SIMD_FN void vstore_half(uint16_t *p, vec v)
{
    vstore_half_n(p, v, VW);
}
SIMD_FN vec vkept_half(vec a)
{
    SIMD_EACH(float_of(half_of(a.f[i]) << 16));
}
SIMD_FN vec vpair_half(vec a, vec b)
{
    SIMD_EACH(float_of(bits_of(a.f[i]) >> 16 | bits_of(b.f[i])));
}
SIMD_FN vec vround_half(vec a, vec b)
{
    const float all[2 * VW] = { a.f[0], a.f[1], a.f[2], a.f[3], b.f[0], b.f[1], b.f[2], b.f[3] };

    SIMD_EACH(float_of(half_of(all[2 * i]) | half_of(all[2 * i + 1]) << 16));
}
SIMD_FN void vcopy_half_n(uint16_t *to, const uint16_t *from, int n)
{
    for (int i = 0; i < 2 * VW; i++)
        to[i] = i < n ? from[i] : 0;
}
#undef SIMD_EACH

#define WW 1
typedef uint64_t words;

SIMD_FN words wload(const void *p)
{
    words w;

    memcpy(&w, p, sizeof w);
    return w;
}
SIMD_FN words wzero(void)
{
    return 0;
}
SIMD_FN words wadd(words a, words b)
{
    return a + b;
}
SIMD_FN words wadd32(words a, words b)
{
    return (uint64_t)((uint32_t)(a >> 32) + (uint32_t)(b >> 32)) << 32 | ((uint32_t)a + (uint32_t)b);
}
SIMD_FN words wmul32(words a)
{
    return (a & UINT32_MAX) * (a >> 32);
}
#endif

/* The sum of all lanes, mod 2^64. */
SIMD_FN uint64_t wsum(words a)
{
    uint64_t lane[WW], sum = 0;

    memcpy(lane, &a, sizeof a);
    for (int i = 0; i < WW; i++)
        sum += lane[i];
    return sum;
}

#if !defined(VSTREAMS)
#define VSTREAMS 0
SIMD_FN void vstream(float *p, vec v)
{
    vstore(p, v);
}
SIMD_FN void vstream_half(uint16_t *p, vec v)
{
    vstore_half(p, v);
}
SIMD_FN void vstream_end(void)
{
}
#endif

/* Stores the result of vpair_half() or vround_half() as 2 * VW bf16. */
SIMD_FN void vstore_pairs(uint16_t *p, vec v)
{
    memcpy(p, &v, sizeof v);
}
/* Like vstream(). */
SIMD_FN void vstream_pairs(uint16_t *p, vec v)
{
    if (VSTREAMS)
        vstream((float *)(void *)p, v);
    else
        vstore_pairs(p, v);
}

/* Lanes that are left of `count` from lane `at` on, at most VW: the n of vload_n() and vstore_n(). */
SIMD_FN int vlanes(int count, int at)
{
    int left = count - at;

    return left < VW ? left : VW;
}

/* Computes any pending activation. */
SIMD_FN vec vact(vec t, vec slope)
{
    return vslope(t, t, slope);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/math.h - exp, log, log1p, pow, sigmoid, tanh with the same
 * bits from every compiler, ISA and device: only + - * / and fma, which IEEE 754 rounds correctly, and bit operations.
 * fp32 results are within 2 ulp, fp64 ones within 4. NaN gives NaN. Method: argument reduction by powers of two and
 * Taylor series; Muller, Elementary Functions, chapters 5 and 11. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "worker/kernels/kernel.h"

KERNEL_FN uint32_t float_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

KERNEL_FN float bits_float(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

KERNEL_FN uint64_t double_bits(double x)
{
    uint64_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

KERNEL_FN double bits_double(uint64_t u)
{
    double x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* e^x. Branchless, so that loops over it vectorise. Overflow gives infinity, underflow denormals and then 0. */
KERNEL_FN float math_exp(float x)
{
    const float magic = 12582912.0f;   /* 1.5 * 2^23: adding it rounds to an integer and leaves that in the low bits */
    float y = x > 104.0f ? 104.0f : x; /* e^104 > FLT_MAX */
    float z, k, r, p;
    uint32_t n, half;

    y = y < -104.0f ? -104.0f : y; /* e^-104 rounds to 0 */
    z = fmaf(y, 1.44269504f, magic);
    n = float_bits(z) - 0x4B400000u; /* two's complement */
    k = z - magic;
    r = fmaf(k, -0.693145752f, y); /* high part of ln 2: 17 bits */
    r = fmaf(k, -1.42860682e-6f, r);
    p = fmaf(r, 1.98412698e-4f, 1.38888889e-3f); /* 1/7!, 1/6!, ... */
    p = fmaf(r, p, 8.33333333e-3f);
    p = fmaf(r, p, 4.16666667e-2f);
    p = fmaf(r, p, 0.166666667f);
    p = fmaf(r, p, 0.5f);
    p = fmaf(r, p, 1.0f);
    p = fmaf(r, p, 1.0f);
    /* floor(n / 2): 2^n as two factors, each in range, so that only the last product rounds */
    half = ((n + 512u) >> 1) - 256u;
    p *= bits_float((half + 127u) << 23);
    return p * bits_float((n - half + 127u) << 23);
}

/* e^x in double. */
KERNEL_FN double math_exp64(double x)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
    double y = x > 746.0 ? 746.0 : x;
    double z, k, r, p = 1.0;
    uint64_t n, half;

    y = y < -746.0 ? -746.0 : y;
    z = y * 1.4426950408889634 + magic;
    n = double_bits(z) - 0x4338000000000000u;
    k = z - magic;
    r = (y - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
    for (int i = 14; i > 0; i--)
        p = p * r / (double)i + 1.0;
    half = ((n + 4096u) >> 1) - 2048u;
    p *= bits_double((half + 1023u) << 52);
    return p * bits_double((n - half + 1023u) << 52);
}

/* 2 * atanh(s) = ln((1 + s) / (1 - s)) for |s| <= 0.172. */
KERNEL_FN double math_atanh2(double s)
{
    double q = s * s, p = 0.0;

    for (int i = 23; i > 1; i -= 2)
        p = (p + 1.0 / (double)i) * q;
    return 2.0 * s + 2.0 * s * p;
}

/* x = m * 2^e, m in [sqrt(1/2), sqrt(2)); 0 < x < infinity. */
struct math_parts {
    double m, e;
};

KERNEL_FN struct math_parts math_split(double x)
{
    struct math_parts p = { 0.0, 0.0 };
    uint64_t u;

    if (x < 2.2250738585072014e-308) {
        x *= 18014398509481984.0; /* 2^54: denormals become normal */
        p.e = -54.0;
    }
    u = double_bits(x) - 0x3FE6A09E667F3BCDu;                           /* sqrt(1/2) */
    p.e += (double)((int32_t)((u + 0x8000000000000000u) >> 52) - 2048); /* floor(u / 2^52), u in two's complement */
    p.m = bits_double((u & 0x000FFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu);
    return p;
}

/* Natural logarithm in double. 0 gives -infinity, negative numbers NaN. */
KERNEL_FN double math_log64(double x)
{
    struct math_parts p;

    if (!(x > 0.0))
        return bits_double(x == 0.0 ? 0xFFF0000000000000u : 0x7FF8000000000000u);
    if (x > 1.7976931348623157e308)
        return x;
    p = math_split(x);
    return p.e * 1.90821492927058770002e-10 + math_atanh2((p.m - 1.0) / (p.m + 1.0)) + p.e * 0.693147180369123816490;
}

/* cos(2 pi u) in double, u in [0, 1]: folded into the first octant (exactly where u is a multiple of 2^-52), Taylor
 * beyond double's precision there. */
KERNEL_FN double math_cos_turns64(double u)
{
    double t = u > 0.5 ? 1.0 - u : u, sign = 1.0, x, q, sum = 0.0;

    if (t > 0.25) {
        t = 0.5 - t;
        sign = -1.0;
    }
    if (t > 0.125) { /* sine of the rest */
        x = (0.25 - t) * 6.283185307179586477;
        q = -x * x;
        for (int i = 19; i > 1; i -= 2)
            sum = (sum + 1.0) * (q / (double)(i * (i - 1)));
        return sign * (x + x * sum);
    }
    x = t * 6.283185307179586477;
    q = -x * x;
    for (int i = 20; i > 0; i -= 2)
        sum = (sum + 1.0) * (q / (double)(i * (i - 1)));
    return sign * (1.0 + sum);
}

/* x^y in double for 0 <= x < infinity and any finite y; else NaN. 0^0 = 1. Results outside of 1e-60 .. 1e60 are within
 * 32 ulp. ln x is carried as a sum of two doubles, since an error of y ln x becomes an equally large relative error of
 * e^(y ln x): with s + t = (m - 1) / (m + 1) to twice the digits, ln x = 2 (s + t) + the rest of the series + e ln
 * 2. */
KERNEL_FN double math_pow64(double x, double y)
{
    double d, s, t, q, p = 0.0, sum, rest, high, low, k;
    struct math_parts a;

    if (!(x >= 0.0 && x <= 1.7976931348623157e308 && fabs(y) <= 1.7976931348623157e308))
        return bits_double(0x7FF8000000000000u);
    if (x == 0.0 || y == 0.0)
        return y == 0.0 ? 1.0 : y > 0.0 ? 0.0 : bits_double(0x7FF0000000000000u);
    a = math_split(x);
    d = a.m + 1.0;
    s = (a.m - 1.0) / d;
    t = (fma(-s, d, a.m - 1.0) - s * (a.m - (d - 1.0))) / d; /* the remainder of both roundings */
    q = s * s;
    for (int i = 23; i > 1; i -= 2)
        p = (p + 1.0 / (double)i) * q;
    k = a.e * 0.693147180369123816490; /* 33 bits: exact */
    sum = k + 2.0 * s;
    rest = (2.0 * s - (sum - k)) + (2.0 * s * p + 2.0 * t + a.e * 1.90821492927058770002e-10);
    high = sum + rest;
    low = rest - (high - sum);
    k = y * high;
    if (fabs(k) > 1000.0)
        return math_exp64(k);
    return math_exp64(k) * (1.0 + (fma(y, high, -k) + y * low));
}

KERNEL_FN float math_log(float x)
{
    return (float)math_log64((double)x);
}

/* ln(1 + x), accurate near 0. x < -1 gives NaN. */
KERNEL_FN float math_log1p(float x)
{
    double d = (double)x;

    if (d > -0.25 && d < 0.375)
        return (float)math_atanh2(d / (2.0 + d));
    return (float)math_log64(1.0 + d);
}

/* 1 / (1 + e^-x), accurate in both tails. */
KERNEL_FN float math_sigmoid(float x)
{
    float e = math_exp(-fabsf(x)), s = 1.0f / (1.0f + e);

    return x < 0.0f ? e * s : s;
}

KERNEL_FN float math_tanh(float x)
{
    double a = (double)fabsf(x), e, t;

    if (a < 0.000244140625)
        t = a - a * a * a / 3.0; /* next term: a^4 / 7.5 < 2^-50 of it */
    else {
        e = math_exp64(-2.0 * a);
        t = (1.0 - e) / (1.0 + e);
    }
    return x < 0.0f ? (float)-t : (float)t;
}

/* Cross-entropy of the logit z with target t in [0, 1]: max(z, 0) - z t + ln(1 + e^-|z|). Never overflows. Its slope is
 * sigmoid(z) - t. */
KERNEL_FN float math_bce(float z, float t)
{
    float m = z > 0.0f ? z : 0.0f;

    return fmaf(-z, t, m) + math_log1p(math_exp(-fabsf(z)));
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/cuda_bf16.h - bf16 for kernels: the upper half of a float,
 * rounded to nearest even; NaN becomes 0x7FFF as on a GPU. Kernels compute in floats, so there is no arithmetic
 * here. */
#pragma once
#include <cuda_runtime.h>

#ifdef __cplusplus
struct __align__(2) __nv_bfloat16
{
    unsigned short bits;

    __nv_bfloat16() = default;
    __nv_bfloat16(float x);
    operator float() const;
};

struct __align__(4) __nv_bfloat162
{
    __nv_bfloat16 x, y;
};

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

EMU_FN unsigned short emu_bf16_round(float x)
{
    unsigned u = __float_as_uint(x);

    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return 0x7FFF;
    return (unsigned short)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

EMU_FN __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    __nv_bfloat16 b;

    b.bits = bits;
    return b;
}

EMU_FN unsigned short __bfloat16_as_ushort(__nv_bfloat16 b)
{
    return b.bits;
}

EMU_FN float __bfloat162float(__nv_bfloat16 b)
{
    return __uint_as_float((unsigned)b.bits << 16);
}

EMU_FN __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __ushort_as_bfloat16(emu_bf16_round(x));
}

EMU_FN __nv_bfloat16 __float2bfloat16(float x)
{
    return __float2bfloat16_rn(x);
}

inline __nv_bfloat16::__nv_bfloat16(float x) : bits(emu_bf16_round(x))
{
}

inline __nv_bfloat16::operator float() const
{
    return __bfloat162float(*this);
}

EMU_FN __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return __nv_bfloat162{ __float2bfloat16_rn(x), __float2bfloat16_rn(y) };
}

EMU_FN __nv_bfloat162 __float22bfloat162_rn(float2 v)
{
    return __floats2bfloat162_rn(v.x, v.y);
}

EMU_FN __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return __nv_bfloat162{ x, y };
}

EMU_FN float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return make_float2(__bfloat162float(v.x), __bfloat162float(v.y));
}

EMU_FN float __low2float(__nv_bfloat162 v)
{
    return __bfloat162float(v.x);
}

EMU_FN float __high2float(__nv_bfloat162 v)
{
    return __bfloat162float(v.y);
}
#else
typedef struct {
    unsigned short bits;
} __nv_bfloat16;
#endif

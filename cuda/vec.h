/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/vec.h - how kernels read and write numbers: fp32 or bf16 in memory,
 * floats in registers, 16 bytes at a time where the memory allows it.
 *
 * vec_grid() shares out rows of channels (NHWC). A thread owns W channels, so per-channel values stay in its registers,
 * and walks down pixels. Neighbours in a warp own neighbouring channels and then the next pixel, so that a dense tensor
 * is read in one stream. All of this depends on the shape alone. */
#pragma once
#include <cuda_bf16.h>
#include <string.h>

#include "cuda/cuda.h"
#include "worker/kernels/act.h"

#define DEVICE_FN static __device__ __forceinline__

typedef __nv_bfloat16 bf16;

DEVICE_FN float to_float(float x)
{
    return x;
}

DEVICE_FN float to_float(bf16 x)
{
    return __bfloat162float(x);
}

/* The one rounding of a result (bf16: nearest, ties to even; every NaN becomes 0x7FFF). */
DEVICE_FN void from_float(float *ret, float x)
{
    *ret = x;
}

DEVICE_FN void from_float(bf16 *ret, float x)
{
    *ret = __float2bfloat16_rn(x);
}

/* W neighbouring numbers as they lie in memory: 16 bytes of them are one access. */
template <typename T, int W> struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) pack {
    T v[W];
};

/* bf16 in pairs, one register a pair. As single numbers the compiler would give each a register of its own while it
 * waits, and kernels with many pending reads would spill. */
template <int W> struct alignas(2 * W < 16 ? 2 * W : 16) pack<bf16, W> {
    uint32_t pair[W / 2];
};

template <> struct pack<bf16, 1> {
    bf16 v[1];
};

/* Separate from vec_unpack(): a kernel asks for several packs before it uses the first, so that enough reads are under
 * way. */
template <int W, typename T> DEVICE_FN pack<T, W> vec_load(const T *p)
{
    return *(const pack<T, W> *)p;
}

template <typename T, int W> DEVICE_FN void vec_unpack(float (&ret)[W], const pack<T, W> &p)
{
#pragma unroll
    for (int i = 0; i < W; i++)
        ret[i] = to_float(p.v[i]);
}

DEVICE_FN void vec_unpack(float (&ret)[1], const pack<bf16, 1> &p)
{
    ret[0] = to_float(p.v[0]);
}

template <int W> DEVICE_FN void vec_unpack(float (&ret)[W], const pack<bf16, W> &p)
{
#pragma unroll
    for (int i = 0; i < W / 2; i++) {
        ret[2 * i] = __uint_as_float(p.pair[i] << 16);
        ret[2 * i + 1] = __uint_as_float(p.pair[i] & 0xFFFF0000u);
    }
}

template <typename T, int W> DEVICE_FN void vec_pack(pack<T, W> *ret, const float (&f)[W])
{
#pragma unroll
    for (int i = 0; i < W; i++)
        from_float(&ret->v[i], f[i]);
}

DEVICE_FN void vec_pack(pack<bf16, 1> *ret, const float (&f)[1])
{
    from_float(&ret->v[0], f[0]);
}

/* Two results, the first in the lower half. */
DEVICE_FN uint32_t pair_of(float low, float high)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    uint32_t word;

    memcpy(&word, &two, sizeof(word));
    return word;
}

template <int W> DEVICE_FN void vec_pack(pack<bf16, W> *ret, const float (&f)[W])
{
#pragma unroll
    for (int i = 0; i < W / 2; i++)
        ret->pair[i] = pair_of(f[2 * i], f[2 * i + 1]);
}

template <typename T, int W> DEVICE_FN void vec_store(T *dst, const float (&f)[W])
{
    pack<T, W> p;

    vec_pack(&p, f);
    *(pack<T, W> *)dst = p;
}

/* W floats of a per-channel array. Such arrays are nearly always aligned, but this is not guaranteed. */
template <int W> DEVICE_FN void vec_channels(float (&ret)[W], const float *per_channel, int k)
{
    if (W > 1 && (uintptr_t)(per_channel + k) % 16 == 0) {
        vec_unpack(ret, vec_load<W>(per_channel + k));
        return;
    }
#pragma unroll
    for (int i = 0; i < W; i++)
        ret[i] = per_channel[k + i];
}

/* The pending operation on W channels. If nothing is pending the constants would change no number; vec_pending() is
 * then not called. */
template <int W> struct vec_affine {
    float scale[W], shift[W], slope[W];
};

template <int W> DEVICE_FN void vec_affine_load(vec_affine<W> *ret, const struct affine *a, int k)
{
    vec_channels(ret->scale, a->scale, k);
    vec_channels(ret->shift, a->shift, k);
    vec_channels(ret->slope, a->slope, k);
}

template <int W> DEVICE_FN void vec_pending(float (&x)[W], const vec_affine<W> &a)
{
#pragma unroll
    for (int i = 0; i < W; i++)
        x[i] = act_pending(x[i], a.scale[i], a.shift[i], a.slope[i]);
}

static __host__ __device__ __forceinline__ unsigned vec_least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* ---- host ---- */

/* Numbers of one access where 16 bytes are possible. */
#define VEC_WIDTH(T) (16 / (int)sizeof(T))

/* Can t be read and written w channels at a time? Slices of channels often begin at unaligned addresses. */
static inline bool vec_fits(const struct tensor *t, int w)
{
    return (uintptr_t)t->data % 16 == 0 && (size_t)t->stride * dtype_bytes(t->dtype) % 16 == 0 && t->c % w == 0;
}

static inline int vec_width(enum dtype d)
{
    return 16 / (int)dtype_bytes(d);
}

/* fn<T, W>(...): T by dtype (fp32 or bf16), W 16 bytes of it, or 1 if not `wide`. */
#define VEC_CALL(fn, dtype, wide, ...)                                                                    \
    ((dtype) == DTYPE_BF16 ? ((wide) ? fn<bf16, VEC_WIDTH(bf16)>(__VA_ARGS__) : fn<bf16, 1>(__VA_ARGS__)) \
                           : ((wide) ? fn<float, VEC_WIDTH(float)>(__VA_ARGS__) : fn<float, 1>(__VA_ARGS__)))

enum { VEC_THREADS = 256 };

struct vec_grid {
    dim3 grid, block;
};

/* Threads for up to npixels pixels of c channels, w at a time, `run` pixels a thread; grid.z = shards. Small images
 * have fewer pixels a block; this never changes a result, as outputs have one writer. */
static inline struct vec_grid vec_grid(size_t npixels, int c, int w, int run, int shards)
{
    unsigned groups = ((unsigned)c + (unsigned)w - 1) / (unsigned)w, across = cuda_blocks(groups, VEC_THREADS);
    unsigned x = (groups + across - 1) / across, y = VEC_THREADS / x;
    struct vec_grid g;

    g.block = dim3(x, y, 1);
    g.grid = dim3(cuda_blocks(npixels, y * (unsigned)run), across, (unsigned)shards);
    return g;
}

/* In a kernel of vec_grid(): the thread's first channel (may be past c: nothing to do), its first pixel, and the step
 * to its next one. */
template <int W> DEVICE_FN int vec_channel()
{
    return (int)(blockIdx.y * blockDim.x + threadIdx.x) * W;
}

template <int RUN> DEVICE_FN size_t vec_pixel()
{
    return (size_t)blockIdx.x * (blockDim.y * RUN) + threadIdx.y;
}

/* The same from the end of the last shard to the start of the first. Kernels that change one number after the other go
 * this way. The sums before them and the convolutions after them go from start to end, so each finds in the cache the
 * data that the kernel before it touched last. */
template <int RUN> DEVICE_FN size_t vec_pixel_back()
{
    return (size_t)(gridDim.x - 1 - blockIdx.x) * (blockDim.y * RUN) + threadIdx.y;
}

DEVICE_FN unsigned vec_shard_back()
{
    return gridDim.z - 1 - blockIdx.z;
}

DEVICE_FN unsigned vec_step()
{
    return blockDim.y;
}

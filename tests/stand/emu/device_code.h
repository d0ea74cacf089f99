/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/device_code.h - the language of kernels, as C++ that g++
 * and clang compile: qualifiers, indices, barriers, warp functions, integer atomics, vectors. Functions that are not
 * deterministic on a GPU, or that give other bits than on the CPU, are left out on purpose: there are no floating-point
 * atomics, no fast or approximate maths. */
#pragma once
#include <math.h>
#include <string.h>

#include "tests/stand/emu/launch.h"

#define __global__
#define __device__
#define __host__
#define __constant__           static const
#define __forceinline__        inline __attribute__((always_inline))
#define __launch_bounds__(...) /* more threads than these are found on a GPU only */
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define EMU_SITE     (emu_site{ __FILE__, __LINE__ })
#define EMU_FN       static inline __attribute__((always_inline, unused))

/* ---- vectors; loads and stores of those with 8 and 16 bytes must be aligned, as on a GPU ---- */
/* clang-format off */
#define EMU_VECTORS(X) X(char, char, 1) X(uchar, unsigned char, 1) X(short, short, 2) X(ushort, unsigned short, 2) X(int, int, 4)          \
    X(uint, unsigned, 4) X(float, float, 4) X(longlong, long long, 8) X(ulonglong, unsigned long long, 8) X(double, double, 8)
#define X(name, type, size)                                                                                                                \
    struct __align__(size * 2) name##2 { type x, y; };                                                                                     \
    struct name##3 { type x, y, z; };                                                                                                      \
    struct __align__(size * 4 > 16 ? 16 : size * 4) name##4 { type x, y, z, w; };                                                          \
    EMU_FN name##2 make_##name##2(type x, type y) { return name##2{ x, y }; }                                                              \
    EMU_FN name##3 make_##name##3(type x, type y, type z) { return name##3{ x, y, z }; }                                                   \
    EMU_FN name##4 make_##name##4(type x, type y, type z, type w) { return name##4{ x, y, z, w }; }
EMU_VECTORS(X)
#undef X
/* clang-format on */

struct dim3 : emu_dim {
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : emu_dim{ a, b, c }
    {
    }
};

extern "C" emu_dim threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize __attribute__((unused)) = EMU_WARP;

/* ---- launches ---- */

/* Each file has a namespace of its own: two files may have types of the same name, and a linker would keep the
 * functions of only one of them. */
namespace
{

/* Arguments of a kernel, one after the other. */
template <class... P> struct emu_args;
template <> struct emu_args<> {
    template <class Kernel, class... Done> void call(Kernel kernel, Done... done) const
    {
        kernel(done...);
    }
};
template <class Head, class... Tail> struct emu_args<Head, Tail...> {
    Head head;
    emu_args<Tail...> tail;

    emu_args(Head h, Tail... t) : head(h), tail(t...)
    {
    }
    template <class Kernel, class... Done> void call(Kernel kernel, const Done &...done) const
    {
        tail.template call<Kernel, const Done &..., const Head &>(kernel, done..., head);
    }
};

template <class... P> struct emu_call {
    void (*kernel)(P...);
    emu_args<P...> args;

    static void invoke(const void *p)
    {
        const emu_call *c = static_cast<const emu_call *>(p);

        c->args.call(c->kernel);
    }
};

template <class T> struct emu_same {
    typedef T type;
};

template <class... P>
static inline void emu_start(const char *name, emu_site site, void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t stream,
                             typename emu_same<P>::type... args)
{
    emu_call<P...> call = { kernel, emu_args<P...>(args...) };
    emu_launch launch = { name, site, grid, block, emu_call<P...>::invoke };

    emu_launch_queue(&launch, stream, &call, sizeof call);
}

} // namespace

#define CUDA_LAUNCH(kernel, grid, block, stream, ...) emu_start(#kernel, EMU_SITE, kernel, grid, block, stream, __VA_ARGS__)
/* The memory of a block: a heap block of its own, so that an overrun is found. */
#define SHARED(type, name, count)     \
    static const char name##_key = 0; \
    type(&name)[count] = *static_cast<type(*)[count]>(emu_shared(&name##_key, sizeof(type) * (count)))

/* ---- barriers and warps ---- */

EMU_FN int emu_barrier_count(emu_site site, int predicate)
{
    return emu_barrier(site, predicate, NULL);
}

EMU_FN int emu_barrier_all(emu_site site, int predicate)
{
    int all, votes = emu_barrier(site, predicate, &all);

    return votes == all;
}

#define __syncthreads()        ((void)emu_barrier(EMU_SITE, 0, NULL))
#define __syncthreads_count(p) emu_barrier_count(EMU_SITE, p)
#define __syncthreads_or(p)    (emu_barrier_count(EMU_SITE, p) != 0)
#define __syncthreads_and(p)   emu_barrier_all(EMU_SITE, p)
#define __threadfence()        ((void)0)
#define __threadfence_block()  ((void)0)

/* The value from the lane source(own lane). A lane that did not come gives 0xFF bytes. */
template <class T, class Source> static inline T emu_shuffle(emu_site site, unsigned mask, T mine, Source source)
{
    uint64_t word = 0, all[EMU_WARP];
    int lane, from;
    unsigned came;
    T ret;

    static_assert(sizeof(T) <= sizeof word, "a lane gives at most 8 bytes");
    memcpy(&word, &mine, sizeof mine);
    came = emu_meet(site, mask, word, all, &lane);
    from = source(lane);
    memset(&ret, 0xFF, sizeof ret);
    if (came >> from & 1u)
        memcpy(&ret, &all[from], sizeof ret);
    return ret;
}

template <class T> static inline T emu_shfl(emu_site site, unsigned mask, T v, int src, int width = EMU_WARP)
{
    return emu_shuffle(site, mask, v, [=](int lane) { return (lane & ~(width - 1)) | (src & (width - 1)); });
}

template <class T> static inline T emu_shfl_up(emu_site site, unsigned mask, T v, unsigned delta, int width = EMU_WARP)
{
    return emu_shuffle(site, mask, v, [=](int lane) { return (lane & (width - 1)) < (int)delta ? lane : lane - (int)delta; });
}

template <class T> static inline T emu_shfl_down(emu_site site, unsigned mask, T v, unsigned delta, int width = EMU_WARP)
{
    return emu_shuffle(site, mask, v, [=](int lane) { return (lane & (width - 1)) + (int)delta >= width ? lane : lane + (int)delta; });
}

template <class T> static inline T emu_shfl_xor(emu_site site, unsigned mask, T v, int bits, int width = EMU_WARP)
{
    return emu_shuffle(site, mask, v, [=](int lane) { return (lane ^ bits) / width > lane / width ? lane : lane ^ bits; });
}

/* Lanes that came with a predicate that holds; *ret_came: all that came. */
static inline unsigned emu_ballot(emu_site site, unsigned mask, int predicate, unsigned *ret_came)
{
    uint64_t all[EMU_WARP];
    unsigned came, votes = 0;
    int self;

    came = emu_meet(site, mask, predicate != 0, all, &self);
    for (int lane = 0; lane < EMU_WARP; lane++)
        if ((came >> lane & 1u) && all[lane])
            votes |= 1u << lane;
    *ret_came = came;
    return votes;
}

EMU_FN unsigned emu_ballot_all(emu_site site, unsigned mask, int predicate, bool all)
{
    unsigned came, votes = emu_ballot(site, mask, predicate, &came);

    return all ? votes == came : votes;
}

#define __shfl_sync(...)        emu_shfl(EMU_SITE, __VA_ARGS__)
#define __shfl_up_sync(...)     emu_shfl_up(EMU_SITE, __VA_ARGS__)
#define __shfl_down_sync(...)   emu_shfl_down(EMU_SITE, __VA_ARGS__)
#define __shfl_xor_sync(...)    emu_shfl_xor(EMU_SITE, __VA_ARGS__)
#define __ballot_sync(mask, p)  emu_ballot_all(EMU_SITE, mask, p, false)
#define __any_sync(mask, p)     (emu_ballot_all(EMU_SITE, mask, p, false) != 0)
#define __all_sync(mask, p)     ((int)emu_ballot_all(EMU_SITE, mask, p, true))
#define __syncwarp(...)         ((void)emu_ballot_all(EMU_SITE, emu_mask(__VA_ARGS__), 0, false))
#define __reduce_add_sync(m, v) emu_reduce(EMU_SITE, m, v, [](auto a, auto b) { return a + b; })
#define __reduce_max_sync(m, v) emu_reduce(EMU_SITE, m, v, [](auto a, auto b) { return a > b ? a : b; })
#define __reduce_min_sync(m, v) emu_reduce(EMU_SITE, m, v, [](auto a, auto b) { return a < b ? a : b; })
#define __reduce_or_sync(m, v)  emu_reduce(EMU_SITE, m, v, [](auto a, auto b) { return a | b; })

EMU_FN unsigned emu_mask(unsigned mask = 0xFFFFFFFFu)
{
    return mask;
}

/* For int and unsigned, as on a GPU. */
template <class T, class Op> static inline T emu_reduce(emu_site site, unsigned mask, T mine, Op op)
{
    uint64_t all[EMU_WARP];
    int self;
    unsigned came = emu_meet(site, mask, (uint32_t)mine, all, &self);

    for (int lane = 0; lane < EMU_WARP; lane++)
        if ((came >> lane & 1u) && lane != self)
            mine = op(mine, (T)(uint32_t)all[lane]);
    return mine;
}

/* ---- atomics: threads change only where they wait, so plain operations are atomic. All return the old value ---- */
/* clang-format off */
#define EMU_ATOMIC(type)                                                                                                                   \
    EMU_FN type atomicAdd(type *p, type v) { type old = *p; *p = (type)(old + v); return old; }                                            \
    EMU_FN type atomicMax(type *p, type v) { type old = *p; *p = old > v ? old : v; return old; }                                          \
    EMU_FN type atomicMin(type *p, type v) { type old = *p; *p = old < v ? old : v; return old; }                                          \
    EMU_FN type atomicOr(type *p, type v) { type old = *p; *p = old | v; return old; }                                                     \
    EMU_FN type atomicAnd(type *p, type v) { type old = *p; *p = old & v; return old; }                                                    \
    EMU_FN type atomicXor(type *p, type v) { type old = *p; *p = old ^ v; return old; }                                                    \
    EMU_FN type atomicExch(type *p, type v) { type old = *p; *p = v; return old; }                                                         \
    EMU_FN type atomicCAS(type *p, type expected, type v) { type old = *p; if (old == expected) *p = v; return old; }
EMU_ATOMIC(int)
EMU_ATOMIC(unsigned)
EMU_ATOMIC(unsigned long long)
/* clang-format on */
EMU_FN int atomicSub(int *p, int v)
{
    return atomicAdd(p, -v);
}
EMU_FN unsigned atomicSub(unsigned *p, unsigned v)
{
    return atomicAdd(p, 0u - v);
}

/* ---- loads and stores with cache hints ---- */
#define EMU_LOAD(name)                                  \
    template <class T> static inline T name(const T *p) \
    {                                                   \
        return *p;                                      \
    }
#define EMU_STORE(name)                                   \
    template <class T> static inline void name(T *p, T v) \
    {                                                     \
        *p = v;                                           \
    }
EMU_LOAD(__ldg)
EMU_LOAD(__ldca)
EMU_LOAD(__ldcg)
EMU_LOAD(__ldcs)
EMU_LOAD(__ldlu)
EMU_LOAD(__ldcv)
EMU_STORE(__stwb)
EMU_STORE(__stcg)
EMU_STORE(__stcs)
EMU_STORE(__stwt)

/* ---- numbers ---- */
/* clang-format off */
#define EMU_MIN_MAX(type)                                                                                                                  \
    EMU_FN type min(type a, type b) { return a < b ? a : b; }                                                                              \
    EMU_FN type max(type a, type b) { return a > b ? a : b; }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
EMU_FN float min(float a, float b) { return fminf(a, b); }
EMU_FN float max(float a, float b) { return fmaxf(a, b); }
EMU_FN double min(double a, double b) { return fmin(a, b); }
EMU_FN double max(double a, double b) { return fmax(a, b); }

#define EMU_BITS(name, to, from) EMU_FN to name(from x) { to y; memcpy(&y, &x, sizeof y); return y; }
EMU_BITS(__float_as_int, int, float)
EMU_BITS(__float_as_uint, unsigned, float)
EMU_BITS(__int_as_float, float, int)
EMU_BITS(__uint_as_float, float, unsigned)
EMU_BITS(__double_as_longlong, long long, double)
EMU_BITS(__longlong_as_double, double, long long)

EMU_FN int __popc(unsigned x) { return __builtin_popcount(x); }
EMU_FN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMU_FN int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
EMU_FN int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
EMU_FN int __ffs(int x) { return __builtin_ffs(x); }
EMU_FN int __ffsll(long long x) { return __builtin_ffsll(x); }
EMU_FN unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
EMU_FN float __fadd_rn(float a, float b) { return a + b; }
EMU_FN float __fsub_rn(float a, float b) { return a - b; }
EMU_FN float __fmul_rn(float a, float b) { return a * b; }
EMU_FN float __fdiv_rn(float a, float b) { return a / b; }
EMU_FN float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
EMU_FN float __double2float_rn(double a) { return (float)a; }
/* clang-format on */

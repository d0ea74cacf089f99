/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/devices.h - every device of this computer, and the question of
 * each op test: do all of them give the same bits? The CPU runs with one and two threads. With "cuda" in a test's
 * "uses:" line the CUDA device runs on an emulated GPU, once per seed (tests/stand/emu: the order of blocks, threads
 * and streams follows the seed). If DETD_TEST_CUDA in the environment names a libdetd-cuda.so, the test's time belongs
 * to that GPU: only a single CPU device runs beside it. Memory goes through alloc, upload and download. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/err.h"
#include "tests/device/plugin.h"
#include "worker/core/device.h"
#include "worker/core/philox.h"
#include "worker/ops/families.h"

#ifdef CUDA_EMU
#include "tests/stand/emu/emu.h"
#endif

/* The memory sanitizer is used for the CUDA device's kernels: a single build of the CPU device is enough beside
 * them. */
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#define TEST_MSAN 1
#include <jansson.h>
#endif
#endif

const struct device_ops *cpu_backend_avx512(void);
const struct device_ops *cpu_backend_avx2(void);
const struct device_ops *cpu_backend_generic(void);

enum { MAX_DEVICES = 16, MAX_BUFFERS = 256, EMU_SEEDS = 3 };

struct devices {
    int n;
    struct device *dev[MAX_DEVICES];
    uint64_t seed[MAX_DEVICES]; /* of an emulated GPU, 0: no such */
    bool real;                  /* the last is a GPU */
    /* device memory of the test that runs, freed after each run */
    int nbuffers;
    void *buffer[MAX_BUFFERS];
    struct device *owner;
};

static struct devices devices;

static void open_device(const struct device_ops *ops, const struct device_options *opt, uint64_t seed)
{
    struct err err;

    assert_true(devices.n < MAX_DEVICES);
    if (ops->open(0, opt, &devices.dev[devices.n], &err) < 0) {
        printf("%s: %s\n", ops->name, err.msg);
        return;
    }
    devices.seed[devices.n++] = seed;
}

#ifdef TEST_MSAN
/* For the JSON library, which was not built with the sanitizer. */
static void *memory_that_counts_as_written(size_t bytes)
{
    return calloc(1, bytes);
}
#endif

static void open_cpus(bool one)
{
    static const struct device_ops *(*const backend[])(void) = {
#ifndef TEST_MSAN
        cpu_backend_avx512, cpu_backend_avx2,
#endif
        cpu_backend_generic
    };

    for (size_t b = 0; b < sizeof backend / sizeof *backend; b++) {
        if (b > 0 && backend[b]() == backend[b - 1]())
            continue; /* one stands in for all: make ISAS= */
        for (int threads = 1; threads <= 2 && !(one && devices.n > 0); threads++) {
            struct device_options opt = { .threads = threads };

            open_device(backend[b](), &opt, 0);
        }
    }
}

static void open_plugin(const struct device_ops *ops)
{
    const struct device_options gpu = { .precision = PRECISION_FP32 };
    struct device_info info;
    int before = devices.n;

    open_device(ops, &gpu, 0);
    if (devices.n == before)
        exit(1); /* a plugin that was named must be tested */
    devices.real = true;
    ops->info(devices.dev[before], &info);
    printf("GPU: %s", info.name);
    for (int i = 0; i < info.nversions; i++)
        printf(", %s %s", info.version[i].name, info.version[i].value);
    printf("\n");
}

__attribute__((unused)) static int open_devices(void **state)
{
    const struct device_ops *plugin = cuda_plugin();

    (void)state;
#ifdef TEST_MSAN
    json_set_alloc_funcs(memory_that_counts_as_written, free);
#endif
    open_cpus(plugin != NULL);
#ifdef CUDA_EMU
    for (uint64_t seed = 1; seed <= EMU_SEEDS && !plugin; seed++)
        open_device(cuda_backend_emu(), &(struct device_options){ .precision = PRECISION_FP32 }, seed);
#endif
    if (plugin)
        open_plugin(plugin);
    return devices.n > 0 ? 0 : -1;
}

__attribute__((unused)) static int close_devices(void **state)
{
    (void)state;
    for (int i = 0; i < devices.n; i++)
        devices.dev[i]->ops->close(devices.dev[i]);
    return 0;
}

/* Device memory with a copy of `bytes` bytes, or zeros where host is NULL. Lives until the run ends. */
__attribute__((unused)) static void *put(struct device *dev, const void *host, size_t bytes)
{
    void *p = dev->ops->alloc(dev, bytes ? bytes : 1);
    struct err err;

    assert_non_null(p);
    assert_true(devices.nbuffers < MAX_BUFFERS);
    devices.owner = dev;
    devices.buffer[devices.nbuffers++] = p;
    if (host && dev->ops->upload(dev, p, host, bytes, &err) < 0)
        fail_msg("%s", err.msg);
    return p;
}

__attribute__((unused)) static void get(struct device *dev, void *host, const void *ptr, size_t bytes)
{
    struct err err;

    if (dev->ops->sync(dev, &err) < 0 || dev->ops->download(dev, host, ptr, bytes, &err) < 0)
        fail_msg("%s", err.msg);
}

static void free_buffers(void)
{
    while (devices.nbuffers > 0)
        devices.owner->ops->free(devices.owner, devices.buffer[--devices.nbuffers]);
}

/* The following calls run on device i: an emulated GPU goes by its seed. */
__attribute__((unused)) static void use_device(int i)
{
#ifdef CUDA_EMU
    if (devices.seed[i])
        emu_seed(devices.seed[i]);
#endif
    (void)i;
}

/* A CPU's NaN beside a GPU's, 0x7FFFFFFF in fp32. Not any two NaN: -1 among integers looks like one. */
static bool nan32_of_each(const uint32_t *cpu, const uint32_t *gpu)
{
    return (*cpu & 0x7FFFFFFFu) == 0x7FC00000u && *gpu == 0x7FFFFFFFu;
}

static bool nan64_of_each(const uint32_t *cpu, const uint32_t *gpu)
{
    return cpu[0] == 0 && (cpu[1] & 0x7FFFFFFFu) == 0x7FF80000u && (gpu[1] & 0x7FFFFFFFu) >= 0x7FF80000u;
}

/* The first byte that differs, or `bytes` if all are equal. real: `other` is of a real GPU, with other bits in a NaN
 * than a CPU's. */
__attribute__((unused)) static size_t difference(const void *one, const void *other, size_t bytes, bool real)
{
    size_t n = bytes / sizeof(uint32_t), at = n;
    const uint32_t *a = one, *b = other;

    for (size_t i = 0; i < n && at == n; i++) {
        if (real && i % 2 == 0 && i + 1 < n && nan64_of_each(a + i, b + i))
            i++;
        else if (a[i] != b[i] && !(real && nan32_of_each(a + i, b + i)))
            at = i;
    }
    at *= sizeof *a;
    while (at < bytes && ((const char *)one)[at] == ((const char *)other)[at])
        at++;
    return at;
}

static uint32_t word_at(const void *p, size_t at, size_t bytes)
{
    uint32_t word = 0;

    at -= at % sizeof word;
    memcpy(&word, (const char *)p + at, bytes - at < sizeof word ? bytes - at : sizeof word);
    return word;
}

/* Runs `run` on every device; it writes `bytes` bytes of results. All must have the same bits, which stay in ret. */
__attribute__((unused)) static void same_on_all(void (*run)(struct device *dev, const void *arg, void *ret), const void *arg, void *ret,
                                                size_t bytes)
{
    void *other = malloc(bytes);
    size_t at;

    assert_non_null(other);
    for (int i = 0; i < devices.n; i++) {
        use_device(i);
        memset(i == 0 ? ret : other, 0xAB, bytes);
        run(devices.dev[i], arg, i == 0 ? ret : other);
        free_buffers();
        at = i > 0 ? difference(ret, other, bytes, devices.real) : bytes;
        if (at < bytes)
            fail_msg("%s (device %d) differs from %s: word %zu of %zu is %08x, not %08x", devices.dev[i]->ops->name, i,
                     devices.dev[0]->ops->name, at / 4, (bytes + 3) / 4, word_at(other, at, bytes), word_at(ret, at, bytes));
    }
    free(other);
}

/* n numbers in [lo, hi), the same in every run. */
__attribute__((unused)) static float *numbers(size_t n, uint64_t seed, float lo, float hi)
{
    struct philox_key key = { .seed = seed };
    float *x = malloc(n * sizeof(*x));

    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = lo + (hi - lo) * philox_uniform(&key, i);
    return x;
}

/* |got - want| <= tol * max(1, |want|) */
__attribute__((unused)) static void near(double got, double want, double tol, const char *what, size_t i)
{
    double size = want < 0 ? -want : want, diff = got - want;

    if (!(diff < 0 ? -diff : diff) && size == size)
        return;
    if (!((diff < 0 ? -diff : diff) <= tol * (size > 1.0 ? size : 1.0)))
        fail_msg("%s[%zu] is %.9g, should be %.9g", what, i, got, want);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/control.c - shared state of the emulator's files: one lock,
 * one sequence of random numbers, one context and its error. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/stand/emu/emu.h"
#include "tests/stand/emu/internal.h"

static struct {
    pthread_mutex_t lock;
    uint64_t random;
    bool seeded;
    int fail_after, fail_with;
    cudaError_t lost; /* the context's sticky error */
} g = { .lock = PTHREAD_MUTEX_INITIALIZER };

static __thread cudaError_t last_error;

void emu_lock(void)
{
    pthread_mutex_lock(&g.lock);
}

void emu_unlock(void)
{
    pthread_mutex_unlock(&g.lock);
}

void emu_violation(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fputs("emulated GPU: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}

void emu_wait(pthread_cond_t *changed, const struct timespec *until)
{
    pthread_cond_timedwait(changed, &g.lock, until);
}

/* ---- randomness ---- */

static void seed_with(uint64_t seed)
{
    g.random = seed * 0x9E3779B97F4A7C15u + 0x2545F4914F6CDD1Du;
    g.seeded = true;
}

void emu_seed(uint64_t seed)
{
    emu_lock();
    seed_with(seed);
    emu_unlock();
}

/* splitmix64; the high half times n is uniform enough for schedules. */
uint32_t emu_random(uint32_t n)
{
    uint64_t x;

    if (!g.seeded) {
        const char *s = getenv("EMU_SEED");

        seed_with(s ? strtoull(s, NULL, 10) : 1);
    }
    x = g.random += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return (uint32_t)((x >> 32) * n >> 32);
}

/* ---- errors ---- */

cudaError_t emu_error(cudaError_t e)
{
    if (e != cudaSuccess && e != cudaErrorNotReady)
        last_error = e;
    return e;
}

cudaError_t emu_context(void)
{
    if (emu_device_absent())
        return cudaErrorNoDevice;
    return g.lost;
}

cudaError_t cudaPeekAtLastError(void)
{
    cudaError_t e;

    emu_lock();
    e = g.lost != cudaSuccess ? g.lost : last_error;
    emu_unlock();
    return e;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = cudaPeekAtLastError();

    last_error = cudaSuccess;
    return e;
}

void emu_fail_task_after(int n, int error)
{
    emu_lock();
    g.fail_after = n;
    g.fail_with = error;
    emu_unlock();
}

void emu_revive(void)
{
    emu_lock();
    g.lost = cudaSuccess;
    last_error = cudaSuccess;
    emu_unlock();
}

cudaError_t emu_task_starts(void)
{
    if (g.fail_after > 0 && --g.fail_after == 0)
        g.lost = (cudaError_t)g.fail_with;
    return g.lost;
}

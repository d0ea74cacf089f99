/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_emu.c - uses: proto
 * The emulated GPU on its own: effects that depend on a seed, effects that must not, and the detection of programs'
 * errors. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/stand/emu/emu.h"
#include "tests/stand/emu/probe.h"
#include "tests/stand/harness.h"

/* The memory sanitizer ends the process where others read garbage. */
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#define MSAN 1
#endif
#endif

enum { SEEDS = 20 };

/* Runs crime() in a child; it must die, and (unless says is NULL) say that on stderr. */
static void dies(void (*crime)(cudaStream_t s, int *dev), const char *says);

#define OK(call) assert_int_equal(call, cudaSuccess)

static cudaStream_t stream(void)
{
    cudaStream_t s;

    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

static void *device(size_t bytes)
{
    void *p;

    OK(cudaMalloc(&p, bytes));
    return p;
}

static void *zeroed(size_t bytes)
{
    void *p = device(bytes);

    OK(cudaMemset(p, 0, bytes));
    OK(cudaDeviceSynchronize());
    return p;
}

static void fetch(void *host, const void *dev, size_t bytes)
{
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(host, dev, bytes, cudaMemcpyDeviceToHost));
    OK(cudaPeekAtLastError());
}

/* ---- blocks and threads ---- */

static void barriers_and_shuffles(void **state)
{
    enum { BLOCKS = 40 };
    cudaStream_t s = stream();
    float *x = device(BLOCKS * 256 * sizeof(*x)), *dst = device(BLOCKS * sizeof(*dst)), host[BLOCKS * 256], got[BLOCKS];

    (void)state;
    for (int i = 0; i < BLOCKS * 256; i++)
        host[i] = (float)(i % 97);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        emu_seed(seed);
        OK(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, s));
        probe_sum(s, dst, x, BLOCKS);
        fetch(got, dst, sizeof got);
        for (int b = 0; b < BLOCKS; b++) {
            float want = 0.0f; /* of whole numbers: exact in any order */

            for (int i = 0; i < 256; i++)
                want += host[b * 256 + i];
            assert_true(got[b] == want);
        }
    }
    OK(cudaFree(x));
    OK(cudaFree(dst));
    OK(cudaStreamDestroy(s));
}

/* Fills ret with the order that seed gives; checks that it is one. */
static void order(uint64_t seed, bool blocks, int *ret, int n)
{
    cudaStream_t s = stream();
    int *dst = device((size_t)n * sizeof(*dst)), *counter = zeroed(sizeof(*counter));
    bool *seen = calloc((size_t)n, sizeof(*seen));

    assert_non_null(seen);
    emu_seed(seed);
    if (blocks)
        probe_block_order(s, dst, counter, n);
    else
        probe_thread_order(s, dst, counter, n);
    fetch(ret, dst, (size_t)n * sizeof(*ret));
    for (int i = 0; i < n; i++) {
        assert_in_range(ret[i], 0, n - 1);
        assert_false(seen[ret[i]]);
        seen[ret[i]] = true;
    }
    free(seen);
    OK(cudaFree(dst));
    OK(cudaFree(counter));
    OK(cudaStreamDestroy(s));
}

static void orders_follow_the_seed(void **state)
{
    enum { N = 200 };
    int a[N], b[N];

    (void)state;
    for (int blocks = 0; blocks < 2; blocks++) {
        order(1, blocks, a, N);
        order(2, blocks, b, N);
        assert_memory_not_equal(a, b, sizeof a);
        order(1, blocks, b, N);
        assert_memory_equal(a, b, sizeof a);
    }
}

#ifdef MSAN
static void forgets_a_barrier(cudaStream_t s, int *dev)
{
    int got[64];

    probe_neighbour(s, dev, 64, false);
    fetch(got, dev, sizeof got);
    if (got[0] + got[1] + got[2] + got[3] == 0)
        exit(0);
}

static void a_missing_barrier_shows(void **state)
{
    (void)state;
    dies(forgets_a_barrier, "use-of-uninitialized-value");
}
#else
static void a_missing_barrier_shows(void **state)
{
    enum { N = 256 };
    cudaStream_t s = stream();
    int *dst = device(N * sizeof(*dst)), first[N], got[N];
    bool differs = false;

    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        emu_seed(seed);
        probe_neighbour(s, dst, N, true);
        fetch(got, dst, sizeof got);
        for (int i = 0; i < N; i++)
            assert_int_equal(got[i], (i + 1) % N);
        probe_neighbour(s, dst, N, false);
        fetch(got, dst, sizeof got);
        if (seed == 1)
            memcpy(first, got, sizeof first);
        differs = differs || memcmp(first, got, sizeof first) != 0;
    }
    assert_true(differs);
    OK(cudaFree(dst));
    OK(cudaStreamDestroy(s));
}
#endif

static void warp_functions(void **state)
{
    cudaStream_t s = stream();
    uint32_t *dst = device(PROBE_ROWS * 32 * sizeof(*dst)), got[PROBE_ROWS][32];

    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        emu_seed(seed);
        probe_warp(s, dst);
        fetch(got, dst, sizeof got);
        for (uint32_t t = 0; t < 32; t++) {
            assert_int_equal(got[0][t], 103);
            assert_int_equal(got[1][t], t < 1 ? 100 : 100 + t - 1);
            assert_int_equal(got[2][t], t + 2 > 31 ? 100 + t : 100 + t + 2);
            assert_int_equal(got[3][t], 100 + (t ^ 5));
            assert_int_equal(got[4][t], t % 8 < 1 ? 100 + t : 100 + t - 1);
            assert_int_equal(got[5][t], t % 8 > 6 ? 100 + t : 100 + t + 1);
            assert_int_equal(got[6][t], 0xAAAAAAAAu);
            assert_int_equal(got[7][t], 31 * 32 / 2);
        }
    }
    probe_partial_warp(s, dst);
    fetch(got, dst, 20 * sizeof(uint32_t));
    for (uint32_t t = 0; t < 20; t++)
        assert_int_equal(got[0][t], t + 4 < 20 ? t + 4 : 0xFFFFFFFFu); /* the value of an ended lane is unusable */
    OK(cudaFree(dst));
    OK(cudaStreamDestroy(s));
}

static void votes_and_indices(void **state)
{
    enum { N = 2 * 3 * 2 * 4 * 3 * 2 };
    cudaStream_t s = stream();
    int *dst = device(N * sizeof(*dst)), got[N];

    (void)state;
    for (int below = 0; below <= 100; below += 50) {
        probe_votes(s, dst, below);
        fetch(got, dst, 3 * sizeof(*got));
        assert_int_equal(got[0], below > 0);
        assert_int_equal(got[1], below == 100);
        assert_int_equal(got[2], below);
    }
    probe_indices(s, dst);
    fetch(got, dst, sizeof got);
    for (int i = 0; i < N; i++)
        assert_int_equal(got[i], i);
    OK(cudaFree(dst));
    OK(cudaStreamDestroy(s));
}

#ifdef MSAN
static void reads_unwritten(cudaStream_t s, int *dev)
{
    int got;

    probe_unwritten(s, (uint32_t *)dev);
    fetch(&got, dev, sizeof got);
    if (got == 0)
        exit(0);
}

static void memory_starts_as_garbage(void **state)
{
    (void)state;
    dies(reads_unwritten, "use-of-uninitialized-value");
}
#else
static void memory_starts_as_garbage(void **state)
{
    cudaStream_t s = stream();
    uint32_t *dst = device(4 * sizeof(*dst)), got[4];

    (void)state;
    fetch(got, dst, sizeof got);
    for (int i = 0; i < 4; i++)
        assert_int_equal(got[i], 0xFFFFFFFFu);
    probe_unwritten(s, dst);
    fetch(got, dst, sizeof got);
    assert_int_equal(got[0], 0xFFFFFFFFu);
    OK(cudaFree(dst));
    OK(cudaStreamDestroy(s));
}
#endif

/* ---- streams ---- */

/* A stream writes 1 over 0, another reads. Returns the value that is read. */
static float read_across(uint64_t seed, bool event)
{
    cudaStream_t a = stream(), b = stream();
    float *x = zeroed(64 * sizeof(*x)), *y = zeroed(64 * sizeof(*y)), got;
    cudaEvent_t e;

    emu_seed(seed);
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    probe_fill(a, x, 1, 1.0f);
    OK(cudaEventRecord(e, a));
    if (event)
        OK(cudaStreamWaitEvent(b, e, 0));
    OK(cudaMemcpyAsync(y, x, 64 * sizeof(*y), cudaMemcpyDeviceToDevice, b));
    OK(cudaStreamSynchronize(b));
    OK(cudaStreamSynchronize(a));
    fetch(&got, y, sizeof got);
    OK(cudaEventDestroy(e));
    OK(cudaFree(x));
    OK(cudaFree(y));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    return got;
}

static void a_missing_event_shows(void **state)
{
    int early = 0, late = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        assert_true(read_across(seed, true) == 1.0f);
        if (read_across(seed, false) == 1.0f)
            late++;
        else
            early++;
    }
    assert_int_not_equal(early, 0);
    assert_int_not_equal(late, 0);
}

/* Copies from a host buffer that is overwritten before the stream is synchronized. */
static float reuse(uint64_t seed, float *host)
{
    cudaStream_t s = stream();
    float *x = device(sizeof(*x)), got;

    emu_seed(seed);
    *host = 1.0f;
    OK(cudaMemcpyAsync(x, host, sizeof(*x), cudaMemcpyHostToDevice, s));
    *host = 2.0f;
    fetch(&got, x, sizeof got);
    OK(cudaFree(x));
    OK(cudaStreamDestroy(s));
    return got;
}

static void a_host_buffer_reused_too_early_shows(void **state)
{
    float pageable, *pinned;
    int wrong = 0;

    (void)state;
    OK(cudaHostAlloc((void **)&pinned, sizeof(*pinned), cudaHostAllocDefault));
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        assert_true(reuse(seed, &pageable) == 1.0f); /* documented: staged before the call returns */
        if (reuse(seed, pinned) != 1.0f)
            wrong++;
    }
    assert_int_not_equal(wrong, 0);
    OK(cudaFreeHost(pinned));
}

static void a_result_read_too_early_shows(void **state)
{
    cudaStream_t s = stream();
    float *x = device(64 * sizeof(*x)), *pinned;
    int early = 0;

    (void)state;
    OK(cudaHostAlloc((void **)&pinned, sizeof(*pinned), cudaHostAllocDefault));
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        emu_seed(seed);
        *pinned = 0.0f;
        probe_fill(s, x, 1, 1.0f);
        OK(cudaMemcpyAsync(pinned, x, sizeof(*x), cudaMemcpyDeviceToHost, s));
        early += *pinned == 0.0f;
        OK(cudaStreamSynchronize(s));
        assert_true(*pinned == 1.0f);
    }
    assert_int_not_equal(early, 0);
    OK(cudaFreeHost(pinned));
    OK(cudaFree(x));
    OK(cudaStreamDestroy(s));
}

static void asking_makes_progress(void **state)
{
    cudaStream_t s = stream();
    float *x = device(64 * sizeof(*x));
    cudaEvent_t e;
    int asked = 0;

    (void)state;
    OK(cudaEventCreate(&e));
    OK(cudaEventQuery(e)); /* never recorded: nothing to wait for */
    for (int i = 0; i < 50; i++)
        probe_fill(s, x, 1, (float)i);
    OK(cudaEventRecord(e, s));
    while (cudaEventQuery(e) == cudaErrorNotReady)
        asked++;
    OK(cudaPeekAtLastError());
    assert_in_range(asked, 1, 1000);
    OK(cudaStreamQuery(s));
    OK(cudaEventDestroy(e));
    OK(cudaFree(x));
    OK(cudaStreamDestroy(s));
}

static int meets(void *arg)
{
    int **shared = arg;

    return ++**shared < 5 ? EMU_AGAIN : EMU_DONE;
}

static void tasks_that_wait_let_others_pass(void **state)
{
    cudaStream_t a = stream(), b = stream();
    int count = 0, *p = &count;

    (void)state;
    assert_int_equal(emu_task(a, "a rendezvous", meets, &p, sizeof p), 0);
    assert_int_equal(emu_task(b, "a rendezvous", meets, &p, sizeof p), 0);
    OK(cudaStreamSynchronize(a));
    OK(cudaStreamSynchronize(b));
    assert_in_range(count, 5, 6);
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}

/* ---- faults on request ---- */

static void faults(void **state)
{
    cudaStream_t s = stream();
    size_t before = emu_memory_used(), have, total;
    float *x, *y;
    int n;

    (void)state;
    emu_fail_malloc_after(2);
    OK(cudaMalloc((void **)&x, 64 * sizeof(*x)));
    assert_int_equal(cudaMalloc((void **)&y, 4), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaGetLastError());
    emu_memory_limit(before + 4096);
    assert_int_equal(cudaMalloc((void **)&y, 4096), cudaErrorMemoryAllocation);
    OK(cudaMemGetInfo(&have, &total));
    assert_int_equal(total, before + 4096);
    assert_int_equal(have, 4096 - 512);
    (void)cudaGetLastError();
    emu_memory_limit((size_t)16 << 30);

    emu_no_device(true);
    assert_int_equal(cudaGetDeviceCount(&n), cudaErrorNoDevice);
    emu_no_device(false);
    (void)cudaGetLastError();
    OK(cudaGetDeviceCount(&n));
    assert_int_equal(n, 1);

    probe_too_many_threads(s, (int *)(void *)x);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    emu_fail_task_after(1, cudaErrorIllegalAddress);
    probe_fill(s, x, 1, 1.0f);
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress); /* sticky */
    assert_int_equal(cudaMalloc((void **)&y, 4), cudaErrorIllegalAddress);
    emu_revive();
    OK(cudaGetLastError());
    OK(cudaFree(x));
    OK(cudaStreamDestroy(s));
    assert_int_equal(emu_memory_used(), before);
}

/* ---- errors that no correct program makes end the process ---- */

static void dies(void (*crime)(cudaStream_t s, int *dev), const char *says)
{
    char said[8192];
    size_t n = 0;
    int fds[2], status;
    ssize_t got;
    pid_t child;

    assert_int_equal(pipe(fds), 0);
    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        cudaStream_t s;
        int *dev;

        dup2(fds[1], STDERR_FILENO);
        signal(SIGSEGV, SIG_DFL); /* the test framework's handler would continue with the next test */
        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
        cudaMalloc((void **)&dev, 64 * sizeof(*dev));
        crime(s, dev);
        cudaDeviceSynchronize();
        _exit(0);
    }
    close(fds[1]);
    while ((got = read(fds[0], said + n, sizeof said - 1 - n)) > 0)
        n += (size_t)got;
    close(fds[0]);
    said[n] = '\0';
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        fail_msg("lives on instead of saying '%s'", says ? says : "anything");
    if (says && !strstr(said, says))
        fail_msg("says '%s' instead of '%s'", said, says);
}

static void frees_queued(cudaStream_t s, int *dev)
{
    emu_seed(3);
    for (int i = 0; i < 100; i++)
        probe_fill(s, (float *)(void *)dev, 1, 1.0f);
    cudaFree(dev);
}

static void frees_twice(cudaStream_t s, int *dev)
{
    (void)s;
    cudaFree(dev);
    cudaFree(dev);
}

static void copies_too_much(cudaStream_t s, int *dev)
{
    cudaMemcpyAsync(dev, dev + 1, 64 * sizeof(*dev), cudaMemcpyDeviceToDevice, s);
}

static void writes_on_the_host(cudaStream_t s, int *dev)
{
    (void)s;
    *(volatile int *)dev = 1;
}

static void writes_freed(cudaStream_t s, int *dev)
{
    cudaFree(dev);
    probe_fill(s, (float *)(void *)dev, 1, 1.0f);
}

static void overruns(cudaStream_t s, int *dev)
{
    probe_fill(s, (float *)(void *)(dev + 1), 1, 1.0f);
    cudaStreamSynchronize(s);
    cudaFree(dev);
}

static void passes_host_memory(cudaStream_t s, int *dev)
{
    float *mine = calloc(64, sizeof(*mine));

    (void)dev;
    probe_fill(s, mine, 1, 1.0f);
    free(mine);
}

static void overruns_shared(cudaStream_t s, int *dev)
{
    probe_shared_overrun(s, dev, 64);
}

static void crimes(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    SKIP("the thread sanitizer and fork");
#endif
    dies(probe_two_barriers, "tests/stand/emu/probe.cu:");
    dies(probe_two_barriers, "kernel two_barriers, block (0,0,0)");
    dies(probe_stuck, "threads wait for each other for ever");
    dies(frees_queued, "is freed while fill, which is queued, uses it");
    dies(frees_twice, "not the start of device memory");
    dies(copies_too_much, "not inside one allocation");
    dies(writes_on_the_host, NULL);
    dies(writes_freed, NULL);
    dies(overruns, NULL);
#ifdef __SANITIZE_ADDRESS__
    dies(overruns_shared, "heap-buffer-overflow");
#else
    (void)overruns_shared;
#endif
#ifdef MSAN
    dies(passes_host_memory, "of host memory");
#else
    (void)passes_host_memory;
#endif
}

/* ---- bf16 ---- */

static float value_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* The nearer of the two bf16 around x, the even one if both are equally near, by distances in double. Beyond the
 * largest bf16 it is as if there were one more. */
static uint16_t plain_bf16(uint32_t bits)
{
    uint32_t low = bits & 0xFFFF0000u, high = low + 0x10000u;
    double x = (double)value_of(bits), a = (double)value_of(low), b = (double)value_of(high), da, db;

    if ((high & 0x7FFFFFFFu) == 0x7F800000u)
        b = low >> 31 ? -0x1p128 : 0x1p128;
    da = x > a ? x - a : a - x;
    db = x > b ? x - b : b - x;
    if (da == db)
        return (uint16_t)((low >> 16 & 1u) ? high >> 16 : low >> 16);
    return (uint16_t)(da < db ? low >> 16 : high >> 16);
}

static void bf16_conversions(void **state)
{
    static const uint32_t tail[] = { 0, 1, 2, 0x1234, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0x8002, 0xC000, 0xFFFE, 0xFFFF };

    (void)state;
    for (uint32_t top = 0; top < 0x10000u; top++) {
        bool nan_top = (top & 0x7F80u) == 0x7F80u && (top & 0x7Fu) != 0;

        if (!nan_top)
            assert_int_equal(probe_bf16_of(probe_bf16_value((uint16_t)top)), top);
        assert_true(memcmp(&(float){ probe_bf16_value((uint16_t)top) }, &(uint32_t){ top << 16 }, 4) == 0);
        for (size_t i = 0; i < sizeof tail / sizeof *tail; i++) {
            uint32_t bits = top << 16 | tail[i];
            uint16_t got = probe_bf16_of(value_of(bits));

            if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
                assert_int_equal(got, 0x7FFF);
            else if ((bits & 0x7FFFFFFFu) == 0x7F800000u)
                assert_int_equal(got, top);
            else if (got != plain_bf16(bits))
                fail_msg("bf16 of %08x is %04x, should be %04x", bits, got, plain_bf16(bits));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers_and_shuffles),
        cmocka_unit_test(orders_follow_the_seed),
        cmocka_unit_test(a_missing_barrier_shows),
        cmocka_unit_test(warp_functions),
        cmocka_unit_test(votes_and_indices),
        cmocka_unit_test(memory_starts_as_garbage),
        cmocka_unit_test(a_missing_event_shows),
        cmocka_unit_test(a_host_buffer_reused_too_early_shows),
        cmocka_unit_test(a_result_read_too_early_shows),
        cmocka_unit_test(asking_makes_progress),
        cmocka_unit_test(tasks_that_wait_let_others_pass),
        cmocka_unit_test(faults),
        cmocka_unit_test(crimes),
        cmocka_unit_test(bf16_conversions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

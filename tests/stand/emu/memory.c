/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/memory.c - device memory that host code cannot touch,
 * pinned memory, and the kind of memory behind a pointer.
 *
 * Device memory lies in one large reserved range of addresses. It can be read and written only while the emulator runs
 * tasks (emu_memory_open()). Each allocation ends at an inaccessible page, and addresses are not used twice, so a
 * pointer to freed memory stays bad. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/stand/emu/emu.h"
#include "tests/stand/emu/internal.h"

#define RANGE_BYTES ((size_t)1 << 39) /* of addresses; the thread sanitizer leaves room for little more */
enum { PAGE = 4096, ALIGN = 256, CANARY = 0xC9, GUARD_ALWAYS = 4 << 20, GUARD_ONE_IN = 16 };

struct piece {
    char *ptr;
    size_t bytes;
    enum emu_memory kind;
    bool registered; /* pinned, but not allocated here */
};

static struct {
    char *base, *bump;
    struct piece *piece; /* ascending */
    size_t n, cap;
    size_t used, limit;
    uint64_t allocations;
    int fail_after;
    bool absent;
    bool open; /* device memory can be read and written */
} mem = { .limit = (size_t)16 << 30 };

void emu_no_device(bool on)
{
    emu_lock();
    mem.absent = on;
    emu_unlock();
}

bool emu_device_absent(void)
{
    return mem.absent;
}

void emu_memory_limit(size_t bytes)
{
    emu_lock();
    mem.limit = bytes ? bytes : SIZE_MAX;
    emu_unlock();
}

void emu_fail_malloc_after(int n)
{
    emu_lock();
    mem.fail_after = n;
    emu_unlock();
}

size_t emu_memory_used(void)
{
    size_t n;

    emu_lock();
    n = mem.used;
    emu_unlock();
    return n;
}

uint64_t emu_allocations(void)
{
    uint64_t n;

    emu_lock();
    n = mem.allocations;
    emu_unlock();
    return n;
}

void emu_poison(void *ptr, size_t bytes)
{
#ifdef EMU_MSAN
    __msan_poison(ptr, bytes);
#else
    memset(ptr, 0xFF, bytes);
#endif
}

/* Index of the first piece that starts behind ptr. */
static size_t behind(const char *ptr)
{
    size_t lo = 0, hi = mem.n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (mem.piece[mid].ptr <= ptr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The piece that holds all of [ptr, ptr + bytes), or NULL. */
static struct piece *piece_of(const void *ptr, size_t bytes)
{
    const char *p = ptr;
    size_t i = behind(p);
    struct piece *x = i > 0 ? &mem.piece[i - 1] : NULL;

    return x && (size_t)(p - x->ptr) < x->bytes && bytes <= x->bytes - (size_t)(p - x->ptr) ? x : NULL;
}

/* The piece that starts at ptr. */
static struct piece *piece_at(const void *ptr)
{
    size_t i = behind(ptr);

    return i > 0 && mem.piece[i - 1].ptr == ptr ? &mem.piece[i - 1] : NULL;
}

enum emu_memory emu_memory_of(const void *ptr, size_t bytes)
{
    const char *p = ptr;
    const struct piece *x = piece_of(ptr, bytes ? bytes : 1);

    if (x)
        return x->kind;
    if (mem.base && p >= mem.base && p < mem.base + RANGE_BYTES)
        emu_violation("%zu bytes at %p are not inside one allocation of device memory (freed, or beyond its end?)", bytes, ptr);
    return EMU_PAGEABLE;
}

static void insert(struct piece x)
{
    size_t i = behind(x.ptr);

    if (mem.n == mem.cap) {
        mem.cap = mem.cap ? 2 * mem.cap : 64;
        mem.piece = realloc(mem.piece, mem.cap * sizeof(*mem.piece));
        if (!mem.piece)
            emu_violation("no memory for the list of allocations");
    }
    memmove(&mem.piece[i + 1], &mem.piece[i], (mem.n - i) * sizeof(*mem.piece));
    mem.piece[i] = x;
    mem.n++;
}

static void forget(struct piece *x)
{
    size_t i = (size_t)(x - mem.piece);

    memmove(x, x + 1, (mem.n - i - 1) * sizeof(*x));
    mem.n--;
}

/* Bytes of the pages that a piece takes; the page behind them is never accessible. */
static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static char *first_page(const struct piece *x)
{
    return (char *)((uintptr_t)x->ptr / PAGE * PAGE);
}

static int access_now(void)
{
    return mem.open ? PROT_READ | PROT_WRITE : PROT_NONE;
}

static void protect(const struct piece *x, int prot)
{
    if (mprotect(first_page(x), pages(x->bytes), prot) < 0)
        emu_violation("mprotect of device memory failed: too many allocations for this machine");
}

/* Changing the access to much memory costs as much as a whole step of a small job. If there is much memory, it is
 * closed only now and then: memory that the host touches in every step is still found. */
void emu_memory_open(bool open)
{
    if (open == mem.open || (!open && mem.used > GUARD_ALWAYS && emu_random(GUARD_ONE_IN) != 0))
        return;
    mem.open = open;
    for (size_t i = 0; i < mem.n; i++)
        if (mem.piece[i].kind == EMU_DEVICE)
            protect(&mem.piece[i], access_now());
}

/* Bytes between the end of a piece and its last page's end. */
static char *slack(const struct piece *x, size_t *ret_bytes)
{
    char *end = x->ptr + x->bytes, *page_end = first_page(x) + pages(x->bytes);

    *ret_bytes = (size_t)(page_end - end);
    return end;
}

static bool allowed(size_t bytes)
{
    mem.allocations++;
    if (mem.fail_after > 0 && --mem.fail_after == 0)
        return false;
    return bytes <= mem.limit && mem.used <= mem.limit - bytes;
}

/* Bytes as the accounting and cudaMemGetInfo() see them. */
static size_t taken(size_t bytes)
{
    return (bytes + 511) / 512 * 512;
}

static cudaError_t device_alloc(void **ptr, size_t bytes)
{
    struct piece x = { .bytes = bytes, .kind = EMU_DEVICE };
    size_t need = pages(bytes), n;
    char *tail;

    if (!mem.base) {
        mem.base = mmap(NULL, RANGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mem.base == MAP_FAILED)
            emu_violation("cannot reserve addresses for device memory");
        mem.bump = mem.base;
    }
    if (!allowed(taken(bytes)))
        return cudaErrorMemoryAllocation;
    if (mem.bump + need + PAGE > mem.base + RANGE_BYTES)
        emu_violation("all addresses of device memory were used");
    x.ptr = mem.bump + (need - bytes) / ALIGN * ALIGN; /* as near to the inaccessible page as alignment permits */
    mem.bump += need + PAGE;
    protect(&x, PROT_READ | PROT_WRITE);
    tail = slack(&x, &n);
    emu_poison(x.ptr, bytes);
    memset(tail, CANARY, n);
    ASAN_POISON_MEMORY_REGION(tail, n);
    ASAN_POISON_MEMORY_REGION(first_page(&x), (size_t)(x.ptr - first_page(&x)));
    protect(&x, access_now());
    insert(x);
    mem.used += taken(bytes);
    *ptr = x.ptr;
    return cudaSuccess;
}

static void device_free(struct piece *x)
{
    const char *queued = emu_queued_on(x->ptr, x->ptr + x->bytes);
    size_t n;
    char *tail = slack(x, &n);

    if (queued)
        emu_violation("device memory at %p (%zu bytes) is freed while %s, which is queued, uses it", (void *)x->ptr, x->bytes, queued);
    protect(x, PROT_READ | PROT_WRITE);
    ASAN_UNPOISON_MEMORY_REGION(tail, n);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)tail[i] != CANARY)
            emu_violation("somebody wrote %zu bytes beyond the end of device memory at %p (%zu bytes)", i + 1, (void *)x->ptr, x->bytes);
    ASAN_UNPOISON_MEMORY_REGION(first_page(x), (size_t)(x->ptr - first_page(x)));
    (void)madvise(first_page(x), pages(x->bytes), MADV_DONTNEED);
    protect(x, PROT_NONE);
    mem.used -= taken(x->bytes);
    forget(x);
}

cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
    cudaError_t e;

    emu_lock();
    e = emu_context();
    if (e == cudaSuccess)
        e = bytes == 0 ? (*ptr = NULL, cudaSuccess) : device_alloc(ptr, bytes);
    emu_error(e);
    emu_unlock();
    return e;
}

cudaError_t cudaFree(void *ptr)
{
    struct piece *x;
    cudaError_t e = cudaSuccess;

    if (!ptr)
        return cudaSuccess;
    emu_lock();
    x = piece_at(ptr);
    if (!x || x->kind != EMU_DEVICE)
        emu_violation("cudaFree(%p): not the start of device memory that is allocated", ptr);
    device_free(x);
    e = emu_error(emu_context());
    emu_unlock();
    return e;
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
    cudaError_t e;

    (void)flags;
    emu_lock();
    e = emu_context();
    mem.allocations++;
    if (e == cudaSuccess && ((mem.fail_after > 0 && --mem.fail_after == 0) || posix_memalign(ptr, PAGE, bytes ? bytes : 1) != 0))
        e = cudaErrorMemoryAllocation;
    if (e == cudaSuccess) {
        emu_poison(*ptr, bytes);
        insert((struct piece){ *ptr, bytes ? bytes : 1, EMU_PINNED, false });
    }
    emu_error(e);
    emu_unlock();
    return e;
}

cudaError_t cudaMallocHost(void **ptr, size_t bytes)
{
    return cudaHostAlloc(ptr, bytes, cudaHostAllocDefault);
}

/* Takes a piece of pinned memory off the list. */
static void unpin(void *ptr, bool registered, const char *what)
{
    struct piece *x = piece_at(ptr);
    const char *queued;

    if (!x || x->kind != EMU_PINNED || x->registered != registered)
        emu_violation("%s(%p): no such pinned memory", what, ptr);
    queued = emu_queued_on(x->ptr, x->ptr + x->bytes);
    if (queued)
        emu_violation("%s(%p): %s, which is queued, uses it", what, ptr, queued);
    forget(x);
}

cudaError_t cudaFreeHost(void *ptr)
{
    cudaError_t e;

    if (!ptr)
        return cudaSuccess;
    emu_lock();
    unpin(ptr, false, "cudaFreeHost");
    free(ptr);
    e = emu_error(emu_context());
    emu_unlock();
    return e;
}

cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned flags)
{
    cudaError_t e;

    (void)flags;
    emu_lock();
    e = emu_context();
    if (e == cudaSuccess && (!ptr || bytes == 0))
        e = cudaErrorInvalidValue;
    if (e == cudaSuccess && piece_of(ptr, 1))
        e = cudaErrorHostMemoryAlreadyRegistered;
    if (e == cudaSuccess)
        insert((struct piece){ ptr, bytes, EMU_PINNED, true });
    emu_error(e);
    emu_unlock();
    return e;
}

cudaError_t cudaHostUnregister(void *ptr)
{
    cudaError_t e;

    emu_lock();
    unpin(ptr, true, "cudaHostUnregister");
    e = emu_error(emu_context());
    emu_unlock();
    return e;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attr, const void *ptr)
{
    static const enum cudaMemoryType type[] = { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice };

    emu_lock();
    memset(attr, 0, sizeof(*attr));
    attr->type = type[emu_memory_of(ptr, 1)];
    attr->devicePointer = attr->type == cudaMemoryTypeUnregistered ? NULL : (void *)(uintptr_t)ptr;
    attr->hostPointer = attr->type == cudaMemoryTypeDevice ? NULL : (void *)(uintptr_t)ptr;
    emu_unlock();
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    cudaError_t e;

    emu_lock();
    e = emu_error(emu_context());
    *total_bytes = mem.limit;
    *free_bytes = mem.limit - mem.used;
    emu_unlock();
    return e;
}

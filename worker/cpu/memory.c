/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/memory.c - memory of the CPU device, and copies inside it. */
#include "worker/cpu/cpu.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/err.h"

#define ALIGN_BYTES 64
#define HUGE_BYTES  ((size_t)2 << 20) /* blocks of at least twice this size use huge pages: convolutions walk many rows at once */

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

void *cpu_memory(size_t bytes)
{
    size_t align = bytes >= 2 * HUGE_BYTES ? HUGE_BYTES : ALIGN_BYTES;
    void *p = NULL;

    if (bytes > SIZE_MAX - align)
        return NULL;
    p = aligned_alloc(align, round_up(bytes ? bytes : 1, align));
    if (p && align == HUGE_BYTES)
        (void)madvise(p, round_up(bytes, align), MADV_HUGEPAGE); /* only a hint */
    return p;
}

void *cpu_scratch(struct device *dev, size_t bytes, struct err *err)
{
    struct cpu_device *d = cpu_device(dev);

    if (bytes <= d->scratch_bytes)
        return d->scratch;
    free(d->scratch);
    d->scratch_bytes = 0;
    d->scratch = cpu_memory(bytes);
    if (!d->scratch) {
        err_set(err, -ENOMEM, "out of memory: %zu bytes of working memory on the CPU device", bytes);
        return NULL;
    }
    d->scratch_bytes = bytes;
    return d->scratch;
}

/* Memory that cpu_alloc() mapped. All instances share this list: one may free what another allocated, and they may run
 * at the same time. */
struct mapping {
    struct mapping *next;
    void *at;
    size_t bytes;
};

static struct mapping *mappings;

static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;

static void mapping_add(struct mapping *m)
{
    pthread_mutex_lock(&mappings_lock);
    m->next = mappings;
    mappings = m;
    pthread_mutex_unlock(&mappings_lock);
}

/* Returns NULL if there is no mapping at that address. */
static struct mapping *mapping_remove(const void *ptr)
{
    struct mapping *m;

    pthread_mutex_lock(&mappings_lock);
    for (struct mapping **at = &mappings; (m = *at); at = &m->next)
        if (m->at == ptr) {
            *at = m->next;
            break;
        }
    pthread_mutex_unlock(&mappings_lock);
    return m;
}

/* Large memory is mapped: the kernel zeroes a page at its first use. Much of an arena's chunk may never be used, and
 * with more ranks zeroing all of it would cost each rank more CPU time. */
static void *map_zeroed(size_t bytes)
{
    size_t length, room;
    struct mapping *m;
    char *base, *at;

    if (bytes > SIZE_MAX - 2 * HUGE_BYTES)
        return NULL;
    length = round_up(bytes, HUGE_BYTES);
    room = length + HUGE_BYTES;
    m = malloc(sizeof *m);
    base = m ? mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (base == MAP_FAILED) {
        free(m);
        return NULL;
    }
    at = base + (round_up((uintptr_t)base, HUGE_BYTES) - (uintptr_t)base);
    if (at > base)
        munmap(base, (size_t)(at - base));
    if (base + room > at + length)
        munmap(at + length, (size_t)(base + room - (at + length)));
    (void)madvise(at, length, MADV_HUGEPAGE); /* only a hint */
    *m = (struct mapping){ NULL, at, length };
    mapping_add(m);
    return at;
}

void *cpu_alloc(struct device *dev, size_t bytes)
{
    void *p;

    (void)dev;
    if (bytes >= 2 * HUGE_BYTES)
        return map_zeroed(bytes);
    p = cpu_memory(bytes);
    if (p)
        memset(p, 0, bytes);
    return p;
}

void cpu_free(struct device *dev, void *ptr)
{
    struct mapping *m = mapping_remove(ptr);

    (void)dev;
    if (!m) {
        free(ptr);
        return;
    }
    munmap(m->at, m->bytes);
    free(m);
}

int cpu_upload(struct device *dev, void *dst, const void *host, size_t bytes, struct err *err)
{
    (void)dev, (void)err;
    memcpy(dst, host, bytes);
    return 0;
}

int cpu_download(struct device *dev, void *host, const void *src, size_t bytes, struct err *err)
{
    (void)dev, (void)err;
    memcpy(host, src, bytes);
    return 0;
}

void *cpu_host_alloc(struct device *dev, size_t bytes)
{
    return cpu_alloc(dev, bytes);
}

void cpu_host_free(struct device *dev, void *ptr)
{
    cpu_free(dev, ptr);
}

int cpu_copy_async(struct device *dev, void *dst, const void *src, size_t bytes, struct err *err)
{
    return cpu_upload(dev, dst, src, bytes, err);
}

int cpu_zero(struct device *dev, void *dst, size_t bytes, struct err *err)
{
    (void)dev, (void)err;
    memset(dst, 0, bytes);
    return 0;
}

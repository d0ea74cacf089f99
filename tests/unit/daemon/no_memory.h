/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/no_memory.h - allocations that fail, of the thread that
 * counts them. Include it after cmocka.h. */
#pragma once
#include <errno.h>
#include <stdlib.h>

#include "tests/stand/harness.h"

static __thread int allocations_left = -1;              /* that still succeed; -1: all do */
static __thread bool one_fails __attribute__((unused)); /* only the next one fails then */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NEEDS_ALLOCATOR() SKIP("a sanitizer has an allocator of its own")
#else
#define NEEDS_ALLOCATOR() (void)0

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);

static bool fails(void)
{
    if (allocations_left != 0) {
        allocations_left -= allocations_left > 0;
        return false;
    }
    if (one_fails)
        allocations_left = -1;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return fails() ? NULL : __libc_realloc(p, size);
}
#endif

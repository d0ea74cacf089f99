/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/memory.c - failing memory: an allocation of detd's own code
 * fails. Allocations of the simulator itself succeed. */
#include <errno.h>
#include <stdlib.h>

#include "tests/stand/sim/world.h"

static int fails_in; /* allocations till the failing one; 0: no allocation fails */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
char *__wrap_strdup(const char *text);

void memory_fail(int after)
{
    fails_in = after;
}

static bool fails(void)
{
    if (fails_in == 0 || --fails_in > 0)
        return false;
    say("memory is short");
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return fails() ? NULL : __real_realloc(p, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

void *must_alloc(size_t size)
{
    void *p = __real_calloc(1, size);

    if (!p)
        abort();
    return p;
}

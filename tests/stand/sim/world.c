/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/world.c - chance, the trace, and how a seed fails. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "tests/stand/sim/world.h"

struct world world;

/* splitmix64: any seed will do, also 0 and its neighbours */
static uint64_t next(void)
{
    static uint64_t state;
    static bool begun;
    uint64_t z;

    if (!begun)
        state = world.plan.seed * 0x2545f4914f6cdd1dULL;
    begun = true;
    z = state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

uint32_t roll(uint32_t n)
{
    return (uint32_t)(next() >> 32) % n;
}

bool chance(int percent)
{
    return roll(100) < (uint32_t)percent;
}

/* The log lines of detd are ignored here: its actions are checked. */
void log_line(const char *level, const char *fmt, ...)
{
    (void)level;
    (void)fmt;
}

void say(const char *fmt, ...)
{
    va_list ap;

    if (!world.plan.verbose)
        return;
    printf("%6d %5.0fs  ", world.steps, world.mono);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

void fail(const char *fmt, ...)
{
    va_list ap;

    fflush(stdout);
    fprintf(stderr, "seed %llu, step %d, %.0f s: ", (unsigned long long)world.plan.seed, world.steps, world.mono);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    _exit(1);
}

struct folder *folder_of(int64_t job)
{
    for (int i = 0; i < world.njobs; i++)
        if (world.jobs[i].id == job)
            return &world.jobs[i];
    return NULL;
}

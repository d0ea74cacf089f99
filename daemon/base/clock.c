#include "daemon/base/clock.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <time.h>

#include "proto/host/clock.h"

static double read_s(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double now_s(void)
{
    return read_s(CLOCK_REALTIME);
}

double boot_s(void)
{
    return read_s(CLOCK_BOOTTIME);
}

double mono_s(void)
{
    return clock_s();
}

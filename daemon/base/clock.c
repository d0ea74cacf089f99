#include "daemon/base/clock.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <sys/timex.h>
#include <time.h>

#include "proto/host/clock.h"

double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

bool clock_is_kept(void)
{
    struct timex t = { 0 };

    int rc = adjtimex(&t);

    return rc >= 0 && rc != TIME_ERROR && !(t.status & STA_UNSYNC);
}

double mono_s(void)
{
    return clock_s();
}

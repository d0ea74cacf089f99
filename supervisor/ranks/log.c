#include "supervisor/ranks/log.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "proto/host/tell.h"

double job_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void job_log(const char *fmt, ...)
{
    char prefix[48], text[TELL_LINE_BYTES];
    time_t now = time(NULL);
    struct tm tm;
    va_list ap;

    strftime(prefix, sizeof prefix, "%Y-%m-%d %H:%M:%S UTC detd-job: ", gmtime_r(&now, &tm));
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tell_line(prefix, "%s", text);
}

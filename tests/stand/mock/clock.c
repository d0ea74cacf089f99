/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/mock/clock.c - preloaded, it moves the wall clock by the number
 * of seconds in the file $CLOCK_MOVED, and reports that the kernel does not synchronise it. Other clocks are unchanged.
 * Built by the test that needs it; nothing else is linked with it. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

static const volatile double *moved;

__attribute__((constructor)) static void find(void)
{
    int fd = open(getenv("CLOCK_MOVED"), O_RDONLY);

    moved = mmap(NULL, sizeof *moved, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, t);

    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && moved)
        t->tv_sec += (time_t)*moved;
    return rc;
}

int adjtimex(struct timex *t)
{
    t->status = STA_UNSYNC;
    return TIME_ERROR;
}

time_t time(time_t *ret)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    if (ret)
        *ret = t.tv_sec;
    return t.tv_sec;
}

int gettimeofday(struct timeval *ret, void *zone)
{
    struct timespec t;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    *ret = (struct timeval){ t.tv_sec, t.tv_nsec / 1000 };
    return 0;
}

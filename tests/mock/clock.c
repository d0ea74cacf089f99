/* tests/mock/clock.c - preloaded, the wall clock of a process is wrong by the number of seconds that the file $CLOCK_OFF holds, a 64-bit integer which may
 * change at any time. Other clocks are as they were. Built by the test that needs it; nothing else is linked with it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t off(void)
{
    static volatile int64_t *at;
    static const int64_t none;

    if (!at) {
        const char *path = getenv("CLOCK_OFF");
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *p = fd >= 0 ? mmap(NULL, sizeof *at, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

        if (fd >= 0)
            close(fd);
        at = p == MAP_FAILED ? (volatile int64_t *)&none : p;
    }
    return *at;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    static int (*real)(clockid_t, struct timespec *);
    int rc;

    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    rc = real(clock, ret);
    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        ret->tv_sec += off();
    return rc;
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
    ret->tv_sec = t.tv_sec;
    ret->tv_usec = t.tv_nsec / 1000;
    return 0;
}

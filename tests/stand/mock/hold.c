/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/mock/hold.c - preloaded, it holds the process that opens its
 * second picture, until another process writes to the pipe $HOLD. Built by the test that needs it; nothing else is
 * linked with it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int pictures;

static int is_picture(const char *path)
{
    size_t n = strlen(path);

    return n > 4 && strcmp(path + n - 4, ".png") == 0;
}

int open(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    mode_t mode;
    va_list ap;

    va_start(ap, flags);
    mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (is_picture(path) && ++pictures == 2) {
        int pipe = real(getenv("HOLD"), O_RDONLY); /* waits for the writer */

        close(pipe);
    }
    return real(path, flags, mode);
}

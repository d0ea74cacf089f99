#include "proto/host/tell.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    bool known;
    mode_t type;        /* file type of standard error */
    int own;            /* the same terminal or pipe, opened once more, so that writes do not wait; -1: not possible */
    unsigned long lost; /* lines lost since the last that was written */
    bool torn;          /* the last line was written in part */
} out = { .lock = PTHREAD_MUTEX_INITIALIZER, .own = -1 };

static void look(void)
{
    struct stat st;

    if (out.known)
        return;
    out.known = true;
    out.type = fstat(STDERR_FILENO, &st) == 0 ? st.st_mode & S_IFMT : 0;
    if (out.type == S_IFIFO || out.type == S_IFCHR)
        out.own = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* A terminal or pipe of another user cannot be opened once more. It is polled first, which suffices if no other process
 * writes to it. */
static ssize_t put(const char *bytes, size_t len)
{
    struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

    if (out.type == S_IFSOCK)
        return send(STDERR_FILENO, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (out.own >= 0)
        return write(out.own, bytes, len);
    if (out.type == S_IFIFO || out.type == S_IFCHR) {
        if (poll(&p, 1, 0) != 1)
            return -1;
    }
    return write(STDERR_FILENO, bytes, len);
}

static bool put_line(const char *bytes, size_t len)
{
    ssize_t n = put(bytes, len);

    if (n >= 0)
        out.torn = n < (ssize_t)len;
    return n == (ssize_t)len;
}

static bool put_lost(const char *prefix)
{
    char line[160];
    int len;

    if (out.lost == 0)
        return true;
    len = snprintf(line, sizeof line, "%s%.40s%lu lines before this one were not written: the output was full\n", out.torn ? "\n" : "",
                   prefix, out.lost);
    if (!put_line(line, (size_t)len))
        return false;
    out.lost = 0;
    return true;
}

void tell_line(const char *prefix, const char *fmt, ...)
{
    char line[TELL_LINE_BYTES];
    size_t begin = (size_t)snprintf(line, sizeof line, "%.100s", prefix), len;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line + begin, sizeof line - begin - 1, fmt, ap);
    va_end(ap);
    len = strlen(line);
    for (size_t i = begin; i < len; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = ' ';
    line[len++] = '\n';
    pthread_mutex_lock(&out.lock);
    look();
    if (!put_lost(prefix) || !put_line(line, len))
        out.lost++;
    pthread_mutex_unlock(&out.lock);
}

#include "client/jobs/shell.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/base/print.h"
#include "client/jobs/watch.h"

enum { LOOK_MS = 200, FRAME = 4096, HEAD = 3 };

static volatile sig_atomic_t resized = 1;

static void on_resize(int number)
{
    (void)number;
    resized = 1;
}

/* The folder is opened first, since a path may be too long for a socket. Returns a descriptor, or -1. */
static int connect_to(const char *folder)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/terminal", dir);
    if (dir < 0 || fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    if (dir >= 0)
        close(dir);
    return fd;
}

static bool send_all(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;

    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool send_frame(int fd, char kind, const unsigned char *bytes, size_t len)
{
    unsigned char frame[HEAD + FRAME] = { (unsigned char)kind, (unsigned char)(len >> 8), (unsigned char)len };

    memcpy(frame + HEAD, bytes, len);
    return send_all(fd, frame, HEAD + len);
}

static bool send_size(int fd)
{
    struct winsize w = { .ws_row = 24, .ws_col = 80 };

    resized = 0;
    ioctl(STDIN_FILENO, TIOCGWINSZ, &w);
    return send_frame(fd, 'w',
                      (unsigned char[]){ (unsigned char)(w.ws_row >> 8), (unsigned char)w.ws_row, (unsigned char)(w.ws_col >> 8),
                                         (unsigned char)w.ws_col },
                      4);
}

/* Until the job closes the connection. */
static void relay(int fd)
{
    struct pollfd both[2] = { { STDIN_FILENO, POLLIN, 0 }, { fd, POLLIN, 0 } };
    unsigned char bytes[FRAME];
    ssize_t n;

    for (;;) {
        if (resized && !send_size(fd))
            return;
        if (poll(both, 2, -1) < 0 && errno != EINTR)
            return;
        if (both[1].revents) {
            n = read(fd, bytes, sizeof bytes);
            if (n <= 0 || write(STDOUT_FILENO, bytes, (size_t)n) < 0)
                return;
        }
        if (both[0].revents) {
            n = read(STDIN_FILENO, bytes, sizeof bytes);
            if (n <= 0)
                both[0].fd = -1; /* the job's terminal gets Ctrl-D as a byte */
            else if (!send_frame(fd, 'd', bytes, (size_t)n))
                return;
        }
    }
}

static int cancel(struct context *ctx, int64_t id)
{
    json_t *result;
    int rc = call(ctx, "job.cancel", json_pack("{s:I}", "id", (json_int_t)id), &result);

    if (rc)
        return rc;
    json_decref(result);
    fprintf(stderr, "\njob %lld is cancelled\n", (long long)id);
    return CODE_INTERRUPTED;
}

/* Returns a descriptor in *ret_fd when the job's terminal is there; an exit code if the job ends before. */
static int await_terminal(struct context *ctx, int64_t id, int *ret_fd)
{
    char told[32] = "";
    json_t *job;
    int rc;

    for (*ret_fd = -1;; sleep_ms(LOOK_MS)) {
        if (interrupted)
            return cancel(ctx, id);
        if ((rc = call_patiently(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)id), &job)))
            return rc;
        if (strcmp(told, text_of(job, "state")) != 0 && strcmp(text_of(job, "state"), "running") != 0)
            fprintf(stderr, "job %lld is %s (detctl why %lld)\n", (long long)id, text_of(job, "state"), (long long)id);
        snprintf(told, sizeof told, "%s", text_of(job, "state"));
        *ret_fd = connect_to(text_of(job, "dir"));
        json_decref(job);
        if (*ret_fd >= 0)
            return 0;
        if (strcmp(told, "completed") == 0 || strcmp(told, "failed") == 0 || strcmp(told, "cancelled") == 0)
            return watch_job(ctx, id, "total", WATCH_QUIETLY);
    }
}

int shell_attach(struct context *ctx, int64_t id)
{
    const struct sigaction act = { .sa_handler = on_resize };
    struct termios before, raw;
    bool terminal = tcgetattr(STDIN_FILENO, &before) == 0;
    int fd, rc;

    catch_interrupt();
    if ((rc = await_terminal(ctx, id, &fd)))
        return rc;
    raw = before;
    if (terminal) {
        cfmakeraw(&raw);
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
        sigaction(SIGWINCH, &act, NULL);
    }
    relay(fd);
    close(fd);
    if (terminal)
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    return watch_job(ctx, id, "total", WATCH_QUIETLY);
}

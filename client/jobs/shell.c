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

enum { LOOK_MS = 200, BYTES = 4096 };

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
    bool connected;

    snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/terminal", dir);
    connected = dir >= 0 && fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
    if (dir >= 0)
        close(dir);
    if (fd >= 0 && !connected)
        close(fd);
    return connected ? fd : -1;
}

/* The job's end of the connection sends it. Returns a descriptor, or -1. */
static int take_terminal(int connection)
{
    char byte, control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(sizeof(size_t))));
    struct iovec bytes = { &byte, 1 };
    struct msghdr msg = { .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    const struct cmsghdr *c = recvmsg(connection, &msg, MSG_CMSG_CLOEXEC) == 1 ? CMSG_FIRSTHDR(&msg) : NULL;
    int fd = -1;

    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static void pass_size(int terminal)
{
    struct winsize size = { .ws_row = 24, .ws_col = 80 };

    resized = 0;
    ioctl(STDIN_FILENO, TIOCGWINSZ, &size);
    ioctl(terminal, TIOCSWINSZ, &size);
}

/* Until the job closes the connection, or this terminal or process is to end. What is typed waits until the job's
 * terminal has room. */
static void relay(int connection, int terminal)
{
    enum { TYPED, TERMINAL, CONNECTION };
    struct pollfd fds[] = { { STDIN_FILENO, POLLIN, 0 }, { terminal, POLLIN, 0 }, { connection, POLLIN, 0 } };
    char typed[BYTES], shown[BYTES];
    ssize_t n, ntyped = 0;
    bool ended = false; /* no process has the job's terminal any more */

    while (!interrupted) {
        if (resized)
            pass_size(terminal);
        fds[TYPED].fd = ended || ntyped > 0 ? -1 : STDIN_FILENO;
        fds[TERMINAL].events = (short)(ntyped > 0 ? POLLIN | POLLOUT : POLLIN);
        if (poll(fds, 3, -1) < 0) {
            if (errno != EINTR)
                return;
            continue;
        }
        if (fds[TERMINAL].revents & POLLOUT && (n = write(terminal, typed, (size_t)ntyped)) > 0)
            memmove(typed, typed + n, (size_t)(ntyped -= n));
        if (fds[TERMINAL].revents & (POLLIN | POLLHUP)) {
            n = read(terminal, shown, sizeof shown);
            if (n > 0 && write(STDOUT_FILENO, shown, (size_t)n) < 0)
                return;
            if (n == 0 || (n < 0 && errno != EAGAIN)) /* no process has it any more */
                fds[TERMINAL].fd = -1, ended = true;
        } else if (fds[CONNECTION].revents) {
            return;
        }
        if (fds[TYPED].revents && (ntyped = read(STDIN_FILENO, typed, sizeof typed)) <= 0)
            return; /* this terminal is gone: Ctrl-D comes as a byte */
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

/* Returns the connection and the job's terminal, or -1 and an exit code if the job ends before. */
static int await_terminal(struct context *ctx, int64_t id, int *ret_connection, int *ret_fd)
{
    char told[32] = "";
    json_t *job;
    int rc;

    for (*ret_fd = *ret_connection = -1;; sleep_ms(LOOK_MS)) {
        if (interrupted)
            return cancel(ctx, id);
        if ((rc = call_patiently(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)id), &job)))
            return interrupted ? cancel(ctx, id) : rc;
        if (strcmp(told, text_of(job, "state")) != 0 && strcmp(text_of(job, "state"), "running") != 0)
            fprintf(stderr, "job %lld is %s (detctl why %lld)\n", (long long)id, text_of(job, "state"), (long long)id);
        snprintf(told, sizeof told, "%s", text_of(job, "state"));
        *ret_connection = connect_to(text_of(job, "dir"));
        *ret_fd = *ret_connection < 0 ? -1 : take_terminal(*ret_connection);
        json_decref(job);
        if (*ret_fd >= 0)
            return 0;
        if (*ret_connection >= 0)
            close(*ret_connection);
        if (strcmp(told, "completed") == 0 || strcmp(told, "failed") == 0 || strcmp(told, "cancelled") == 0)
            return watch_job(ctx, id, "total", WATCH_QUIETLY);
    }
}

int shell_attach(struct context *ctx, int64_t id)
{
    const struct sigaction act = { .sa_handler = on_resize, .sa_flags = SA_RESTART };
    struct termios before, raw;
    bool terminal = tcgetattr(STDIN_FILENO, &before) == 0;
    int connection, fd, rc;

    catch_interrupt();
    if ((rc = await_terminal(ctx, id, &connection, &fd)))
        return rc;
    raw = before;
    if (terminal) {
        cfmakeraw(&raw);
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
        sigaction(SIGWINCH, &act, NULL);
    }
    relay(connection, fd);
    close(fd);
    close(connection);
    if (terminal)
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    return watch_job(ctx, id, "total", WATCH_QUIETLY);
}

#include "supervisor/terminal.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "proto/err.h"

enum { HEAD = 3, HANDLES = 4, LAST_READS = 64, ABOVE = 16 /* the numbers that a rank's descriptors get */ };

struct terminal {
    void (*lost)(void *arg);
    void *arg;
    int master, slave, listener, client; /* -1: none */
    bool has_client;                     /* its handle is open */
    uv_poll_t on_master, on_listener, on_client;
    uv_timer_t timer;
    int handles;              /* open ones */
    char out[TERMINAL_FRAME]; /* of the program, for detctl */
    size_t out_len;
    unsigned char in[HEAD + TERMINAL_FRAME]; /* frames of detctl */
    size_t in_len;
};

static void watch(struct terminal *t);

/* ---- bytes ---- */

/* Writes what it can of the first n bytes, and moves the rest to the front. False: the other end is gone. */
static bool flush(int fd, char *bytes, size_t *len)
{
    ssize_t n = *len > 0 ? write(fd, bytes, *len) : 0;

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    *len -= (size_t)n;
    memmove(bytes, bytes + n, *len);
    return true;
}

static void resize(struct terminal *t, const unsigned char *size)
{
    struct winsize w = { .ws_row = (unsigned short)(size[0] << 8 | size[1]), .ws_col = (unsigned short)(size[2] << 8 | size[3]) };

    ioctl(t->master, TIOCSWINSZ, &w);
}

/* Takes whole frames. What the program does not read for now stays. False: nonsense. */
static bool take_frames(struct terminal *t)
{
    while (t->in_len >= HEAD) {
        size_t len = (size_t)t->in[1] << 8 | t->in[2];
        ssize_t n = (ssize_t)len;

        if (len > TERMINAL_FRAME || (t->in[0] != 'd' && (t->in[0] != 'w' || len != 4)))
            return false;
        if (t->in_len < HEAD + len)
            return true;
        if (t->in[0] == 'w')
            resize(t, t->in + HEAD);
        else if (len > 0)
            n = write(t->master, t->in + HEAD, len);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        len -= (size_t)n;
        t->in_len -= (size_t)n + (len == 0 ? HEAD : 0);
        memmove(t->in + (len == 0 ? 0 : HEAD), t->in + HEAD + n, t->in_len - (len == 0 ? 0 : HEAD));
        t->in[1] = len == 0 ? t->in[1] : (unsigned char)(len >> 8);
        t->in[2] = len == 0 ? t->in[2] : (unsigned char)len;
        if (len > 0)
            return true;
    }
    return true;
}

/* ---- detctl comes and goes ---- */

static void on_closed(uv_handle_t *handle)
{
    struct terminal *t = handle->data;

    if (--t->handles > 0)
        return;
    free(t);
}

static void on_lost(uv_timer_t *timer)
{
    struct terminal *t = timer->data;

    t->lost(t->arg);
}

static void on_client_closed(uv_handle_t *handle)
{
    struct terminal *t = handle->data;

    t->has_client = false;
    on_closed(handle);
}

static void drop_client(struct terminal *t)
{
    if (t->client < 0)
        return;
    uv_poll_stop(&t->on_client);
    uv_close((uv_handle_t *)&t->on_client, on_client_closed);
    close(t->client);
    t->client = -1;
    t->in_len = 0;
    uv_timer_start(&t->timer, on_lost, 1000 * TERMINAL_LOST_S, 0);
}

static void on_client(uv_poll_t *poll, int status, int events)
{
    struct terminal *t = poll->data;
    ssize_t n = 1;

    if (status == 0 && events & UV_READABLE)
        n = read(t->client, t->in + t->in_len, sizeof t->in - t->in_len);
    if (n > 0 && events & UV_READABLE)
        t->in_len += (size_t)n;
    if (status < 0 || n == 0 || (n < 0 && errno != EAGAIN) || !take_frames(t) || !flush(t->client, t->out, &t->out_len))
        drop_client(t);
    watch(t);
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
    struct terminal *t = poll->data;
    int fd = accept4(t->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)status;
    (void)events;
    if (fd < 0)
        return;
    if (t->has_client || uv_poll_init(poll->loop, &t->on_client, fd) < 0) {
        close(fd);
        return;
    }
    t->client = fd;
    t->has_client = true;
    t->handles++;
    uv_timer_stop(&t->timer);
    watch(t);
}

static void on_master(uv_poll_t *poll, int status, int events)
{
    struct terminal *t = poll->data;
    ssize_t n = read(t->master, t->out + t->out_len, sizeof t->out - t->out_len);

    (void)status;
    if (n > 0)
        t->out_len += (size_t)n;
    if (n < 0 && errno != EAGAIN && errno != EINTR) { /* no process has the other end any more */
        uv_poll_stop(&t->on_master);
        return;
    }
    if (t->client >= 0 && ((events & UV_WRITABLE && !take_frames(t)) || !flush(t->client, t->out, &t->out_len)))
        drop_client(t);
    watch(t);
}

/* Output waits for a detctl; input waits until the program reads. */
static void watch(struct terminal *t)
{
    bool room = t->client >= 0 && t->out_len < sizeof t->out;
    int events = (room ? UV_READABLE : 0) | (t->in_len >= HEAD ? UV_WRITABLE : 0);

    if (events)
        uv_poll_start(&t->on_master, events, on_master);
    else
        uv_poll_stop(&t->on_master);
    if (t->client >= 0)
        uv_poll_start(&t->on_client, (t->in_len < sizeof t->in ? UV_READABLE : 0) | (t->out_len > 0 ? UV_WRITABLE : 0), on_client);
}

/* ---- opening and closing ---- */

static int open_pty(struct terminal *t, struct err *err)
{
    char name[64];
    int fd;

    t->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (t->master < 0 || grantpt(t->master) < 0 || unlockpt(t->master) < 0 || ptsname_r(t->master, name, sizeof name) != 0)
        return err_sys(err, "make a pseudo-terminal");
    fd = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    t->slave = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, ABOVE);
    if (fd >= 0)
        close(fd);
    return t->slave < 0 ? err_sys(err, "open '%s'", name) : 0;
}

static int open_socket(struct terminal *t, struct err *err)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX, .sun_path = TERMINAL_SOCKET };

    unlink(TERMINAL_SOCKET);
    t->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->listener < 0 || bind(t->listener, (struct sockaddr *)&at, sizeof at) < 0 || chmod(TERMINAL_SOCKET, 0600) < 0 ||
        listen(t->listener, 1) < 0)
        return err_sys(err, "make the socket '%s'", TERMINAL_SOCKET);
    return 0;
}

static void close_fds(struct terminal *t)
{
    int *const fds[] = { &t->master, &t->slave, &t->listener, &t->client };

    for (int i = 0; i < HANDLES; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

int terminal_open(uv_loop_t *loop, void (*lost)(void *arg), void *arg, struct terminal **ret, struct err *err)
{
    struct terminal *t = calloc(1, sizeof *t);
    int rc;

    if (!t)
        return err_set(err, -ENOMEM, "out of memory");
    *t = (struct terminal){ .lost = lost, .arg = arg, .master = -1, .slave = -1, .listener = -1, .client = -1, .handles = 3 };
    rc = open_pty(t, err);
    if (rc == 0)
        rc = open_socket(t, err);
    if (rc == 0 && (uv_poll_init(loop, &t->on_master, t->master) < 0 || uv_poll_init(loop, &t->on_listener, t->listener) < 0))
        rc = err_set(err, -ENOMEM, "watch the terminal");
    if (rc < 0) {
        close_fds(t);
        free(t);
        return rc;
    }
    uv_timer_init(loop, &t->timer);
    t->on_master.data = t->on_listener.data = t->on_client.data = t->timer.data = t;
    uv_poll_start(&t->on_listener, UV_READABLE, on_listener);
    uv_timer_start(&t->timer, on_lost, 1000 * TERMINAL_LOST_S, 0);
    *ret = t;
    return 0;
}

int terminal_fd(const struct terminal *t)
{
    return t->slave;
}

void terminal_started(struct terminal *t)
{
    close(t->slave);
    t->slave = -1;
}

/* detctl reads slowly at the worst: it has the last words, or is gone. */
static void pass_last_words(struct terminal *t)
{
    for (int i = 0; t->client >= 0 && i < LAST_READS; i++) {
        ssize_t n = read(t->master, t->out + t->out_len, sizeof t->out - t->out_len);

        t->out_len += n > 0 ? (size_t)n : 0;
        if (!flush(t->client, t->out, &t->out_len) || n <= 0)
            return;
    }
}

void terminal_close(struct terminal *t)
{
    uv_handle_t *handles[] = { (uv_handle_t *)&t->on_master, (uv_handle_t *)&t->on_listener, (uv_handle_t *)&t->timer };

    pass_last_words(t);
    unlink(TERMINAL_SOCKET);
    if (t->client >= 0)
        uv_close((uv_handle_t *)&t->on_client, on_client_closed);
    for (int i = 0; i < 3; i++)
        uv_close(handles[i], on_closed);
    close_fds(t);
}

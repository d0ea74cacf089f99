#include "supervisor/terminal.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "proto/err.h"

enum { ABOVE = 16 /* the numbers that a rank's descriptors get */ };

struct terminal {
    int master, slave, listener, client; /* -1: none */
    int alone_s;                         /* since a detctl was connected */
    uv_poll_t poll;
};

/* ---- detctl comes and goes ---- */

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static bool pass(int client, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof fd)] __attribute__((aligned(sizeof(size_t)))) = { 0 };
    struct iovec bytes = { &byte, 1 };
    struct msghdr msg = { .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    return sendmsg(client, &msg, MSG_NOSIGNAL) == 1;
}

static bool is_gone(int client)
{
    char byte;
    ssize_t n = recv(client, &byte, 1, 0);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
    struct terminal *t = poll->data;
    int fd = accept4(t->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)status;
    (void)events;
    if (t->client >= 0 && is_gone(t->client))
        drop(&t->client);
    if (fd < 0)
        return;
    if (t->client < 0 && pass(fd, t->master))
        t->client = fd;
    else
        close(fd);
}

bool terminal_is_lost(struct terminal *t)
{
    if (t->client >= 0 && is_gone(t->client))
        drop(&t->client);
    t->alone_s = t->client < 0 ? t->alone_s + 1 : 0;
    return t->alone_s == TERMINAL_LOST_S;
}

/* ---- opening and closing ---- */

static int open_pty(struct terminal *t, struct err *err)
{
    int master, slave;

    if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
        return err_sys(err, "make a pseudo-terminal");
    t->master = fcntl(master, F_DUPFD_CLOEXEC, ABOVE);
    t->slave = fcntl(slave, F_DUPFD_CLOEXEC, ABOVE);
    close(master);
    close(slave);
    return t->master < 0 || t->slave < 0 || fcntl(t->master, F_SETFL, O_RDWR | O_NONBLOCK) < 0 ? err_sys(err, "make a pseudo-terminal") : 0;
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
    drop(&t->master);
    drop(&t->slave);
    drop(&t->listener);
    drop(&t->client);
}

int terminal_open(uv_loop_t *loop, struct terminal **ret, struct err *err)
{
    struct terminal *t = calloc(1, sizeof *t);
    int rc;

    if (!t)
        return err_set(err, -ENOMEM, "out of memory");
    *t = (struct terminal){ .master = -1, .slave = -1, .listener = -1, .client = -1 };
    rc = open_pty(t, err);
    if (rc == 0)
        rc = open_socket(t, err);
    if (rc == 0 && uv_poll_init(loop, &t->poll, t->listener) < 0)
        rc = err_set(err, -ENOMEM, "watch the terminal");
    if (rc < 0) {
        close_fds(t);
        free(t);
        return rc;
    }
    t->poll.data = t;
    uv_poll_start(&t->poll, UV_READABLE, on_listener);
    *ret = t;
    return 0;
}

int terminal_fd(const struct terminal *t)
{
    return t->slave;
}

void terminal_started(struct terminal *t)
{
    drop(&t->slave);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void terminal_close(struct terminal *t)
{
    unlink(TERMINAL_SOCKET);
    uv_close((uv_handle_t *)&t->poll, on_closed);
    close_fds(t);
}

#include "daemon/socket/listener.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/bounds.h"
#include "daemon/base/clock.h"
#include "daemon/base/user_share.h"
#include "proto/err.h"
#include "proto/host/passed.h"

/* A turn of the loop accepts TURN connections, so that clients that connect without end do not delay the requests of
 * others. After an error, as without a free descriptor, the next try is PAUSE_MS later; the connections wait in the
 * kernel. */
enum { TURN = 32, PAUSE_MS = 20 };

struct waiting {
    int fd;
    struct user_share *share;
};

struct listener {
    uv_poll_t poll;
    uv_timer_t timer;
    int fd, handles, count;
    bool paused;
    struct user_shares *shares;
    const struct listener_events *events;
    void *arg;
    struct waiting waiting[LISTENER_WAITING]; /* in the order in which they came */
};

static void on_poll(uv_poll_t *poll, int status, int events);

/* Has the client hung up? Then its place is free. */
static bool is_gone(int fd)
{
    struct pollfd p = { .fd = fd };

    return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
}

/* Accepts the connections whose turn has come. Closes connections that the client has closed. */
static void let_in(struct listener *l)
{
    int left = 0;

    for (int i = 0; i < l->count; i++) {
        struct waiting w = l->waiting[i];

        if (is_gone(w.fd))
            passed_close(w.fd);
        else if (user_share_take(w.share, BOUND_CONNECTS, mono_s()))
            l->events->connected(l->arg, w.fd, w.share->uid);
        else
            l->waiting[left++] = w;
    }
    l->count = left;
}

static void on_timer(uv_timer_t *timer)
{
    struct listener *l = timer->data;

    let_in(l);
    if (l->paused) {
        l->paused = false;
        uv_poll_start(&l->poll, UV_READABLE, on_poll);
    }
    if (l->count > 0)
        uv_timer_start(timer, on_timer, PAUSE_MS, 0);
}

/* Where the user has no room left, a client of theirs that has hung up makes some, or else the newcomer is closed. */
static bool make_room(struct listener *l, const struct user_share *share)
{
    int n = 0, oldest = 0;

    for (int i = l->count - 1; i >= 0; i--)
        if (l->waiting[i].share == share) {
            oldest = i;
            n++;
        }
    if (n < bounds[BOUND_CONNECTIONS].share)
        return l->count < LISTENER_WAITING;
    if (!is_gone(l->waiting[oldest].fd))
        return false;
    passed_close(l->waiting[oldest].fd);
    memmove(&l->waiting[oldest], &l->waiting[oldest + 1], (size_t)(--l->count - oldest) * sizeof *l->waiting);
    return true;
}

static void wait_for_turn(struct listener *l, int fd, struct user_share *share)
{
    if (!make_room(l, share)) {
        passed_close(fd);
        return;
    }
    l->waiting[l->count++] = (struct waiting){ fd, share };
    if (!uv_is_active((uv_handle_t *)&l->timer))
        uv_timer_start(&l->timer, on_timer, PAUSE_MS, 0);
}

static void take(struct listener *l, int fd)
{
    struct ucred cred;
    socklen_t len = sizeof cred;
    struct user_share *share;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || !(share = user_shares_of(l->shares, cred.uid)))
        passed_close(fd);
    else if (cred.uid == 0 || cred.uid == geteuid() || user_share_take(share, BOUND_CONNECTS, mono_s()))
        l->events->connected(l->arg, fd, cred.uid);
    else
        wait_for_turn(l, fd, share);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct listener *l = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < TURN && !uv_is_closing((uv_handle_t *)poll); i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            take(l, fd);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            l->events->failed(l->arg, strerror(errno));
            uv_poll_stop(poll);
            l->paused = true;
            uv_timer_start(&l->timer, on_timer, PAUSE_MS, 0);
            return;
        }
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct listener *l = handle->data;

    if (--l->handles > 0)
        return;
    close(l->fd);
    free(l);
}

int listener_open(uv_loop_t *loop, int fd, int backlog, struct user_shares *shares, const struct listener_events *events, void *arg,
                  struct listener **ret, struct err *err)
{
    struct listener *l = listen(fd, backlog) == 0 ? calloc(1, sizeof *l) : NULL;
    int rc;

    if (!l) {
        rc = errno;
        close(fd);
        return err_set(err, -rc, "listen: %s", strerror(rc));
    }
    *l = (struct listener){ .fd = fd, .shares = shares, .events = events, .arg = arg, .handles = 1 };
    uv_timer_init(loop, &l->timer);
    l->timer.data = l->poll.data = l;
    rc = uv_poll_init(loop, &l->poll, fd); /* makes the descriptor non-blocking */
    if (rc == 0) {
        l->handles = 2;
        rc = uv_poll_start(&l->poll, UV_READABLE, on_poll);
    }
    if (rc == 0) {
        *ret = l;
        return 0;
    }
    listener_close(l);
    return err_set(err, rc, "listen: %s", uv_strerror(rc));
}

void listener_close(struct listener *l)
{
    if (!l)
        return;
    while (l->count > 0)
        passed_close(l->waiting[--l->count].fd);
    if (l->handles == 2)
        uv_close((uv_handle_t *)&l->poll, on_closed);
    uv_close((uv_handle_t *)&l->timer, on_closed);
}

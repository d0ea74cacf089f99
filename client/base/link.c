#include "client/base/link.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/base/command.h"
#include "proto/host/clock.h"
#include "proto/err.h"
#include "proto/frame.h"
#include "proto/rpc.h"

enum { RETRY_MS = 300, REPLY_MAX_LINE = 4 * RPC_MAX_LINE, SLOW_S = 2 };

struct link {
    int fd; /* -1: lost */
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    struct frame *frame;
    double patience_s;
    int answer_s;
    bool told;       /* the user knows that detd is away */
    bool slow_told;  /* the user knows that this call waits */
    bool unanswered; /* the last call's request was sent, and its answer did not come */
    long next_id;
    int64_t followed; /* job that is followed; 0: no job */
    bool news;        /* news have come */
};

const char *link_default_path(const char *given)
{
    static char own[4096];
    const char *env = getenv("DETD_SOCKET"), *runtime = getenv("XDG_RUNTIME_DIR");

    if (given)
        return given;
    if (env && *env)
        return env;
    if (runtime && *runtime) {
        snprintf(own, sizeof own, "%s/detd/detd.sock", runtime);
        if (access(own, F_OK) == 0)
            return own;
    }
    return "/run/detd/detd.sock";
}

static void drop(struct link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    frame_free(l->frame);
    l->frame = NULL;
}

static int no_answer(const struct link *l, struct err *err)
{
    return err_set(err, ERR_TIMEOUT, "detd at '%s' gives no answer within %d s", l->path, l->answer_s);
}

/* Called after each pause of a wait that began at `start`. Returns an error to end the wait. */
static int wait_on(struct link *l, double start, struct err *err)
{
    double waited = clock_s() - start;

    if (interrupted)
        return err_set(err, -EINTR, "interrupted");
    if (waited >= SLOW_S && !l->slow_told) {
        fprintf(stderr, "detctl: detd at '%s' has not answered for %d s; still waiting\n", l->path, SLOW_S);
        l->slow_told = true;
    }
    return waited >= l->answer_s && l->patience_s >= 0 ? no_answer(l, err) : 0;
}

/* Waits until the connection can be read (POLLIN) or written (POLLOUT). */
static int await(struct link *l, short events, struct err *err)
{
    struct pollfd p = { .fd = l->fd, .events = events };
    double start = clock_s();
    int rc = 0;

    while (rc == 0 && poll(&p, 1, 1000) <= 0)
        rc = wait_on(l, start, err);
    return rc;
}

/* Connects. If detd is stopped, its queue of connections may be full: then it waits. */
static int reach(struct link *l, int fd, struct err *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct timeval pause = { .tv_sec = 1 };
    double start = clock_s();
    int rc;

    memcpy(address.sun_path, l->path, sizeof l->path);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &pause, sizeof pause);
    do {
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return 0;
        rc = errno == EAGAIN ? wait_on(l, start, err) : -errno;
    } while (rc == 0);
    if (rc == ERR_TIMEOUT || interrupted)
        return rc;
    errno = -rc;
    return err_set(err, errno == EINTR ? -EINTR : -ENOTCONN,
                   "no detd answers at '%s': %s; --socket or DETD_SOCKET says where it is, `detd --state DIR --socket PATH` starts one",
                   l->path, strerror(errno));
}

/* Tries the socket for admins, which other users cannot keep busy. Returns false if this user may not open it. A socket
 * in a folder that others may write to, such as /tmp, is never tried: another user may have made it. */
static bool reach_as_admin(const struct link *l, int fd)
{
    const char *name = strrchr(l->path, '/');
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char folder[sizeof l->path];
    struct stat st;

    if (!name || strcmp(name, RPC_SOCKET) != 0)
        return false;
    snprintf(folder, sizeof folder, "%.*s", (int)(name + 1 - l->path), l->path);
    return stat(folder, &st) == 0 && !(st.st_mode & 022) &&
           snprintf(address.sun_path, sizeof address.sun_path, "%.*s" RPC_ADMIN_SOCKET, (int)(name - l->path), l->path) <
               (int)sizeof address.sun_path &&
           connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
}

static int dial(struct link *l, struct err *err)
{
    int rc, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return err_sys(err, "socket");
    rc = reach_as_admin(l, fd) ? 0 : reach(l, fd, err);
    if (rc == 0 && !(l->frame = frame_new(REPLY_MAX_LINE)))
        rc = err_set(err, -ENOMEM, "out of memory");
    if (rc < 0) {
        close(fd);
        return rc;
    }
    l->fd = fd;
    return 0;
}

int link_open(const char *path, int answer_s, struct link **ret_link, struct err *err)
{
    struct link *l;
    int rc;

    if (strlen(path) >= sizeof l->path)
        return err_set(err, ERR_INPUT, "socket path '%.300s' is longer than %zu bytes", path, sizeof l->path - 1);
    l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, -ENOMEM, "out of memory");
    snprintf(l->path, sizeof l->path, "%s", path);
    l->fd = -1;
    l->patience_s = 10;
    l->answer_s = answer_s;
    rc = dial(l, err);
    if (rc == 0)
        *ret_link = l;
    else
        free(l);
    return rc;
}

void link_close(struct link *l)
{
    if (!l)
        return;
    drop(l);
    free(l);
}

void link_patience(struct link *l, double seconds)
{
    l->patience_s = seconds;
}

void link_answer_within(struct link *l, int seconds)
{
    l->answer_s = seconds;
}

static int send_all(struct link *l, const char *line, size_t len, struct err *err)
{
    while (len > 0) {
        int rc = await(l, POLLOUT, err);
        ssize_t n = rc < 0 ? 0 : send(l->fd, line, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (rc < 0)
            return rc;
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return err_set(err, -ENOTCONN, "lost detd at '%s': %s", l->path, strerror(errno));
        line += n;
        len -= (size_t)n;
    }
    return 0;
}

static int receive(struct link *l, struct err *err)
{
    char buf[16384];
    int rc = await(l, POLLIN, err);
    ssize_t n = rc < 0 ? 0 : recv(l->fd, buf, sizeof buf, MSG_DONTWAIT);

    if (rc < 0)
        return rc;
    if (n > 0)
        return frame_push(l->frame, buf, (size_t)n, err);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    return err_set(err, -ENOTCONN, "lost detd at '%s': %s", l->path, n == 0 ? "it closed the connection" : strerror(errno));
}

/* Sends the line and waits for the reply with this id. Other lines (notifications, late replies) are skipped. */
static int exchange(struct link *l, long id, const char *line, size_t len, json_t **ret_result, struct err *err)
{
    int rc;

    l->unanswered = true;
    rc = send_all(l, line, len, err);
    if (rc == -ENOTCONN)
        rc = 0; /* words of detd before it hung up, such as the reason, can still be read */
    while (rc == 0) {
        size_t got_len;
        const char *got = frame_next(l->frame, &got_len);
        long got_id;

        if (!got) {
            rc = receive(l, err);
            continue;
        }
        rc = rpc_reply_parse(got, got_len, &got_id, ret_result, err);
        if (got_id == id || got_id == RPC_NO_ID)
            l->unanswered = false;
        if (got_id == id)
            return rc;
        if (rc == 0)
            json_decref(*ret_result);
        if (got_id == RPC_NO_REPLY)
            l->news = true;
        if (got_id == RPC_NO_ID)
            return rc; /* refused before the id could be read; there is no other request */
        rc = 0;
    }
    return rc;
}

/* Connects again until patience ends. Patience counts from when the call first found no connection: *lost, 0 until
 * then. */
static int redial(struct link *l, double *lost, struct err *err)
{
    double start = *lost > 0 ? *lost : clock_s();
    int rc;

    if (*lost > 0 && l->patience_s >= 0 && clock_s() - start > l->patience_s)
        return -ENOTCONN; /* *err says why */
    if (*lost > 0)
        sleep_ms(RETRY_MS);
    *lost = start;
    while ((rc = dial(l, err)) == -ENOTCONN && !interrupted) {
        if (l->patience_s >= 0 && clock_s() - start > l->patience_s)
            return rc;
        if (!l->told && clock_s() - start > 1) {
            fprintf(stderr, "detctl: detd is away; trying again (the job keeps running without it)\n");
            l->told = true;
        }
        sleep_ms(RETRY_MS);
    }
    if (interrupted)
        return err_set(err, -EINTR, "interrupted");
    if (rc == 0 && l->told) {
        fprintf(stderr, "detctl: detd is back\n");
        l->told = false;
    }
    return rc;
}

/* Asks for the job's news over the new connection. A detd that does not know news is asked now and then instead. */
static int subscribe_again(struct link *l, struct err *err)
{
    json_t *result = NULL;
    long id = ++l->next_id;
    size_t len;
    char *line = rpc_call(id, "subscribe", json_pack("{s:I, s:s}", "id", (json_int_t)l->followed, "topics", "jobs losses"), &len);
    int rc = line ? exchange(l, id, line, len, &result, err) : err_set(err, -ENOMEM, "out of memory");

    json_decref(result);
    free(line);
    return rc == -ENOTCONN || rc == ERR_TIMEOUT || rc == -EINTR ? rc : 0;
}

int link_call(struct link *l, const char *method, json_t *params, json_t **ret_result, struct err *err)
{
    long id = ++l->next_id;
    size_t len;
    char *line = rpc_call(id, method, params, &len);
    double lost = 0;
    int rc = -ENOTCONN;

    if (!line)
        return err_set(err, -ENOMEM, "out of memory, or text that is not UTF-8");
    if (len > RPC_MAX_LINE) {
        free(line);
        return err_set(err, ERR_INPUT, "request of %zu bytes; detd takes at most %d", len, RPC_MAX_LINE);
    }
    l->slow_told = l->unanswered = false;
    while (rc == -ENOTCONN) {
        bool dialled = l->fd < 0;

        if (dialled && (rc = redial(l, &lost, err)) < 0)
            break;
        rc = dialled && l->followed ? subscribe_again(l, err) : 0;
        if (rc == 0)
            rc = exchange(l, id, line, len, ret_result, err);
        if (rc == -ENOTCONN || rc == ERR_TIMEOUT || rc == -EINTR)
            drop(l);
    }
    free(line);
    return rc;
}

bool link_unanswered(const struct link *l)
{
    return l->unanswered;
}

int link_subscribe(struct link *l, int64_t job, struct err *err)
{
    int rc = 0;

    l->followed = job;
    if (l->fd >= 0)
        rc = subscribe_again(l, err);
    if (rc < 0)
        drop(l); /* the next call makes another connection, and asks there */
    return rc == -EINTR ? rc : 0;
}

void link_wait(struct link *l, int ms)
{
    struct pollfd p = { .fd = l->fd, .events = POLLIN };
    struct err err;
    size_t len;

    while (l->fd >= 0 && frame_next(l->frame, &len)) /* skips news, which may have come with an answer: the caller asks for their content */
        l->news = true;
    if (!l->news && l->fd >= 0 && poll(&p, 1, ms) > 0 && receive(l, &err) < 0)
        drop(l);
    while (l->fd >= 0 && frame_next(l->frame, &len))
        l->news = true;
    l->news = false;
}

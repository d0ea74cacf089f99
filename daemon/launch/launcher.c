#include "daemon/launch/launcher.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "proto/err.h"
#include "proto/launch.h"
#include "proto/report.h"

enum { SEALS_MAX = 4096, START_FDS = 2 + JOB_GPUS_MAX, ANSWER_S = 15 };
_Static_assert((int)JOB_GPUS_MAX <= (int)LAUNCH_GPU_LOCKS && sizeof((struct launch_request *)NULL)->gpus <= LAUNCH_GPUS &&
                   (int)JOB_USER_MAX == (int)LAUNCH_USER,
               "the GPUs of a job, their locks, and the name of its user have room in a START");

/* A request that waits for an answer: to a seal, to a kill, or about the exit of a started job. */
struct waiting {
    struct waiting *next;
    int64_t number; /* number of the request */
    int64_t job;
    double until;    /* deadline of the answer; 0: a start, whose exit is waited for */
    double heard_by; /* a start: deadline of the answer that it began; 0: that came */
    launcher_sealed *sealed;
    launcher_killed *killed;
    launch_exit *on_exit;
    void *arg;
};

struct launcher {
    uv_loop_t *loop;
    const char *jobs_dir;
    launcher_empty *empty;
    void *arg;
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path];
    int fd; /* -1: not connected */
    uv_poll_t *poll;
    struct waiting *first;
    int64_t asked;
    int nseals;
    bool closed;
    char unreached[256]; /* why the last connection failed */
    char unheard[256];   /* why a request got no answer; empty again after the next answer */
};

/* The first request number of this detd. Answers to an earlier detd must not have it. */
static int64_t first_number(void)
{
    uint64_t n = 0;

    if (getrandom(&n, sizeof n, 0) != sizeof n)
        n = (uint64_t)getpid() << 32;
    return (int64_t)(n >> 2) + 1;
}

int launcher_open(uv_loop_t *loop, const char *path, const char *jobs_dir, launcher_empty *empty, void *arg, struct launcher **ret,
                  struct err *err)
{
    struct launcher *l = calloc(1, sizeof *l);

    if (!l)
        return err_set(err, -ENOMEM, "out of memory");
    *l = (struct launcher){ .loop = loop, .jobs_dir = jobs_dir, .empty = empty, .arg = arg, .fd = -1, .asked = first_number() };
    snprintf(l->path, sizeof l->path, "%s", path);
    *ret = l;
    return 0;
}

bool launcher_is_there(const struct launcher *l)
{
    return l && access(l->path, F_OK) == 0;
}

/* ---- tickets as text ---- */

static void to_hex(const struct launch_ticket *t, char ret[LAUNCH_TICKET_HEX + 1])
{
    const unsigned char *bytes = (const unsigned char *)t;

    for (size_t i = 0; i < sizeof *t; i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

static int from_hex(const char *text, struct launch_ticket *ret)
{
    unsigned char *bytes = (unsigned char *)ret;

    if (strlen(text) != LAUNCH_TICKET_HEX || strspn(text, "0123456789abcdef") != LAUNCH_TICKET_HEX)
        return -1;
    for (size_t i = 0; i < sizeof *ret; i++) {
        const char two[3] = { text[2 * i], text[2 * i + 1], '\0' };

        bytes[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    return 0;
}

/* ---- answers ---- */

static const char *name_reached(const struct launch_answer *a)
{
    switch (a->reached) {
    case LAUNCH_REACH_NOBODY:
        return "";
    case LAUNCH_REACH_SCOPE:
    case LAUNCH_REACH_DYING:
        return "all processes of its scope";
    case LAUNCH_REACH_SESSION:
        return "its session";
    case LAUNCH_REACH_HOLDERS:
        return "the processes that hold its lock";
    default:
        return a->gone ? "" : "the processes that detd-launch knows";
    }
}

static void answer_one(struct launcher *l, struct waiting *w, const struct launch_answer *a, const struct err *err)
{
    char ticket[LAUNCH_TICKET_HEX + 1];

    l->nseals -= w->sealed != NULL;
    if (w->sealed && a)
        to_hex(&a->ticket, ticket);
    if (w->sealed)
        w->sealed(w->arg, a ? ticket : NULL, err);
    else if (w->killed)
        w->killed(w->arg, a && a->gone, a && a->reached == LAUNCH_REACH_DYING, a ? name_reached(a) : "", a ? a->text : "", err);
    else
        w->on_exit(w->arg, w->job, a ? a->status : LAUNCH_UNWATCHED, a ? a->text : err->msg);
    free(w);
}

static struct waiting *take(struct launcher *l, int64_t number)
{
    for (struct waiting **at = &l->first; *at; at = &(*at)->next)
        if ((*at)->number == number) {
            struct waiting *w = *at;

            *at = w->next;
            return w;
        }
    return NULL;
}

/* Answers each request whose deadline has passed with an error. If detd-launch answers it later, that answer is
 * ignored. */
void launcher_tick(struct launcher *l)
{
    double now = mono_s();
    struct waiting *w;
    struct err err;

    if (!l)
        return;
    err_set(&err, ERR_STATE, "detd-launch, which starts jobs as their submitters, does not answer");
    for (w = l->first; w; w = w->next)
        if ((w->until > 0 && now >= w->until) || (w->heard_by > 0 && now >= w->heard_by))
            snprintf(l->unheard, sizeof l->unheard, "%.255s", err.msg);
    do { /* from the start each time: the callback may ask something else */
        for (w = l->first; w && (w->until == 0 || now < w->until);)
            w = w->next;
        if (w)
            answer_one(l, take(l, w->number), NULL, &err);
    } while (w);
}

static void poll_closed(uv_handle_t *handle)
{
    free(handle);
}

/* No answer comes any more. Jobs run on, and are found by their locks. */
static void hang_up(struct launcher *l, const char *why)
{
    struct waiting *all = l->first, *next;
    struct err err;

    if (l->fd < 0)
        return;
    uv_close((uv_handle_t *)l->poll, poll_closed);
    close(l->fd);
    l->fd = -1;
    l->first = NULL;
    err_set(&err, ERR_STATE, "detd-launch, which starts jobs as their submitters, %s; try again", why);
    for (; all; all = next) {
        next = all->next;
        if (all->until > 0 || all->heard_by > 0)
            snprintf(l->unheard, sizeof l->unheard, "%.255s", err.msg);
        answer_one(l, all, NULL, &err);
    }
}

/* The text may come from a process of the user: a character that moves a terminal's cursor or begins a line of a log is
 * replaced. */
static void clean(char *text, size_t room)
{
    text[room - 1] = '\0';
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

static void has_begun(struct launcher *l, int64_t number)
{
    for (struct waiting *w = l->first; w; w = w->next)
        if (w->number == number)
            w->heard_by = 0;
}

static void take_answer(struct launcher *l, struct launch_answer *a)
{
    struct waiting *w = a->kind == LAUNCH_STARTED ? NULL : take(l, a->number);
    struct err err;

    l->unheard[0] = '\0';
    clean(a->text, sizeof a->text);
    switch (a->kind) {
    case LAUNCH_SEALED:
        if (w && w->sealed)
            answer_one(l, w, a, NULL);
        break;
    case LAUNCH_STARTED:
        has_begun(l, a->number);
        launch_note_session(l->jobs_dir, a->job, a->session);
        break;
    case LAUNCH_EXITED:
        if (w && a->gone)
            l->empty(l->arg, a->job, true);
        if (w && w->on_exit)
            answer_one(l, w, a, NULL);
        break;
    case LAUNCH_KILLED:
        if (w && w->killed)
            answer_one(l, w, a, NULL);
        if (a->gone)
            l->empty(l->arg, a->job, false);
        break;
    case LAUNCH_REFUSED:
        err_set(&err, ERR_STATE, "%s", a->text);
        a->status = SUP_EXIT_REFUSED;
        if (w)
            answer_one(l, w, w->on_exit ? a : NULL, &err);
        break;
    default:
        break;
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct launcher *l = poll->data;

    (void)events;
    while (l->fd >= 0) {
        struct launch_answer a;
        ssize_t n = status < 0 ? 0 : recv(l->fd, &a, sizeof a, MSG_DONTWAIT | MSG_TRUNC);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n != (ssize_t)sizeof a || a.version != LAUNCH_VERSION)
            hang_up(l, n <= 0 ? "has left" : "is of another version");
        else
            take_answer(l, &a);
    }
}

/* ---- asking ---- */

static bool is_root(int fd)
{
    struct ucred who;
    socklen_t size = sizeof who;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == 0;
}

static int start_polling(struct launcher *l, int fd, struct err *err)
{
    uv_poll_t *poll = calloc(1, sizeof *poll);
    int rc = poll ? uv_poll_init(l->loop, poll, fd) : -ENOMEM;

    if (rc < 0) {
        free(poll);
        return err_set(err, rc, "detd-launch: %s", uv_strerror(rc));
    }
    poll->data = l;
    uv_unref((uv_handle_t *)poll);
    uv_poll_start(poll, UV_READABLE, on_readable);
    l->poll = poll;
    l->fd = fd;
    return 0;
}

/* Returns -EBUSY for -EAGAIN: that is also the number of -EWOULDBLOCK, by which a start says that the job's lock is
 * held. */
static int busy(int rc, struct err *err)
{
    return rc == -EAGAIN ? (err->code = -EBUSY) : rc;
}

static int connect_to(struct launcher *l, struct err *err)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", l->path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0)
        rc = busy(err_sys(err, "detd-launch, which starts jobs as their submitters, does not answer at '%s'", l->path), err);
    else if (!is_root(fd))
        rc = err_set(err, ERR_DENIED, "'%s' does not belong to root: only root may run detd-launch", l->path);
    if (rc == 0)
        rc = start_polling(l, fd, err);
    if (rc < 0 && fd >= 0)
        close(fd);
    return rc;
}

static int call(struct launcher *l, struct err *err)
{
    struct err own = { 0 };
    int rc;

    if (l->closed)
        return err_set(err, ERR_STATE, "the daemon is stopping");
    if (l->fd >= 0)
        return 0;
    rc = connect_to(l, &own);
    snprintf(l->unreached, sizeof l->unreached, "%.255s", rc < 0 ? own.msg : "");
    return rc < 0 ? err_set(err, rc, "%s", own.msg) : 0;
}

const char *launcher_trouble(struct launcher *l)
{
    if (!l || l->closed)
        return "";
    if (l->fd < 0 && !launcher_is_there(l)) /* a node without detd-launch has no trouble with that, unless a job needs it */
        return l->unreached;
    return call(l, NULL) < 0 ? l->unreached : l->unheard;
}

static int ask(struct launcher *l, struct launch_ask *a, const int *fds, int nfds, struct err *err)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(START_FDS * sizeof(int))];
    } control = { 0 };
    struct iovec iov = { a, sizeof *a };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    int rc = call(l, err);

    if (rc < 0)
        return rc;
    if (nfds > 0) {
        struct cmsghdr *c;

        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
    }
    a->version = LAUNCH_VERSION;
    a->number = ++l->asked;
    if (sendmsg(l->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *a)
        return 0;
    if (errno == EAGAIN)
        snprintf(l->unheard, sizeof l->unheard, "detd-launch, which starts jobs as their submitters, accepts no requests");
    return busy(err_sys(err, "ask detd-launch"), err);
}

static int ask_and_wait(struct launcher *l, struct launch_ask *a, const int *fds, int nfds, const struct waiting *what, struct err *err)
{
    struct waiting *w = malloc(sizeof *w);
    int rc = w ? ask(l, a, fds, nfds, err) : err_set(err, -ENOMEM, "out of memory");

    if (rc < 0) {
        free(w);
        return rc;
    }
    *w = *what;
    w->number = a->number;
    w->job = a->ticket.job;
    w->heard_by = a->kind == LAUNCH_START ? mono_s() + ANSWER_S : 0;
    w->until = a->kind == LAUNCH_START ? 0 : mono_s() + ANSWER_S + (a->kind == LAUNCH_CLEAR ? LAUNCH_CLEAR_S : 0);
    w->next = l->first;
    l->first = w;
    l->nseals += w->sealed != NULL;
    return 0;
}

int launcher_seal(struct launcher *l, int client, int64_t job, const char *user, const char *store_id,
                  const unsigned char spec[SHA256_BYTES], launcher_sealed *done, void *arg, struct err *err)
{
    struct launch_ask a = { .kind = LAUNCH_SEAL };

    if (l->nseals >= SEALS_MAX)
        return err_set(err, ERR_STATE, "detd-launch has too many requests to answer; try again");
    a.ticket.job = job;
    snprintf(a.ticket.store, sizeof a.ticket.store, "%s", store_id);
    snprintf(a.ticket.user, sizeof a.ticket.user, "%s", user);
    memcpy(a.ticket.spec, spec, sizeof a.ticket.spec);
    return ask_and_wait(l, &a, &client, 1, &(struct waiting){ .sealed = done, .arg = arg }, err);
}

/* Replaces all characters that detd-launch does not take. */
static void plain(const char *text, char *ret, size_t size)
{
    size_t n = 0;

    for (; *text && n + 1 < size; text++)
        ret[n++] =
            strchr(" -_.,;:'()/", *text) || (*text >= '0' && *text <= '9') || ((*text | 32) >= 'a' && (*text | 32) <= 'z') ? *text : '_';
    ret[n] = '\0';
}

static int fill_start(const struct launch_request *rq, struct launch_ask *a, struct err *err)
{
    *a = (struct launch_ask){ .kind = LAUNCH_START,
                              .attempt = rq->attempt,
                              .threads = rq->threads,
                              .slots = rq->slots,
                              .tier = rq->tier,
                              .drain = rq->drain == JOB_CANCELLED ? LAUNCH_DRAIN_CANCELLED
                                       : rq->drain                ? LAUNCH_DRAIN_FAILED
                                       : rq->anew                 ? LAUNCH_DRAIN_AGAIN
                                                                  : LAUNCH_DRAIN_NONE,
                              .last_seq = rq->last_seq,
                              .saved = rq->saved,
                              .log_max = rq->log_max,
                              .ran_s = rq->ran_s };
    snprintf(a->nonce, sizeof a->nonce, "%s", rq->nonce);
    snprintf(a->gpus, sizeof a->gpus, "%s", rq->gpus);
    plain(rq->drain ? rq->reason : rq->busy, a->reason, sizeof a->reason);
    return from_hex(rq->ticket, &a->ticket) == 0
               ? 0
               : err_set(err, ERR_CORRUPT, "job %lld: its ticket in the store is damaged", (long long)rq->job);
}

int launcher_start(struct launcher *l, const struct launch_request *rq, launch_exit *on_exit, void *arg, struct err *err)
{
    int fds[START_FDS] = { rq->lock_fd, rq->spec_fd };
    struct launch_ask a;
    int rc = l ? fill_start(rq, &a, err)
               : err_set(err, ERR_STATE, "job %lld has a ticket, but this daemon is not configured to use detd-launch", (long long)rq->job);

    memcpy(fds + 2, rq->gpu_fds, (size_t)rq->ngpu_fds * sizeof *fds);
    if (rc == 0)
        rc = ask_and_wait(l, &a, fds, 2 + rq->ngpu_fds, &(struct waiting){ .on_exit = on_exit, .arg = arg }, err);
    launch_drop(rq);
    return rc;
}

int launcher_clear(struct launcher *l, const char *ticket, int lock_fd, launch_exit *on_exit, void *arg, struct err *err)
{
    struct launch_ask a = { .kind = LAUNCH_CLEAR, .attempt = 1 };
    int rc = l && from_hex(ticket, &a.ticket) == 0 ? 0 : err_set(err, ERR_STATE, "there is no detd-launch to ask");

    if (rc == 0)
        rc = ask_and_wait(l, &a, &lock_fd, 1, &(struct waiting){ .on_exit = on_exit, .arg = arg }, err);
    close(lock_fd);
    return rc;
}

int launcher_kill(struct launcher *l, const char *ticket, launcher_killed *done, void *arg, struct err *err)
{
    struct launch_ask a = { .kind = LAUNCH_KILL, .drain = done ? LAUNCH_DRAIN_NONE : LAUNCH_KILL_FREE };

    if (!l || from_hex(ticket, &a.ticket) < 0)
        return err_set(err, ERR_STATE, "there is no detd-launch to ask");
    return done ? ask_and_wait(l, &a, NULL, 0, &(struct waiting){ .killed = done, .arg = arg }, err) : ask(l, &a, NULL, 0, err);
}

void launcher_close(struct launcher *l)
{
    if (!l)
        return;
    l->closed = true;
    hang_up(l, "is left by a daemon that stops");
}

void launcher_free(struct launcher *l)
{
    free(l);
}

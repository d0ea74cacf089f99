#include "launch/ask.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/sha256.h"
#include "proto/tier.h"

/* ---- reading ---- */

static int take_fds(struct msghdr *msg, int ret_fds[ASK_FDS])
{
    int n = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) && n < ASK_FDS; i++)
                memcpy(&ret_fds[n++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
    return n;
}

int ask_read(int socket, struct launch_ask *ret, int ret_fds[ASK_FDS], struct err *err)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(ASK_FDS * sizeof(int))];
    } control;
    struct iovec iov = { ret, sizeof *ret };
    /* CMSG_LEN, not CMSG_SPACE: SPACE rounds up and may leave room for one more descriptor, which would never be
     * closed. */
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(ASK_FDS * sizeof(int)) };
    ssize_t n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    int nfds;

    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR) ? -EAGAIN : err_set(err, -EPIPE, "detd has left");
    nfds = take_fds(&msg, ret_fds);
    if (n == (ssize_t)sizeof *ret && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return nfds;
    while (nfds > 0)
        close(ret_fds[--nfds]);
    return err_set(err, ERR_PROTO, "a message of %zd bytes, or with more than %d descriptors", n, ASK_FDS);
}

/* ---- checking ---- */

static bool is_text(const char *text, size_t room, const char *extra)
{
    size_t len = strnlen(text, room);

    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr(extra, c)))
            return false;
    }
    return len < room;
}

static int count_gpus(const char *gpus, size_t room)
{
    size_t len = strnlen(gpus, room);
    int n = len > 0;

    for (size_t i = 0; i < len; i++)
        n += gpus[i] == ',';
    return n;
}

int ask_check(const struct launch_ask *a, int nfds, struct err *err)
{
    static const int needs[] = { [LAUNCH_SEAL] = 1, [LAUNCH_START] = 2, [LAUNCH_KILL] = 0, [LAUNCH_CLEAR] = 1 };
    int locks;

    if (a->version != LAUNCH_VERSION)
        return err_set(err, ERR_PROTO, "detd speaks version %u of this protocol, detd-launch %d", a->version, LAUNCH_VERSION);
    if (a->kind != LAUNCH_SEAL && a->kind != LAUNCH_START && a->kind != LAUNCH_KILL && a->kind != LAUNCH_CLEAR)
        return err_set(err, ERR_PROTO, "a message of kind %u", a->kind);
    locks = a->kind == LAUNCH_START ? count_gpus(a->gpus, sizeof a->gpus) : 0;
    if (nfds < needs[a->kind] || nfds > needs[a->kind] + locks)
        return err_set(err, ERR_PROTO, "a message of kind %u has %d descriptors, not %d", a->kind, nfds, needs[a->kind]);
    return 0;
}

int ask_check_seal(const struct launch_ask *a, struct err *err)
{
    bool sound = a->ticket.job >= 1 && is_text(a->ticket.store, sizeof a->ticket.store, "") && a->ticket.user[0] &&
                 memchr(a->ticket.user, 0, sizeof a->ticket.user);

    return sound ? 0 : err_set(err, ERR_PROTO, "a job that no detd has");
}

int ask_check_start(const struct launch_ask *a, struct err *err)
{
    if (a->attempt < 1 || a->threads < 0 || a->threads > 1 << 16 || a->slots < 0 || a->tier < 0 || a->tier >= TIERS || a->drain < 0 ||
        a->drain >= LAUNCH_DRAINS || a->last_seq < 0 || a->saved < 0 || a->log_max < 0 || a->ran_s < 0)
        return err_set(err, ERR_PROTO, "a number that no detd sends");
    if (!is_text(a->ticket.store, sizeof a->ticket.store, "") || !is_text(a->nonce, sizeof a->nonce, "") ||
        !is_text(a->gpus, sizeof a->gpus, "-,") || !is_text(a->reason, sizeof a->reason, " -_.,;:'()/"))
        return err_set(err, ERR_PROTO, "a text that no detd sends");
    return 0;
}

int ask_check_spec(int fd, const struct launch_ticket *t, struct err *err)
{
    const int wanted = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    unsigned char hash[SHA256_BYTES];
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;
    void *text;

    if (seals < 0 || (seals & wanted) != wanted || fstat(fd, &st) < 0 || st.st_size < 1 || st.st_size > LAUNCH_SPEC_MAX)
        return err_set(err, ERR_DENIED, "the spec of job %lld is no sealed file of memory", (long long)t->job);
    text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (text == MAP_FAILED)
        return err_sys(err, "read the spec");
    sha256(text, (size_t)st.st_size, hash);
    munmap(text, (size_t)st.st_size);
    if (memcmp(hash, t->spec, sizeof hash) != 0)
        return err_set(err, ERR_DENIED, "the spec of job %lld is not the one that was submitted", (long long)t->job);
    return 0;
}

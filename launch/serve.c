#include "launch/serve.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/ask.h"
#include "launch/become.h"
#include "launch/holders.h"
#include "launch/place.h"
#include "launch/run.h"
#include "launch/scope.h"
#include "launch/ticket.h"
#include "proto/err.h"
#include "proto/host/passed.h"
#include "proto/host/tasks.h"
#include "proto/host/tell.h"

enum { TICK_MS = 20, POLLED = 3 };

static struct serve_config config;
static int caller = -1; /* detd's connection */
static uid_t caller_uid;

/* ---- answers ---- */

static void hang_up(void)
{
    close(caller);
    caller = -1;
}

/* Hangs up on a detd that does not read; it connects again. */
static void answer(const struct launch_answer *a)
{
    if (caller >= 0 && send(caller, a, sizeof *a, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof *a)
        hang_up();
}

static void tell(enum launch_kind kind, const struct launch_ask *ask, int session, const char *text)
{
    struct launch_answer a = { .version = LAUNCH_VERSION, .kind = kind, .number = ask->number, .job = ask->ticket.job, .session = session };

    snprintf(a.text, sizeof a.text, "%s", text);
    a.ticket = ask->ticket;
    answer(&a);
}

static void tell_exit(const struct run *r, bool gone)
{
    struct launch_answer a = { .version = LAUNCH_VERSION,
                               .kind = LAUNCH_EXITED,
                               .number = r->number,
                               .job = r->ticket.job,
                               .status = r->status,
                               .gone = gone,
                               .ticket = r->ticket };

    snprintf(a.text, sizeof a.text, "%s", r->text);
    answer(&a);
}

/* ---- requests ---- */

static int fork_child(const struct launch_ask *a, struct become *b, struct err *err)
{
    bool clears = a->kind == LAUNCH_CLEAR;
    int begun[2], rc;
    pid_t pid;

    if (pipe2(begun, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_sys(err, "a pipe for job %lld", (long long)a->ticket.job);
    b->begun = begun[1];
    pid = fork();
    if (pid == 0)
        become(b);
    rc = pid > 0 ? 0 : err_set(err, -errno, "start job %lld: %s", (long long)a->ticket.job, process_lacks(errno));
    close(begun[1]);
    if (rc == 0 && run_add(&a->ticket, a->number, pid, b->trouble, clears ? -1 : begun[0], clears ? LAUNCH_CLEAR_S : LAUNCH_BEGIN_S) < 0) {
        kill(pid, SIGKILL); /* not waited for: it may not die soon */
        rc = err_set(err, -ENOMEM, "out of memory");
    }
    if (rc < 0 || clears)
        close(begun[0]);
    return rc < 0 ? rc : pid;
}

static int fork_job(const struct launch_ask *a, const int *fds, int nfds, int jobs, struct err *err)
{
    struct become b = { .ask = a, .path = config.program, .scope = -1, .jobs = jobs, .lock = fds[0] };
    int rc = b.program = place_program(config.program, err);

    b.spec = a->kind == LAUNCH_CLEAR ? -1 : fds[1];
    if (nfds > 2) {
        b.gpu_locks = fds + 2;
        b.ngpu_locks = nfds - 2;
    }
    if (rc < 0)
        return rc;
    b.trouble = memfd_create("detd-trouble", MFD_CLOEXEC);
    if (b.trouble < 0)
        rc = err_sys(err, "a file of memory");
    else if (scope_there_are())
        rc = b.scope = scope_make(&a->ticket, a->slots, err);
    else
        scope_forget(&a->ticket);
    if (rc >= 0)
        rc = fork_child(a, &b, err);
    close(b.program);
    if (b.scope >= 0)
        close(b.scope);
    if (rc < 0 && b.trouble >= 0)
        close(b.trouble);
    return rc;
}

static int start(const struct launch_ask *a, const int *fds, int nfds, struct err *err)
{
    int jobs, rc = ask_check_start(a, err);

    if (rc == 0 && a->kind == LAUNCH_START)
        rc = ask_check_spec(fds[1], &a->ticket, err);
    if (rc == 0 && run_kill(&a->ticket, false) == SCOPE_HELD)
        rc = err_set(err, -EBUSY, "processes of the last run of job %lld are still ending", (long long)a->ticket.job);
    if (rc < 0)
        return rc;
    jobs = place_make(config.state, caller_uid, &a->ticket, err);
    if (jobs < 0)
        return jobs;
    rc = fork_job(a, fds, nfds, jobs, err);
    close(jobs);
    if (rc > 0)
        tell(LAUNCH_STARTED, a, rc, "");
    return rc;
}

static int seal(struct launch_ask *a, int client, struct err *err)
{
    int rc = ask_check_seal(a, err);

    a->ticket.version = LAUNCH_VERSION;
    a->ticket.unused = 0;
    if (rc == 0)
        rc = ticket_identify(client, &a->ticket, err);
    if (rc < 0)
        return rc;
    ticket_seal(&a->ticket);
    tell(LAUNCH_SEALED, a, 0, "");
    return 0;
}

/* Returns the number of processes that hold the job's lock, -1: unknown; `ret` names one. Returns 0 for jobs of detd's
 * own user: detd holds locks itself. */
static int kill_holders(const struct launch_ticket *t, char ret[LAUNCH_TEXT])
{
    int lock = t->uid == caller_uid ? -1 : place_lock(config.state, caller_uid, t), found;

    if (lock < 0)
        return 0;
    found = holders_kill(t, lock, ret, LAUNCH_TEXT);
    close(lock);
    return found;
}

static int kill_job(const struct launch_ask *ask)
{
    struct launch_answer a = { .version = LAUNCH_VERSION, .kind = LAUNCH_KILLED, .number = ask->number, .job = ask->ticket.job };
    enum launch_reach reached = run_reach(&ask->ticket);
    bool over = ask->drain == LAUNCH_KILL_FREE;
    enum scope_left left = run_kill(&ask->ticket, over);
    bool known = over || left == SCOPE_EMPTY || (left == SCOPE_HELD && scope_there_are());
    int holders = known ? 0 : kill_holders(&ask->ticket, a.text);

    a.gone = left == SCOPE_EMPTY;
    a.reached = left == SCOPE_HELD ? reached : LAUNCH_REACH_NOBODY;
    if (a.reached == LAUNCH_REACH_NOBODY && holders > 0)
        a.reached = LAUNCH_REACH_HOLDERS;
    if (a.reached == LAUNCH_REACH_SCOPE && scope_is_dying(&ask->ticket))
        a.reached = LAUNCH_REACH_DYING;
    a.ticket = ask->ticket;
    answer(&a);
    return 0;
}

static void take(struct launch_ask *a, const int *fds, int nfds)
{
    struct err err = { 0 };
    int rc = ask_check(a, nfds, &err);

    if (rc == 0 && a->kind != LAUNCH_SEAL)
        rc = ticket_check(&a->ticket, &err);
    if (rc == 0)
        rc = a->kind == LAUNCH_SEAL ? seal(a, fds[0], &err) : a->kind == LAUNCH_KILL ? kill_job(a) : start(a, fds, nfds, &err);
    if (rc < 0)
        tell(LAUNCH_REFUSED, a, 0, err.msg);
}

/* ---- the connection ---- */

/* A client's socket may hold what the client likes. */
static void let_go(uint32_t kind, int fd)
{
    if (kind == LAUNCH_SEAL)
        passed_drop(fd);
    else
        close(fd);
}

static void listen_to_caller(void)
{
    struct launch_ask ask = { 0 };
    int fds[ASK_FDS], nfds;
    struct err err = { 0 };

    nfds = ask_read(caller, &ask, fds, &err);
    if (nfds == -EAGAIN)
        return;
    if (nfds == ERR_PROTO)
        tell_line("<4>", "detd is left: %s", err.msg);
    if (nfds < 0) {
        hang_up();
        return;
    }
    take(&ask, fds, nfds);
    while (nfds > 0)
        let_go(ask.kind, fds[--nfds]);
}

/* A new connection of detd replaces the old one. */
static void take_caller(int server)
{
    int fd = accept4(server, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    socklen_t size = sizeof(struct ucred);
    struct ucred who;

    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0 || (who.uid != 0 && who.uid != config.user)) {
        close(fd);
        return;
    }
    if (caller >= 0)
        close(caller);
    caller = fd;
    caller_uid = who.uid;
}

void serve(int server, int signals, const struct serve_config *c)
{
    config = *c;
    for (;;) {
        struct pollfd polled[POLLED] = { { .fd = server, .events = POLLIN },
                                         { .fd = signals, .events = POLLIN },
                                         { .fd = caller, .events = POLLIN } };
        struct signalfd_siginfo info;

        if (poll(polled, POLLED, run_any_left() ? TICK_MS : -1) < 0 && errno != EINTR)
            return;
        while (read(signals, &info, sizeof info) == (ssize_t)sizeof info)
            if (info.ssi_signo != SIGCHLD)
                return;
        run_look(tell_exit);
        if (polled[2].revents && caller >= 0)
            listen_to_caller();
        if (polled[0].revents)
            take_caller(server);
    }
}

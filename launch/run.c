#include "launch/run.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/holders.h"
#include "launch/tracers.h"
#include "proto/host/clock.h"
#include "proto/report.h"

enum { FREE_MS = 500 }; /* after a kill */

static struct run *first;

static bool is_of(const struct run *r, const struct launch_ticket *t)
{
    return memcmp(r->ticket.seal, t->seal, sizeof t->seal) == 0;
}

static struct run *find(const struct launch_ticket *t)
{
    struct run *r = first;

    while (r && !is_of(r, t))
        r = r->next;
    return r;
}

int run_add(const struct launch_ticket *t, int64_t number, pid_t pid, int trouble_fd, int begun_fd, int limit_s)
{
    struct run *r = calloc(1, sizeof *r);

    if (!r)
        return -ENOMEM;
    *r = (struct run){ .next = first,
                       .ticket = *t,
                       .number = number,
                       .pid = pid,
                       .trouble_fd = trouble_fd,
                       .begun_fd = begun_fd,
                       .over = limit_s > 0 && begun_fd < 0,
                       .kill_at_ms = limit_s ? clock_ms() + limit_s * 1000LL : 0 };
    first = r;
    return 0;
}

/* Without scopes: kills the processes of the session. The session's leader, our child, has not been waited for, so its
 * number cannot be another session's. */
static void kill_session(pid_t session)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;

    while (proc && (entry = readdir(proc))) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        int fd = pid > 1 ? pidfd_open(pid, 0) : -1;

        /* getsid() comes after pidfd_open(): if the number has a new process by then, the signal reaches no process */
        if (fd >= 0 && getsid(pid) == session)
            pidfd_send_signal(fd, SIGKILL, NULL, 0);
        if (fd >= 0)
            close(fd);
    }
    if (proc)
        closedir(proc);
}

static void kill_run(struct run *r)
{
    if (r->free_at_ms == 0)
        r->free_at_ms = clock_ms() + FREE_MS;
    scope_kill(&r->ticket);
    if (r->pid > 0) {
        kill(r->pid, SIGKILL);
        if (!scope_there_are())
            kill_session(r->pid);
    }
}

enum launch_reach run_reach(const struct launch_ticket *t)
{
    const struct run *r = find(t);

    return scope_there_are() ? LAUNCH_REACH_SCOPE : r && r->pid > 0 ? LAUNCH_REACH_SESSION : LAUNCH_REACH_NOBODY;
}

static void leave(struct run *r)
{
    r->leaving = true;
    r->until_ms = clock_ms() + LAUNCH_DIE_S * 1000LL;
}

enum scope_left run_kill(const struct launch_ticket *t, bool over)
{
    struct run *r = find(t);
    enum scope_left left = r ? SCOPE_HELD : scope_look(t);

    if (!r && left == SCOPE_HELD && run_add(t, 0, 0, -1, -1, 0) == 0) {
        r = find(t);
        r->told = true;
        leave(r);
    }
    if (r) {
        r->over = r->over || over;
        kill_run(r);
    } else if (left == SCOPE_HELD) {
        scope_kill(t);
    } else if (over) {
        scope_remove(t);
    }
    return left;
}

bool run_any_left(void)
{
    const struct run *r = first;

    while (r && !r->leaving && r->kill_at_ms == 0 && r->free_at_ms == 0)
        r = r->next;
    return r != NULL;
}

static void reap(struct run *r)
{
    siginfo_t info = { 0 };
    ssize_t n;
    int status;

    if (r->pid <= 0 || waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid != r->pid)
        return;
    kill_run(r);
    waitpid(r->pid, &status, 0);
    r->pid = 0;
    if (!r->late) {
        r->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        n = pread(r->trouble_fd, r->text, sizeof r->text - 1, 0);
        r->text[n > 0 ? n : 0] = '\0';
    }
    close(r->trouble_fd);
    r->trouble_fd = -1;
    leave(r);
}

static void forget_limit(struct run *r)
{
    r->kill_at_ms = 0;
    if (r->begun_fd >= 0)
        close(r->begun_fd);
    r->begun_fd = -1;
}

/* A child that waits for a file system of its user may not even be killed. So its exit is told then, too. */
static void look_at_limit(struct run *r)
{
    char none;

    if (r->begun_fd >= 0 && read(r->begun_fd, &none, 1) == 0)
        forget_limit(r);
    if (r->pid <= 0 || r->kill_at_ms == 0 || clock_ms() <= r->kill_at_ms)
        return;
    kill_run(r);
    if (r->begun_fd < 0)
        return;
    r->late = true;
    r->status = SUP_EXIT_REFUSED;
    snprintf(r->text, sizeof r->text, "a file system, or the list of users, does not answer: detd-job was not executed in time");
    forget_limit(r);
    leave(r);
}

/* What has died by then needs nobody to wait for it but us. */
static void look_at_tracers(struct run *r)
{
    if (r->free_at_ms == 0 || clock_ms() <= r->free_at_ms)
        return;
    r->free_at_ms = 0;
    scope_each(&r->ticket, tracers_kill);
    if (r->pid > 0)
        tracers_kill(r->pid, r->ticket.uid);
}

static bool has_started(pid_t pid)
{
    const struct run *r = first;

    while (r && r->pid != pid)
        r = r->next;
    return r != NULL;
}

static void reap_others(void)
{
    siginfo_t info = { 0 };

    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0 && !has_started(info.si_pid)) {
        holders_forget(info.si_pid);
        waitpid(info.si_pid, NULL, 0);
        info.si_pid = 0;
    }
}

void run_look(void (*exited)(const struct run *r, bool gone))
{
    for (struct run **at = &first; *at;) {
        struct run *r = *at;
        enum scope_left left = SCOPE_HELD;

        look_at_limit(r);
        look_at_tracers(r);
        reap(r);
        if (r->leaving && r->pid == 0)
            left = scope_look(&r->ticket);
        if (r->leaving && left == SCOPE_HELD)
            scope_kill(&r->ticket);
        if (r->leaving && !r->told && (left != SCOPE_HELD || clock_ms() > r->until_ms)) {
            exited(r, left == SCOPE_EMPTY);
            r->told = true;
        }
        if (left == SCOPE_HELD) {
            at = &r->next;
            continue;
        }
        if (r->over)
            scope_remove(&r->ticket);
        *at = r->next;
        forget_limit(r);
        free(r);
    }
    reap_others();
}

#include "launch/holders.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/become.h"
#include "launch/ticket.h"
#include "proto/host/lock.h"

enum { LOOK_MS = 1000, DIE_MS = 200, LOOKERS = 8, GROUPS_MAX = 1024, LOCK_FD = 3, OUT_FD = 4, ABOVE = 8 };

struct found {
    int count;
    char one[LAUNCH_TEXT];
};

/* A child that has become the user and looks for holders of a lock. */
struct looker {
    pid_t pid; /* 0: it has ended */
    uid_t uid;
};
static struct looker lookers[LOOKERS];

/* ---- the child ---- */

/* The user may stop the child, and a disk may never answer it. So nothing else of ours stays open in it. */
static int keep_only(int lock, int out)
{
    lock = fcntl(lock, F_DUPFD, ABOVE);
    out = fcntl(out, F_DUPFD, ABOVE);
    return lock < 0 || out < 0 || dup2(lock, LOCK_FD) < 0 || dup2(out, OUT_FD) < 0 ? -1 : close_range(OUT_FD + 1, ~0U, 0);
}

/* Takes the user's group, too: else the kernel does not let the child see open files of the user's processes. */
static int become_user(const struct launch_ticket *t)
{
    const struct passwd *user = getpwuid(t->uid);
    gid_t groups[GROUPS_MAX], first;

    if (!user || become_groups(user, t->gid, groups, GROUPS_MAX, &first) < 0)
        return -1;
    return setgroups(0, NULL) < 0 || setresgid(first, first, first) < 0 || setresuid(t->uid, t->uid, t->uid) < 0 ||
                   prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0
               ? -1
               : 0;
}

static void look(const struct launch_ticket *t, int lock, int out) __attribute__((noreturn));
static void look(const struct launch_ticket *t, int lock, int out)
{
    struct found f = { 0 };

    ticket_forget_key();
    if (keep_only(lock, out) < 0 || become_user(t) < 0)
        _exit(1);
    f.count = lock_kill(LOCK_FD, f.one, sizeof f.one);
    _exit(write(OUT_FD, &f, sizeof f) != sizeof f);
}

/* ---- the parent ---- */

static void end(struct looker *l, int patience_ms)
{
    int fd;

    if (l->pid == 0)
        return;
    kill(l->pid, SIGKILL);
    fd = pidfd_open(l->pid, 0);
    if (fd >= 0 && patience_ms > 0)
        poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, patience_ms);
    if (fd >= 0)
        close(fd);
    if (waitpid(l->pid, NULL, WNOHANG) != 0)
        l->pid = 0;
}

/* NULL: an earlier child of this user still runs, or all LOOKERS places are taken. */
static struct looker *place_for(uid_t uid)
{
    struct looker *free = NULL;
    bool stands = false;

    for (int i = 0; i < LOOKERS; i++) {
        end(&lookers[i], 0);
        if (lookers[i].pid == 0)
            free = &lookers[i];
        else
            stands = stands || lookers[i].uid == uid;
    }
    return stands ? NULL : free;
}

void holders_forget(pid_t pid)
{
    for (int i = 0; i < LOOKERS; i++)
        if (lookers[i].pid == pid)
            lookers[i].pid = 0;
}

int holders_kill(const struct launch_ticket *t, int lock, char *ret, size_t size)
{
    struct looker *l = place_for(t->uid);
    struct found f = { .count = -1 };
    int way[2];
    pid_t pid;

    ret[0] = '\0';
    if (!l || pipe(way) < 0)
        return -1;
    pid = fork();
    if (pid == 0)
        look(t, lock, way[1]);
    close(way[1]);
    if (pid > 0)
        *l = (struct looker){ pid, t->uid };
    if (poll(&(struct pollfd){ .fd = way[0], .events = POLLIN }, 1, LOOK_MS) != 1 || read(way[0], &f, sizeof f) != sizeof f)
        f = (struct found){ .count = -1 };
    close(way[0]);
    end(l, DIE_MS);
    f.one[sizeof f.one - 1] = '\0';
    snprintf(ret, size, "%s", f.one);
    return f.count;
}

#include "launch/scope.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/tell.h"

enum { NAME = 48, PATH = 4096 };
enum { SLOT_WEIGHT = 10, WEIGHT_MAX = 10000 }; /* of the CPUs */

#define SLOTS "user.detd.slots" /* attribute of a scope's folder */

static int root = -1;        /* folder of our own control group */
static char group[2 * PATH]; /* its name */
static int notes = -1;       /* folder: a link to that group for each job started in a scope */
static struct scope_limits limits;

static int put(int folder, const char *file, const char *text)
{
    int fd = openat(folder, file, O_WRONLY | O_CLOEXEC), rc = 0;

    if (fd < 0)
        return -errno;
    if (write(fd, text, strlen(text)) < 0)
        rc = -errno;
    close(fd);
    return rc;
}

/* Writes to `ret` the word that sscanf() finds by `format`, from the first line of the file that matches. */
static bool find_line(const char *file, const char *format, char *ret)
{
    char line[PATH];
    bool found = false;
    FILE *f = fopen(file, "re");

    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, format, ret) == 1;
    if (f)
        fclose(f);
    return found;
}

static bool find_own_group(void)
{
    char mount[PATH] = "", own[PATH] = "", path[PATH], line[PATH], kind[64];
    FILE *f = fopen("/proc/self/mounts", "re");

    while (f && !mount[0] && fgets(line, sizeof line, f))
        if (sscanf(line, "%*s %4000s %63s", path, kind) == 2 && strcmp(kind, "cgroup2") == 0)
            snprintf(mount, sizeof mount, "%.4000s", path);
    if (f)
        fclose(f);
    if (!mount[0] || !find_line("/proc/self/cgroup", "0::%4000s", own))
        return false;
    snprintf(group, sizeof group, "%s%s", mount, own);
    return true;
}

/* A controller that is not given to this service (-ENOENT) is no error here: scope_open() has reported it. */
static void limit(int scope, const char *file, long long value)
{
    char text[32];
    int rc;

    snprintf(text, sizeof text, "%lld", value);
    rc = value > 0 ? put(scope, file, text) : 0;
    if (rc < 0 && rc != -ENOENT)
        tell_line("<4>", "%s of a scope: %s", file, strerror(-rc));
}

/* The number of slots stands in the scope itself, for a detd-launch that comes later. */
static void share_cpus(int scope)
{
    int slots;

    if (fgetxattr(scope, SLOTS, &slots, sizeof slots) == sizeof slots)
        limit(scope, "cpu.weight", slots < WEIGHT_MAX / SLOT_WEIGHT ? slots * SLOT_WEIGHT : WEIGHT_MAX);
}

/* slots: 0: those of before. */
static int open_limited(const char *name, int slots)
{
    int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    limit(fd, "pids.max", limits.tasks);
    limit(fd, "memory.max", limits.memory);
    if (slots > 0 && fsetxattr(fd, SLOTS, &slots, sizeof slots, 0) < 0)
        tell_line("<4>", "the slots of a scope: %s", strerror(errno));
    share_cpus(fd);
    return fd;
}

/* Scopes have lost their limits with the controllers, and get them again. Empty scopes stay, for later questions about
 * them. */
static void look_over(void)
{
    DIR *dir = fdopendir(dup(root));
    const struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (strncmp(entry->d_name, "job-", 4) == 0) {
            int fd = open_limited(entry->d_name, 0);

            if (fd >= 0)
                close(fd);
        }
    if (dir)
        closedir(dir);
}

static void give_up(const char *what)
{
    tell_line("<4>", "no scopes here (%s: %s): only processes in the session of a job are killed with it", what, strerror(errno));
    if (root >= 0)
        close(root);
    root = -1;
}

static void give_controllers(void)
{
    if (put(root, "cgroup.subtree_control", "+pids") < 0 && limits.tasks > 0)
        tell_line("<4>", "scopes have no limit of tasks here: the controller pids is not given to this service");
    if (put(root, "cgroup.subtree_control", "+memory") < 0 && limits.memory > 0)
        tell_line("<4>", "scopes have no limit of memory here: the controller memory is not given to this service");
    if (put(root, "cgroup.subtree_control", "+cpu") < 0)
        tell_line("<4>", "jobs share the CPUs without regard to their slots: the controller cpu is not given to this service");
}

/* A group that limits groups below it must have no process of its own. So we move into the group `main` beside the
 * scopes. */
void scope_open(const struct scope_limits *l, const char *folder)
{
    scope_open_at(find_own_group() ? group : "", l, folder);
}

void scope_open_at(const char *own, const struct scope_limits *l, const char *folder)
{
    int main_group;

    limits = *l;
    notes = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (own != group)
        snprintf(group, sizeof group, "%s", own);
    root = open(group, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        give_up("no group of cgroup version 2");
        return;
    }
    if ((mkdirat(root, "main", 0755) < 0 && errno != EEXIST) || (mkdirat(root, "job-test", 0755) < 0 && errno != EEXIST)) {
        give_up("its folder");
        return;
    }
    if (faccessat(root, "job-test/cgroup.kill", W_OK, 0) < 0) {
        give_up("cgroup.kill, which Linux has since 5.14");
        return;
    }
    if (put(root, "main/cgroup.procs", "0") < 0)
        tell_line("<4>", "the group 'main' cannot be entered, and scopes have no limits");
    give_controllers();
    main_group = openat(root, "main", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    limit(main_group, "cpu.weight", WEIGHT_MAX);
    close(main_group);
    look_over();
}

bool scope_there_are(void)
{
    return root >= 0;
}

/* The seal is part of it, so a ticket reaches only what it has started: two daemons may have jobs of the same number,
 * and one daemon has them after its database was put back. */
static const char *name_of(const struct launch_ticket *t, char *ret)
{
    snprintf(ret, NAME, "job-%.8s-%02x%02x%02x%02x-%lld", t->store, t->seal[0], t->seal[1], t->seal[2], t->seal[3], (long long)t->job);
    return ret;
}

void scope_forget(const struct launch_ticket *t)
{
    char name[NAME];

    unlinkat(notes, name_of(t, name), 0);
}

/* A job whose scope could not be noted is later reported as a job without a scope. */
static bool is_noted(const struct launch_ticket *t)
{
    char name[NAME], found[sizeof group];
    ssize_t n = readlinkat(notes, name_of(t, name), found, sizeof found);

    return n == (ssize_t)strlen(group) && memcmp(found, group, (size_t)n) == 0;
}

int scope_make(const struct launch_ticket *t, int slots, struct err *err)
{
    char name[NAME];
    int fd;

    scope_forget(t);
    if (symlinkat(group, notes, name_of(t, name)) < 0)
        tell_line("<4>", "the scope of job %lld is not noted: %s", (long long)t->job, strerror(errno));
    fd = mkdirat(root, name_of(t, name), 0755) < 0 && errno != EEXIST ? -errno : open_limited(name, slots);
    return fd >= 0 ? fd : err_set(err, fd, "make a scope for job %lld: %s", (long long)t->job, strerror(-fd));
}

int scope_join(int scope)
{
    return put(scope, "cgroup.procs", "0");
}

static int open_scope(const struct launch_ticket *t)
{
    char name[NAME];

    return root < 0 ? -1 : openat(root, name_of(t, name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

void scope_kill(const struct launch_ticket *t)
{
    int fd = open_scope(t);

    if (fd < 0)
        return;
    put(fd, "cgroup.kill", "1");
    close(fd);
}

static FILE *open_threads(const struct launch_ticket *t)
{
    int scope = open_scope(t), fd = scope < 0 ? -1 : openat(scope, "cgroup.threads", O_RDONLY | O_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

    if (!f && fd >= 0)
        close(fd);
    if (scope >= 0)
        close(scope);
    return f;
}

void scope_each(const struct launch_ticket *t, void (*each)(pid_t thread, uid_t user))
{
    FILE *f = open_threads(t);
    int thread;

    while (f && fscanf(f, "%d", &thread) == 1)
        each(thread, t->uid);
    if (f)
        fclose(f);
}

enum { EXITING = 4 }; /* PF_EXITING of Linux */

/* A thread that has a SIGKILL pending stays in the kernel until it ends, and so does a thread that exits. proc(5) has
 * the fields: 9 are the flags, 31 are the pending signals. The thread's name before them may hold any character. */
static bool is_dying(pid_t thread)
{
    char path[64], text[1024];
    unsigned long flags, pending;
    const char *at;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)thread);
    f = fopen(path, "re");
    if (!f)
        return kill(thread, 0) < 0 && errno == ESRCH;
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    at = strrchr(text, ')');
    return at &&
           sscanf(at,
                  ") %*s %*s %*s %*s %*s %*s %lu %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu",
                  &flags, &pending) == 2 &&
           ((flags & EXITING) != 0 || (pending & 1UL << (SIGKILL - 1)) != 0);
}

bool scope_is_dying(const struct launch_ticket *t)
{
    FILE *f = open_threads(t);
    bool dying = f != NULL;
    int thread;

    while (dying && fscanf(f, "%d", &thread) == 1)
        dying = is_dying(thread);
    dying = dying && !ferror(f);
    if (f)
        fclose(f);
    return dying;
}

/* Zombies do not count as processes. */
static bool is_empty(int scope)
{
    char text[256] = "";
    int fd = openat(scope, "cgroup.events", O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && read(fd, text, sizeof text - 1) < 0)
        text[0] = '\0';
    if (fd >= 0)
        close(fd);
    return strstr(text, "populated 0") != NULL;
}

enum scope_left scope_look(const struct launch_ticket *t)
{
    int fd = open_scope(t);
    bool empty = root < 0 || (fd < 0 && errno == ENOENT) || (fd >= 0 && is_empty(fd));

    if (fd >= 0)
        close(fd);
    if (!empty)
        return SCOPE_HELD;
    return root >= 0 && is_noted(t) ? SCOPE_EMPTY : SCOPE_NONE;
}

void scope_remove(const struct launch_ticket *t)
{
    char name[NAME];

    if (root >= 0 && (unlinkat(root, name_of(t, name), AT_REMOVEDIR) == 0 || errno == ENOENT))
        scope_forget(t);
}

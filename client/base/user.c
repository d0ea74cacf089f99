#include "client/base/user.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/base/print.h"
#include "proto/methods.h"

/* ---- the parent of the process that becomes the user ---- */

enum { PIECE_BYTES = 4096 };

/* An output of the child, and the one of ours where it goes. */
struct output {
    FILE *to;
    char text[PIECE_BYTES];
    size_t kept;
};

/* Prints what has come. A part of a character waits for its end, so that a terminal never gets two halves of one that
 * it obeys. Returns false at the end of the output. */
static bool pass_on(int fd, struct output *o)
{
    ssize_t n = read(fd, o->text + o->kept, sizeof o->text - o->kept);
    size_t len = o->kept + (n > 0 ? (size_t)n : 0), shown = len;

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    while (n > 0 && shown > 0 && len - shown < 3 && (unsigned char)o->text[shown - 1] >= 0x80)
        shown--;
    print_lines(o->to, o->text, shown);
    fflush(o->to);
    o->kept = len - shown;
    memmove(o->text, o->text + shown, o->kept);
    return n > 0;
}

/* Ctrl-C is for the child and its worker, which have no terminal. The second one ends us, whatever they do. */
static void interrupt(pid_t child)
{
    static bool told;

    if (interrupted && !told)
        kill(-child, SIGINT);
    if (interrupted)
        signal(SIGINT, SIG_DFL);
    told = interrupted;
}

/* Prints what the child writes, and leaves as the child does. */
static void stand_in(pid_t child, int out, int err) __attribute__((noreturn));
static void stand_in(pid_t child, int out, int err)
{
    static struct output outputs[2];
    struct pollfd polled[] = { { .fd = out, .events = POLLIN },
                               { .fd = err, .events = POLLIN },
                               { .fd = pidfd_open(child, 0), .events = POLLIN } };
    int status = 0;

    outputs[0].to = stdout;
    outputs[1].to = stderr;
    catch_interrupt();
    do {
        interrupt(child);
        if (poll(polled, 3, -1) < 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (polled[i].revents && !pass_on(polled[i].fd, &outputs[i]))
                polled[i].fd = -1;
    } while (!polled[2].revents || polled[0].revents || polled[1].revents);
    waitpid(child, &status, 0);
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : interrupted ? CODE_INTERRUPTED : CODE_REFUSED);
}

/* The user may trace what runs as them. So that is a process without root's terminal, whose input they could read and
 * write: it gets pipes and a session of its own. Only the child returns. Returns 0, or an exit code after
 * complaining. */
static int leave_terminal(void)
{
    int out[2], err[2], in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pid_t child;

    fflush(stdout);
    if (in < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 || (child = fork()) < 0) {
        fprintf(stderr, "detctl: --as: a process of its own: %s\n", strerror(errno));
        return CODE_REFUSED;
    }
    if (child > 0) {
        close(out[1]);
        close(err[1]);
        stand_in(child, out[0], err[0]);
    }
    if (setsid() < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(out[1], STDOUT_FILENO) < 0 || dup2(err[1], STDERR_FILENO) < 0)
        _exit(CODE_REFUSED);
    return 0;
}

/* ---- the user ---- */

/* Root's environment and open files may hold secrets. */
static void leave_to(const struct passwd *p)
{
    static const char *const kept[] = { "PATH", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "NO_COLOR", "DETD_SOCKET" };
    const char *value[sizeof kept / sizeof *kept];

    close_range(STDERR_FILENO + 1, ~0U, 0);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        value[i] = getenv(kept[i]);
    clearenv();
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (value[i])
            setenv(kept[i], value[i], 1);
    setenv("HOME", p->pw_dir, 1);
    setenv("USER", p->pw_name, 1);
    setenv("LOGNAME", p->pw_name, 1);
}

int user_become(const char *name)
{
    const struct passwd *p;
    int code;

    if (geteuid() != 0) {
        fputs("detctl: --as is for root; other users submit as themselves\n", stderr);
        return CODE_REFUSED;
    }
    if (!(p = getpwnam(name))) {
        fprintf(stderr, "detctl: --as: there is no user '%s'\n", name);
        return CODE_REFUSED;
    }
    if ((code = leave_terminal()))
        return code;
    if (initgroups(p->pw_name, p->pw_gid) < 0 || setgid(p->pw_gid) < 0 || setuid(p->pw_uid) < 0) {
        fprintf(stderr, "detctl: become user '%s': %s\n", name, strerror(errno));
        return CODE_REFUSED;
    }
    leave_to(p);
    return 0;
}

/* The number outside of this user namespace; -1: the namespace does not have the user. All files of such users show one
 * uid (65534), and root of the namespace has no rights to them. */
static long long outside_of(uid_t uid)
{
    FILE *map = fopen("/proc/self/uid_map", "re");
    long long inside, outside, count, ret = map ? -1 : (long long)uid;

    while (map && ret < 0 && fscanf(map, "%lld %lld %lld", &inside, &outside, &count) == 3)
        if (uid >= inside && uid - inside < count)
            ret = outside + (uid - inside);
    if (map)
        fclose(map);
    return ret;
}

int user_may_submit(struct context *ctx)
{
    json_t *info;
    bool private;
    int rc;

    if (geteuid() != 0 || outside_of(0) != 0)
        return 0;
    if ((rc = call(ctx, "daemon.info", json_object(), &info)))
        return rc;
    private = json_is_true(json_object_get(info, "private"));
    json_decref(info);
    if (private)
        return 0;
    fputs("detctl: " ROOT_SUBMITS "\n", stderr);
    return CODE_REFUSED;
}

/* owner: a name, or the number of a user without a name. */
static int refuse(const struct context *ctx, const char *what, const char *owner)
{
    const bool number = !owner[strspn(owner, "0123456789")];

    fputs("detctl: ", stderr);
    print_clean(stderr, what);
    fprintf(stderr, " belongs to user %s, and root runs nothing on it: use sudo -u %s%s%s detctl %s ...\n", owner, number ? "'#" : "",
            owner, number ? "'" : "", ctx->command->name);
    return CODE_REFUSED;
}

static bool is_users(const struct stat *st)
{
    return st->st_uid != 0 && outside_of(st->st_uid) >= 0;
}

int user_owns_file(const struct context *ctx, const char *path)
{
    const struct passwd *p;
    char number[24];
    struct stat st;

    if (geteuid() != 0 || !((lstat(path, &st) == 0 && is_users(&st)) || (stat(path, &st) == 0 && is_users(&st))))
        return 0;
    p = getpwuid(st.st_uid);
    snprintf(number, sizeof number, "%u", st.st_uid);
    return refuse(ctx, path, p ? p->pw_name : number);
}

int user_owns_job(const struct context *ctx, const json_t *job)
{
    const struct passwd *p = getpwuid(0);
    char what[40];

    snprintf(what, sizeof what, "job %lld", int_of(job, "id"));
    if (geteuid() == 0 && strcmp(text_of(job, "user"), p ? p->pw_name : "0") != 0)
        return refuse(ctx, what, text_of(job, "user"));
    return user_owns_file(ctx, text_of(job, "dir"));
}

#include "launch/become.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch/account.h"
#include "launch/args.h"
#include "launch/scope.h"
#include "launch/ticket.h"
#include "proto/err.h"
#include "proto/report.h"

enum { ABOVE = ARGS_GPU_FD + LAUNCH_GPU_LOCKS + 1, GROUPS_MAX = 1024, ENV_MAX = 16 };

static int trouble_fd;

static void leave(int status, int code, char text[LAUNCH_TEXT]) __attribute__((noreturn));
static void leave(int status, int code, char text[LAUNCH_TEXT])
{
    size_t len = strlen(text);

    if (code)
        snprintf(text + len, LAUNCH_TEXT - len, ": %s", strerror(code));
    if (pwrite(trouble_fd, text, strlen(text), 0) < 0)
        _exit(SUP_EXIT_REFUSED + 1);
    _exit(status);
}

static void give_up(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void give_up(const char *fmt, ...)
{
    int code = errno;
    char text[LAUNCH_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    leave(SUP_EXIT_REFUSED, code, text);
}

/* A shortage of the node and an I/O error may pass: refused. Any other error was caused by the folder's owner:
 * unreachable. */
static void give_up_folder(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void give_up_folder(const char *fmt, ...)
{
    struct err err = { .code = -errno };
    char text[LAUNCH_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    leave(err_is_shortage(&err) || err.code == -EIO ? SUP_EXIT_REFUSED : SUP_EXIT_UNREACHABLE, -err.code, text);
}

#define NEED(what)          \
    do {                    \
        errno = 0;          \
        if ((what) < 0)     \
            give_up(#what); \
    } while (0)

/* ---- descriptors that it keeps ---- */

/* Moves all descriptors to ABOVE or higher first. Then dup2() to lower numbers closes no descriptor that is still
 * needed. */
static struct become place_fds(const struct become *b)
{
    struct become high = *b;
    int *const fds[] = { &high.program, &high.jobs, &high.lock, &high.spec, &high.trouble, &high.scope, &high.begun };
    int gpus[LAUNCH_GPU_LOCKS];

    trouble_fd = b->trouble;
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (*fds[i] >= 0)
            NEED(*fds[i] = fcntl(*fds[i], F_DUPFD_CLOEXEC, ABOVE));
    trouble_fd = high.trouble;
    for (int i = 0; i < b->ngpu_locks; i++)
        NEED(gpus[i] = fcntl(b->gpu_locks[i], F_DUPFD_CLOEXEC, ABOVE));
    for (int i = 0; i < b->ngpu_locks; i++)
        NEED(dup2(gpus[i], ARGS_GPU_FD + i));
    NEED(dup2(high.lock, ARGS_LOCK_FD));
    NEED(dup2(high.trouble, ARGS_TROUBLE_FD));
    if (high.spec >= 0)
        NEED(dup2(high.spec, ARGS_SPEC_FD));
    trouble_fd = ARGS_TROUBLE_FD;
    NEED(close_range(high.spec >= 0 ? ARGS_GPU_FD + (unsigned)b->ngpu_locks : ARGS_SPEC_FD, ABOVE - 1, 0));
    return high;
}

static void reset_signals(void)
{
    sigset_t none;

    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Gives up a real-time policy and a negative nice value. A lower priority, set by the administrator for this service,
 * stays. */
static void reset_priority(void)
{
    static const struct sched_param lowest = { 0 };
    int policy = sched_getscheduler(0);

    NEED(policy);
    if (policy != SCHED_OTHER && policy != SCHED_BATCH && policy != SCHED_IDLE)
        NEED(sched_setscheduler(0, SCHED_OTHER, &lowest));
    if (getpriority(PRIO_PROCESS, 0) < 0)
        NEED(setpriority(PRIO_PROCESS, 0, 0));
}

static void reset_limits(void)
{
    struct rlimit none = { 0, 0 }, core = { 0, RLIM_INFINITY };
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, "0", 1) != 1)
        give_up("oom_score_adj");
    close(fd);
    setrlimit(RLIMIT_CORE, &core);
    NEED(setrlimit(RLIMIT_RTPRIO, &none));
    NEED(setrlimit(RLIMIT_NICE, &none));
    reset_priority();
    umask(077);
}

/* ---- rights that it keeps ---- */

int become_groups(const struct passwd *user, gid_t submitted, gid_t *ret, int room, gid_t *ret_first)
{
    int n = room;

    if (getgrouplist(user->pw_name, user->pw_gid, ret, &n) < 0)
        return -1;
    *ret_first = user->pw_gid;
    for (int i = 0; i < n; i++)
        if (ret[i] == submitted)
            *ret_first = submitted;
    return n;
}

static void join_groups(const struct passwd *user, gid_t submitted)
{
    gid_t groups[GROUPS_MAX], first;
    int n = become_groups(user, submitted, groups, GROUPS_MAX, &first);

    if (n < 0) {
        errno = 0;
        give_up("%s is in more than %d groups", user->pw_name, GROUPS_MAX);
    }
    NEED(setgroups((size_t)n, groups));
    NEED(setresgid(first, first, first));
}

static void drop_capabilities(void)
{
    static const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                                      SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

    for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        NEED(prctl(PR_CAPBSET_DROP, cap, 0, 0, 0));
    NEED(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
    NEED(prctl(PR_SET_SECUREBITS, bits, 0, 0, 0));
}

/* Asks the kernel for every right that must be gone. Nothing that the kernel can be asked is taken on trust. */
static void check_dropped(uid_t uid)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct caps[2] = { { 0 } };
    uid_t real, effective, saved;
    gid_t rgid, egid, sgid;

    NEED(getresuid(&real, &effective, &saved));
    NEED(getresgid(&rgid, &egid, &sgid));
    NEED(syscall(SYS_capget, &head, caps));
    errno = 0;
    if (real != uid || effective != uid || saved != uid || rgid != egid || egid != sgid || setuid(0) == 0 || seteuid(0) == 0 ||
        caps[0].effective || caps[0].permitted || caps[0].inheritable || caps[1].effective || caps[1].permitted || caps[1].inheritable ||
        prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) {
        errno = 0;
        give_up("the rights of root could not be given up");
    }
}

static void drop(const struct passwd *user, gid_t submitted)
{
    uid_t uid = user->pw_uid;

    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS && errno != EPERM && errno != EOPNOTSUPP)
        give_up("a keyring of its own");
    join_groups(user, submitted);
    drop_capabilities();
    NEED(setresuid(uid, uid, uid));
    NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    check_dropped(uid);
}

/* ---- as the user ---- */

/* Runs with the user's rights, so links in the folder lead no further than the user could go. The folder may be a mount
 * that does not answer: detd-launch kills this process then. */
static void enter(int jobs, const struct launch_ticket *t)
{
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC), folder, out;
    struct stat st;
    char name[24];

    NEED(in);
    snprintf(name, sizeof name, "%lld", (long long)t->job);
    folder = openat(jobs, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0 || fstat(folder, &st) < 0)
        give_up_folder("open it");
    errno = 0;
    if (st.st_uid != t->uid)
        give_up("the folder of job %s is not its submitter's", name);
    if (fchdir(folder) < 0)
        give_up_folder("enter it");
    if (mkdir("log", 0700) < 0 && errno != EEXIST)
        give_up_folder("make folder 'log'");
    out = open("log/supervisor.log", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (out < 0)
        give_up_folder("create 'log/supervisor.log'");
    NEED(dup2(in, STDIN_FILENO));
    NEED(dup2(out, STDOUT_FILENO));
    NEED(dup2(out, STDERR_FILENO));
}

static char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *format(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        give_up("out of memory");
    va_end(ap);
    return text;
}

/* The folder of a removed job may be emptied whatever became of the account: that runs nothing of the user's. */
static void take_account(const struct passwd *user, const struct launch_ask *ask)
{
    struct err err = { 0 };

    if (ask->kind == LAUNCH_START && account_check(user, &ask->ticket, &err) < 0) {
        errno = 0;
        give_up("%s", err.msg);
    }
    account_log_in(ask->ticket.uid);
}

static void fill_env(char **env, const struct passwd *user)
{
    static const char *const kept[] = { "LANG",      "TZ",           "DETD_CUDA_PATH", "CUDA_HOME",
                                        "CUDA_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS",  "TSAN_OPTIONS" };
    int n = 0;

    env[n++] = format("PATH=/usr/local/bin:/usr/bin:/bin");
    env[n++] = format("HOME=%s", user->pw_dir);
    env[n++] = format("USER=%s", user->pw_name);
    env[n++] = format("LOGNAME=%s", user->pw_name);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (getenv(kept[i]))
            env[n++] = format("%s=%s", kept[i], getenv(kept[i]));
    env[n] = NULL;
}

void become(const struct become *what)
{
    const struct become b = place_fds(what);
    char *env[ENV_MAX], *argv[ARGS_MAX];
    const struct passwd *user;

    ticket_forget_key();
    reset_signals();
    NEED(setsid());
    if (b.scope >= 0 && scope_join(b.scope) < 0)
        give_up("join the job's scope");
    reset_limits();
    errno = 0;
    user = getpwuid(b.ask->ticket.uid);
    if (!user || user->pw_uid != b.ask->ticket.uid)
        give_up("user %u, the submitter, is no longer known on this node", b.ask->ticket.uid);
    take_account(user, b.ask);
    fill_env(env, user);
    if (args_fill(argv, b.path, b.ask, b.ngpu_locks) < 0)
        give_up("out of memory");
    drop(user, b.ask->ticket.gid);
    enter(b.jobs, &b.ask->ticket);
    NEED(close_range(ARGS_GPU_FD + (unsigned)b.ngpu_locks, ~0U, CLOSE_RANGE_CLOEXEC)); /* descriptors that a library has opened */
    errno = 0;
    fexecve(b.program, argv, env);
    give_up("execute '%s'", b.path);
}

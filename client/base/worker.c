#include "client/base/worker.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/base/command.h"
#include "proto/host/tasks.h"

/* The path of detd-worker, beside this program. */
bool worker_path(char ret_path[PATH_MAX])
{
    static const char name[] = "detd-worker";
    ssize_t n = readlink("/proc/self/exe", ret_path, PATH_MAX - sizeof name - 1);
    char *slash;

    if (n <= 0)
        return false;
    ret_path[n] = '\0';
    slash = strrchr(ret_path, '/');
    memcpy(slash + 1, name, sizeof name);
    return access(ret_path, X_OK) == 0;
}

struct child {
    pid_t pid;
    void (*on_interrupt)(int); /* our handler, for when the worker is gone */
};

/* ---- the user that it runs as ---- */

/* Whether this user namespace maps the user. Files of users that it does not map all show one uid (65534). setuid() to
 * that uid fails, and root of the namespace has no rights to those files. */
static bool is_user_here(uid_t uid)
{
    FILE *map = fopen("/proc/self/uid_map", "re");
    unsigned inside, outside, count;
    bool found = !map;

    while (map && !found && fscanf(map, "%u %u %u", &inside, &outside, &count) == 3)
        found = uid >= inside && uid - inside < count;
    if (map)
        fclose(map);
    return found;
}

static bool is_users(const struct stat *st)
{
    return st->st_uid != 0 && is_user_here(st->st_uid);
}

/* True for a file of another user. A link of another user counts, too: it may lead to another file in a moment. */
static bool is_of_another(const char *path, struct stat *ret)
{
    return geteuid() == 0 && ((stat(path, ret) == 0 && is_users(ret)) || (lstat(path, ret) == 0 && is_users(ret)));
}

static struct stat below; /* the first file in a folder that is another user's: nftw() has no argument for it */

static int look_below(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)path;
    (void)at;
    if (kind == FTW_NS || kind == FTW_SLN || !is_users(st))
        return 0;
    below = *st;
    return 1;
}

bool worker_is_of_another(const char *path, struct stat *ret)
{
    enum { FOLDERS = 32 }; /* folders open at once */

    if (is_of_another(path, ret))
        return true;
    if (geteuid() != 0 || nftw(path, look_below, FOLDERS, 0) != 1)
        return false;
    *ret = below;
    return true;
}

/* Pictures: a file, a folder with all its contents, or a pattern. */
static bool is_picture_of_another(const char *word, struct stat *ret)
{
    bool found = false;
    glob_t g;

    if (geteuid() != 0 || glob(word, GLOB_NOCHECK, NULL, &g) != 0)
        return false;
    for (size_t i = 0; i < g.gl_pathc && !found; i++)
        found = worker_is_of_another(g.gl_pathv[i], ret);
    globfree(&g);
    return found;
}

/* Finds the first of the files that is another user's. */
static bool find_owner(char *const *argv, struct stat *ret)
{
    bool pictures = false;

    for (int i = 1; argv[i]; i++) {
        if (pictures ? is_picture_of_another(argv[i], ret) : is_of_another(argv[i], ret))
            return true;
        pictures = pictures || strcmp(argv[i], "--") == 0;
    }
    return false;
}

static void tell_user(uid_t uid)
{
    const struct passwd *p = getpwuid(uid);
    char name[32];

    snprintf(name, sizeof name, "uid %u", uid);
    fprintf(stderr,
            "detctl: you are root: detd-worker runs as %s, the owner of the files it reads; it cannot read files that only root may read\n",
            p ? p->pw_name : name);
}

/* Gives up root's rights for good. */
static int become(uid_t uid, gid_t gid)
{
    const struct passwd *p = getpwuid(uid);

    if (p)
        gid = p->pw_gid;
    if ((p ? initgroups(p->pw_name, gid) : setgroups(1, &gid)) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return -1;
    return 0;
}

/* ---- running it ---- */

/* Starts the worker, with its standard output going to `out`. Returns 0, or -1 after complaining. */
static int start(struct child *c, char **argv, const struct stat *owner, int out)
{
    static char path[PATH_MAX];
    struct stat st;
    bool other = find_owner(argv, &st);

    if (!worker_path(path)) {
        fprintf(stderr, "detctl: detd-worker is not beside detctl: %s\n", strerror(errno));
        return -1;
    }
    argv[0] = "detctl"; /* the worker's messages look like ours */
    if (owner && !other) {
        st = *owner;
        other = true;
    }
    if (other)
        tell_user(st.st_uid);
    fflush(stdout);
    c->on_interrupt = signal(SIGINT, SIG_IGN); /* Ctrl-C is for the worker; we report how it ended */
    c->pid = fork();
    if (c->pid == 0) {
        signal(SIGINT, SIG_DFL);
        if (other && become(st.st_uid, st.st_gid) < 0) {
            fprintf(stderr, "detctl: run detd-worker as uid %u: %s\n", st.st_uid, strerror(errno));
            _exit(127);
        }
        if (out == STDOUT_FILENO || dup2(out, STDOUT_FILENO) >= 0)
            execv(path, argv);
        fprintf(stderr, "detctl: run '%s': %s\n", path, strerror(errno));
        _exit(127);
    }
    if (c->pid > 0)
        return 0;
    fprintf(stderr, "detctl: run '%s': %s\n", path, process_lacks(errno));
    signal(SIGINT, c->on_interrupt);
    return -1;
}

/* Waits for the end of the worker and reports failures. */
static int end(const struct child *c)
{
    int status;
    pid_t rc;

    while ((rc = waitpid(c->pid, &status, 0)) < 0 && errno == EINTR)
        ;
    signal(SIGINT, c->on_interrupt);
    if (rc < 0) {
        fprintf(stderr, "detctl: wait for detd-worker: %s\n", strerror(errno));
        return CODE_REFUSED;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT)
        return CODE_INTERRUPTED;
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGPIPE) /* SIGPIPE: as from `| head` */
        fprintf(stderr, "detctl: detd-worker was ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? CODE_DONE : CODE_REFUSED;
}

int worker_run_for(const struct stat *owner, char **argv)
{
    struct child c;

    return start(&c, argv, owner, STDOUT_FILENO) < 0 ? CODE_REFUSED : end(&c);
}

int worker_run(char **argv)
{
    return worker_run_for(NULL, argv);
}

/* Reads the stream to its end. It must hold one number above 0, on a line of its own. */
static int read_count(FILE *in, int64_t *ret)
{
    char line[32], *stop;

    if (!fgets(line, sizeof line, in) || line[0] < '1' || line[0] > '9')
        return -1;
    errno = 0;
    *ret = strtoll(line, &stop, 10);
    return errno || *stop != '\n' || fgetc(in) != EOF ? -1 : 0;
}

int worker_count(char **argv, int64_t *ret_count)
{
    int ends[2], rc;
    FILE *in = NULL;
    struct child c;
    bool counted;

    if (pipe2(ends, O_CLOEXEC) < 0 || !(in = fdopen(ends[0], "r"))) {
        fprintf(stderr, "detctl: a pipe for detd-worker: %s\n", strerror(errno));
        return CODE_REFUSED;
    }
    rc = start(&c, argv, NULL, ends[1]);
    close(ends[1]);
    counted = rc == 0 && read_count(in, ret_count) == 0;
    fclose(in);
    if (rc < 0 || (rc = end(&c)) != CODE_DONE)
        return rc < 0 ? CODE_REFUSED : rc;
    if (!counted)
        fputs("detctl: detd-worker is of another version: it says no number\n", stderr);
    return counted ? CODE_DONE : CODE_REFUSED;
}

#include "daemon/socket/gate.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/err.h"

enum { FEW_GROUPS = 64 };

/* ---- callers ---- */

static bool in_admin_group(const struct gate *g, int fd, gid_t primary)
{
    gid_t few[FEW_GROUPS], *groups = few, *many = NULL;
    socklen_t len = sizeof few;
    bool found = primary == g->admin_gid;
    int rc;

    if (g->admin_gid == (gid_t)-1)
        return false;
    rc = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len);
    if (rc < 0 && errno == ERANGE && (groups = many = malloc(len)) != NULL) /* `len` is now the size that is needed */
        rc = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len);
    for (size_t i = 0; rc == 0 && i < len / sizeof *groups; i++)
        found = found || groups[i] == g->admin_gid;
    free(many);
    return found;
}

int gate_identify(const struct gate *g, int fd, struct caller *ret, struct err *err)
{
    struct ucred cred;
    socklen_t len = sizeof cred;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return err_sys(err, "who calls");
    ret->uid = cred.uid;
    if (g->private)
        ret->admin = cred.uid == geteuid();
    else
        ret->admin = cred.uid == 0 || cred.uid == geteuid() || in_admin_group(g, fd, cred.gid);
    return ret->admin || g->everyone_reads ? 0 : err_set(err, ERR_DENIED, "this daemon serves another user");
}

/* ---- the socket ---- */

/* False if the process that listened on the socket has ended. A child that it was starting may still have the socket
 * open, until it executes its program. */
static bool listener_lives(int fd)
{
    struct ucred cred;
    socklen_t len = sizeof cred;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || cred.pid <= 0 || kill(cred.pid, 0) == 0 || errno != ESRCH;
}

/* Also true if the queue of connections is full, as for a daemon that is stopped. */
static bool somebody_serves(const char *path)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool serves;

    if (fd < 0)
        return false;
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
    serves = connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0 ? listener_lives(fd) : errno == EAGAIN;
    close(fd);
    return serves;
}

/* If only admins may read, their group may connect to the socket. */
static int let_admins_in(const struct gate *g, struct err *err)
{
    if (g->private || g->everyone_reads || g->admin_gid == (gid_t)-1)
        return 0;
    if (chown(g->path, (uid_t)-1, g->admin_gid) < 0 || chmod(g->path, 0660) < 0)
        return err_sys(err, "socket '%s': cannot be given to group detd", g->path);
    return 0;
}

static int bound_socket(const char *path, mode_t without, struct err *err)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc;
    mode_t mask;

    if (fd < 0)
        return err_sys(err, "socket '%s'", path);
    if (snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path) >= (int)sizeof addr.sun_path) {
        close(fd);
        return err_set(err, -ENAMETOOLONG, "socket '%s': the path is too long", path);
    }
    mask = umask(without);
    rc = bind(fd, (struct sockaddr *)&addr, sizeof addr);
    umask(mask);
    if (rc == 0)
        return fd;
    rc = err_sys(err, "socket '%s'", path);
    close(fd);
    return rc;
}

int gate_bind(const struct gate *g, bool *ret_bound, struct err *err)
{
    const char *path = g->path;
    struct stat st;
    int fd;

    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode))
            return err_set(err, ERR_INPUT, "socket '%s': a file that is not a socket is there", path);
        if (somebody_serves(path))
            return err_set(err, ERR_STATE, "socket '%s': another daemon serves it", path);
        unlink(path);
    }
    fd = bound_socket(path, !g->private && g->everyone_reads ? 0111 : 0177, err);
    if (fd < 0)
        return fd;
    *ret_bound = true;
    if (let_admins_in(g, err) == 0)
        return fd;
    close(fd);
    return err->code;
}

/* Without a free descriptor libuv hangs up without a word, so some are kept free. */
int gate_spare_files(int fd, struct err *err)
{
    struct rlimit most;

    if (getrlimit(RLIMIT_NOFILE, &most) < 0 || (rlim_t)fd + GATE_SPARE_FILES < most.rlim_cur)
        return 0;
    return err_set(err, ERR_STATE, "detd is near its limit of open files, %lld", (long long)most.rlim_cur);
}

#include "launch/ticket.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/folder.h"
#include "proto/host/sha256.h"

static unsigned char key[SHA256_BYTES];

/* The file gets its name only when the key is on the disk, so half a key is never used. */
static int make_key(const char *path, struct err *err)
{
    char tmp[4096];
    int fd, rc = 0;

    if (snprintf(tmp, sizeof tmp, "%s.new", path) >= (int)sizeof tmp)
        return err_set(err, -ENAMETOOLONG, "--key: too long");
    unlink(tmp);
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "create '%s'", tmp);
    if (getrandom(key, sizeof key, 0) != sizeof key || write(fd, key, sizeof key) != sizeof key || fsync(fd) < 0 || rename(tmp, path) < 0)
        rc = err_sys(err, "make the key '%s'", path);
    close(fd);
    return rc == 0 ? folder_sync_name(path, err) : rc;
}

int ticket_open_key(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    int rc = 0;

    if (fd < 0)
        return errno == ENOENT ? make_key(path, err) : err_sys(err, "open the key '%s'", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        rc = err_set(err, ERR_DENIED, "the key '%s' must be a file that belongs to root and that root alone may access", path);
    else if (st.st_size != sizeof key || read(fd, key, sizeof key) != sizeof key)
        rc = err_set(err, ERR_CORRUPT, "the key '%s' does not have %zu bytes; with a new key all waiting jobs are refused", path,
                     sizeof key);
    close(fd);
    return rc;
}

void ticket_forget_key(void)
{
    explicit_bzero(key, sizeof key);
}

void ticket_seal(struct launch_ticket *t)
{
    sha256_seal(key, t, offsetof(struct launch_ticket, seal), t->seal);
}

int ticket_check(const struct launch_ticket *t, struct err *err)
{
    struct launch_ticket ours = *t;
    unsigned char differ = 0;

    ticket_seal(&ours);
    for (size_t i = 0; i < sizeof t->seal; i++) /* takes the same time wherever they differ */
        differ |= ours.seal[i] ^ t->seal[i];
    if (differ || t->version != LAUNCH_VERSION || t->uid == 0 || t->job < 1 || !memchr(t->store, 0, sizeof t->store))
        return err_set(err, ERR_DENIED, "the ticket of job %lld is not sealed with this node's key", (long long)t->job);
    return 0;
}

/* True for an accepted end whose other end has no name. An end with a named peer could be detd's own end of a call to a
 * user's socket: the kernel reports the same credentials for it. */
static bool is_callers(int fd)
{
    struct sockaddr_un peer = { 0 };
    socklen_t size = sizeof peer, room = sizeof(int);
    int type = 0, listens = 1;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &room) == 0 && type == SOCK_STREAM && (room = sizeof(int)) &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &room) == 0 && !listens &&
           getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.sun_family == AF_UNIX && size == sizeof peer.sun_family;
}

int ticket_identify(int fd, struct launch_ticket *t, struct err *err)
{
    struct ucred who;
    socklen_t size = sizeof who;

    if (!is_callers(fd) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0)
        return err_set(err, ERR_DENIED, "the descriptor is not the connection of a live client");
    if (who.uid == 0 || who.uid == (uid_t)-1 || who.gid == (gid_t)-1)
        return err_set(err, ERR_DENIED, "no job runs as root");
    t->uid = who.uid;
    t->gid = who.gid;
    return 0;
}

#include "proto/host/wipe.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"

enum { DEPTH_MAX = 32 };

struct removal {
    int top; /* descriptor of the whole folder */
    int left, moved;
    const char *path; /* for messages */
    struct err *err;
};

/* The maker of a folder may have taken away the rights to it, even the own ones. */
static int open_folder(int in, const char *name)
{
    const int how = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(in, name, how);

    if (fd < 0 && errno == EACCES && fchmodat(in, name, 0700, 0) == 0)
        fd = openat(in, name, how);
    return fd;
}

static int fail(struct removal *r, const char *name)
{
    return err_sys(r->err, "remove '%.80s' in '%s'", name, r->path);
}

static int empty(struct removal *r, int fd, int depth);

static int remove_folder(struct removal *r, int in, const char *name, int depth)
{
    int fd, rc;

    if (depth == DEPTH_MAX) { /* continues from further up, so that no depth needs more descriptors */
        char up[32];

        do
            snprintf(up, sizeof up, ".deep-%d", r->moved++);
        while (faccessat(r->top, up, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
        return renameat(in, name, r->top, up) < 0 ? fail(r, name) : 0;
    }
    fd = open_folder(in, name);
    if (fd < 0)
        return fail(r, name);
    rc = empty(r, fd, depth + 1);
    if (rc != 0)
        return rc;
    r->left--;
    return unlinkat(in, name, AT_REMOVEDIR) < 0 ? fail(r, name) : 0;
}

static int remove_entry(struct removal *r, int in, const char *name, int depth)
{
    int rc = unlinkat(in, name, 0);

    if (rc < 0 && errno == EACCES && fchmod(in, 0700) == 0)
        rc = unlinkat(in, name, 0);
    if (rc < 0 && (errno == EISDIR || errno == EPERM))
        return remove_folder(r, in, name, depth);
    r->left--;
    return rc < 0 && errno != ENOENT ? fail(r, name) : 0;
}

/* Takes over fd. Returns 1 if r->left did not suffice for all entries. */
static int empty(struct removal *r, int fd, int depth)
{
    const struct dirent *entry;
    DIR *dir = fdopendir(fd);
    int rc = 0;

    if (!dir) {
        rc = fail(r, ".");
        close(fd);
        return rc;
    }
    while (rc == 0 && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        rc = r->left > 0 ? remove_entry(r, fd, entry->d_name, depth) : 1;
    }
    closedir(dir);
    return rc;
}

int wipe_folder(const char *path, int max, struct err *err)
{
    struct removal r = { .left = max, .path = path, .err = err };
    int fd, rc;

    if (unlink(path) == 0 || errno == ENOENT)
        return 0;
    r.top = open_folder(AT_FDCWD, path);
    if (r.top < 0)
        return fail(&r, ".");
    fd = dup(r.top);
    rc = fd < 0 ? fail(&r, ".") : empty(&r, fd, 0);
    close(r.top);
    if (rc != 0)
        return rc;
    return rmdir(path) == 0 ? 0 : errno == ENOTEMPTY || errno == EEXIST ? 1 : err_sys(err, "remove '%s'", path);
}

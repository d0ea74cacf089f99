#include "worker/data/text/whole_file.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"

static int read_all(struct whole_file *f, int fd, const char *path, struct err *err)
{
    for (size_t done = 0; done < f->size;) {
        ssize_t n = read(fd, f->bytes + done, f->size - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "read '%s'", path);
        if (n == 0)
            return err_set(err, ERR_DATA, "%s: file became shorter while it was read", path);
        done += (size_t)n;
    }
    return 0;
}

static int reserve(struct whole_file *f, const char *path, struct err *err)
{
    if (f->cap > f->size)
        return 0;
    free(f->bytes);
    f->cap = 0;
    f->bytes = malloc(f->size + 1);
    if (!f->bytes)
        return err_set(err, -ENOMEM, "%s: no memory for %zu bytes", path, f->size);
    f->cap = f->size + 1;
    return 0;
}

/* O_NONBLOCK: opening a named pipe must not block a thread for ever. */
int whole_file_read(struct whole_file *f, const char *path, int64_t max_bytes, struct err *err)
{
    struct stat st;
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return err_sys(err, "open '%s'", path);
    if (fstat(fd, &st) < 0)
        rc = err_sys(err, "stat '%s'", path);
    else if (S_ISDIR(st.st_mode))
        rc = err_set(err, ERR_DATA, "%s: a folder, not a file", path);
    else if (!S_ISREG(st.st_mode))
        rc = err_set(err, ERR_DATA, "%s: not a regular file", path);
    else if (st.st_size > max_bytes)
        rc = err_set(err, ERR_DATA, "%s: file of %lld bytes is over the limit of %lld", path, (long long)st.st_size, (long long)max_bytes);
    if (rc == 0) {
        f->size = (size_t)st.st_size;
        f->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        rc = reserve(f, path, err);
    }
    if (rc == 0)
        rc = read_all(f, fd, path, err);
    close(fd);
    return rc;
}

bool file_at_fault(int code)
{
    switch (code) {
    case ERR_DATA:
    case ERR_UNSUPPORTED:
    case -ENOENT:
    case -ENOTDIR:
    case -EACCES:
    case -ELOOP:
    case -ENAMETOOLONG:
    case -ENXIO: /* a socket, or a device without a driver */
        return true;
    default:
        return false;
    }
}

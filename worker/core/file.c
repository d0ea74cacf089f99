#include "worker/core/file.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/folder.h"
#include "proto/host/sha256.h"

enum { MAX_TMPS = 100 /* left by writers that were killed */, MAX_LINKS = 40 /* the limit of Linux */ };

/* mmap() refuses length 0; an empty file points here. */
static const unsigned char empty[1];

static int map_fd(int fd, const char *path, size_t max_bytes, struct file_map *ret_map, struct err *err)
{
    struct stat st;
    void *data;

    if (fstat(fd, &st) < 0)
        return err_sys(err, "stat '%s'", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INPUT, "'%s' is not a regular file", path);
    if ((size_t)st.st_size > max_bytes)
        return err_set(err, ERR_INPUT, "'%s' has %lld bytes, more than %zu", path, (long long)st.st_size, max_bytes);
    if (st.st_size == 0) {
        *ret_map = (struct file_map){ empty, 0 };
        return 0;
    }
    data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return err_sys(err, "map '%s'", path);
    *ret_map = (struct file_map){ data, (size_t)st.st_size };
    return 0;
}

int file_map_open(const char *path, size_t max_bytes, struct file_map *ret_map, struct err *err)
{
    int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a FIFO must not block before fstat() sees it */

    if (fd < 0)
        return err_sys(err, "open '%s'", path);
    rc = map_fd(fd, path, max_bytes, ret_map, err);
    close(fd);
    return rc;
}

void file_map_close(struct file_map *m)
{
    if (m->size > 0)
        munmap((void *)(uintptr_t)m->data, m->size);
    *m = (struct file_map){ empty, 0 };
}

struct file_out {
    FILE *stream;
    int rc;         /* first failure */
    struct err err; /* its message */
    char *path, *tmp;
    char *name;          /* as the user gave it, may be a link to path; NULL: a file in a folder of detd */
    file_is_own *is_own; /* the test that `name` may be replaced */
};

static void file_out_free(struct file_out *o)
{
    if (o->stream)
        fclose(o->stream);
    free(o->name);
    free(o->path);
    free(o->tmp);
    free(o);
}

static int open_stream(struct file_out *o, int how, struct err *err)
{
    int fd = open(o->tmp, O_WRONLY | O_CREAT | O_CLOEXEC | how, 0644);

    if (fd < 0)
        return err_sys(err, "create '%s'", o->tmp);
    o->stream = fdopen(fd, "w");
    if (o->stream)
        return 0;
    close(fd);
    unlink(o->tmp);
    return err_set(err, -ENOMEM, "create '%s': out of memory", o->tmp);
}

/* how is O_TRUNC or O_EXCL. */
static int open_tmp(struct file_out *o, const char *suffix, int how, struct err *err)
{
    free(o->tmp);
    if (asprintf(&o->tmp, "%s%s.tmp", o->path, suffix) < 0) {
        o->tmp = NULL;
        return err_set(err, -ENOMEM, "create '%s': out of memory", o->path);
    }
    return open_stream(o, how, err);
}

static int open_free_tmp(struct file_out *o, struct err *err)
{
    char number[16];
    int rc = -EEXIST;

    for (int i = 1; rc == -EEXIST && i <= MAX_TMPS; i++) {
        snprintf(number, sizeof number, ".%d", i);
        rc = open_tmp(o, number, O_EXCL, err);
    }
    return rc;
}

/* ---- names that users give ---- */

int file_may_replace(const char *path, file_is_own *is_own, struct err *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(err, "look for '%.200s'", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INPUT, "'%.140s' is not a regular file but a folder, device or pipe: give another name", path);
    if (!(st.st_mode & 0222))
        return err_set(err, ERR_INPUT, "'%.140s' is there and write-protected: give another name", path);
    if (st.st_size > 0 && !is_own(path))
        return err_set(err, ERR_INPUT, "'%.140s' is there, and detd did not write it: give another name, or remove it", path);
    return 0;
}

/* The file that a link leads to; it need not exist yet. The caller frees the path. NULL: err says why. */
static char *follow(const char *path, struct err *err)
{
    char to[PATH_MAX], *at = strdup(path), *next;

    for (int i = 0; at && i < MAX_LINKS; i++) {
        ssize_t n = readlink(at, to, sizeof to - 1);
        const char *slash = strrchr(at, '/');

        if (n < 0)
            return at;
        to[n] = '\0';
        if (asprintf(&next, "%.*s%s", to[0] != '/' && slash ? (int)(slash + 1 - at) : 0, at, to) < 0)
            next = NULL;
        free(at);
        at = next;
    }
    if (at)
        err_set(err, -ELOOP, "'%s' leads through more than %d links", path, MAX_LINKS);
    else
        err_set(err, -ENOMEM, "create '%s': out of memory", path);
    free(at);
    return NULL;
}

static void keep_mode(const struct file_out *o)
{
    struct stat st;

    if (stat(o->path, &st) == 0)
        fchmod(fileno(o->stream), st.st_mode & 0777);
}

static int open_named(struct file_out *o, struct err *err)
{
    int rc;

    o->name = strdup(o->path);
    if (!o->name)
        return err_set(err, -ENOMEM, "create '%s': out of memory", o->path);
    free(o->path);
    o->path = follow(o->name, err);
    if (!o->path)
        return err->code;
    rc = open_free_tmp(o, err);
    if (rc == 0)
        keep_mode(o);
    return rc;
}

/* is_own is NULL for a file of detd's own. */
static int open_out(const char *path, file_is_own *is_own, struct file_out **ret_out, struct err *err)
{
    struct file_out *o = calloc(1, sizeof *o);
    int rc;

    if (!o)
        return err_set(err, -ENOMEM, "create '%s': out of memory", path);
    o->is_own = is_own;
    o->path = strdup(path);
    if (!o->path)
        rc = err_set(err, -ENOMEM, "create '%s': out of memory", path);
    else
        rc = is_own ? open_named(o, err) : open_tmp(o, "", O_TRUNC, err);
    if (rc < 0)
        file_out_free(o);
    else
        *ret_out = o;
    return rc;
}

int file_out_open(const char *path, struct file_out **ret_out, struct err *err)
{
    return open_out(path, NULL, ret_out, err);
}

int file_out_open_named(const char *path, file_is_own *is_own, struct file_out **ret_out, struct err *err)
{
    int rc = file_may_replace(path, is_own, err);

    return rc < 0 ? rc : open_out(path, is_own, ret_out, err);
}

static int keep_failure(struct file_out *o, struct err *err)
{
    if (o->rc == 0)
        o->rc = err_sys(&o->err, "write '%s'", o->tmp);
    return err_set(err, o->rc, "%s", o->err.msg);
}

int file_out_write(struct file_out *o, const void *bytes, size_t size, struct err *err)
{
    if (o->rc < 0 || (size > 0 && fwrite(bytes, 1, size, o->stream) != size))
        return keep_failure(o, err);
    return 0;
}

int file_out_printf(struct file_out *o, struct err *err, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (o->rc < 0)
        return keep_failure(o, err);
    va_start(ap, fmt);
    n = vfprintf(o->stream, fmt, ap);
    va_end(ap);
    return n < 0 ? keep_failure(o, err) : 0;
}

int file_out_hash(struct file_out *o, unsigned char ret[SHA256_BYTES], struct err *err)
{
    struct file_map m;
    int rc;

    if (o->rc < 0 || fflush(o->stream) != 0)
        return keep_failure(o, err);
    rc = file_map_open(o->tmp, SIZE_MAX, &m, err);
    if (rc < 0)
        return rc;
    sha256(m.data, m.size, ret);
    file_map_close(&m);
    return 0;
}

int file_out_commit(struct file_out *o, struct err *err)
{
    int rc = o->rc;

    if (rc < 0 || fflush(o->stream) != 0 || fsync(fileno(o->stream)) < 0)
        rc = keep_failure(o, err);
    else if (o->name)
        rc = file_may_replace(o->name, o->is_own, err); /* the file may have changed since it was opened */
    if (rc == 0 && rename(o->tmp, o->path) < 0)
        rc = err_sys(err, "rename '%s' to '%s'", o->tmp, o->path);
    if (rc < 0)
        unlink(o->tmp);
    else
        rc = folder_sync_name(o->path, err); /* the rename itself must survive a loss of power */
    file_out_free(o);
    return rc;
}

void file_out_abort(struct file_out *o)
{
    if (!o)
        return;
    unlink(o->tmp);
    file_out_free(o);
}

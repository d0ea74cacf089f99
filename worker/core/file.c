#include "worker/core/file.h"

#include <errno.h>
#include <fcntl.h>
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
#include "proto/folder.h"

enum { MAX_TMPS = 100 }; /* left by writers that were killed */

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
    int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us before fstat() sees it */

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
    int rc;         /* of the first failure */
    struct err err; /* what it said */
    char *path, *tmp;
};

static void file_out_free(struct file_out *o)
{
    if (o->stream)
        fclose(o->stream);
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

/* how: O_TRUNC or O_EXCL */
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

static int open_out(const char *path, bool fresh, struct file_out **ret_out, struct err *err)
{
    struct file_out *o = calloc(1, sizeof *o);
    int rc;

    if (!o)
        return err_set(err, -ENOMEM, "create '%s': out of memory", path);
    o->path = strdup(path);
    if (!o->path)
        rc = err_set(err, -ENOMEM, "create '%s': out of memory", path);
    else
        rc = fresh ? open_free_tmp(o, err) : open_tmp(o, "", O_TRUNC, err);
    if (rc < 0)
        file_out_free(o);
    else
        *ret_out = o;
    return rc;
}

int file_out_open(const char *path, struct file_out **ret_out, struct err *err)
{
    return open_out(path, false, ret_out, err);
}

int file_out_open_new(const char *path, struct file_out **ret_out, struct err *err)
{
    return open_out(path, true, ret_out, err);
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

int file_out_commit(struct file_out *o, struct err *err)
{
    int rc = o->rc;

    if (rc < 0 || fflush(o->stream) != 0 || fsync(fileno(o->stream)) < 0)
        rc = keep_failure(o, err);
    else if (rename(o->tmp, o->path) < 0)
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

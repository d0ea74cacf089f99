#include "daemon/launch/block.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/launch/launch_impl.h"
#include "proto/err.h"

enum { BYTES = BLOCK_NOTE_MAX + 1 };

static int open_file(const char *path, int flags)
{
    return launch_open_plain(path, flags | O_NOFOLLOW);
}

int block_make(const char *path, struct err *err)
{
    static const char empty[BYTES];
    int fd = open_file(path, O_RDWR | O_CREAT), rc = 0;
    struct stat st;

    if (fd < 0)
        return err_sys(err, "create '%s'", path);
    errno = ENOSPC; /* after a short write */
    if (fstat(fd, &st) == 0 && st.st_size < BYTES && (pwrite(fd, empty, BYTES, 0) != BYTES || fsync(fd) < 0)) {
        rc = err_sys(err, "write '%s'", path);
        unlink(path); /* else its size would say that it has room */
    }
    close(fd);
    return rc;
}

bool block_write(const char *path, const char *text)
{
    char bytes[BYTES] = "";
    int fd = open_file(path, O_WRONLY);
    struct stat st;
    bool written;

    if (fd < 0)
        return false;
    strncpy(bytes, text, BLOCK_NOTE_MAX);
    written = fstat(fd, &st) == 0 && st.st_size >= BYTES && pwrite(fd, bytes, BYTES, 0) == BYTES;
    close(fd);
    return written;
}

void block_read(const char *path, char *ret)
{
    int fd = open_file(path, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : pread(fd, ret, BLOCK_NOTE_MAX, 0);

    ret[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

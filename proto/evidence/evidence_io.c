#include "proto/evidence/evidence_io.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/evidence/evidence_form.h"

int evidence_pwrite(int fd, const void *bytes, size_t n, int64_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pwrite(fd, (const char *)bytes + done, n - done, at + (int64_t)done);

        if (k > 0) {
            done += (size_t)k;
        } else if (k == 0 || errno != EINTR) {
            errno = k == 0 ? ENOSPC : errno;
            return -1;
        }
    }
    return 0;
}

ssize_t evidence_pread(int fd, void *bytes, size_t n, int64_t at)
{
    size_t done = 0;

    while (done < n) {
        ssize_t k = pread(fd, (char *)bytes + done, n - done, at + (int64_t)done);

        if (k == 0)
            break;
        if (k > 0)
            done += (size_t)k;
        else if (errno != EINTR)
            return -1;
    }
    return (ssize_t)done;
}

/* Must neither wait for a FIFO's writer nor follow a link out of the named folder. */
int evidence_open_file(int dirfd, const char *name)
{
    int fd = openat(dirfd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

static int parse_file(int fd, size_t size, struct evidence_head **ret_head, struct err *err)
{
    char *text = malloc(size + 1);
    ssize_t n;
    int rc;

    if (!text)
        return err_set(err, -ENOMEM, "out of memory");
    n = evidence_pread(fd, text, size, 0);
    rc = n < 0 ? err_sys(err, "read") : evidence_head_parse(text, (size_t)n, ret_head, err);
    free(text);
    return rc;
}

int evidence_head_read(int dirfd, const char *dir, struct evidence_head **ret_head, struct err *err)
{
    int rc, fd = evidence_open_file(dirfd, EVIDENCE_HEAD_FILE);
    struct stat st;

    if (fd < 0 && (errno == EINVAL || errno == ELOOP))
        return err_set(err, ERR_INPUT, "'%s/" EVIDENCE_HEAD_FILE "' is not a regular file", dir);
    if (fd < 0)
        return err_sys(err, "open '%s/" EVIDENCE_HEAD_FILE "'", dir);
    if (fstat(fd, &st) < 0)
        rc = err_sys(err, "stat");
    else if (st.st_size > EVIDENCE_HEAD_BYTES)
        rc = err_set(err, ERR_INPUT, "%lld bytes, more than %d", (long long)st.st_size, EVIDENCE_HEAD_BYTES);
    else
        rc = parse_file(fd, (size_t)st.st_size, ret_head, err);
    if (rc < 0)
        err_prefix(err, "'%s/" EVIDENCE_HEAD_FILE "'", dir);
    close(fd);
    return rc;
}

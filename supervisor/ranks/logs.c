#include "supervisor/ranks/logs.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"

enum { BLOCK = 4096, UNIT = 512 }; /* UNIT: of st_blocks */

static int make_hole(struct logs *l, const char *path, int fd, int64_t size, struct err *err)
{
    int64_t hole = (size - l->max_bytes / 2) / BLOCK * BLOCK;

    if (hole <= 0 || fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, hole) == 0 || l->failed)
        return 0;
    l->failed = true;
    return err_sys(err, "give back what '%s' has above %lld bytes", path, (long long)l->max_bytes);
}

static int bound(struct logs *l, const char *path, struct err *err)
{
    struct stat st;
    int fd, rc = 0;

    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || (int64_t)st.st_blocks * UNIT <= l->max_bytes)
        return 0;
    fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        rc = make_hole(l, path, fd, st.st_size, err);
    close(fd);
    return rc;
}

int logs_bound(struct logs *l, int nranks, struct err *err)
{
    char path[64];
    int rc = 0;

    if (l->max_bytes > 0)
        rc = bound(l, "log/supervisor.log", err);
    for (int i = 0; l->max_bytes > 0 && i < nranks; i++) {
        snprintf(path, sizeof path, "log/rank-%d.log", i);
        rc = bound(l, path, err) < 0 ? err->code : rc;
    }
    return rc;
}

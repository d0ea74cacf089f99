#include "proto/host/folder.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"

int folder_sync(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

    if (fd < 0 || fsync(fd) < 0)
        rc = err_sys(err, "sync folder '%s'", path);
    if (fd >= 0)
        close(fd);
    return rc;
}

int folder_sync_name(const char *path, struct err *err)
{
    char *copy = strdup(path); /* dirname() writes to its argument */
    int rc;

    if (!copy)
        return err_set(err, -ENOMEM, "sync the folder of '%s': out of memory", path);
    rc = folder_sync(dirname(copy), err);
    free(copy);
    return rc;
}

int folder_make(const char *path, unsigned mode, struct err *err)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return err_sys(err, "make folder '%s'", path);
    return folder_sync_name(path, err);
}

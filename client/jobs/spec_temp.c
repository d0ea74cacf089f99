/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/spec_temp.c - a job's spec as a file for detd-worker, and whether other users own the files that it names. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/base/worker.h"
#include "client/jobs/spec.h"
#include "proto/err.h"

static bool any_is_of_another(json_t *value, struct stat *ret)
{
    const char *path = json_string_value(value), *key;
    json_t *member;
    size_t i;

    if (path)
        return path[0] == '/' && worker_is_of_another(path, ret);
    json_object_foreach (value, key, member)
        if (any_is_of_another(member, ret))
            return true;
    json_array_foreach (value, i, member)
        if (any_is_of_another(member, ret))
            return true;
    return false;
}

bool spec_is_of_another(const json_t *spec, struct stat *ret)
{
    return any_is_of_another(json_object_get(spec, "data"), ret) || any_is_of_another(json_object_get(spec, "model"), ret);
}

int spec_file(const json_t *spec, char ret_path[PATH_MAX], struct err *err)
{
    struct stat other;
    const bool theirs = spec_is_of_another(spec, &other);
    const char *folder = theirs ? NULL : getenv("TMPDIR"); /* TMPDIR may be root's alone */
    int fd, rc = 0;

    snprintf(ret_path, PATH_MAX, "%s/detctl-XXXXXX", folder && *folder ? folder : "/tmp");
    fd = mkostemp(ret_path, O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "create '%s'", ret_path);
    if (json_dumpfd(spec, fd, JSON_INDENT(2)) < 0 || (theirs && fchown(fd, other.st_uid, other.st_gid) < 0)) {
        rc = err_sys(err, "write '%s'", ret_path);
        unlink(ret_path);
    }
    close(fd);
    return rc;
}

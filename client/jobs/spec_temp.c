/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/spec_temp.c - a job's spec as a file for detd-worker. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/jobs/spec.h"
#include "proto/err.h"

int spec_file(const json_t *spec, char ret_path[PATH_MAX], struct err *err)
{
    const char *folder = getenv("TMPDIR");
    int fd, rc = 0;

    snprintf(ret_path, PATH_MAX, "%s/detctl-XXXXXX", folder && *folder ? folder : "/tmp");
    fd = mkostemp(ret_path, O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "create '%s'", ret_path);
    if (json_dumpfd(spec, fd, JSON_INDENT(2)) < 0) {
        rc = err_sys(err, "write '%s'", ret_path);
        unlink(ret_path);
    }
    close(fd);
    return rc;
}

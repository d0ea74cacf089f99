/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/program.c - see program.h. */
#include "client/jobs/program.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/base/print.h"
#include "proto/err.h"

bool program_is(const json_t *spec)
{
    return json_is_array(json_object_get(json_object_get(spec, "program"), "command"));
}

/* ---- what can be looked at before the job is queued ---- */

static bool may_execute(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool is_in_path(const char *name, const char *path)
{
    char file[PATH_MAX];

    for (size_t len; path && *path; path += len + (path[len] == ':')) {
        len = strcspn(path, ":");
        if (len > 0 && snprintf(file, sizeof file, "%.*s/%s", (int)len, path, name) < (int)sizeof file && may_execute(file))
            return true;
    }
    return false;
}

int program_check(const json_t *spec, struct err *err)
{
    const json_t *program = json_object_get(spec, "program");
    const char *name = json_string_value(json_array_get(json_object_get(program, "command"), 0)), *folder = text_of(program, "directory");
    const char *path = json_string_value(json_object_get(json_object_get(json_object_get(spec, "run"), "env"), "PATH"));
    char file[PATH_MAX];
    struct stat st;

    if (stat(folder, &st) < 0)
        return err_sys(err, "program.directory: folder '%s'", folder);
    if (!S_ISDIR(st.st_mode))
        return err_field(err, ERR_INPUT, "program.directory", "program.directory: '%s' is not a folder", folder);
    if (!name || !name[0])
        return 0; /* detd says why */
    if (!strchr(name, '/'))
        return is_in_path(name, path ? path : getenv("PATH"))
                   ? 0
                   : err_field(err, ERR_INPUT, "program.command", "there is no program '%.100s' in PATH", name);
    snprintf(file, sizeof file, "%s%s%s", name[0] == '/' ? "" : folder, name[0] == '/' ? "" : "/", name);
    if (may_execute(file))
        return 0;
    return err_field(err, ERR_INPUT, "program.command",
                     stat(file, &st) < 0 ? "there is no file '%s'" : "'%s' is no file that may be executed (chmod +x makes it one)", file);
}

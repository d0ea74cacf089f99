/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/program.c - see program.h. */
#include "client/jobs/program.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/base/print.h"
#include "proto/err.h"
#include "proto/host/which.h"

bool program_is(const json_t *spec)
{
    return json_is_array(json_object_get(json_object_get(spec, "program"), "command"));
}

static int look(const json_t *program, const char *path, struct err *err)
{
    const char *name = json_string_value(json_array_get(json_object_get(program, "command"), 0)), *folder = text_of(program, "directory");
    char file[PATH_MAX];

    if (!which_is_folder(folder))
        return err_field(err, ERR_INPUT, "program.directory", "program.directory: '%s' is no folder that this user can reach", folder);
    if (!name || !name[0] || which_find(name, folder, path ? path : getenv("PATH"), file))
        return 0; /* detd says why it takes no empty name */
    if (!strchr(name, '/'))
        return err_field(err, ERR_INPUT, "program.command", "there is no program '%.100s' in PATH", name);
    return err_field(err, ERR_INPUT, "program.command",
                     access(file, F_OK) < 0 ? "there is no file '%s'" : "'%s' is no file that may be executed (chmod +x makes it one)",
                     file);
}

int program_check(const json_t *spec)
{
    const json_t *env = json_object_get(json_object_get(spec, "run"), "env");
    struct err err;

    return look(json_object_get(spec, "program"), json_string_value(json_object_get(env, "PATH")), &err) < 0 ? complain(&err) : 0;
}

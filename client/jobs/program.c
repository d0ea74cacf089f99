/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/program.c - see program.h. */
#include "client/jobs/program.h"

#include <limits.h>
#include <stdio.h>
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

bool program_tell_none(struct context *ctx, int64_t id, const char *what, const char *with)
{
    json_t *job = NULL;
    bool program =
        call(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)id), &job) == 0 && strcmp(text_of(job, "kind"), "program") == 0;

    if (program)
        fprintf(stderr, "job %lld has no %s yet; its program reports them with %s of the Python module detd\n", (long long)id, what, with);
    json_decref(job);
    return program;
}

static bool ends(const char *text, const char *with)
{
    return strlen(text) >= strlen(with) && strcmp(text + strlen(text) - strlen(with), with) == 0;
}

/* Fills *err for a command that is no program, with a hint. file: the path of the command; without a slash in the name,
 * the path of a file with that name in the job's folder. */
static int explain(const char *name, const char *file, struct err *err)
{
    char job[PATH_MAX + 8];

    snprintf(job, sizeof job, "%s.json", file);
    if (ends(name, ".json") || access(job, F_OK) == 0)
        return err_field(err, ERR_INPUT, "program.command", "'%.90s' is no program; detctl submit %.90s queues a job file", name, name);
    if (which_is_folder(file))
        return err_field(err, ERR_INPUT, "program.command", "'%.100s' is a folder, no program", name);
    if (access(file, F_OK) == 0 && access(file, X_OK) < 0)
        return err_field(err, ERR_INPUT, "program.command",
                         "'%.70s' may not be executed: put its interpreter before it, as in python3 %.70s, or use chmod +x", name, name);
    if (strchr(name, '/'))
        return err_field(err, ERR_INPUT, "program.command", "there is no file '%s'", file);
    if (access(file, F_OK) == 0)
        return err_field(err, ERR_INPUT, "program.command", "there is no program '%.80s' in PATH; that of its folder is ./%.80s", name,
                         name);
    if (strchr(name, ' '))
        return err_field(err, ERR_INPUT, "program.command",
                         "there is no program '%.80s' in PATH; give each word by itself, or a line of a shell as sh -c 'LINE'", name);
    if (strchr(name, '='))
        return err_field(err, ERR_INPUT, "program.command",
                         "'%.80s' is no program; --env NAME=VALUE sets a variable, and KEY=VALUE -- COMMAND sets a key", name);
    return err_field(err, ERR_INPUT, "program.command", "there is no program '%.100s' in PATH", name);
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
        snprintf(file, sizeof file, "%s/%s", folder, name);
    return explain(name, file, err);
}

int program_check(const json_t *spec)
{
    const json_t *env = json_object_get(json_object_get(spec, "run"), "env");
    struct err err;

    return look(json_object_get(spec, "program"), json_string_value(json_object_get(env, "PATH")), &err) < 0 ? complain(&err) : 0;
}

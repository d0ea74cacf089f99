/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/on_end.c - run.on_end: what the user's command is told, and when. How it runs: notify.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/clean.h"
#include "supervisor/job_impl.h"
#include "supervisor/left.h"
#include "supervisor/notify.h"
#include "supervisor/spawn.h"

enum { LIMIT_MS = 60000 };

static char *message(const struct job *j, const struct jobspec *spec, const char *event, const char *outcome, const char *reason)
{
    char host[256] = "", *text;
    json_t *obj;

    gethostname(host, sizeof host - 1);
    obj = json_pack("{s:s, s:I, s:s, s:s, s:o, s:i, s:I, s:f, s:o}", "event", event, "job", (json_int_t)j->options.job, "name", spec->name,
                    "outcome", outcome, "reason", clean_string(reason), "attempt", j->attempt, "step", (json_int_t)j->saved, "time",
                    job_time(), "host", clean_string(host));
    text = obj ? json_dumps(obj, JSON_COMPACT) : NULL;
    json_decref(obj);
    if (text) {
        size_t length = strlen(text);
        char *line = realloc(text, length + 2);

        if (line)
            memcpy(line + length, "\n", 2);
        else
            free(text);
        text = line;
    }
    return text;
}

static void tell(struct job *j, const struct jobspec *spec, char *const *env, const char *event, const char *outcome, const char *reason)
{
    char *text = message(j, spec, event, outcome, reason);
    struct err err = { 0 };
    pid_t pid = text ? notify_start(spec->run_on_end, env, text, strlen(text), LIMIT_MS, &err) : err_set(&err, -ENOMEM, "out of memory");

    free(text);
    if (pid < 0) {
        job_log("run.on_end cannot be told of %s: %s", event, err.msg);
        return;
    }
    left_spare(pid);
    job_log("run.on_end is told of %s", event);
}

/* A job that only ends here, without a rank, has not read its spec. */
static void read_and_tell(struct job *j, const char *event, const char *outcome, const char *reason)
{
    struct jobspec *spec = NULL;
    struct err err = { 0 };
    json_t *root = NULL;
    char **env = NULL;
    int rc = jobspec_read("spec.json", &root, &err);

    if (rc == 0)
        rc = jobspec_parse_stored(root, &spec, &err);
    if (rc == 0 && spec->run_on_end)
        rc = spawn_env(spec->run_env, &env, &err);
    if (rc == 0 && spec->run_on_end)
        tell(j, spec, env, event, outcome, reason);
    if (rc < 0)
        job_log("run.on_end: %s", err.msg);
    spawn_free_env(env);
    jobspec_free(spec);
    json_decref(root);
}

void job_tell_command(struct job *j, const char *event, const char *outcome, const char *reason)
{
    if (!j->spec || !j->env)
        read_and_tell(j, event, outcome, reason);
    else if (j->spec->run_on_end)
        tell(j, j->spec, j->env, event, outcome, reason);
}

#include "supervisor/on_end.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/clean.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "supervisor/ranks/left.h"
#include "supervisor/ranks/log.h"
#include "supervisor/notify.h"
#include "supervisor/ranks/spawn.h"

enum { LIMIT_MS = 60000 };

static char *message(const struct on_end *e, const struct jobspec *spec, const char *event, const char *outcome, const char *reason)
{
    char host[256] = "", *text;
    json_t *obj;

    gethostname(host, sizeof host - 1);
    obj = json_pack("{s:s, s:I, s:s, s:s, s:o, s:i, s:I, s:f, s:o}", "event", event, "job", (json_int_t)e->job, "name", spec->name,
                    "outcome", outcome, "reason", clean_string(reason), "attempt", e->attempt, "step", (json_int_t)e->step, "time",
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

static void tell(const struct on_end *e, const struct jobspec *spec, char *const *env, const char *event, const char *outcome,
                 const char *reason)
{
    char *text = message(e, spec, event, outcome, reason);
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
static void read_and_tell(const struct on_end *e, const char *event, const char *outcome, const char *reason)
{
    struct jobspec *spec = NULL;
    struct err err = { 0 };
    json_t *root = NULL;
    char **env = NULL;
    int rc = jobspec_read("spec.json", &root, &err);

    if (rc == 0)
        rc = jobspec_parse_stored(root, &spec, &err);
    if (rc == 0 && spec->run_on_end)
        rc = spawn_env(spec->run_env, false, &env, &err);
    if (rc == 0 && spec->run_on_end)
        tell(e, spec, env, event, outcome, reason);
    if (rc < 0)
        job_log("run.on_end: %s", err.msg);
    spawn_free_env(env);
    jobspec_free(spec);
    json_decref(root);
}

void on_end_tell(const struct on_end *e, const char *event, const char *outcome, const char *reason)
{
    if (!e->spec || !e->env)
        read_and_tell(e, event, outcome, reason);
    else if (e->spec->run_on_end)
        tell(e, e->spec, e->env, event, outcome, reason);
}

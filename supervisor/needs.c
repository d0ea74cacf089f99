#include "supervisor/needs.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <jansson.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "supervisor/ranks/program.h"
#include "supervisor/ranks/spawn.h"
#include "supervisor/spool/tiers.h"

static int read_spec(struct needs *n, struct err *err)
{
    json_t *root = NULL;
    int rc = jobspec_read("spec.json", &root, err);

    if (rc == 0)
        rc = jobspec_parse_stored(root, &n->spec, err);
    json_decref(root);
    if (rc < 0)
        err_prefix(err, "spec.json");
    return rc;
}

void needs_drop(struct needs *n)
{
    tiers_close(n->tiers);
    program_free(n->program);
    spawn_free_env(n->env);
    jobspec_free(n->spec);
    if (n->worker_fd >= 0)
        close(n->worker_fd);
    if (n->plugin_fd >= 0)
        close(n->plugin_fd);
    *n = (struct needs)NEEDS_NONE;
}

static int open_worker(struct needs *n, const char *worker, struct err *err)
{
    int rc = spawn_open_program(worker, &n->worker_fd, err);

    if (rc == 0)
        rc = spawn_open_plugin(worker, &n->plugin_fd, err);
    return rc == 0 ? tiers_open("tiers", &n->tiers, err) : rc;
}

int needs_read(struct needs *n, const char *worker, int64_t job, struct err *err)
{
    int rc;

    needs_drop(n);
    rc = read_spec(n, err);
    if (rc == 0)
        rc = spawn_env(n->spec->run_env, jobspec_is_program(n->spec), &n->env, err);
    if (rc == 0)
        rc = jobspec_is_program(n->spec) ? program_new(n->spec, job, &n->program, err) : open_worker(n, worker, err);
    return rc;
}

#include "daemon/run/kill.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>

#include "daemon/base/errand.h"
#include "daemon/jobs/jobs.h"
#include "daemon/launch/launch.h"
#include "daemon/launch/launcher.h"
#include "daemon/run/run.h"
#include "proto/err.h"

struct killing {
    struct runner *r;
    int64_t job;
    kill_done *done;
    struct killed killed;
};

/* Runs on the thread that starts supervisors, so that it never kills one that is started later. */
static void work(void *arg)
{
    struct killing *k = arg;

    launch_kill(k->r->jobs->folder, k->job, k->killed.who, sizeof k->killed.who);
}

static void after_work(void *arg)
{
    struct killing *k = arg;
    struct job *j = jobs_find(k->r->jobs, k->job);

    if (j)
        j->killing = false;
    if (j && !k->r->stopping)
        k->done(k->r, j, &k->killed);
    free(k);
}

static void answered(void *arg, bool gone, bool dying, const char *who, const char *one, const struct err *err)
{
    struct killing *k = arg;

    k->killed.gone = gone;
    k->killed.dying = dying;
    snprintf(k->killed.who, sizeof k->killed.who, "%s", who);
    snprintf(k->killed.one, sizeof k->killed.one, "%.159s", one);
    snprintf(k->killed.why, sizeof k->killed.why, "%.159s", err ? err->msg : "");
    after_work(k);
}

/* Only detd-launch can kill processes of other users, and the lock proves nothing about them. */
static void ask(struct job *j, struct killing *k)
{
    struct err err;

    j->killing = true;
    if (launcher_kill(k->r->launcher, j->row.ticket, answered, k, &err) < 0)
        answered(k, false, false, "", "", &err);
}

void kill_begin(struct runner *r, struct job *j, kill_done *done)
{
    struct killing *k = j->killing ? NULL : malloc(sizeof *k);

    if (!k)
        return;
    *k = (struct killing){ .r = r, .job = j->row.id, .done = done };
    if (j->row.ticket[0]) {
        ask(j, k);
        return;
    }
    j->killing = errands_add(r->jobs->errands, work, after_work, k) == 0;
    if (!j->killing)
        free(k);
}

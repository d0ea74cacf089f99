#include "daemon/run/spent.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/errand.h"
#include "daemon/jobs/jobs.h"
#include "daemon/launch/launch.h"
#include "daemon/store/store.h"
#include "proto/err.h"

enum { SCAN_A_TURN = 500 };

struct spent {
    struct jobs *jobs;
    const bool *stopping;
    int64_t job; /* 0: all jobs in `dir` */
    DIR *dir;
    bool more;
};

static void remove_spool(const struct spent *s, int64_t job)
{
    struct job_row row;
    struct err err;

    if (!launch_has_spool(s->jobs->folder, job) || store_get_job(s->jobs->store, job, &row, &err) < 0)
        return;
    if (job_is_done(row.state) && !job_has_unread(&row))
        launch_drop_spool(s->jobs->folder, &row, store_id(s->jobs->store));
}

static void scan(struct spent *s)
{
    const struct dirent *entry = NULL;

    for (int i = 0; i < SCAN_A_TURN && (entry = readdir(s->dir)); i++) {
        char *end;
        long long job = strtoll(entry->d_name, &end, 10);

        if (job > 0 && !*end)
            remove_spool(s, job);
    }
    s->more = entry != NULL;
}

static void work(void *arg)
{
    struct spent *s = arg;

    if (s->dir)
        scan(s);
    else
        remove_spool(s, s->job);
}

static void after(void *arg)
{
    struct spent *s = arg;

    if (s->more && !*s->stopping && errands_add(s->jobs->errands, work, after, s) == 0)
        return;
    if (s->dir)
        closedir(s->dir);
    free(s);
}

/* If this cannot be begun, the next start of detd removes the spool. */
static void begin(const struct spent *what)
{
    struct spent *s = malloc(sizeof *s);

    if (s)
        *s = *what;
    if (s && errands_add(s->jobs->errands, work, after, s) == 0)
        return;
    if (what->dir)
        closedir(what->dir);
    free(s);
}

void spent_job(struct jobs *jobs, const struct job *j)
{
    if (job_is_done(j->row.state) && j->life.phase == LIFE_IDLE && j->hidden_until == 0 && j->row.attempt > 0)
        begin(&(struct spent){ .jobs = jobs, .job = j->row.id });
}

void spent_scan(struct jobs *jobs, const bool *stopping)
{
    DIR *dir = opendir(jobs->folder);

    if (dir)
        begin(&(struct spent){ .jobs = jobs, .stopping = stopping, .dir = dir });
}

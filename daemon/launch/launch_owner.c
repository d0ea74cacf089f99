/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/launch_owner.c - the owner of a job folder: its database and
 * its job. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/launch/launch.h"
#include "daemon/launch/launch_impl.h"
#include "daemon/store/store.h"
#include "daemon/base/text.h"
#include "proto/err.h"

enum { PATH_ROOM = LAUNCH_PATH_ROOM };

/* ---- the existing folder ---- */

int launch_read_owner(const char *jobs_dir, int64_t job, struct launch_owner *ret, struct err *err)
{
    char path[PATH_ROOM], line[64] = "";
    FILE *f;

    *ret = (struct launch_owner){ .store_id = "old" };
    launch_own_path(path, jobs_dir, job, "store");
    f = launch_read_plain(path);
    if (!f)
        return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(err, "open '%s'", path);
    ret->store_id[0] = '\0';
    if (fgets(ret->store_id, sizeof ret->store_id, f) && fgets(line, sizeof line, f))
        ret->submitted = strtod(line, NULL);
    fclose(f);
    ret->store_id[strcspn(ret->store_id, "/\n")] = '\0';
    if (strcmp(ret->store_id, "old") == 0) /* no database is called so: detd did not write this file */
        ret->submitted = 0;
    return 0;
}

int launch_write_owner(const struct launch_request *rq, struct err *err)
{
    char path[PATH_ROOM];
    struct text t = { 0 };
    int rc;

    text_addf(&t, "%s\n", rq->store_id);
    text_real(&t, rq->submitted);
    text_add(&t, "\n");
    launch_own_path(path, rq->jobs_dir, rq->job, "store");
    rc = t.failed ? err_set(err, -ENOMEM, "out of memory") : launch_write_durably(path, t.p, err);
    text_free(&t);
    return rc;
}

bool launch_owner_is(const struct launch_owner *o, const char *store_id, double submitted)
{
    return strcmp(o->store_id, store_id) == 0 && (o->submitted == 0 || o->submitted == submitted);
}

bool launch_is_of_another(const struct launch_request *rq, const struct launch_owner *o)
{
    if (strcmp(o->store_id, "old") == 0)
        return rq->last_seq == 0 && rq->attempt <= 1 && launch_has_spool(rq->jobs_dir, rq->job);
    return !launch_owner_is(o, rq->store_id, rq->submitted);
}

/* The new name tells which database the folder belongs to. For this database it tells when the folder's job was
 * submitted. */
int launch_move_aside(struct launch_request *rq, const struct launch_owner *o, struct err *err)
{
    char from[PATH_ROOM], to[PATH_ROOM + sizeof rq->moved], id[sizeof o->store_id], held[PATH_ROOM], held_to[PATH_ROOM + sizeof rq->moved];

    snprintf(id, sizeof id, "%s", o->store_id);
    if (strcmp(id, rq->store_id) == 0)
        snprintf(id, sizeof id, "%.0f", o->submitted);
    launch_job_path(from, rq->jobs_dir, rq->job, "");
    launch_held_path(held, rq->jobs_dir, rq->job, "");
    for (int i = 1;; i++) {
        snprintf(rq->moved, sizeof rq->moved, i == 1 ? "%lld.%.40s" : "%lld.%.40s.%d", (long long)rq->job, id, i);
        snprintf(to, sizeof to, "%s/%s", rq->jobs_dir, rq->moved);
        snprintf(held_to, sizeof held_to, "%s/../held/%s", rq->jobs_dir, rq->moved);
        if (!launch_is_there(to, NULL) && access(held_to, F_OK) != 0)
            break;
    }
    if ((rename(held, held_to) < 0 && errno != ENOENT) || (rename(from, to) < 0 && errno != ENOENT)) {
        rq->moved[0] = '\0';
        return err_sys(err, "move '%s', which is of another job, to '%s'", from, to);
    }
    return 0;
}

int launch_is_of(const char *jobs_dir, const struct job_row *row, const char *store_id, struct err *err)
{
    struct launch_owner owner;
    int rc = launch_read_owner(jobs_dir, row->id, &owner, err);

    if (rc < 0)
        return rc;
    return strcmp(owner.store_id, "old") == 0 ? row->attempt > 0 : launch_owner_is(&owner, store_id, row->submitted);
}

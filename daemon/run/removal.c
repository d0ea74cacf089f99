#include "daemon/run/removal.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/errand.h"
#include "daemon/jobs/event.h"
#include "daemon/jobs/jobs.h"
#include "daemon/launch/launch.h"
#include "daemon/launch/launcher.h"
#include "daemon/base/log.h"
#include "proto/report.h"

/* WAIT_TICKS: longer than run.on_end may take, and shorter than detctl waits for an answer. */
enum { ENTRIES_A_TURN = 200, WAIT_TICKS = 55, REFUSALS_MAX = 30 };
enum { AGAIN_S = 5, RESTS_MAX = 9, SILENT_RESTS_MAX = 3 }; /* up to 43 minutes; up to 40 s if only detd-launch is missing */

/* ---- remains of removed jobs ---- */

static void look_for_next(struct removals *r);

/* Runs on the thread. The folder is removed before the rows: then only a folder that still exists needs a note. */
static void work(void *arg)
{
    struct removals *r = arg;
    struct jobs *jobs = r->jobs;

    r->rc = r->row.id ? 0 : store_next_removed(jobs->store, r->after, &r->row, &r->err);
    if (r->rc == 0 && r->row.id)
        r->rc = launch_remove_folder(jobs->folder, &r->row, store_id(jobs->store), ENTRIES_A_TURN, &r->err);
    if (r->rc == LAUNCH_ITS_USERS && r->asked != r->row.id) {
        int rc = launch_held_ticket(jobs->folder, r->row.id, r->ticket, &r->lock, &r->err);

        r->rc = rc < 0 ? rc : r->rc;
    }
}

/* Nothing is under way any more. Remains are looked at again, later each time: a process that holds a folder may leave,
 * and a full disk may get room. */
static void rest(struct removals *r, bool left)
{
    r->busy = false;
    if (*r->stopping) /* the next detd continues */
        return;
    if (r->again) {
        removal_resume(r);
    } else if (left) {
        if (r->silent && r->rests > SILENT_RESTS_MAX)
            r->rests = SILENT_RESTS_MAX;
        r->again_in = AGAIN_S << r->rests;
        r->rests += r->rests < RESTS_MAX;
    }
}

static void next_job(struct removals *r)
{
    r->after = r->row.id;
    r->row.id = r->refused = 0;
    look_for_next(r);
}

static void look_from(struct removals *r, int64_t after)
{
    r->busy = true;
    r->passed = r->silent = false;
    if (after == 0)
        r->found = 0;
    r->after = after;
    r->row.id = r->asked = r->refused = 0;
    look_for_next(r);
}

static void swept(void *arg, int rc, int64_t more, const struct err *err)
{
    struct removals *r = arg;
    int64_t job = r->sweeping;

    (void)err;
    if (rc == 0 && more && !*r->stopping) {
        store_sweep(r->jobs->store, job, now_s(), swept, r);
        return;
    }
    r->sweeping = 0;
    r->left = r->left || rc < 0;
    if (r->busy)
        r->again = true;
    else if (rc < 0 || *r->stopping)
        rest(r, true);
    else
        look_from(r, r->passed ? 0 : job);
}

/* The folder is gone, and the rows follow. On a full disk they wait until folders of other removed jobs make room:
 * removal_resume() looks for such folders during the sweep. */
static void sweep(struct removals *r)
{
    if (r->sweeping) {
        r->passed = r->passed || r->row.id != r->sweeping;
        next_job(r);
        return;
    }
    r->sweeping = r->row.id;
    r->busy = false;
    store_sweep(r->jobs->store, r->sweeping, now_s(), swept, r);
    if (r->again)
        removal_resume(r);
}

static void look_on(struct removals *r, const char *why)
{
    if (!r->told) /* told once, although it is tried again and again */
        log_line("warning", "job %lld was removed, but its folder cannot be removed yet: %s", (long long)r->row.id, why);
    if (r->found++ == 0)
        r->found_job = r->row.id;
    r->left = true;
    next_job(r);
}

/* Looks once more, to find the folder empty. */
static void cleared(void *arg, int64_t job, int status, const char *why)
{
    struct removals *r = arg;

    (void)job;
    r->silent = r->silent || status == LAUNCH_UNWATCHED;
    if (*r->stopping)
        rest(r, true);
    else if (status == 0)
        look_for_next(r);
    else if (status == SUP_EXIT_REFUSED && r->refused++ < REFUSALS_MAX) /* most often its processes are on their way out */
        r->later = true;
    else if (status == 128 + SIGKILL) /* other folders first: the user may make files in this one faster than they are removed */
        look_on(r, "removing its files took too long and is tried again");
    else
        look_on(r, why[0] ? why : "it holds files that its user may not remove");
}

static void have_cleared(struct removals *r)
{
    if (r->silent) {
        close(r->lock);
        look_on(r, "detd-launch does not answer");
        return;
    }
    r->asked = r->row.id;
    if (launcher_clear(r->launcher, r->ticket, r->lock, cleared, r, &r->err) < 0) {
        r->silent = launcher_trouble(r->launcher)[0] != '\0';
        look_on(r, r->err.msg);
    }
}

static void after_work(void *arg)
{
    struct removals *r = arg;

    if (*r->stopping && r->rc == LAUNCH_ITS_USERS && r->asked != r->row.id)
        close(r->lock);
    if (*r->stopping || (r->rc < 0 && !r->row.id)) {
        rest(r, true);
    } else if (r->rc > 0) {
        look_for_next(r);
    } else if (r->rc == LAUNCH_ITS_USERS && r->asked != r->row.id) {
        have_cleared(r);
    } else if (r->rc < 0) {
        look_on(r, r->err.msg);
    } else if (r->row.id) {
        sweep(r);
    } else {
        r->held_up = r->found;
        r->held_job = r->found_job;
        r->told = r->found > 0;
        rest(r, r->left);
    }
}

static void look_for_next(struct removals *r)
{
    if (*r->stopping || errands_add(r->jobs->errands, work, after_work, r) < 0)
        rest(r, true);
}

void removal_resume(struct removals *r)
{
    r->again = r->busy;
    if (r->busy)
        return;
    r->left = false;
    look_from(r, 0);
}

/* ---- removing a job ---- */

struct leaving {
    struct leaving *next; /* in the list of waiting ones */
    struct removals *r;
    int64_t id;
    uid_t uid;     /* of its user */
    int64_t bytes; /* that it takes of this user's share of the database */
    int ticks;     /* ticks that it may still wait */
    char text[JOB_REASON_MAX + 1];
    store_done *done;
    void *arg;
};

static void removed(void *arg, int rc, int64_t value, const struct err *err)
{
    struct leaving *l = arg;
    struct jobs *jobs = l->r->jobs;
    struct user_share *share = user_shares_of(&jobs->shares, l->uid);
    struct job *j = jobs_find(jobs, l->id);

    (void)value;
    if (j)
        j->leaving = false;
    if (rc == 0) {
        jobs_forget(jobs, l->id);
        event_tell(jobs->events, 0, "info", "removed", l->text, now_s());
        log_line("info", "removed: %s", l->text);
        l->r->rests = 0;
        l->r->told = false;
        if (share)
            share->stored -= l->bytes;
        removal_resume(l->r);
    }
    l->done(l->arg, rc, l->id, err);
    free(l);
}

static bool is_to_be_stored(const struct job *j)
{
    return j->wishes || j->unsaved || j->reopening || j->hidden_until || jobs_keeps(j);
}

/* True while the job's processes are on their way out, or its end is on its way to the disk. */
static bool is_to_wait(const struct job *j)
{
    return j && (j->life.phase != LIFE_IDLE || j->sup || is_to_be_stored(j));
}

static void begin(struct leaving *l)
{
    struct jobs *jobs = l->r->jobs;
    struct job *j = jobs_find(jobs, l->id);

    if (j) {
        j->leaving = true;
        l->bytes = jobs_stored(jobs, j->row.reported); /* its last reports may have come while this waited */
    }
    store_remove(jobs->store, l->id, l->text, now_s(), removed, l);
}

static void give_up(struct leaving *l, const char *why)
{
    struct err err;

    err_field(&err, ERR_STATE, "id", "job %lld was not removed and stays as it is; ask again later: %s", (long long)l->id, why);
    l->done(l->arg, ERR_STATE, l->id, &err);
    free(l);
}

static void tell_waited(struct leaving *l, const struct job *j)
{
    char why[400], trouble[256];

    store_trouble(l->r->jobs->store, trouble, sizeof trouble);
    if (is_to_be_stored(j))
        snprintf(why, sizeof why, "its end is not on the disk after %d s%s%s", WAIT_TICKS, trouble[0] ? ": " : "", trouble);
    else
        snprintf(why, sizeof why, "its processes have not left after %d s%s%s", WAIT_TICKS, j->trouble[0] ? ": " : "", j->trouble);
    give_up(l, why);
}

void removal_tick(struct removals *r)
{
    struct leaving *all = r->waiting;

    if (r->again_in > 0 && --r->again_in == 0)
        removal_resume(r);
    if (r->later) {
        r->later = false;
        r->asked = 0;
        look_for_next(r);
    }
    r->waiting = NULL;
    for (struct leaving *l = all, *next; l; l = next) {
        const struct job *j = jobs_find(r->jobs, l->id);

        next = l->next;
        if (!is_to_wait(j)) {
            begin(l);
        } else if (l->ticks-- == 0) {
            tell_waited(l, j);
        } else {
            l->next = r->waiting;
            r->waiting = l;
        }
    }
}

void removal_stop(struct removals *r)
{
    struct leaving *all = r->waiting;

    r->waiting = NULL;
    for (struct leaving *l = all, *next; l; l = next) {
        next = l->next;
        give_up(l, "the daemon is stopping");
    }
}

/* A job that is not in memory ended long ago; the store checks that, too. */
static int check_done(const struct job *j, struct err *err)
{
    long long id = j ? j->row.id : 0;

    if (j && !job_is_done(j->row.state))
        return err_field(err, ERR_STATE, "id", "job %lld is %s: only jobs that have ended can be removed; `detctl cancel %lld` ends it", id,
                         job_state_name(j->row.state), id);
    return j && j->leaving ? err_field(err, ERR_STATE, "id", "job %lld is being removed", id) : 0;
}

int removal_begin(struct removals *r, const struct job_row *row, const char *by, store_done *done, void *arg, struct err *err)
{
    const struct job *j = jobs_find(r->jobs, row->id);
    struct leaving *l;
    int rc = check_done(j, err);

    if (rc < 0)
        return rc;
    if (*r->stopping)
        return err_field(err, ERR_STATE, "id", "job %lld cannot be removed now: the daemon is stopping", (long long)row->id);
    l = malloc(sizeof *l);
    if (!l)
        return err_set(err, -ENOMEM, "out of memory");
    *l = (struct leaving){
        .r = r, .id = row->id, .uid = row->uid, .bytes = jobs_stored(r->jobs, row->reported), .ticks = WAIT_TICKS, .done = done, .arg = arg
    };
    snprintf(l->text, sizeof l->text, "job %lld ('%s' of %s, %s) was removed by %s", (long long)row->id, row->name, row->user,
             job_state_name(row->state), by);
    if (is_to_wait(j)) {
        l->next = r->waiting;
        r->waiting = l;
    } else {
        begin(l);
    }
    return 0;
}

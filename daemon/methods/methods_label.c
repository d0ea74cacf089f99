/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/methods/methods_label.c - job.label: a note and tags of a job,
 * whether it lives or has ended. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/socket/conn.h"
#include "daemon/daemon.h"
#include "daemon/job/label.h"
#include "daemon/methods/methods.h"
#include "daemon/store/store.h"
#include "proto/err.h"

enum { TRIES = 5 }; /* if others change them at the same moment */

struct labelling {
    struct request *rq;
    int64_t id;
    const char *note, *changes; /* from the request; NULL: stays */
    struct job_row before, after;
    int tries, rc;
    struct err err;
};

static void finish(struct labelling *l, int rc, const struct err *err)
{
    request_granted(l->rq, rc, err);
    free(l);
}

static void work(void *arg)
{
    struct labelling *l = arg;
    const struct caller *c = &l->rq->caller;

    l->rc = store_get_job(l->rq->d->store, l->id, &l->before, &l->err);
    if (l->rc == 0 && !c->admin && c->uid != l->before.uid)
        l->rc = err_field(&l->err, ERR_DENIED, "id", "job %lld belongs to %s", (long long)l->id, l->before.user);
    l->after = l->before;
    if (l->rc == 0 && l->changes)
        l->rc = label_change(l->after.tags, l->changes, &l->err);
    if (l->rc == 0 && l->note)
        l->rc = label_check_note(l->note, &l->err);
    if (l->rc == 0 && l->note)
        snprintf(l->after.note, sizeof l->after.note, "%s", l->note);
}

static void answer(struct labelling *l)
{
    struct job *j = jobs_find(&l->rq->d->jobs, l->id);

    if (j) {
        memcpy(j->row.note, l->after.note, sizeof j->row.note);
        memcpy(j->row.tags, l->after.tags, sizeof j->row.tags);
        job_changed(&l->rq->d->jobs, j);
    }
    l->rq->result = json_pack("{s:s, s:o}", "note", l->after.note, "tags", label_json(l->after.tags));
}

static void begin(struct labelling *l);

static void stored(void *arg, int rc, int64_t value, const struct err *err)
{
    struct labelling *l = arg;

    (void)value;
    if (rc == STORE_CHANGED && l->tries++ < TRIES) {
        begin(l);
        return;
    }
    if (rc == STORE_CHANGED)
        rc = err_field(&l->err, ERR_STATE, "id", "job %lld is being changed by other requests; try again", (long long)l->id);
    if (rc == 0)
        answer(l);
    finish(l, rc, rc < 0 && l->err.code ? &l->err : err);
}

static bool changes_nothing(const struct labelling *l)
{
    return strcmp(l->before.note, l->after.note) == 0 && strcmp(l->before.tags, l->after.tags) == 0;
}

static void after(void *arg)
{
    struct labelling *l = arg;

    if (l->rc < 0) {
        finish(l, l->rc, &l->err);
        return;
    }
    if (changes_nothing(l)) {
        stored(l, 0, 0, &l->err);
        return;
    }
    request_note(l->rq, l->id, "label");
    store_label(l->rq->d->store, &l->before, &l->after, stored, l);
}

static void begin(struct labelling *l)
{
    int rc = request_work(l->rq, work, after, l, &l->err);

    if (rc < 0)
        finish(l, rc, &l->err);
}

int do_job_label(struct request *rq, struct err *err)
{
    const char *note = NULL, *changes = NULL;
    json_int_t id;
    int rc = params_unpack(rq, err, "{s:I, s?s, s?s}", "id", &id, "note", &note, "tags", &changes);
    struct labelling *l;

    if (rc < 0)
        return rc;
    if (!note && !changes)
        return err_field(err, ERR_INPUT, "note", "job.label: a note, tags, or both");
    l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, -ENOMEM, "out of memory");
    *l = (struct labelling){ .rq = rq, .id = id, .note = note, .changes = changes };
    begin(l);
    return REQUEST_LATER;
}

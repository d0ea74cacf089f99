/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/methods/request_note.c - helpers of the methods: unpacking
 * parameters, and noting the user that asked for a change. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/daemon.h"
#include "daemon/jobs/jobs.h"
#include "daemon/methods/methods.h"
#include "daemon/jobs/audit.h"
#include "daemon/socket/conn.h"
#include "proto/err.h"

/* method_call() has compared names and types with the table. The only error left is an optional member given as
 * null. */
int params_unpack(struct request *rq, struct err *err, const char *fmt, ...)
{
    json_error_t where;
    va_list ap;
    int rc;

    va_start(ap, fmt);
    rc = json_vunpack_ex(rq->params, &where, 0, fmt, ap);
    va_end(ap);
    return rc == 0 ? 0 : err_set(err, ERR_INPUT, "params: %s", where.text);
}

void request_note(struct request *rq, int64_t job, const char *fmt, ...)
{
    va_list ap;

    free(rq->note);
    va_start(ap, fmt);
    if (vasprintf(&rq->note, fmt, ap) < 0)
        rq->note = NULL;
    va_end(ap);
    rq->note_job = job;
}

void request_granted(struct request *rq, int rc, const struct err *err)
{
    if (rc == 0 && rq->note)
        audit_add(&rq->d->audit, rq->note_job, rq->caller.uid, NULL, "%s", rq->note);
    request_done(rq, rc, err);
}

void request_carried_out(struct request *rq, int rc, const struct err *err)
{
    const char *unstored = "not on the disk yet: the disk is full. It is stored when there is room";

    if (rc == JOBS_REMEMBERED)
        unstored = "not on the disk yet: the disk is full. It is stored when there is room, and forgotten if detd ends before";
    if (rc > 0)
        json_object_set_new(rq->result, "unstored", json_string(unstored));
    request_granted(rq, rc > 0 ? 0 : rc, err);
}

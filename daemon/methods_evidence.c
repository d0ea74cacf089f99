/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/methods_evidence.c - run.diff: two jobs' evidence, compared on a thread of the pool. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/methods.h"
#include "daemon/store.h"
#include "proto/err.h"
#include "proto/evidence_diff.h"

/* Read one by one, where chains do not tell: about a tenth of a second, so that nobody keeps the pool for long. */
enum { RECORDS_A_CALL = 100000 };

struct diff {
    struct request *rq;
    int64_t id[2];
    struct evidence_diff_options opt;
    bool known[2]; /* in memory, so it exists */
    json_t *result;
    int rc;
    struct err err;
};

static const char *const members[2] = { "a", "b" };

static int open_evidence(const struct diff *f, int k, struct evidence **ret, struct err *err)
{
    char folder[CONFIG_PATH_MAX + 64];
    struct job_row row;
    int rc = f->known[k] ? 0 : store_get_job(f->rq->d->store, f->id[k], &row, err);

    if (rc == 0) {
        snprintf(folder, sizeof folder, "%s/%lld", f->rq->d->jobs_dir, (long long)f->id[k]);
        rc = evidence_open(folder, ret, err);
        if (rc == -ENOENT)
            rc = err_set(err, ERR_NOTFOUND, "job %lld has no evidence", (long long)f->id[k]);
        else if (rc == ERR_INPUT)
            rc = err->code = ERR_CORRUPT;
    }
    if (rc < 0)
        snprintf(err->field, sizeof err->field, "%s", members[k]);
    return rc;
}

static int compare(struct diff *f, const struct evidence *a, const struct evidence *b, struct err *err)
{
    struct evidence_diff found;
    int rc = evidence_diff(a, b, &f->opt, &found, err);

    if (rc < 0)
        return rc;
    f->result = evidence_diff_json(evidence_head(a), &found);
    return f->result ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static void diff_work(void *arg)
{
    struct diff *f = arg;
    struct evidence *a = NULL, *b = NULL;

    f->rc = open_evidence(f, 0, &a, &f->err);
    if (f->rc == 0)
        f->rc = open_evidence(f, 1, &b, &f->err);
    if (f->rc == 0)
        f->rc = compare(f, a, b, &f->err);
    evidence_close(a);
    evidence_close(b);
}

static void diff_after(void *arg)
{
    struct diff *f = arg;

    f->rq->result = f->result;
    request_done(f->rq, f->rc, &f->err);
    free(f);
}

int do_run_diff(struct request *rq, struct err *err)
{
    json_int_t a, b, from = 1, begin = 0, to = 0, missing = 0, lacking = 0;
    int rc = params_unpack(rq, err, "{s:I, s:I, s?I, s?I, s?I, s?I, s?I}", "a", &a, "b", &b, "from", &from, "begin", &begin, "to", &to,
                           "missing", &missing, "lacking", &lacking);
    struct diff *f = rc == 0 ? calloc(1, sizeof *f) : NULL;

    if (rc < 0)
        return rc;
    if (!f)
        return err_set(err, -ENOMEM, "out of memory");
    *f = (struct diff){ .rq = rq,
                        .id = { a, b },
                        .opt = { .from = from, .begin = begin, .to = to, .missing = missing, .lacking = lacking, .limit = RECORDS_A_CALL },
                        .known = { jobs_find(&rq->d->jobs, a) != NULL, jobs_find(&rq->d->jobs, b) != NULL } };
    rc = request_work(rq, diff_work, diff_after, f, err);
    if (rc < 0)
        free(f);
    return rc;
}

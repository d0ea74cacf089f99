#include "supervisor/welcome.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/line.h"
#include "proto/report.h"
#include "supervisor/job.h"
#include "supervisor/ranks/log.h"
#include "supervisor/spool/spool.h"

enum { MAX_NONCE = 128 };

int welcome_hello(const struct job_options *o, int attempt, const struct spool *spool, char *ret, size_t size, struct err *err)
{
    struct line l;

    line_begin(&l, ret, size, "hello");
    line_int(&l, "protocol", SUP_PROTOCOL);
    line_int(&l, "job", o->job);
    line_int(&l, "attempt", attempt);
    line_text(&l, "nonce", o->nonce, MAX_NONCE);
    line_int(&l, "pid", getpid());
    line_bool(&l, "beats", true);
    line_int(&l, "first", (int64_t)spool_first(spool));
    return line_done(&l, err);
}

int welcome_take(struct spool *spool, const json_t *msg, struct err *err)
{
    const char *store_id = json_string_value(json_object_get(msg, "store_id"));
    json_int_t last = json_integer_value(json_object_get(msg, "last_seq"));
    const char *known = spool_store_id(spool);
    int rc = 0;

    if (!store_id || !store_id[0])
        return err_set(err, ERR_PROTO, "welcome: store_id is missing");
    if (known[0] && strcmp(known, store_id) != 0)
        return err_set(err, ERR_STATE, "detd has another database (store %s, the spool belongs to %s); reports are kept", store_id, known);
    if (last < 0 || (uint64_t)last > spool_last(spool))
        return err_set(err, ERR_STATE, "detd has report %lld of this job, the spool ends at %llu; reports are kept", (long long)last,
                       (unsigned long long)spool_last(spool));
    if (!known[0])
        rc = spool_set_store_id(spool, store_id, err);
    if (rc < 0)
        return rc;
    if ((uint64_t)last < spool_acked(spool))
        job_log("detd had %llu reports and now has %lld: its database is a copy from before", (unsigned long long)spool_acked(spool),
                (long long)last);
    spool_unack(spool, (uint64_t)last);
    spool_ack(spool, (uint64_t)last);
    job_log("connected to detd, which has %lld of %llu reports", (long long)last, (unsigned long long)spool_last(spool));
    return 0;
}

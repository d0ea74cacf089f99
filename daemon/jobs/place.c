#include "daemon/jobs/place.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <unistd.h>

#include "daemon/base/bounds.h"
#include "daemon/jobs/jobs.h"
#include "proto/err.h"

static void count(struct bound_load *load, uid_t own, uid_t of, int jobs, uid_t asks)
{
    load->all += jobs;
    load->guests += of != 0 && of != own ? jobs : 0;
    load->user += of == asks ? jobs : 0;
}

int place_take(struct jobs *jobs, uid_t uid, bool admin, struct user_share **ret, struct err *err)
{
    struct user_share *share = user_shares_of(&jobs->shares, uid);
    struct bound_load load = { 1, 1, 1 };
    uid_t own = geteuid(); /* of the daemon; there may be 10,000 jobs */
    int rc;

    if (!share)
        return err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; i < jobs->shares.count; i++)
        count(&load, own, jobs->shares.all[i]->uid, jobs->shares.all[i]->coming, uid);
    for (int i = 0; i < jobs->count; i++)
        count(&load, own, jobs->all[i]->row.uid, !job_is_done(jobs->all[i]->row.state), uid);
    rc = bound_check(BOUND_LIVE_JOBS, &load, admin, err);
    if (rc == 0)
        rc = bound_check_share(BOUND_DATABASE, jobs->stored_max ? jobs->stored_max : bounds[BOUND_DATABASE].share,
                               &(struct bound_load){ .user = share->stored + 1 }, admin, err);
    if (rc < 0)
        return rc;
    share->coming++;
    *ret = share;
    return 0;
}

void place_give_back(struct user_share *share)
{
    if (share)
        share->coming--;
}

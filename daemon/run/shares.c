#include "daemon/run/shares.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/job/sched.h"
#include "daemon/jobs/jobs.h"
#include "daemon/store/store.h"
#include "proto/err.h"

enum { HOURS = 7 * 24, HOUR_S = 3600, STORE_S = 60 };

struct share {
    uint32_t uid;
    char user[JOB_USER_MAX + 1];
    int64_t hour;              /* the newest of the hours below */
    double slot_s[2][HOURS];   /* CPU slots, GPUs; the place of an hour is hour % HOURS */
    double sum[2], unsaved[2]; /* unsaved: of the newest hour */
};

static struct share *find(const struct shares *s, uint32_t uid)
{
    for (int i = 0; i < s->count; i++)
        if (s->all[i].uid == uid)
            return &s->all[i];
    return NULL;
}

static struct share *find_or_add(struct shares *s, uint32_t uid, const char *user, int64_t hour)
{
    struct share *u = find(s, uid);
    struct share *more = u ? NULL : realloc(s->all, ((size_t)s->count + 1) * sizeof *more);

    if (more) {
        s->all = more;
        u = &more[s->count++];
        *u = (struct share){ .uid = uid, .hour = hour };
    }
    if (u)
        snprintf(u->user, sizeof u->user, "%s", user);
    return u;
}

static void save(struct shares *s)
{
    for (struct share *u = s->all; u < s->all + s->count; u++)
        for (int cuda = 0; cuda < 2; cuda++) {
            struct store_grant g = { .hour = u->hour, .uid = u->uid, .cuda = cuda, .slot_s = u->unsaved[cuda] };

            memcpy(g.user, u->user, sizeof g.user);
            if (g.slot_s > 0)
                store_grant(s->store, &g);
            u->unsaved[cuda] = 0;
        }
}

/* Hours that are older than seven days make room for new ones. */
static void go_to(struct share *u, int64_t hour)
{
    u->hour = u->hour < hour - HOURS ? hour - HOURS : u->hour;
    while (u->hour < hour) {
        u->hour++;
        u->slot_s[0][u->hour % HOURS] = u->slot_s[1][u->hour % HOURS] = 0;
    }
    for (int cuda = 0; cuda < 2; cuda++) {
        u->sum[cuda] = 0;
        for (int i = 0; i < HOURS; i++)
            u->sum[cuda] += u->slot_s[cuda][i];
    }
}

static void loaded(void *arg, const struct store_grant *g)
{
    struct shares *s = arg;
    struct share *u = find_or_add(s, g->uid, g->user, (int64_t)s->at / HOUR_S);

    if (u) /* a killed detd may have counted a few minutes more than it noted that it ran */
        u->slot_s[g->cuda][(g->hour < u->hour ? g->hour : u->hour) % HOURS] += g->slot_s;
}

int shares_open(struct shares *s, struct store *store, double running, struct err *err)
{
    int64_t hour = (int64_t)running / HOUR_S;
    int rc;

    *s = (struct shares){ .store = store, .at = running };
    rc = store_load_grants(store, hour - HOURS + 1, loaded, s, err);
    for (int i = 0; i < s->count; i++)
        go_to(&s->all[i], hour);
    return rc;
}

void shares_close(struct shares *s)
{
    if (s->store)
        save(s);
    free(s->all);
    *s = (struct shares){ 0 };
}

static void count(struct shares *s, const struct job *j, double span, int64_t hour)
{
    const struct sched_job view = {
        .cuda = j->row.cuda, .ranks = j->row.ranks, .ranks_per_gpu = j->row.ranks_per_gpu, .gpus_asked = j->row.gpus_asked
    };
    double slot_s = span * (j->row.gpus[0] ? sched_gpu_need(&view) : j->cpu_slots);
    struct share *u = slot_s > 0 ? find_or_add(s, j->row.uid, j->row.user, hour) : NULL;

    if (!u)
        return;
    u->slot_s[j->row.cuda][hour % HOURS] += slot_s;
    u->sum[j->row.cuda] += slot_s;
    u->unsaved[j->row.cuda] += slot_s;
}

void shares_tick(struct shares *s, const struct jobs *jobs, double running)
{
    int64_t hour = (int64_t)running / HOUR_S;
    double span = running - s->at;

    if ((int64_t)s->at / STORE_S != (int64_t)running / STORE_S)
        save(s);
    if ((int64_t)s->at / HOUR_S != hour)
        for (int i = 0; i < s->count; i++)
            go_to(&s->all[i], hour);
    s->at = running;
    for (int i = 0; i < jobs->count; i++)
        count(s, jobs->all[i], span, hour);
}

double shares_granted(const struct shares *s, uint32_t uid, bool cuda)
{
    const struct share *u = find(s, uid);

    return u ? u->sum[cuda] : 0;
}

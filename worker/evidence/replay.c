#include "worker/evidence/replay.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"

struct replay {
    const char *folder;
    struct evidence *evidence;
    struct evidence_head head; /* the part that both runs have: this run's head, at the lower of the two levels. Borrows its tensors */
    struct evidence_detail detail;
};

static bool equal(const struct hash128 *a, const struct hash128 *b)
{
    return a->lane[0] == b->lane[0] && a->lane[1] == b->lane[1];
}

static bool same_tensors(const struct evidence_head *a, const struct evidence_head *b)
{
    if (a->ntensors != b->ntensors)
        return false;
    for (int i = 0; i < a->ntensors; i++)
        if (a->tensor[i].count != b->tensor[i].count || a->tensor[i].gradient != b->tensor[i].gradient ||
            strcmp(a->tensor[i].name, b->tensor[i].name) != 0)
            return false;
    return true;
}

/* Details are read into memory of this run's sizes, so the sizes of the other run must be equal. */
static int check_head(const struct replay *r, const struct evidence_head *theirs, struct err *err)
{
    const char *other = NULL;

    if (!equal(&theirs->spec, &r->head.spec))
        other = "other keys";
    else if (!equal(&theirs->data, &r->head.data))
        other = "other data";
    else if (theirs->shards != r->head.shards || (theirs->tensors && r->head.tensors && !same_tensors(theirs, &r->head)))
        other = "another network";
    return other ? err_set(err, ERR_INPUT, "'%s' is the evidence of a run with %s", r->folder, other) : 0;
}

int replay_open(const char *folder, const struct evidence_head *head, struct replay **ret_replay, struct err *err)
{
    struct replay *r = calloc(1, sizeof *r);
    int rc;

    if (!r)
        return err_set(err, ERR_DEVICE, "out of memory: evidence");
    r->folder = folder;
    r->head = *head;
    rc = evidence_open(folder, &r->evidence, err);
    if (rc >= 0)
        rc = check_head(r, evidence_head(r->evidence), err);
    if (rc >= 0)
        rc = evidence_detail_new(&r->head, &r->detail, err);
    if (rc < 0) {
        replay_close(r);
        return rc;
    }
    r->head.tensors = r->head.tensors && evidence_head(r->evidence)->tensors;
    *ret_replay = r;
    return 0;
}

void replay_close(struct replay *r)
{
    if (!r)
        return;
    evidence_close(r->evidence);
    evidence_detail_free(&r->detail);
    free(r);
}

bool replay_tensors(const struct replay *r)
{
    return r->head.tensors;
}

bool replay_record(const struct replay *r, int64_t step, struct evidence_record *ret)
{
    return evidence_read(r->evidence, step, ret);
}

int replay_has(const struct replay *r, int64_t first, int64_t last, struct err *err)
{
    struct evidence_record was;

    for (int64_t step = first; step <= last; step++)
        if (!replay_record(r, step, &was))
            return err_set(err, ERR_INPUT, "'%s' has no evidence of step %lld", r->folder, (long long)step);
    return 0;
}

enum replay_found replay_compare(struct replay *r, const struct replay_step *now, struct evidence_difference *ret)
{
    struct evidence_record was;
    bool detail;

    if (!replay_record(r, now->record->step, &was))
        return REPLAY_NONE;
    detail = r->head.tensors && evidence_read_detail(r->evidence, now->record->step, &r->detail);
    return evidence_compare(&r->head, &was, detail ? &r->detail : NULL, now->record, detail ? now->detail : NULL, ret) ? REPLAY_DIFFERS
                                                                                                                       : REPLAY_EQUAL;
}

bool replay_promised(const struct replay *r, const struct evidence_record *now, const struct device *dev, char *buf, size_t size)
{
    struct evidence_record was;

    buf[0] = '\0';
    if (dev->host_memory || !replay_record(r, now->step, &was))
        return true;
    if (was.tier == TIER_OFF || now->tier == TIER_OFF)
        snprintf(buf, size, "tier off promises no equal bits");
    else if (was.tier != now->tier)
        snprintf(buf, size, "its tier was another one");
    else if (now->tier == TIER_RERUN && was.ranks != now->ranks)
        snprintf(buf, size, "tier rerun promises equal bits for as many ranks: there were %d, there are %d", was.ranks, now->ranks);
    return !buf[0];
}

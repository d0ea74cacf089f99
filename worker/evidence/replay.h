/* SPDX-License-Identifier: Apache-2.0 */ /* worker/evidence/replay.h - a run that is there already and is trained once more: an earlier attempt of this job, or the run that this one verifies
 * (errand.evidence). Its records are read, a step that was trained is held against them, and what its tiers promise of the two is known. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/evidence/evidence.h"
#include "worker/core/device.h"

struct replay;

/* What a step came to this time. */
struct replay_step {
    const struct evidence_record *record;
    const struct evidence_detail *detail; /* of the head's sizes */
};

/* Of the records in `folder`, of a run with that head; head and folder are borrowed. Caller closes. -ENOENT: there are none. ERR_INPUT: of other keys, data
 * or tensors. */
int replay_open(const char *folder, const struct evidence_head *head, struct replay **ret_replay, struct err *err);
void replay_close(struct replay *r);
/* Whether gradients and weights are compared too. */
bool replay_tensors(const struct replay *r);
/* ERR_INPUT: there is no record of one of these steps. */
int replay_has(const struct replay *r, int64_t first, int64_t last, struct err *err);
/* false: there is no record of the step. */
bool replay_record(const struct replay *r, int64_t step, struct evidence_record *ret);

enum replay_found {
    REPLAY_NONE, /* there is no record of the step, or none that this one can be held against */
    REPLAY_EQUAL,
    REPLAY_DIFFERS,
};
/* *ret: how it differs. */
enum replay_found replay_compare(struct replay *r, const struct replay_step *now, struct evidence_difference *ret);
/* Whether the tiers of both promise that they are equal, where this run's device is `dev`; else why not, in buf. */
bool replay_promised(const struct replay *r, const struct evidence_record *now, const struct device *dev, char *buf, size_t size);

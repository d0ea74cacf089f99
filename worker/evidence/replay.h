/* SPDX-License-Identifier: Apache-2.0 */ /* worker/evidence/replay.h - an existing run that is trained once more: an
 * earlier attempt of this job, or the run that this one verifies (errand.evidence). It reads the run's records,
 * compares a trained step with them, and knows the promises of both tiers. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/evidence/evidence.h"
#include "worker/core/device.h"

struct replay;

/* The result of a step this time. */
struct replay_step {
    const struct evidence_record *record;
    const struct evidence_detail *detail; /* of the head's sizes */
};

/* Opens the records in `folder`, of a run with that head; head and folder are borrowed. Caller closes. -ENOENT: there
 * are no records. ERR_INPUT: the records are of other keys, data or tensors. */
int replay_open(const char *folder, const struct evidence_head *head, struct replay **ret_replay, struct err *err);
void replay_close(struct replay *r);
/* Are gradients and weights compared too? */
bool replay_tensors(const struct replay *r);
/* ERR_INPUT: a record of these steps is missing. */
int replay_has(const struct replay *r, int64_t first, int64_t last, struct err *err);
/* false: there is no record of the step. */
bool replay_record(const struct replay *r, int64_t step, struct evidence_record *ret);

enum replay_found {
    REPLAY_NONE, /* the step has no record, or no record that can be compared with this one */
    REPLAY_EQUAL,
    REPLAY_DIFFERS,
};
/* *ret: the difference. */
enum replay_found replay_compare(struct replay *r, const struct replay_step *now, struct evidence_difference *ret);
/* Do the tiers of both promise that they are equal, if this run's device is `dev`? If not, buf tells why. */
bool replay_promised(const struct replay *r, const struct evidence_record *now, const struct device *dev, char *buf, size_t size);

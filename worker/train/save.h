/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/save.h - checkpoints of a running job: written, told of, found again. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/checkpoint/state.h"

struct err;
struct identity;
struct machine;
struct recorder;

struct keeper {
    const struct machine *machine;
    const char *store_id;      /* of the database that numbered the job, see ckpt.h */
    struct identity *identity; /* rank 0 */
    struct recorder *recorder;
    struct trained of;
    bool validates;
    int64_t saved_step; /* of the last checkpoint, -1: none; on other ranks than 0 of the last that was due */
};

/* After state->step. A step is saved once. Where the disk has no room, training goes on without it, and an event says so; a checkpoint that the job
 * is about to end with (`last`) waits for room instead. */
int keeper_save(struct keeper *k, const struct state *state, bool last, struct err *err);
/* Whether the checkpoint of that step was written, which rank 0 tells all. A collective. */
int keeper_saved(const struct keeper *k, int64_t step, bool *ret, struct err *err);
/* Rank 0 picks the newest good checkpoint, all ranks load it. state->step stays 0 where there is none. */
int keeper_resume(struct keeper *k, struct state *state, struct err *err);
/* Rank 0 puts that checkpoint aside, as one that is damaged: what was read of it is not what was saved. */
void keeper_reject(const struct keeper *k, int64_t step);

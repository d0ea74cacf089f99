/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/save.h - checkpoints of a running job: written, reported,
 * found again. */
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
    int64_t saved_step; /* of the last checkpoint, -1: no checkpoint; on ranks other than 0 of the last that was due */
};

/* Saves the state after state->step. A step is saved once. If the disk has no room, training continues without the
 * checkpoint, and an event tells it. With `last`, when the job is about to end, it waits for room instead. */
int keeper_save(struct keeper *k, const struct state *state, bool last, struct err *err);
/* Was the checkpoint of that step written? Rank 0 tells all. A collective. */
int keeper_saved(const struct keeper *k, int64_t step, bool *ret, struct err *err);
/* Rank 0 picks the newest good checkpoint, and all ranks load it. state->step stays 0 if there is no checkpoint. */
int keeper_resume(struct keeper *k, struct state *state, struct err *err);
/* Rank 0 sets that checkpoint aside as damaged: the data read differs from the data saved. */
void keeper_reject(const struct keeper *k, int64_t step);

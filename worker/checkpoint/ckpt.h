/* SPDX-License-Identifier: Apache-2.0 */ /* worker/checkpoint/ckpt.h - checkpoint folders: written whole under another
 * name, published by one rename, never rewritten, verified before use.
 *
 *   checkpoints/step-<n>/model.safetensors    parameters (OIHW, reference names): no job, time, number of ranks or tier
 *                        state.safetensors    momentum, open log window, best values, tier history ... as the trainer
 *                                             names them
 *                        manifest.json        {format, step, store_id, spec, files: {name: {bytes, hash}}, hash: of all
 *                                             this}, written last
 *   checkpoints/.tmp-step-<n>                 not published; left over ones are removed by ckpt_pick()
 *   checkpoints/step-<n>.bad                  found damaged, kept for inspection, never used
 *   best                                      a link to the best checkpoint's folder, for people and scripts
 *
 * hash is the 128-bit evidence hash (proto/hash/hash.h) with the file's name as kappa: it finds damage, not malice.
 * After a power cut either the old or the new state is there: files and folder are fsynced, then renamed, then the
 * parent is fsynced, and only then are old ones deleted. Rank 0 alone writes, publishes, picks and prunes; every rank
 * may open. `dir` is the checkpoints folder. Errors name the file. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/core/safetensors.h"

enum { CKPT_FORMAT = 1, CKPT_IDENTITY = 64 };

/* Owner of a checkpoint: a job never continues from another job's. "": not known, fits every job. */
struct ckpt_identity {
    char store_id[CKPT_IDENTITY]; /* of the database that numbered the job */
    char spec[CKPT_IDENTITY];     /* hash of the keys that decide the results */
};

/* Content of one file; the arrays stay the caller's. */
struct ckpt_part {
    const struct st_array *arrays;
    size_t narrays;
    const struct st_meta *meta;
    size_t nmeta;
};

/* Writes step's files, durably, under the temporary name (the folder `dir` is made when it is missing). Returns 0, or 1
 * when step-<n> exists already and verifies: then nothing is written and nothing must be published. A damaged step-<n>
 * is renamed away first. ret_bytes: of all files. */
int ckpt_write(const char *dir, int64_t step, const struct ckpt_identity *id, const struct ckpt_part *model, const struct ckpt_part *state,
               int64_t *ret_bytes, struct err *err);
/* Renames the temporary folder into place, durably. Everything reported up to step must be durable before. */
int ckpt_publish(const char *dir, int64_t step, struct err *err);
/* Deletes all checkpoints except: step `best` (-1: no best); the `keep` newest due ones, with steps that are multiples
 * of `every`, or `last`; as many of the others; and the newest that a longer job would share with this one. every 0:
 * only `last` is due. The newest of all always stays. */
struct ckpt_due {
    int64_t every, last;
    /* Would a longer job share the checkpoint of this step, so that it can continue from there? NULL: no checkpoint
     * stays for that reason */
    bool (*shared)(const void *arg, int64_t step);
    const void *arg;
};
int ckpt_prune(const char *dir, int keep, int64_t best, struct ckpt_due due, struct err *err);

/* Deletes the checkpoints of later steps, newest first. */
int ckpt_drop_after(const char *dir, int64_t step, struct err *err);

/* Makes `best`, beside the folder `dir`, a link to that of step-<n>, in one move. */
int ckpt_link_best(const char *dir, int64_t step, struct err *err);
/* Does that link lead to a checkpoint? */
bool ckpt_has_best(const char *dir);

/* Called with a sentence about every checkpoint that is passed over. */
typedef void ckpt_tell(void *arg, const char *text);
/* The newest step that verifies, 0 when there is no such step (also when dir does not exist). Damaged ones are renamed
 * away, temporary ones removed. A checkpoint of another identity is ERR_STATE, one of a newer format ERR_UNSUPPORTED.
 * They are not damaged, and no older checkpoint is taken instead. */
int ckpt_pick(const char *dir, const struct ckpt_identity *id, ckpt_tell *tell, void *arg, int64_t *ret_step, struct err *err);

/* Renames step-<n> to step-<n>.bad and replaces an existing one. */
int ckpt_set_aside(const char *dir, int64_t step, struct err *err);
/* The newest step up to `most` that verifies, 0 when there is no such step. Changes nothing, so it may be another job's
 * folder. Fails like ckpt_pick(). */
int ckpt_newest(const char *dir, const struct ckpt_identity *id, int64_t most, int64_t *ret_step, struct err *err);

struct ckpt {
    int64_t step, bytes;
    struct ckpt_identity id;
    struct safetensors *model, *state;
};
/* Verifies manifest, sizes and hashes, then opens both files. ERR_CORRUPT: damaged. Caller closes with ckpt_close(). id
 * NULL: any job's. */
int ckpt_open(const char *dir, int64_t step, const struct ckpt_identity *id, struct ckpt **ret_ckpt, struct err *err);
void ckpt_close(struct ckpt *c);
/* "DIR/step-<n>", the name in reports. -ENAMETOOLONG when it does not fit size bytes. */
int ckpt_path(const char *dir, int64_t step, char *ret, size_t size, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/checkpoint/identity.h - the identity of this attempt
 * (proto/identity.h): collected from the loaded files and the choices made, reported to detd-job, and kept as
 * identity.json in the job's folder, with the list of all choices. An attempt with another program, GPU or library is
 * thereby noticed. Rank 0 only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/hash/hash.h"
#include "proto/job/jobspec.h"

struct device;
struct err;
struct identity;
struct report;

struct identity_options {
    const char *job_dir, *precision;
    const char *other; /* folder of the run that is verified, to compare with; NULL: compare with the attempt before */
    const char *cfg;   /* file that describes the network; NULL: no such file */
    struct jobspec_init init[JOB_MAX_INITS]; /* files with weights to start from */
    int ninits;
    const char *spec;          /* hash of the keys that decide results, as text, see owner_keys() */
    struct hash128 train;      /* hash of the data, see index_hash() */
    const struct hash128 *val; /* NULL: no such set */
    struct device *dev;
    struct report *report;
};

/* Reads the program's and the libraries' files, and the environment. Borrows the targets of opt's pointers: job_dir,
 * other and init until the close, its other texts until this returns. Caller closes. */
int identity_open(const struct identity_options *opt, struct identity **ret_identity, struct err *err);
/* NULL is ignored. */
void identity_close(struct identity *id);
/* After `start` of an attempt that continues from a checkpoint of `step` (0: it begins anew): reports the identity,
 * which includes choices of earlier attempts and the weights of the first one's start. An event names the differences
 * from the attempt before. longer: the keys differ by a number of steps that leaves the steps so far the same. */
int identity_begin(struct identity *id, int64_t step, bool longer, struct err *err);
/* With a checkpoint: keeps the choices made so far, and reports the identity again if they differ from the reported
 * ones. An event names the changed ones, or the reason why they could not be kept. */
int identity_save(struct identity *id, struct err *err);

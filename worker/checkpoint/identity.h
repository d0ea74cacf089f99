/* SPDX-License-Identifier: Apache-2.0 */ /* worker/checkpoint/identity.h - the identity of this attempt (proto/identity.h): collected from what is loaded and chosen, told to detd-job, and kept as
 * identity.json in the job's folder, with the list of all choices, so that an attempt with another program, on another GPU or with another library is
 * noticed. Rank 0 alone. */
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
    const char *other; /* folder of the run that is verified: it is compared with that one's; NULL: with the attempt before */
    const char *cfg;   /* file that describes the network; NULL: there is none */
    struct jobspec_init init[JOB_MAX_INITS]; /* files with weights to start from */
    int ninits;
    const char *spec;          /* hash of the keys that decide results, as text, see owner_keys() */
    struct hash128 train;      /* of the data, see index_hash() */
    const struct hash128 *val; /* NULL: no such set */
    struct device *dev;
    struct report *report;
};

/* Reads the program's and the libraries' files, and the environment. What opt points to is borrowed; its texts until this returns, but job_dir, other
 * and init. Caller closes. */
int identity_open(const struct identity_options *opt, struct identity **ret_identity, struct err *err);
/* NULL is nothing. */
void identity_close(struct identity *id);
/* After `start` of an attempt that goes on after a checkpoint of `step` (0: it begins anew): reports the identity, choices of earlier attempts counted
 * and the weights that the first began with, and an event names what differs from the attempt before. longer: its keys do, by a number of steps with which those so far are
 * the same. */
int identity_begin(struct identity *id, int64_t step, bool longer, struct err *err);
/* With a checkpoint: keeps the choices made so far, and reports the identity again where they are others than were reported. An event names those that
 * have changed, or why they could not be kept. */
int identity_save(struct identity *id, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/split_options.h - options for reading and checking a job's
 * splits: from its keys to the options of check.h. */
#pragma once
#include <stdbool.h>

#include "worker/data/read/check.h"
#include "worker/data/read/frames/frames.h"
#include "worker/data/read/labels/labels.h"
#include "worker/data/set/census.h"

struct jobspec;
struct model_registry;

struct split_options {
    struct check_options check; /* points to the others and into the job: nothing is copied */
    struct frames_options frames;
    struct labels_options labels;
};

/* train: for val, the training split if its classes are known already; else NULL. It must outlive the options; so must
 * the job. */
void split_options(const struct model_registry *models, const struct jobspec *spec, bool val, const struct dataset *train, int threads,
                   struct split_options *ret);
/* The limit of this job for the objects of an image of the split. False: there is no limit. */
bool split_limit(const struct jobspec *spec, bool val, struct census_limit *ret);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/split_options.h - how a job's splits are read and checked: from its keys to what check.h takes. */
#pragma once
#include <stdbool.h>

#include "worker/data/read/check.h"
#include "worker/data/read/frames/frames.h"
#include "worker/data/read/labels/labels.h"

struct jobspec;
struct model_registry;

struct split_options {
    struct check_options check; /* its pointers lead to the others and into the job: nothing is copied */
    struct frames_options frames;
    struct labels_options labels;
};

/* train: the other split, of val, where its classes are known already; NULL. It outlives the options, as the job does. */
void split_options(const struct model_registry *models, const struct jobspec *spec, bool val, const struct dataset *train, int threads,
                   struct split_options *ret);

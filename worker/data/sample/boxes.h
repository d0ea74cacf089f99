/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/sample/boxes.h - the task of single-stage detectors: a picture,
 * drawn to the canvas by jitter, zoom, mirrors and colour (augment.h) or in a letterbox, and its boxes. All shards of a
 * step have one canvas. */
#pragma once
#include "worker/data/make/augment.h"
#include "worker/data/sample/task.h"

struct boxes_options {
    bool train;
    uint64_t seed;
    int64_t steps;          /* of the whole job: multi-scale ends at the largest size */
    struct scales scales;   /* validation has the nominal canvas */
    struct augment augment; /* of training */
    size_t cache_bytes;
};

/* "image": f32 [h][w][3], 0 .. 1. "truth" of the images, without crowds: "truth.class" i32, "truth.box" f32 [4], centre
 * x, centre y, width, height as parts of the canvas. */
extern const struct task_kind task_boxes;

/* d outlives the task. ERR_INPUT: options that do not fit each other. */
int boxes_open(const struct dataset *d, const struct boxes_options *opt, struct task **ret_task, struct err *err);

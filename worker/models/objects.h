/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/objects.h - inputs and results of R-CNN's family: batches
 * of the task `instances` as layers read them, and boxes of the canvas as detections in the picture. */
#pragma once
#include <stdbool.h>

#include "proto/job/jobspec.h"
#include "worker/layers/rcnn.h"

struct batch;
struct detection;
struct model_picture;

/* Numbers of arrays and lists in a batch. */
struct objects_places {
    int image, size, truth, cls, box, polygon, point, xy, run, length;
};
void objects_places(struct objects_places *ret);

/* The pictures of a batch and their objects, by shard. */
struct objects {
    struct tensor picture[JOB_MAX_SHARDS];
    const int32_t *size[JOB_MAX_SHARDS];
    struct rcnn_images images[JOB_MAX_SHARDS];
    struct rcnn_truth truth[JOB_MAX_SHARDS];
    struct rcnn_outlines outlines[JOB_MAX_SHARDS];
    int total; /* images of all shards */
};
/* losses: truth and outlines too. */
void objects_read(const struct objects_places *p, const struct batch *b, bool losses, struct objects *ret);

/* Converts n candidates to detections, and drops those that are empty in the picture. The picture's height and width on
 * the canvas are size[2]. cut: boxes end at the border of the picture. Returns the number left; candidates and
 * detections keep the same index. Specs rcnn section 6.2. */
int objects_found(struct candidate *c, struct detection *ret, int n, const int32_t size[2], const struct model_picture *picture, bool cut);

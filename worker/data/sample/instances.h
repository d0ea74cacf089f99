/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/sample/instances.h - the task of two-stage detectors: pictures
 * that keep their shape, each shard's at the top left of a canvas of its own, and their objects with masks. The shorter
 * side of a shard's pictures is drawn from (seed, step, shard); mirroring and a part to cut out (make/crop.h) are
 * drawn from (seed, epoch, picture). A shard's canvas is as large as its largest picture, rounded up to the model's
 * grain, so it depends on the draws.
 *
 * Training takes the pictures with an object (instances_options.keep_empty: all). With groups, pictures of one shape
 * come together. Validation takes all, at the last size, unmirrored. A picture that replaces an unreadable one is
 * shrunk if it would not fit the canvas. */
#pragma once
#include "worker/data/make/resize.h"
#include "worker/data/sample/task.h"

enum { INSTANCES_MAX_SIZES = 64 };

struct instances_options {
    bool train;
    uint64_t seed;
    enum resize_rule rule; /* of the flavor: sizes, pixels, masks, groups, pictures for training */
    int nsizes;            /* at least 1 */
    int size[INSTANCES_MAX_SIZES];
    int longest; /* sides of a picture have at most so many pixels */
    int grain;   /* sides of a canvas are multiples of it */
    float flip;  /* probability of mirroring; */
    float crop;  /* of cutting a part out, in training; RESIZE_D2, and only data sets without masks */
    bool groups, keep_empty;
    size_t cache_bytes;
};

/* "image": u8 [h][w][3], 0 around the picture; "size": i32 [2], height and width of the picture on the canvas. "truth"
 * of the images, without crowds: "truth.class" i32; "truth.box" f32 [4], x1, y1, x2, y2 in pixels of the canvas, inside
 * the picture, with sides above 0. If the data set has masks, each object has either of
 *   "polygon" of the truth, "point" of the polygon: "point.xy" f64 [2], pixels of the canvas; a point may lie outside
 *   the picture;
 *   "run" of the truth: "run.length" i32, down the columns of the picture (not of the canvas), zeros first; only the
 *   first may be 0 long.
 * RESIZE_D2: polygons where the file has polygons; an object whose runs vanish as the picture shrinks is left out.
 * RESIZE_TV: runs always, of polygons drawn in the picture as it is stored, and perhaps of no pixel: one run. */
extern const struct task_kind task_instances;

/* d outlives the task. ERR_INPUT: options that do not fit each other; ERR_DATA: no picture to train on, or masks too
 * large for any memory. */
int instances_open(const struct dataset *d, const struct instances_options *opt, struct task **ret_task, struct err *err);
/* Pictures of one group are alike in shape: d2, wider than high or not; tv, height by width between two of eight
 * steps. */
int instances_group(enum resize_rule rule, int h, int w);

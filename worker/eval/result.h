/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/result.h - a model's result for one picture, in pixels of that
 * picture: evaluators score it and predict writes it. */
#pragma once
#include <stdint.h>

#include "worker/eval/detection.h"

enum result_kind {
    RESULT_BOXES,
    RESULT_MASKS, /* boxes, and the object's pixels inside each */
    RESULT_DEPTH,
};

/* The object's pixels: the set ones of the w x h at (x, y), all within the picture. Rows from the top, each begins a
 * byte, bit 7 is the leftmost pixel; bits behind the end of a row are ignored. */
struct result_mask {
    int x, y, w, h;
    const uint8_t *bits; /* [h][(w + 7) / 8] */
};

struct err;

struct result_map {
    int w, h;
    const float *value; /* [h][w], above 0, in a unit of the network's own */
};

/* The pose of a source's camera relative to the target's: rows of [R | t] that take points of the target's camera to
 * the source's, in the network's unit. */
enum { RESULT_POSE = 12 };
struct result_view {
    float pose[RESULT_POSE];
};

/* Belongs to its model, until the model is asked for the next one. */
struct result {
    enum result_kind kind;
    int32_t image;                 /* see detection.image */
    int n;                         /* objects, best first */
    const struct detection *boxes; /* [n]; RESULT_BOXES, RESULT_MASKS */
    union {
        const struct result_mask *masks; /* [n] */
        struct result_map depth;
    };
    /* RESULT_DEPTH: [nviews], one for each frame of data.sources, in its order, then the other camera's of data.stereo;
     * 0 if they were not asked for. */
    int nviews;
    const struct result_view *views;
};

/* ERR_INPUT if r has no boxes, if a class lies outside 0 .. nclasses - 1, another image is named or a number is not
 * finite. */
int result_boxes_check(const struct result *r, int nclasses, struct err *err);
/* The same for boxes with masks; also ERR_INPUT if a mask lies outside of any picture. */
int result_masks_check(const struct result *r, int nclasses, struct err *err);
/* ERR_INPUT if r is not a depth map of at least a pixel; ERR_NONFINITE if a number of it is not above 0 and finite. */
int result_depth_check(const struct result *r, struct err *err);

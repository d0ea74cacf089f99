/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/make/augment.h - from a decoded picture to the network's input,
 * and the same for its boxes. Pure functions of (seed, epoch, sample): no thread, rank or order of arrival can show.
 * Formulas: specs yolov3 sections 5.2 to 5.4. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/core/canvas.h"
#include "worker/data/set/dataset.h"

/* Ranges to draw from: the job file's data.augment.*. All zero and both factors 1: pictures are only placed. */
struct augment {
    float flip, vflip;          /* probability of mirroring left-right, top-bottom */
    float jitter;               /* aspect: both sides vary by up to this part of them */
    float scale;                /* zoom by 1 - scale .. 1 + scale */
    float hue;                  /* shift by up to this part of a turn */
    float saturation, exposure; /* >= 1: multiplied by 1/x .. x */
};

/* The changes to one picture: its whole area is drawn to (x, y, w, h) of the canvas, cut at the canvas; the rest is
 * grey .5. Colour applies to the whole input, grey included. Mirroring comes last. */
struct placement {
    int x, y, w, h;
    struct canvas canvas;
    bool flip, vflip;
    bool colour; /* false: hue, saturation, exposure change nothing */
    float hue, saturation, exposure;
};

/* Centred, aspect ratio kept: evaluation and prediction. */
struct placement place_letterbox(int w, int h, struct canvas canvas);
/* Drawn at random for one sample of one epoch. Without jitter and zoom the picture just fits, as in a letterbox, but
 * may lie anywhere. */
struct placement place_random(const struct augment *a, uint64_t seed, int64_t epoch, int32_t sample, int w, int h, struct canvas canvas);

/* Floats of scratch memory that render() needs for a picture of that width and a canvas. */
size_t render_scratch(int w, struct canvas canvas);
/* rgb [h][w][3] -> out [canvas.h][canvas.w][3], values 0 .. 1, bilinear with half-pixel centres. */
void render(const struct placement *p, const uint8_t *rgb, int w, int h, float *out, float *scratch);
/* Builds that this processor can run: build 0 is for any processor, and render() takes the last. All give the same
 * bits; tests check this. */
int render_builds(void);
void render_by(int build, const struct placement *p, const uint8_t *rgb, int w, int h, float *out, float *scratch);

/* Boxes (crowds left out) of a w x h picture -> normalised centre form, clipped to the input. Boxes under .001 in width
 * or height are dropped. cls and out have room for n. Returns how many were kept. */
int place_boxes(const struct placement *p, const struct dataset_box *boxes, int n, int w, int h, int32_t *cls, float (*out)[4]);
/* Back: a corner-form box in pixels of the input -> x, y, width, height in pixels of the picture, clipped to it. For
 * placements without mirroring. */
void unplace_box(const struct placement *p, int w, int h, const float corners[4], double ret_xywh[4]);

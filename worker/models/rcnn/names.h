/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/rcnn/names.h - the names of each array of Faster and Mask
 * R-CNN in torchvision, detectron2 and others. Source: specs rcnn section 9. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct param;

enum rcnn_place {
    RCNN_STEM,
    RCNN_BLOCK, /* convolution `i` of block `block` of stage `stage`, all from 0 */
    RCNN_SHORTCUT,
    RCNN_LATERAL, /* of level i, 0: C2 */
    RCNN_OUTPUT,
    RCNN_RPN,
    RCNN_OBJECTNESS,
    RCNN_DELTAS,
    RCNN_FC, /* i */
    RCNN_CLASSES,
    RCNN_BOXES,
    RCNN_MASK_CONV, /* i */
    RCNN_DECONV,
    RCNN_PREDICTOR,
    RCNN_PLACES, /* other families have their places from here on, and names of their own for them */
};

struct rcnn_part {
    enum rcnn_place place;
    int stage, block, i;
};

enum rcnn_array { RCNN_WEIGHT, RCNN_BIAS, RCNN_GAMMA, RCNN_BETA, RCNN_MEAN, RCNN_VAR };

enum rcnn_spelling {
    RCNN_TV,      /* torchvision */
    RCNN_D2,      /* detectron2 */
    RCNN_TV_OLD,  /* torchvision before it renamed its blocks; like RCNN_TV for the rest */
    RCNN_TV_BODY, /* a backbone alone */
    RCNN_D2_BODY,
    RCNN_CAFFE2, /* a backbone of Detectron's time, its statistics within scale and shift */
    RCNN_SPELLINGS,
    RCNN_MM = RCNN_SPELLINGS, /* mmdetection: the backbone and the feature pyramid */
};

/* Metadata of files of weights: the job's model.backbone. */
#define RCNN_TRAIT_BACKBONE "model.backbone"

struct rcnn_named {
    struct param *p;
    struct rcnn_part part;
    enum rcnn_array array;
};

/* The name of one array. false: that spelling has no name for it. */
bool rcnn_spell(enum rcnn_spelling spelling, const struct rcnn_part *part, enum rcnn_array array, char *buf, size_t size);
/* The same up to ".weight" of a normalisation's array: the name for model_add_norm(). */
void rcnn_spell_norm(enum rcnn_spelling spelling, const struct rcnn_part *part, char *buf, size_t size);
/* Is it an array that other programs' files hold and no network needs? */
bool rcnn_is_idle(const char *name);
/* "the box head": the group of parts that a file must have whole or not at all. */
const char *rcnn_group(enum rcnn_place place);

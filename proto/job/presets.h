/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/presets.h - networks by name: which family of models each is of, and what defaults of job keys depend on them. How they are built stands in
 * worker/models/registry.h. */
#pragma once
#include <stdbool.h>

struct job_family {
    const char *name;
    int shard_images; /* so many at least has a shard of the default of train.shards */
    int own_images;   /* likewise where it is normalised by statistics of its own */
};

struct job_preset {
    const char *name;
    const struct job_family *family;
    int size; /* default of model.size, pixels; 0: none */
};

struct job_presets {
    const struct job_preset *row;
    int n;
    const struct job_family *cfg; /* the family that model.cfg describes; NULL: none here */
};

/* X(name, least images of a shard, and of one with statistics of its own). What R-CNN learned from those of one picture validates badly by running ones:
 * mask_rcnn_r18_fpn on pictures of cells after 220 steps at AP@.5 .14 instead of .37. */
#define JOB_FAMILIES(X) \
    X(yolo, 4, 4)       \
    X(rcnn, 1, 4)       \
    X(depth, 1, 1)
/* X(name, family, size) */
#define JOB_PRESETS(X)                     \
    X(yolov3, yolo, 416)                   \
    X(yolov3_tiny, yolo, 416)              \
    X(yolov3_spp, yolo, 416)               \
    X(faster_rcnn_r18_fpn, rcnn, 0)        \
    X(faster_rcnn_r34_fpn, rcnn, 0)        \
    X(faster_rcnn_r50_fpn, rcnn, 0)        \
    X(faster_rcnn_r101_fpn, rcnn, 0)       \
    X(mask_rcnn_r18_fpn, rcnn, 0)          \
    X(mask_rcnn_r34_fpn, rcnn, 0)          \
    X(mask_rcnn_r50_fpn, rcnn, 0)          \
    X(mask_rcnn_r101_fpn, rcnn, 0)         \
    X(featdepth_r18, depth, 0)             \
    X(featdepth_r50, depth, 0)             \
    X(featdepth_baseline_r18, depth, 0)    \
    X(featdepth_baseline_r50, depth, 0)    \
    X(featdepth_autoencoder_r18, depth, 0) \
    X(featdepth_autoencoder_r50, depth, 0) \
    X(featdepth_joint_r18, depth, 0)       \
    X(featdepth_joint_r50, depth, 0)

/* "yolov3|yolov3_tiny|..." */
#define JOB_PRESET_WORD(name, family, size) "|" #name
#define JOB_PRESET_WORDS                    (&JOB_PRESETS(JOB_PRESET_WORD)[1])

/* The default of a key where a family has another than the table of keys. */
struct job_default {
    const char *family, *key;
    const char *value;     /* as JSON text */
    const char *with_init; /* likewise, of jobs with model.init; NULL: the same */
    const char *of_tv;     /* likewise, of jobs with model.flavor tv; NULL: the same */
    int batch;             /* the value is a number that belongs to a batch of so many images and goes with it; 0: it does not */
};

/* Ends with family NULL. */
extern const struct job_default job_defaults[];
/* NULL: the family's default is that of the table, or no family is known. */
const struct job_default *job_default_find(const struct job_family *family, const char *key);

/* Those above. */
extern const struct job_presets job_presets;

/* NULL: there is none of that name. */
const struct job_preset *job_preset_find(const struct job_presets *presets, const char *name);
/* Whether its networks find masks, too. NULL: no. */
bool job_preset_masks(const struct job_preset *p);

/* The four kinds of depth networks: specs featdepth section 0.4. */
enum job_depth {
    JOB_DEPTH_NONE,        /* of another family */
    JOB_DEPTH_FEATURES,    /* featdepth_r50: with a frozen extractor of features */
    JOB_DEPTH_BASELINE,    /* photometry alone */
    JOB_DEPTH_AUTOENCODER, /* what makes the extractor */
    JOB_DEPTH_JOINT,       /* both at once */
};
/* NULL: JOB_DEPTH_NONE. */
enum job_depth job_preset_depth(const struct job_preset *p);

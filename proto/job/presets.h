/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/presets.h - networks by name: the family of models of each, and
 * the defaults of job keys that depend on them. worker/models/registry.h builds them. */
#pragma once
#include <stdbool.h>

struct job_family {
    const char *name;
    int shard_images; /* the default of train.shards leaves at least so many images in a shard */
    int own_images;   /* the same if batch normalisation uses statistics of its own */
};

struct job_preset {
    const char *name;
    const struct job_family *family;
    int size; /* default of model.size in pixels; 0: no default */
};

struct job_presets {
    const struct job_preset *row;
    int n;
    const struct job_family *cfg; /* the family that model.cfg describes; NULL: no family */
};

/* X(name, least images of a shard, and of a shard with statistics of its own). R-CNN trained with statistics of single
 * pictures gives bad validation results with running statistics: mask_rcnn_r18_fpn on pictures of cells after 220 steps
 * at AP@.5 .14 instead of .37. */
#define JOB_FAMILIES(X) \
    X(yolo, 4, 4)       \
    X(rcnn, 1, 4)       \
    X(sparse, 1, 4)     \
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
    X(sparse_rcnn_r18_fpn, sparse, 0)      \
    X(sparse_rcnn_r34_fpn, sparse, 0)      \
    X(sparse_rcnn_r50_fpn, sparse, 0)      \
    X(sparse_rcnn_r101_fpn, sparse, 0)     \
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

/* A family's own default of a key, in place of that in the table of keys. */
struct job_default {
    const char *family, *key;
    const char *value;     /* as JSON text */
    const char *with_init; /* the same for jobs with model.init; NULL: as value */
    const char *of_tv;     /* the same for jobs with model.flavor tv; NULL: as value */
    int batch;             /* the value is a number for a batch of so many images, and scales with the batch; 0: it does not */
};

/* The family of jobs with program.command. No preset has it. */
extern const struct job_family job_program;

/* Ends with family NULL. */
extern const struct job_default job_defaults[];
/* NULL: the family has the default of the table, or family is not known. */
const struct job_default *job_default_find(const struct job_family *family, const char *key);

/* All networks of JOB_PRESETS. */
extern const struct job_presets job_presets;

/* NULL: there is no network of that name. */
const struct job_preset *job_preset_find(const struct job_presets *presets, const char *name);
/* Whether its networks find masks, too. p may be NULL: no. */
bool job_preset_masks(const struct job_preset *p);

/* The four kinds of depth networks: specs featdepth section 0.4. */
enum job_depth {
    JOB_DEPTH_NONE,        /* of another family */
    JOB_DEPTH_FEATURES,    /* featdepth_r50: with a frozen extractor of features */
    JOB_DEPTH_BASELINE,    /* photometry alone */
    JOB_DEPTH_AUTOENCODER, /* the autoencoder that becomes the extractor */
    JOB_DEPTH_JOINT,       /* both at once */
};
/* p may be NULL: JOB_DEPTH_NONE. */
enum job_depth job_preset_depth(const struct job_preset *p);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/set/dataset.h - a checked data set in memory: classes, images
 * and their boxes, or frames and their views. Readers (coco.h, frames.h) and the index (index.h) make it; once made it
 * never changes, so any number of threads may read it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/hash/hash.h"
#include "worker/data/set/mask.h"
#include "worker/data/set/views.h"

enum {
    DATASET_MAX_IMAGES = 1 << 28,
    DATASET_MAX_BOXES = 1 << 30,
    DATASET_MAX_CLASSES = 1 << 16,
    DATASET_MAX_PATH = 4096,
    DATASET_MAX_FILES = 1 << 28,
};

/* Treatment of a bad record. BAD_KEEP is for scoring with another program's file unchanged: boxes are neither clipped
 * nor dropped. */
enum bad_policy { BAD_ERROR, BAD_SKIP, BAD_KEEP };

struct err;

struct dataset_class {
    int64_t id; /* of the annotation file, or a number from the reader; networks use the index in dataset.classes */
    char *name;
};

struct dataset_image {
    int64_t id;
    char *file; /* relative to dataset.folder; never leaves it */
    int w, h;   /* pixels as stored, or turned if dataset.upright; 0 0 only between reading and checking */
    /* Of the file, when it was checked; 0 before. A later difference is a data error (index.h). */
    int64_t size_bytes, mtime_ns;
    struct hash128 hash;
    int orientation;   /* in its file (exif.h), found by check_split(); 0: not examined */
    uint64_t likeness; /* of its pixels (likeness.h), also by check_split() */
};

/* A file that the set was read from, besides dataset.source: a picture's labels, a list, names. */
struct dataset_file {
    char *path;
    int64_t size_bytes, mtime_ns;
    struct hash128 hash;
};

/* In pixels of the picture, stored or turned like its image's size. The origin is the outer corner of the top left
 * pixel: x + w may equal the image's width. */
struct dataset_box {
    double x, y, w, h; /* clipped to the image (not under BAD_KEEP) */
    double area;       /* as annotated, for the size classes of COCO evaluation; of the box if absent */
    int64_t id;        /* of the annotation */
    int32_t cls;       /* index into dataset.classes */
    bool crowd;        /* a region with many objects: never trained on, ignored by evaluation */
    /* x y w h as annotated, which may reach over the image: evaluation compares with it, like pycocotools */
    double told[4];
};

struct dataset {
    char *source; /* annotation file, or the folder of such files; for messages */
    char *folder; /* of the images; "" is the root */
    int nclasses, nimages;
    struct dataset_class *classes; /* ascending ids */
    struct dataset_image *images;  /* ascending ids; image index = position here, everywhere */
    /* [nimages + 1]: image i owns boxes offset[i] .. offset[i + 1] - 1, in the order of the file */
    int64_t *offset;
    struct dataset_box *boxes;
    bool upright;        /* pictures are turned by their EXIF orientation, and some are; else all are taken as stored */
    struct views *views; /* of frames: targets and their data; no classes, no boxes. NULL: boxes */
    struct masks *masks; /* of the boxes, in their order (dataset_mask()); NULL: not asked for */
    int max_boxes;       /* most boxes of an image */
    /* boxes that reached over their image and were cut (legal, for information) */
    int64_t clipped;
    struct hash128 source_hash;            /* of the annotation file's bytes */
    int64_t source_bytes, source_mtime_ns; /* 0 0: a folder */
    int nfiles;
    struct dataset_file *files; /* for sets with many label files (labels.h): these, including dataset.source */
    /* reported once, by its reader: pictures without a file of labels, which have no object */
    int64_t unlabelled;
};

void dataset_free(struct dataset *d);
/* Images with results of their own: for frames, the targets. */
static inline int dataset_targets(const struct dataset *d)
{
    return d->views ? d->views->n : d->nimages;
}
/* Index of a class or image by its id in the annotation file, or -1. */
int dataset_class_index(const struct dataset *d, int64_t id);
int dataset_image_index(const struct dataset *d, int64_t id);
/* ERR_DATA if two splits do not have the same classes, by ids and names. */
int dataset_same_classes(const struct dataset *a, const struct dataset *b, struct err *err);
/* Replaces the classes by those of another list, id[n] and name[n], by their names. Boxes of classes missing there are
 * removed; *ret_gone: how many. ERR_DATA: it has none of the set's classes. A set without classes, of frames, stays
 * unchanged. */
int dataset_take_classes(struct dataset *d, int n, const int64_t *id, const char *const *name, int64_t *ret_gone, struct err *err);
/* ERR_DATA if a training split of boxes has no objects except crowds: there is nothing to learn. */
int dataset_has_objects(const struct dataset *d, struct err *err);
/* Path of image i in buf (DATASET_MAX_PATH bytes): "folder/file". Returns buf. */
char *dataset_path(const struct dataset *d, int image, char *buf);

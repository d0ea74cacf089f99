/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/coco/coco_raw.h - the raw records of a COCO file, in the
 * order of the file, each with its own flaws. coco.c resolves ids and judges. Only syntax errors and missing sections
 * fail here. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/data/read/coco/coco_keys.h"

struct err;
struct masks;

#define COCO_MAX_BYTES ((int64_t)8 << 30)
enum { COCO_MAX_NAME = 1024 };

struct raw_class {
    int64_t id;
    char *name;
};

struct raw_image {
    int64_t id, at; /* at: byte where the record begins */
    char *file;
    int w, h; /* 0 0: not stated, or not usable: the picture's file decides */
    bool has_id, has_url;
    bool again;        /* set by coco.c: the record before it is the same */
    const char *flaw;  /* why it cannot be used; constant text, NULL: it can */
    const char *doubt; /* why the stated size is not used; constant text or NULL */
};

struct raw_annotation {
    int64_t id, image_id, class_id, at;
    double box[4], area; /* area -1: not stated, or not usable */
    int rle_w, rle_h;    /* of its run lengths; 0: it has no run lengths */
    bool has_id, has_image, has_class, has_box, crowd, ignored;
    const char *flaw;  /* why it cannot be used; constant text, NULL: it can */
    const char *doubt; /* flaw of a part that the network can do without; constant text or NULL */
};

struct coco_raw {
    const char *bytes; /* the caller's */
    struct raw_class *classes;
    struct raw_image *images;
    struct raw_annotation *annotations;
    int64_t nannotations;
    int nclasses, nimages;
    bool unlabelled;       /* the caller's: "annotations" may be missing */
    int64_t text_ids;      /* ids that are integers as text, "12" */
    struct coco_keys keys; /* keys that are not read */
    size_t annotations_cap, classes_cap, images_cap;
    /* of the annotations, by their number here, if they are asked for; the caller's. NULL: not asked for */
    struct masks *masks;
    char *text; /* of the last long string */
    size_t text_cap;
};

/* *raw is zeroed by the caller, and freed with coco_raw_free() in every case. ERR_DATA with file, line and byte, or
 * -ENOMEM. */
int coco_raw_parse(struct coco_raw *raw, const char *name, const char *bytes, size_t len, struct err *err);
void coco_raw_free(struct coco_raw *raw);

/* worker/data/coco_raw.h - the records of a COCO file as they stand there, in the order of the file, each with what is wrong with it by itself.
 * coco.c resolves ids and judges. Only syntax errors and missing sections fail here. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    int w, h; /* 0 0: not stated */
    bool has_id;
    const char *flaw; /* constant text, NULL: none */
};

struct raw_annotation {
    int64_t id, image_id, class_id, at;
    double box[4], area; /* area -1: not stated */
    int rle_w, rle_h;    /* of its run lengths; 0: none */
    bool has_id, has_image, has_class, has_box, crowd, ignored;
    const char *flaw;
    const char *left_out; /* what is wrong with a part of it that can go without the rest; constant text, NULL: nothing */
};

struct coco_raw {
    const char *bytes; /* the caller's */
    struct raw_class *classes;
    struct raw_image *images;
    struct raw_annotation *annotations;
    int64_t nannotations;
    int nclasses, nimages;
    bool unlabelled; /* the caller's: "annotations" may be missing */
    int64_t annotations_cap;
    int classes_cap, images_cap;
    struct masks *masks; /* of the annotations, by their number here, where they are asked for; the caller's. NULL: they are not */
    char *text;          /* of the last long string */
    size_t text_cap;
};

/* *raw is zeroed by the caller, and freed with coco_raw_free() in every case. ERR_DATA with file, line and byte, or -ENOMEM. */
int coco_raw_parse(struct coco_raw *raw, const char *name, const char *bytes, size_t len, struct err *err);
void coco_raw_free(struct coco_raw *raw);

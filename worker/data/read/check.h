/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/check.h - the full check of a split, and its result as a file. The first attempt of a job reads the annotations, decodes every
 * picture once and writes the checked sample list (the index) into the job directory; other ranks and later attempts load that list, so
 * all of them train on the same samples whatever happens to the files meanwhile. */
#pragma once
#include <stdatomic.h>

#include "worker/data/set/dataset.h"

struct err;
struct frames_options;
struct labels_options;
struct problems;

/* How many pictures of a check have been taken up, for another thread to read. */
struct check_progress {
    atomic_int done, of; /* of 0: the annotations are read */
};

struct check_options {
    const char *annotations, *images;    /* COCO JSON and the folder of its pictures; of labels and frames as they have them */
    enum bad_policy on_bad;              /* BAD_ERROR or BAD_SKIP */
    int threads;                         /* >= 1 */
    bool masks;                          /* segmentations are wanted (mask.h); they are part of the index and its hash then */
    bool upright;                        /* pictures are turned as their EXIF orientation says, and annotations are about the turned ones */
    const struct frames_options *frames; /* the split is one of frames, and this is its list and folder; NULL: it is not */
    const struct labels_options *labels; /* its labels stand in many files, and this is where; NULL: they do not. Neither: COCO */
    double
        fraction; /* 0: the split is all of it. Else about so much of it is one part, the other the rest: the bytes of a picture's file alone say which */
    bool of_fraction;                /* it is that part, and what is wrong with records is told of the other one; else the rest */
    struct check_progress *progress; /* may be NULL */
};

/* coco_read(), labels_read() or frames_read(), then each picture: it is there, decodes, and has the stated size; so do measured depths. All problems are collected first. Under BAD_SKIP bad pictures leave
 * with their boxes, or with the targets that they are part of. Caller frees *ret. ERR_DATA also when no image is left. */
int check_split(const struct check_options *opt, struct problems *problems, struct dataset **ret, struct err *err);

/* The images and boxes that check_split() would leave; pictures are read only where that depends on them, under BAD_SKIP. What is wrong with pictures is
 * else seen by check_split() alone. Caller frees *ret. */
int check_list(const struct check_options *opt, struct problems *problems, struct dataset **ret, struct err *err);

/* Writes `d` with a hash over everything, atomically and durably. */
int index_write(const char *path, const struct dataset *d, struct err *err);
/* Reads it back. ERR_CORRUPT: not whole, or with masks where none are wanted and the other way round; -ENOENT: none yet. Then compares the annotation file
 * and each picture with what was checked: size, then modification time, and where only the time differs the content; a difference is ERR_DATA naming
 * the file. Caller frees *ret. */
int index_load(const char *path, const struct check_options *opt, struct dataset **ret, struct err *err);
/* Hash of what the data set holds (labels and file contents, not paths and times): equal on all ranks, or they do not train on the same data.
 * 0 or -ENOMEM. */
int index_hash(const struct dataset *d, struct hash128 *ret, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/check.h - the full check of a split, and its result as a
 * file. The first attempt of a job reads the annotations, decodes every picture once and writes the checked sample list
 * (the index) into the job directory. Other ranks and later attempts load that list, so all of them train on the same
 * samples even if the files change meanwhile. */
#pragma once
#include <stdatomic.h>

#include "worker/data/set/dataset.h"

struct err;
struct frames_options;
struct labels_options;
struct problems;

/* Number of pictures that a check has begun, for another thread to read. */
struct check_progress {
    atomic_int done, of; /* of 0: the annotations are being read */
};

struct check_options {
    /* COCO JSON and the folder of its pictures; see labels and frames for theirs */
    const char *annotations, *images;
    enum bad_policy on_bad; /* BAD_ERROR or BAD_SKIP */
    int threads;            /* >= 1 */
    /* segmentations are wanted (mask.h); they are part of the index and its hash then */
    bool masks;
    /* pictures are turned as their EXIF orientation says, and annotations are about the turned ones */
    bool upright;
    const struct frames_options *frames; /* list and folder of a split of frames; NULL: not a split of frames */
    /* the label files of a split that has many; NULL: it does not. Both NULL: COCO */
    const struct labels_options *labels;
    double fraction; /* 0: the whole split; else the share of a part, chosen by the bytes of a picture's file */
    /* take that part; problems of records are reported with the other one; else take the rest */
    bool of_fraction;
    struct check_progress *progress; /* may be NULL */
};

/* coco_read(), labels_read() or frames_read(), then each picture: it must exist, decode, and have the stated size; the
 * same for measured depths. All problems are collected first. Under BAD_SKIP bad pictures are removed with their boxes,
 * or with the targets that they are part of. Caller frees *ret. ERR_DATA also when no image is left. */
int check_split(const struct check_options *opt, struct problems *problems, struct dataset **ret, struct err *err);

/* The images and boxes that check_split() would leave; pictures are read only under BAD_SKIP, if the answer depends on
 * them. Other problems of pictures are found by check_split() alone. Caller frees *ret. */
int check_list(const struct check_options *opt, struct problems *problems, struct dataset **ret, struct err *err);

/* Writes `d` with a hash over everything, atomically and durably. */
int index_write(const char *path, const struct dataset *d, struct err *err);
/* Reads it back. ERR_CORRUPT: not whole, or with masks although they are not wanted, or the reverse; -ENOENT: no index
 * yet. Then compares the annotation file and each picture with their state at the check: size, then modification time,
 * and if only the time differs the content. A difference is ERR_DATA naming the file. Caller frees *ret. */
int index_load(const char *path, const struct check_options *opt, struct dataset **ret, struct err *err);
/* Hash of the data set's contents (labels and file contents, not paths and times): unless it is equal on all ranks they
 * do not train on the same data. Returns 0 or -ENOMEM. */
int index_hash(const struct dataset *d, struct hash128 *ret, struct err *err);

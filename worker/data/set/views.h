/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/set/views.h - the views of a data set of frames, in place of
 * boxes: its target images, the frames each is compared with, its camera and its measured depth. Readers (frames.h) and
 * the index (index.h) make it; it belongs to struct dataset and never changes either. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/hash/hash.h"

enum {
    VIEWS_MAX_FILES = 1 << 28,
    VIEWS_MAX_LASERS = 1 << 20,
    VIEWS_MAX_SOURCES = 3,
    VIEWS_PATTERN = 256,
    VIEWS_STEREO = 0 /* id of a source: the other camera's picture */
};

/* A target. */
struct view {
    /* of the frame in its sequence: as lists count them, or its place among the sequence's names */
    int64_t number;
    double camera[4]; /* fx, fy, cx, cy in pixels of the frame as it is stored */
    /* place of the other camera along x: side * b of specs featdepth section 2.5; 0 without */
    double stereo;
    int32_t source[VIEWS_MAX_SOURCES]; /* images; the target itself stands for a source that is missing */
    int32_t depth;                     /* in views.files; -1: not measured, or not asked for */
    int32_t laser;                     /* in views.lasers: the depth file holds points; -1: it is a picture */
};

/* A file that the set depends on and that is not a picture to train on. */
struct views_file {
    char *file; /* relative to dataset.folder */
    int64_t size_bytes, mtime_ns;
    struct hash128 hash;
};

/* From a laser's point (x forward, y left, z up, metres) to a pixel: p [3][4] by (x, y, z, 1), the first two over the
 * third. */
struct views_laser {
    double p[12];
};

struct views {
    /* targets: images 0 .. n - 1 of the data set, in the order of the list; frames that are not targets follow them */
    int n;
    struct view *view;
    int nsources;
    int source[VIEWS_MAX_SOURCES]; /* ids: frames from the target, or VIEWS_STEREO */
    int nfiles, nlasers;
    struct views_file *files;
    struct views_laser *lasers;
    double depth_unit_m; /* of depth pictures: metres per unit */
    /* Pattern of the files of measured depth, below dataset.folder; "": no pattern is given or asked for, or the set
     * was read from an index. */
    char depth_pattern[VIEWS_PATTERN];
    int64_t dropped, repeated; /* targets that lack a neighbour: left out; kept, with the target in place of it */
    /* a target without its sources stays: depth is scored for a frame alone. False if the set was read from an index */
    bool keeps_alone;
};

/* NULL is ignored. */
void views_free(struct views *v);
/* Targets with measured depth. */
int views_measured(const struct views *v);
/* Does a target lack a source and stand for it itself? In validation it then has no losses. */
bool views_alone(const struct views *v, int target);
/* Frames that may be missing without the loss of a target: each target beside them stays without them (keeps_alone),
 * and is scored. ret: [nimages]. */
void views_spare(const struct views *v, int nimages, bool *ret);
/* Leaves out targets with a flawed image (flaw[i] not NULL) among their frames, and then images that belong to no
 * target. With keeps_alone a flawed source counts as missing instead. ret_place: [images], the new place of each or -1.
 * Files of measured depth without a remaining target are removed too. Returns how many images are left, or -ENOMEM;
 * then nothing has changed. */
int views_drop(struct views *v, int nimages, char *const *flaw, int32_t *ret_place);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/set/views.h - what a data set of frames has instead of boxes: which of its images are targets, the frames each is compared with, its camera and
 * its measured depth. Readers (frames.h) and the index (index.h) make it; it belongs to struct dataset and never changes either. */
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

/* One target. */
struct view {
    int64_t number;                    /* of the frame in its sequence: as lists count them, or its place among the sequence's names */
    double camera[4];                  /* fx, fy, cx, cy in pixels of the frame as it is stored */
    double stereo;                     /* where the other camera stands, along x: side * b of specs featdepth section 2.5; 0 without */
    int32_t source[VIEWS_MAX_SOURCES]; /* images; the target itself stands for a source that is missing */
    int32_t depth;                     /* of views.files; -1: it is not measured, or nobody asked */
    int32_t laser;                     /* of views.lasers: the depth file holds points; -1: it is a picture */
};

/* A file that the set depends on and that is no picture to train on. */
struct views_file {
    char *file; /* relative to dataset.folder */
    int64_t size_bytes, mtime_ns;
    struct hash128 hash;
};

/* From a laser's point (x forward, y left, z up, metres) to a pixel: p [3][4] by (x, y, z, 1), the first two over the third. */
struct views_laser {
    double p[12];
};

struct views {
    int n; /* targets: images 0 .. n - 1 of the data set, in the order of the list; frames that are no targets follow them */
    struct view *view;
    int nsources;
    int source[VIEWS_MAX_SOURCES]; /* ids: frames from the target, or VIEWS_STEREO */
    int nfiles, nlasers;
    struct views_file *files;
    struct views_laser *lasers;
    double depth_unit_m; /* of depth pictures: metres of 1 */
    /* How files of measured depth are named, below dataset.folder; "": no pattern says so, nobody asked, or the set was read from an index. */
    char depth_pattern[VIEWS_PATTERN];
    int64_t dropped, repeated; /* targets that lack a neighbour: left out; taken, the target standing for it */
    bool keeps_alone; /* a target without its sources stays: depth is scored of a frame alone. False if the set was read from an index */
};

/* NULL is nothing. */
void views_free(struct views *v);
/* Targets with measured depth. */
int views_measured(const struct views *v);
/* Whether a target lacks a source and stands for it itself. In validation it has no losses then. */
bool views_alone(const struct views *v, int target);
/* Which frames can be away though no target is lost by it: each that has them beside it stays without them (keeps_alone), and is scored. ret: [nimages]. */
void views_spare(const struct views *v, int nimages, bool *ret);
/* Leaves out targets with a flawed image (flaw[i] not NULL) among their frames, and then images that no target has. With keeps_alone a flawed source is
 * missing instead. ret_place: [images], the new place of each or -1. Files of measured depth that no target is left of leave too. Returns how many images are left, or -ENOMEM: nothing has changed then. */
int views_drop(struct views *v, int nimages, char *const *flaw, int32_t *ret_place);

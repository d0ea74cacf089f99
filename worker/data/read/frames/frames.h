/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/frames/frames.h - reads data sets of frames for depth
 * networks: a list of targets (split_list.h) and a folder of frames. Three layouts:
 *   one sequence     lines: a frame's number. The folder has intrinsics.json, which gives the places of frames and
 *                    depth (frame_pattern, depth_pattern)
 *   sequences        lines: sequence, frame's name without its ending, and for stereo "l" or "r". The folder has
 *                    sequences/NAME/frames, frames_right, depth and intrinsics.json
 *   KITTI's raw data lines: date/drive, number, "l" or "r" (kitti.h)
 * In a split with truth, poses.txt (poses.h) beside intrinsics.json is one of the set's files if it exists; KITTI's raw
 * data have no poses. Strict, like coco.h. Source: specs featdepth sections 4.1 to 4.6. */
#pragma once
#include "worker/data/read/frames/split_list.h"
#include "worker/data/set/views.h"

struct dataset;
struct err;
struct problems;
struct views_maker;

/* Treatment of a target with a missing source. */
enum frames_missing {
    FRAMES_DROP,   /* is left out */
    FRAMES_REPEAT, /* takes the place of the missing frame; the other camera's picture must exist */
    FRAMES_ALONE,  /* stays (views.h, keeps_alone), also if the source is another camera's. For validation */
};

struct frames_options {
    const char *list, *folder;
    const char *split; /* of a list with several (split_list.h): "train" or "val"; NULL: train */
    bool kitti;
    int nsources;
    int source[VIEWS_MAX_SOURCES]; /* ids, as struct views has them */
    enum frames_missing missing;
    bool truth;                                /* measured depth is wanted */
    const char *frame_pattern, *depth_pattern; /* instead of those in intrinsics.json; NULL: use those */
    double depth_unit_m;                       /* instead of that in intrinsics.json; NAN: use that */
};

/* Lines that name no frame are put into *problems (caller zeroes it) and left out. Errors of the list as a file, of
 * cameras and of patterns fail the call, also if depth_pattern finds no target's file.
 * Caller frees with dataset_free(). ERR_DATA, -errno or -ENOMEM. */
int frames_read(const struct frames_options *opt, struct problems *problems, struct dataset **ret, struct err *err);

/* A layout. */
struct frame_spot;
struct intrinsics;
struct frames_layout {
    int (*open)(const struct frames_options *opt, struct views_maker *m, void **ret_of, struct err *err);
    /* The frame of a line. Returns 0; 1: no such frame, err tells why; or an error that ends the reading. spot is
     * zeroed. */
    int (*find)(void *of, const struct split_line *line, struct frame_spot *spot, struct err *err);
    double (*unit)(const void *of); /* metres per unit in pictures of depth */
    void (*close)(void *of);
};
extern const struct frames_layout frames_single, frames_sequences, frames_kitti;
/* For the layouts: poses.txt beside `file`, if the split wants truth and poses.txt exists; ERR_DATA if it holds no
 * poses. */
int frames_poses(const struct frames_options *opt, struct views_maker *m, const char *file, struct err *err);
/* A file intrinsics.json of the folder, which becomes one of the set's. Caller clears. */
int frames_intrinsics(const struct frames_options *opt, struct views_maker *m, const char *file, struct intrinsics *ret, struct err *err);

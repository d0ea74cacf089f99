/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/frames/views_make.h - a data set of frames grows target by target: readers say which files a target has, this numbers the images and leaves out the
 * targets that lack a neighbour. */
#pragma once
#include "worker/data/set/dataset.h"
#include "worker/data/read/frames/frames.h"

struct err;
struct problems;
struct views_maker;

/* What a line of the list stands for. Files are relative to the data set's folder; "": none is possible. All pictures are w x h. */
struct frame_spot {
    char file[DATASET_MAX_PATH], source[VIEWS_MAX_SOURCES][DATASET_MAX_PATH], depth[DATASET_MAX_PATH];
    int w, h;
    int64_t number;
    double camera[4], stereo;
    int laser; /* views_make_laser() of depth; -1: depth is a picture */
};

/* opt and problems are borrowed. NULL: no memory. */
struct views_maker *views_maker_new(const struct frames_options *opt, struct problems *problems, struct err *err);
void views_maker_free(struct views_maker *m);
/* The problems that views_maker_new() was given. */
struct problems *views_make_problems(struct views_maker *m);
/* Another file that what was read depends on: its bytes. 0 or -ENOMEM. */
int views_make_file(struct views_maker *m, const char *file, const struct whole_file *bytes, struct err *err);
/* How files of measured depth are named: fewer than VIEWS_PATTERN bytes. */
void views_make_pattern(struct views_maker *m, const char *depth_pattern);
/* Its number. Caller keeps each once. -ENOMEM. */
int views_make_laser(struct views_maker *m, const double p[12], struct err *err);
/* The target of a line. Files are looked for; a target whose own is not there is put into *problems, a line for a frame that an earlier one has into its notes. 0 or -ENOMEM. */
int views_make_target(struct views_maker *m, const struct split_line *line, const struct frame_spot *spot, struct problems *problems,
                      struct err *err);
/* The data set; m holds nothing then. list: the file of the split, as it was read. */
int views_make_finish(struct views_maker *m, const struct whole_file *list, double depth_unit_m, struct dataset **ret, struct err *err);
/* Whether there is such a file in the folder. */
bool views_file_there(const struct frames_options *opt, const char *file);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/frames/views_make.h - builds a data set of frames target
 * by target: readers name the files of a target; this numbers the images and leaves out the targets that lack a
 * neighbour. */
#pragma once
#include "worker/data/set/dataset.h"
#include "worker/data/read/frames/frames.h"

struct err;
struct problems;
struct views_maker;

/* The meaning of a line of the list. Files are relative to the data set's folder; "": no file is possible. All pictures
 * are w x h. */
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
/* The problems given to views_maker_new(). */
struct problems *views_make_problems(struct views_maker *m);
/* Adds a further file that the read data depends on: its bytes. 0 or -ENOMEM. */
int views_make_file(struct views_maker *m, const char *file, const struct whole_file *bytes, struct err *err);
/* Sets the pattern of names of measured depth: fewer than VIEWS_PATTERN bytes. */
void views_make_pattern(struct views_maker *m, const char *depth_pattern);
/* Adds a laser and returns its number. The caller must add each only once. -ENOMEM. */
int views_make_laser(struct views_maker *m, const double p[12], struct err *err);
/* Adds the target of a line. It looks for the files. A target without its own file is put into *problems; a line for a
 * frame that an earlier line has is put into its notes. 0 or -ENOMEM. */
int views_make_target(struct views_maker *m, const struct split_line *line, const struct frame_spot *spot, struct problems *problems,
                      struct err *err);
/* Finishes the data set; m then holds nothing. list: the file of the split, as it was read. */
int views_make_finish(struct views_maker *m, const struct whole_file *list, double depth_unit_m, struct dataset **ret, struct err *err);
/* Does such a file exist in the folder? */
bool views_file_there(const struct frames_options *opt, const char *file);

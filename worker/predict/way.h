/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/way.h - the way of a camera: frames of one sequence in a folder with intrinsics.json, in their order, and the motion that a depth network
 * sees from each to the next. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "worker/eval/depth/depth_view.h"
#include "worker/eval/result.h"

struct dataset;
struct err;
struct jobspec;
struct way;

/* Whether an argument of predict is such a folder rather than a picture. */
bool way_is(const char *path);
/* Finds the frames of `folder`, from the first one that is there on, as far apart as the nearest source of the job behind its target, until one is missing.
 * ERR_DATA names the file; ERR_INPUT: the job has no such source. Caller closes. */
int way_open(const char *folder, const struct jobspec *spec, struct way **ret, struct err *err);
void way_close(struct way *w);
/* Their paths, [*ret_n], at least one; borrowed. */
char *const *way_frames(const struct way *w, int *ret_n);
/* The number of the frame that is missing behind the last one while there are later ones; -1: there are none. */
long long way_gap(const struct way *w);

/* The pixels of each frame, as intrinsics.json has them. */
void way_size(const struct way *w, int *ret_w, int *ret_h);

/* Frame i cannot be read: it is none's next one, and not part of the way. */
void way_lose(struct way *w, int i);
bool way_lost(const struct way *w, int i);
/* Frames that way_write() writes: as many as follow each other from the first one that is not lost, *ret_first, on. 0: all are lost. */
int way_length(const struct way *w, int *ret_first);

/* Frame i as the only target of a data set, with the one behind it as its source; what else the network wants to see is the frame itself. Borrowed until the
 * next call. */
const struct dataset *way_set(struct way *w, int i);
/* Its camera. */
struct depth_lens way_lens(const struct way *w, int i);
/* What was found in frame i, in their order: keeps the motion to the next one, which is in *ret_motion until the way is closed. NULL: there is no next one, or it is lost. */
int way_add(struct way *w, int i, const struct result *r, const double **ret_motion, struct err *err);
/* Of at least one frame, see way_length(): positions times factor, from the first of them on, as trajectory.h has it. Where it goes the caller has looked. */
int way_write(const struct way *w, double factor, const char *tum, const char *kitti, struct err *err);

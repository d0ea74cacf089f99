/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/sample/frames.h - the task of depth networks: a frame of a
 * video, the target, and the frames to compare with it, its sources, all resized to the model's size by RESIZE_LANCZOS.
 * In training a sample is mirrored and its colours are jittered by chance, all its frames alike; both draws depend on
 * (seed, epoch, sample). Validation does neither. Specs featdepth sections 4.2 to 4.4. */
#pragma once
#include "proto/job/jobspec.h"
#include "worker/data/read/frames/frames.h"
#include "worker/data/sample/task.h"

enum {
    FRAMES_MAX_SOURCES = JOB_MAX_SOURCES,
    FRAMES_STEREO = VIEWS_STEREO /* a source's id: the other camera's picture of the same time */
};

_Static_assert((int)FRAMES_MAX_SOURCES == (int)VIEWS_MAX_SOURCES, "a data set has room for what a job may ask for");

/* Sources of a job, as ids relative to the target in frames (data.sources times data.stride), FRAMES_STEREO last;
 * returns how many. An autoencoder has no sources. */
int frames_sources(const struct jobspec *spec, int ret[FRAMES_MAX_SOURCES]);

/* The arrays of a sample with so many sources. "picture": u8 [h][w][3], the target; "seen": the same for the networks
 * of depth and motion, colours jittered. "source0", "seen0", ..: the same for each source. "camera": f32 [4], fx, fy,
 * cx, cy in pixels of the canvas, of a mirrored sample mirrored. "stereo": f32 [1], place of the other camera along x:
 * side * flip * b of specs featdepth section 2.5; 0 without. The form is constant. */
const struct batch_form *frames_form(int nsources);

struct frames_task_options {
    bool train;
    uint64_t seed;
    int nsources; /* of the data set, too */
    struct canvas canvas;
    float flip, jitter_prob; /* of training */
    float jitter[4];         /* brightness, contrast, saturation: factors 1 - x .. 1 + x, not below 0; hue: -x .. x */
    size_t cache_bytes;
};

/* Its form is that of the largest number of sources; frames_form() gives a job's. Pictures without a known camera (no
 * views), as in a prediction, get a made-up camera and no sources: those pictures are black. */
extern const struct task_kind task_frames;

/* d outlives the task. ERR_INPUT: the data set has other sources. */
int frames_open(const struct dataset *d, const struct frames_task_options *opt, struct task **ret_task, struct err *err);
/* Options to read a job's split of frames, in *ret, which borrows from the job; false: it is a split of boxes. */
bool frames_split(const struct jobspec *spec, bool val, struct frames_options *ret);

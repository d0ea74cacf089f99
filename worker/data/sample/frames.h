/* worker/data/sample/frames.h - the task of depth networks: a frame of a video, the target, and the frames it is compared with, its sources, all resized to the
 * model's size by RESIZE_LANCZOS. In training a sample is mirrored and its colours are jittered by chance, all its frames alike; both draws depend on (seed,
 * epoch, sample). Validation has neither. Specs featdepth sections 4.2 to 4.4. */
#pragma once
#include "proto/jobspec.h"
#include "worker/data/sample/task.h"

enum { FRAMES_MAX_SOURCES = JOB_MAX_SOURCES, FRAMES_STEREO = 0 /* a source's id: the other camera's picture of the same time */ };

/* Sources of a job, ids told from the target in frames (data.sources times data.stride), FRAMES_STEREO last; returns how many. An autoencoder has none. */
int frames_sources(const struct jobspec *spec, int ret[FRAMES_MAX_SOURCES]);

/* What a sample with so many sources is made of. "picture": u8 [h][w][3], the target; "seen": the same as the networks of depth and motion see it, colours
 * jittered. "source0", "seen0", ..: likewise of each source. "camera": f32 [4], fx, fy, cx, cy in pixels of the canvas, of a mirrored sample mirrored.
 * "stereo": f32 [1], where the other camera stands, along x: side * flip * b of specs featdepth section 2.5; 0 without. The form is constant. */
const struct batch_form *frames_form(int nsources);

/* Its form is that of most sources: what a job has says frames_form(). */
extern const struct task_kind task_frames;

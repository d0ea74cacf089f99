/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/input.h - one picture as a model's task makes a batch of it for validation: whatever the task is, the network sees the same. */
#pragma once
#include <stdbool.h>

struct batch;
struct dataset;
struct err;
struct input;
struct jobspec;
struct model;

/* Model and job stay the caller's and outlive it. Caller closes. */
int input_open(const struct model *model, const struct jobspec *spec, struct input **ret, struct err *err);
void input_close(struct input *in);
/* The picture at `path`, which is w x h pixels, turned as its EXIF orientation says where `upright`: a batch of one shard and image, number 0, without objects, in device memory. It stays until the next call.
 * Errors name the file. */
int input_make(struct input *in, const char *path, int w, int h, bool upright, struct batch *ret, struct err *err);
/* The same of the first image of a data set, which the model's task takes for a sample. */
int input_make_of(struct input *in, const struct dataset *d, struct batch *ret, struct err *err);

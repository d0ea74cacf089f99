/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/input.h - one picture as a batch, made by a model's task as
 * for validation: with every task the network sees the same. */
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
/* The picture at `path`, which has w x h pixels, turned by its EXIF orientation if `upright`: a batch of one shard and
 * image, number 0, without objects, in device memory. It is valid until the next call. Errors name the file. */
int input_make(struct input *in, const char *path, int w, int h, bool upright, struct batch *ret, struct err *err);
/* The same for the first image of a data set that the model's task takes as a sample. */
int input_make_of(struct input *in, const struct dataset *d, struct batch *ret, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/report/val_picture.h - how far a depth network has come, for the eye: a picture of the validation split above its depth in colours. */
#pragma once
#include <stdint.h>

struct dataset;
struct err;
struct result;

/* Writes it to the job's folder, where it is found as proto/host/pictures.h says, atomically. Of those that are there the newest stay; such as were made of later
 * steps, which a restart has undone, and what a writer left that was killed, go. r: the depth of image `image` of d. Errors name the file. */
int val_picture_write(const char *job_dir, int64_t step, const struct dataset *d, int image, const struct result *r, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/report/val_picture.h - progress of a depth network to look at: a
 * picture of the validation split above its depth in colours. */
#pragma once
#include <stdint.h>

struct dataset;
struct err;
struct result;

/* Writes it atomically to the job's folder; proto/host/pictures.h gives its place. Keeps the newest of the existing
 * pictures. Removes pictures of later steps, which a restart has undone, and the remains of a killed writer. r: the
 * depth of image `image` of d. Errors name the file. */
int val_picture_write(const char *job_dir, int64_t step, const struct dataset *d, int image, const struct result *r, struct err *err);

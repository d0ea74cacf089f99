/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/pictures.h - pictures of validation in a job's folder,
 * pictures/val-step-N.png: a worker writes them, detctl finds them. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define PICTURES_FOLDER "pictures"
#define PICTURES_NAME   "val-step-%lld.png"

enum { PICTURES_KEPT = 5 /* only the newest are kept */ };

/* The step of a file of that folder; -1: the file is not a picture of validation. */
int64_t pictures_step(const char *name);
/* Finds the newest picture of a job: writes its path to ret (size bytes) and returns its step. -1: there is no picture,
 * or the folder cannot be read. */
int64_t pictures_newest(const char *job_dir, char *ret, size_t size);

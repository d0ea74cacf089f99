/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/pictures.h - pictures of validation in a job's folder, pictures/val-step-N.png: a worker writes them, detctl finds them. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define PICTURES_FOLDER "pictures"
#define PICTURES_NAME   "val-step-%lld.png"

enum { PICTURES_KEPT = 5 /* the newest */ };

/* The step of a file of that folder; -1: it is no picture of validation. */
int64_t pictures_step(const char *name);
/* The newest of a job, its path in ret (size bytes) and its step returned; -1: there is none, or it cannot be looked for. */
int64_t pictures_newest(const char *job_dir, char *ret, size_t size);

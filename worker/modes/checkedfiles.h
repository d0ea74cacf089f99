/* SPDX-License-Identifier: Apache-2.0 */ /* worker/modes/checkedfiles.h - the files that a check of a job's data and weights rests on: while they are as they were, it need not be made again. */
#pragma once
#include <stdint.h>

struct dataset;
struct err;
struct jobspec;

/* Writes them to `path`, which comes into being whole or not at all: records "SIZE MTIME_NS PATH", each ended by a zero byte. They are the files and folders of
 * the job's keys, every file of labels that the splits were read from, and the folders of these and of the pictures. val may be NULL. ERR_STATE: one of them was
 * changed at start_ns (of the real clock) or later, perhaps after it was read. ERR_INPUT: there are too many. */
int checkedfiles_write(const char *path, const struct jobspec *spec, const struct dataset *train, const struct dataset *val,
                       int64_t start_ns, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/modes/checkedfiles.h - the files that a check of a job's data and
 * weights depends on: while they are unchanged, the check need not be repeated. */
#pragma once
#include <stdint.h>

struct dataset;
struct err;
struct jobspec;

/* Writes them to `path`, whole or not at all: records "SIZE MTIME_NS PATH", each ended by a zero byte. They are the
 * files and folders of the job's keys, every file of labels that the splits were read from, and the folders of these
 * and of the pictures. val may be NULL. ERR_STATE: a file was changed at start_ns (of the real clock) or later, perhaps
 * after it was read. ERR_INPUT: there are too many. */
int checkedfiles_write(const char *path, const struct jobspec *spec, const struct dataset *train, const struct dataset *val,
                       int64_t start_ns, struct err *err);

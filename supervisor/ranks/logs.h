/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/ranks/logs.h - logs of a job stay below a size, whoever writes
 * into them and however much: of one that has grown to it, the older half is given back to the disk. The file keeps its
 * length and its end (a hole takes the place), so that writers and readers of it go on undisturbed. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;

struct logs {
    int64_t max_bytes; /* of each on the disk; 0: no bound */
    bool failed;       /* as one that this file system does not do */
};

/* Looks at log/supervisor.log and log/rank-0.log to rank-(nranks - 1).log of the working directory. An error the first
 * time that nothing can be given back, else 0. */
int logs_bound(struct logs *l, int nranks, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/gpus.h - the granted GPUs: locked while detd-job lives, so that
 * no other daemon's job gets them, and each rank on its own one. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct err;
struct job_options;

struct gpus {
    int *fds, count; /* descriptors of the locks that were taken here */
};

/* Takes the locks of all granted GPUs, or none. -EWOULDBLOCK: a job of another daemon has one of them. */
int gpus_lock(struct gpus *g, const struct job_options *o, struct err *err);
void gpus_unlock(struct gpus *g);
/* Whether the rank says in its hello that it sees another GPU than the granted one (NULL: none was granted), or
 * several; *cause says so. */
bool gpus_is_wrong(const char *granted, int rank, const json_t *hello, char *cause, size_t size);

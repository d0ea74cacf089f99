/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/spool/tiers.h - the changes of deterministic tier that a job has
 * agreed to, in file `tiers` of its directory.
 *
 * A line "STEP TIER" each, oldest first: from STEP on, until a line with a larger step. A later line also takes the
 * place of earlier ones with the same or a larger step: who asks again after a crash means it. The first line is the
 * tier with which the job began, since spec.json may be written anew with a later one. The file outlives detd-job, so
 * every attempt trains each step in the same tier; a torn last line was never confirmed and is cut. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;
struct line;
struct tiers;

enum { TIERS_MAX = 256 }; /* of which go tells; older ones lie long before any checkpoint */

/* Caller closes. */
int tiers_open(const char *path, struct tiers **ret, struct err *err);
void tiers_close(struct tiers *t);
bool tiers_any(const struct tiers *t);
/* Durable after tiers_sync(), which may run in another thread. */
int tiers_add(struct tiers *t, int64_t step, const char *tier, struct err *err);
int tiers_sync(struct tiers *t, struct err *err);
/* Writes the member "tiers" of a go line. */
void tiers_write(const struct tiers *t, struct line *l);

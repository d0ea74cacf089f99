/* supervisor/tiers.h - the changes of deterministic tier that a job has agreed to, in file `tiers` of its directory.
 *
 * A line "STEP TIER" each, oldest first. It outlives detd-job, so that every attempt replays the same changes; a torn last line was
 * never confirmed and is cut. */
#pragma once
#include <stdint.h>

struct err;
struct line;
struct tiers;

enum { TIERS_MAX = 256 }; /* of which go tells; older ones lie long before any checkpoint */

/* Caller closes. */
int tiers_open(const char *path, struct tiers **ret, struct err *err);
void tiers_close(struct tiers *t);
/* Durable after tiers_sync(), which may run in another thread. */
int tiers_add(struct tiers *t, int64_t step, const char *tier, struct err *err);
int tiers_sync(struct tiers *t, struct err *err);
/* Writes the member "tiers" of a go line. */
void tiers_write(const struct tiers *t, struct line *l);

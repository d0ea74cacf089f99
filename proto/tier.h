/* SPDX-License-Identifier: Apache-2.0 */ /* proto/tier.h - the tiers of deterministic mode, and their names. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum tier {
    TIER_OFF,   /* nothing is promised */
    TIER_RERUN, /* the same bits on every rerun with the same number of ranks */
    TIER_WORLD, /* also with another number of ranks: a shard's bits depend on the shard alone */
    TIERS
};

const char *tier_name(int tier);  /* off, rerun, world; "" outside the range */
int tier_parse(const char *name); /* returns -1 for NULL and for unknown names */

#ifdef __cplusplus
}
#endif

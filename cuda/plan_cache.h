/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/plan_cache.h - plans by key, made by threads of their own, so that the shapes of later steps are ready when they come.
 * Only these threads plan, each with a target of its own. A plan is a pure function of its key, so it is the same whoever made it, when and
 * after what, and may be dropped and made again. Time is counted in turns: plan_cache_begin() begins one. */
#pragma once
#include "cuda/plan.h"

struct plan_cache;

enum { PLAN_THREADS = 4 };

/* Threads call attach() before anything else, to make the GPU their current one; NULL: not needed. */
int plan_cache_new(void (*attach)(void), struct plan_cache **ret_cache, struct err *err);
/* One more thread, up to PLAN_THREADS; at least one is needed. Takes over the target, success or not. */
int plan_cache_add(struct plan_cache *c, const struct plan_target *target, struct err *err);
/* Waits for plans that are being made; those after them are dropped. No plan may be in use. */
void plan_cache_free(struct plan_cache *c);
/* Asks for a plan without waiting. -ENOMEM only: a plan that cannot be made is an error of plan_cache_get(). */
int plan_cache_prepare(struct plan_cache *c, const struct plan_key *key, struct err *err);
/* The plan, before all others if it has to be made first. Borrowed until the next plan_cache_drop(). */
int plan_cache_get(struct plan_cache *c, const struct plan_key *key, struct plan **ret_plan, struct err *err);
/* A turn begins. Returns how many plans are there now that nobody asked for in the last `keep` turns, where all are more than `most`; else 0. */
size_t plan_cache_begin(struct plan_cache *c, int keep, size_t most);
/* Drops of these the ones that were asked for longest ago, until `least` plans are left or none of them is. None may be in use. Lines stay. */
void plan_cache_drop(struct plan_cache *c, int keep, size_t least);
/* When all that was asked for is made: how much that is, with what was dropped. */
void plan_cache_wait(struct plan_cache *c, struct plan_readiness *ret);
/* The plans' lines, of those dropped too, sorted, each ended by a newline, when all that was asked for is made. Caller frees. NULL: out of memory. */
char *plan_cache_text(struct plan_cache *c);

/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/plan_cache.h - plans by key, made by threads of their own, so that the
 * shapes of later steps are ready in time. Only these threads plan, each with its own target. A plan is a pure function
 * of its key: neither the thread nor the time changes it. It may be dropped and made again. Time is counted in turns:
 * plan_cache_begin() begins one. */
#pragma once
#include "cuda/plan.h"

struct plan_cache;

enum { PLAN_THREADS = 4 };

/* Each thread calls attach() before anything else, to make the GPU its current one; NULL: not needed. */
int plan_cache_new(void (*attach)(void), struct plan_cache **ret_cache, struct err *err);
/* Adds a thread, up to PLAN_THREADS; at least one is needed. Takes over the target, success or not. */
int plan_cache_add(struct plan_cache *c, const struct plan_target *target, struct err *err);
/* Waits for plans that are being made and drops the requests after them. No plan may be in use. */
void plan_cache_free(struct plan_cache *c);
/* Asks for a plan without waiting. Fails with -ENOMEM only: a plan that cannot be made is an error of
 * plan_cache_get(). */
int plan_cache_prepare(struct plan_cache *c, const struct plan_key *key, struct err *err);
/* The plan. If it is not made yet, it is made before all others. Borrowed until the next plan_cache_drop(). */
int plan_cache_get(struct plan_cache *c, const struct plan_key *key, struct plan **ret_plan, struct err *err);
/* Begins a turn. If there are more than `most` plans, returns the number of plans that were not asked for in the last
 * `keep` turns; else 0. */
size_t plan_cache_begin(struct plan_cache *c, int keep, size_t most);
/* Drops such plans, the longest unused first, until `least` plans are left or no such plan is. No dropped plan may be
 * in use. The plans' lines stay. */
void plan_cache_drop(struct plan_cache *c, int keep, size_t least);
/* Waits until all requested plans are made, and counts them, with the dropped ones. */
void plan_cache_wait(struct plan_cache *c, struct plan_readiness *ret);
/* Waits until all requested plans are made. Returns the plans' lines, those of dropped plans too, sorted, each ended by
 * a newline. Caller frees. NULL: out of memory. */
char *plan_cache_text(struct plan_cache *c);

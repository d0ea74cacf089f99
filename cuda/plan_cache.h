/* cuda/plan_cache.h - plans by key, made by a thread of their own, so that the shapes of later steps are ready when they come.
 * The thread is the only one that plans: the target is never used twice at once, and a plan comes out the same whoever asked for it first. */
#pragma once
#include "cuda/plan.h"

struct plan_cache;

/* Takes over the target, success or not. The thread calls attach() before anything else, to make the GPU its current one; NULL: not needed. */
int plan_cache_new(const struct plan_target *target, void (*attach)(void), struct plan_cache **ret_cache, struct err *err);
/* Waits for the plan that is being made; those after it are dropped. No plan may be in use. */
void plan_cache_free(struct plan_cache *c);
/* Asks for a plan without waiting. -ENOMEM only: a plan that cannot be made is an error of plan_cache_get(). */
int plan_cache_prepare(struct plan_cache *c, const struct plan_key *key, struct err *err);
/* The plan, before all others if it has to be made first. Borrowed, lives as long as the cache. */
int plan_cache_get(struct plan_cache *c, const struct plan_key *key, struct plan **ret_plan, struct err *err);
/* The plans' lines, sorted, each ended by a newline, when all that was asked for is made. Caller frees. NULL: out of memory. */
char *plan_cache_text(struct plan_cache *c);

/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/plan_key.h - the key of a plan: all that the choice of an algorithm
 * depends on besides the GPU and the libraries. It holds the convolution and the alignment of its memory. */
#pragma once
#include "cuda/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLAN_KEY_TEXT = 256, PLAN_ALIGN = 16 };

/* Compared and hashed as bytes, so padding must be zero: only plan_key_make() may make it. */
struct plan_key {
    struct conv_key conv;
    int align_x, align_w, align_y; /* bytes, a power of two up to PLAN_ALIGN; align_w: of w, dw and bias */
};

/* args NULL: memory as the allocators give it. In TIER_WORLD shards lie one after the other and are computed one by
 * one. A tensor's alignment is therefore also bounded by its own size, so that it is the same for every shard of the
 * rank. */
struct plan_key plan_key_make(const struct conv_key *conv, const struct conv_args *args);
bool plan_key_equal(const struct plan_key *a, const struct plan_key *b);
/* Output pixels of the convolution, per image and direction. */
int plan_key_out_h(const struct conv_key *k);
int plan_key_out_w(const struct conv_key *k);
/* "fwd bf16 rerun x[8,416,416,3] w[32,3,3,3] stride 1 pad 1"; pitches, bias, add and alignment follow if they are
 * unusual. Returns ret. */
char *plan_key_text(const struct plan_key *key, char ret[PLAN_KEY_TEXT]);
/* The same with "any" in place of the tier. */
char *plan_key_any_tier(const struct plan_key *key, char ret[PLAN_KEY_TEXT]);
/* Bytes of an element of x, w and y. */
size_t plan_key_bytes(const struct conv_key *k);

#ifdef __cplusplus
}
#endif

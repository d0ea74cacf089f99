/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/masks/mask_words.h - masks of one picture as words of bits on
 * one grid, so that the common part of two masks is a logical and. Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "worker/eval/result.h"

struct err;
struct rle;

/* Pixels in words of 64, columns x .. x + w - 1 of words, rows y .. y + h - 1; bit 63 is the leftmost. */
struct mask_words {
    int x, y, w, h;
    int64_t area; /* pixels that are set */
    size_t at;    /* of the first word in the store */
};

/* All zero: empty. May be reused for the next picture by setting used to 0. The owner frees `word`. */
struct mask_store {
    uint64_t *word;
    size_t used, room;
};

/* -ENOMEM. The mask's place must be sound (result_masks_check()). */
int mask_words_of_result(struct mask_store *s, const struct result_mask *m, struct mask_words *ret, struct err *err);
int mask_words_of_rle(struct mask_store *s, const struct rle *m, struct mask_words *ret, struct err *err);
/* Number of pixels in both. */
int64_t mask_words_common(const struct mask_store *s, const struct mask_words *a, const struct mask_words *b);

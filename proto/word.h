/* SPDX-License-Identifier: Apache-2.0 */ /* proto/word.h - the word of detd-job to the ranks of a program: one number
 * in their progress pages (progress.h, member `order`). PROTOCOL.md says how it is given and answered. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* X(ident, number, name) */
#define WORDS(X)                   \
    X(CHECKPOINT, 1, "checkpoint") \
    X(VALIDATE, 2, "validate")     \
    X(PAUSE, 3, "pause")           \
    X(CANCEL, 4, "cancel")
#define X(ident, number, name) WORD_##ident = number,
enum word { WORDS(X) WORD_END };
#undef X

#define WORD_STEP_MAX ((INT64_C(1) << 48) - 1)
enum { WORD_SHIFT = 48, WORD_RELEASED = 52, WORD_SERIAL = 53, WORD_SERIALS = 1 << 11 };

static inline uint64_t word_pack(enum word word, int64_t step, bool released, unsigned serial)
{
    return (uint64_t)step | (uint64_t)word << WORD_SHIFT | (uint64_t)released << WORD_RELEASED |
           (uint64_t)(serial % WORD_SERIALS) << WORD_SERIAL;
}

static inline int64_t word_step(uint64_t order)
{
    return (int64_t)(order & (uint64_t)WORD_STEP_MAX);
}

static inline enum word word_of(uint64_t order)
{
    return (enum word)(order >> WORD_SHIFT & 15);
}

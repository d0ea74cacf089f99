/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/text.h - a growing text, for JSON that is written without a
 * tree. A failed allocation is remembered; later calls do nothing. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct text {
    char *p; /* NUL-terminated once anything was added; the owner frees it with text_free() or takes it with text_take() */
    size_t len, cap;
    bool failed;
};

void text_free(struct text *t);
/* The text itself, for free(); NULL after a failed allocation. Empties t. */
char *text_take(struct text *t, size_t *ret_len);
void text_add(struct text *t, const char *s);
void text_add_bytes(struct text *t, const char *s, size_t len);
void text_addf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A JSON string with its quotes (NULL: null); bytes that are not UTF-8 become '?'. */
void text_json(struct text *t, const char *s);
/* A JSON number with 17 digits; null if it is not finite. */
void text_real(struct text *t, double v);

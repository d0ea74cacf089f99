/* SPDX-License-Identifier: Apache-2.0 */ /* proto/line.h - writes one JSON object as one line into a fixed buffer,
 * without allocation, so that a rank may report inside a step.
 *
 * Values are named by key; key NULL writes an element of an array. Text is escaped; bytes that are not UTF-8 become
 * '?'. A value that does not fit sets `full`, and line_done() then returns an error. Nothing is written beyond the
 * buffer. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

struct line {
    char *buf;
    size_t size, len;
    bool comma, full;
};

/* Begins {"type":"TYPE" in buf, which the caller owns and keeps. */
void line_begin(struct line *l, char *buf, size_t size_bytes, const char *type);
void line_str(struct line *l, const char *key, const char *value);                    /* NULL: null */
void line_text(struct line *l, const char *key, const char *value, size_t max_bytes); /* at most max_bytes, cut between characters */
void line_int(struct line *l, const char *key, int64_t value);
void line_real(struct line *l, const char *key, double value); /* 17 digits; not finite: null */
void line_bool(struct line *l, const char *key, bool value);
void line_null(struct line *l, const char *key);
void line_json(struct line *l, const char *key, const char *json); /* json is one line of JSON already */
void line_open(struct line *l, const char *key, char bracket);     /* '{' or '[' */
void line_close(struct line *l, char bracket);                     /* '}' or ']' */
/* Ends the object with "}\n" and a NUL. Returns 0, or ERR_INPUT when the object did not fit. */
int line_done(struct line *l, struct err *err);

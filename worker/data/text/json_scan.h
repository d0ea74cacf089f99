/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/text/json_scan.h - pull scanner for large JSON in memory: no
 * tree, no allocation. Accepts RFC 8259, a byte order mark, and, in values that the caller skips, NaN, Infinity and
 * -Infinity, which Python's json module writes. Bad UTF-8, trailing commas and trailing text are errors with line and
 * byte. Nesting is bounded.
 *
 * The caller asks for the values it expects, in the order of the text:
 *     scan_object(s); while (scan_member(s)) { if (scan_key_is(s, "id")) scan_number(s, &n); else scan_skip(s); }
 * The first error sticks: from then on every call does nothing and returns 0, so that only the end of a loop must check
 * scan_failed(). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum { JSON_MAX_DEPTH = 256, JSON_MAX_KEY = 256, JSON_MAX_DIGITS = 512 };

enum json_kind { JSON_ERROR, JSON_OBJECT, JSON_ARRAY, JSON_STRING, JSON_NUMBER, JSON_TRUE, JSON_FALSE, JSON_NULL, JSON_NONFINITE };

struct json_scan {
    const char *name, *begin, *at, *end;
    int depth;
    bool first[JSON_MAX_DEPTH + 1]; /* of each open object or array: no member read yet */
    char closer[JSON_MAX_DEPTH + 1];
    char key[JSON_MAX_KEY]; /* of the last member, cut if longer */
    struct err err;
};

struct json_num {
    double real;
    int64_t integer; /* valid when is_integer: the exact value */
    bool is_integer; /* written with or without point and exponent: 1.0 and 1e2 are integers */
};

/* bytes stay the caller's and must outlive the scan; name is for messages. */
void scan_open(struct json_scan *s, const char *name, const char *bytes, size_t len);
static inline bool scan_failed(const struct json_scan *s)
{
    return s->err.code != 0;
}
/* The kind of the next value, without taking it. */
enum json_kind scan_peek(struct json_scan *s);
/* Enter an object or array. Anything else there is an error. */
bool scan_object(struct json_scan *s);
bool scan_array(struct json_scan *s);
/* To the next member (its name is then in s->key) or element; false at the end, which is taken. */
bool scan_member(struct json_scan *s);
bool scan_element(struct json_scan *s);
static inline bool scan_key_is(const struct json_scan *s, const char *key)
{
    const char *a = s->key;

    while (*a && *a == *key)
        a++, key++;
    return *a == *key;
}
/* Take a value. scan_string() decodes into buf with a NUL; longer than cap is an error. */
bool scan_number(struct json_scan *s, struct json_num *ret);
/* Takes any value: true if it is a number that a double holds. Only bad JSON fails the scan. */
bool scan_finite(struct json_scan *s, struct json_num *ret);
bool scan_string(struct json_scan *s, char *buf, size_t cap, size_t *ret_len);
/* Like scan_string() into memory that grows (realloc); the caller frees *buf. Out of memory fails the scan with
 * -ENOMEM. */
bool scan_text(struct json_scan *s, char **buf, size_t *cap, size_t *ret_len);
bool scan_skip(struct json_scan *s);
/* Only blanks may follow. */
bool scan_finish(struct json_scan *s);
/* Fails the scan with "NAME, line L, byte B: ..."; returns false. */
bool scan_fail(struct json_scan *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Fails the scan because memory ran out; returns false. */
bool scan_no_memory(struct json_scan *s);

/* worker/data/json_scan.h - pull scanner for large JSON in memory: no tree, no allocation. Accepts RFC 8259 and a byte order mark, nothing else:
 * bad UTF-8, NaN, trailing commas and trailing text are errors with line and byte. Nesting is bounded.
 *
 * The caller asks for what it expects, in the order of the text:
 *     json_object(s); while (json_member(s)) { if (json_key_is(s, "id")) json_number(s, &n); else json_skip(s); }
 * The first error sticks: from then on every call does nothing and says 0, so that only the end of a loop need look at json_failed(). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum { JSON_MAX_DEPTH = 256, JSON_MAX_KEY = 256, JSON_MAX_DIGITS = 512 };

enum json_kind { JSON_ERROR, JSON_OBJECT, JSON_ARRAY, JSON_STRING, JSON_NUMBER, JSON_TRUE, JSON_FALSE, JSON_NULL };

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
void json_open(struct json_scan *s, const char *name, const char *bytes, size_t len);
static inline bool json_failed(const struct json_scan *s)
{
    return s->err.code != 0;
}
/* What comes next, without taking it. */
enum json_kind json_peek(struct json_scan *s);
/* Enter. Anything else there is an error. */
bool json_object(struct json_scan *s);
bool json_array(struct json_scan *s);
/* To the next member (its name is then in s->key) or element; false at the end, which is taken. */
bool json_member(struct json_scan *s);
bool json_element(struct json_scan *s);
static inline bool json_key_is(const struct json_scan *s, const char *key)
{
    const char *a = s->key;

    while (*a && *a == *key)
        a++, key++;
    return *a == *key;
}
/* Take a value. json_string() decodes into buf with a NUL; longer than cap is an error. */
bool json_number(struct json_scan *s, struct json_num *ret);
bool json_string(struct json_scan *s, char *buf, size_t cap, size_t *ret_len);
/* Like json_string() into memory that grows (realloc); the caller frees *buf. Out of memory fails the scan with -ENOMEM. */
bool json_text(struct json_scan *s, char **buf, size_t *cap, size_t *ret_len);
bool json_skip(struct json_scan *s);
/* Nothing but blanks may follow. */
bool json_finish(struct json_scan *s);
/* Line and byte in the line of where the scan stands, both from 1. */
void json_position(const struct json_scan *s, int64_t *ret_line, int64_t *ret_byte);
/* Fails the scan with "NAME, line L, byte B: ..."; returns false. */
bool json_fail(struct json_scan *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

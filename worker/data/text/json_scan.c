#include "worker/data/text/json_scan.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/utf8.h"
#include "worker/data/text/text_lines.h"

void scan_open(struct json_scan *s, const char *name, const char *bytes, size_t len)
{
    memset(s, 0, sizeof *s);
    s->name = name;
    s->begin = bytes;
    s->at = bytes + text_mark(bytes, len);
    s->end = bytes + len;
}

/* Line, and byte in the line, of the current position, both from 1. */
static void position(const struct json_scan *s, int64_t *ret_line, int64_t *ret_byte)
{
    const char *line = s->begin, *nl;

    *ret_line = 1;
    while (line < s->at && (nl = memchr(line, '\n', (size_t)(s->at - line)))) {
        line = nl + 1;
        ++*ret_line;
    }
    *ret_byte = s->at - line + 1;
}

bool scan_fail(struct json_scan *s, const char *fmt, ...)
{
    char text[256];
    int64_t line, byte;
    va_list ap;

    if (scan_failed(s))
        return false;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    position(s, &line, &byte);
    err_set(&s->err, ERR_DATA, "%s, line %lld, byte %lld: %s", s->name, (long long)line, (long long)byte, text);
    return false;
}

bool scan_no_memory(struct json_scan *s)
{
    if (!scan_failed(s))
        err_set(&s->err, -ENOMEM, "%s: no memory", s->name);
    return false;
}

/* The word at p that Python writes for an infinite number or a NaN; otherwise NULL. */
static const char *nonfinite(const char *p, const char *end)
{
    static const char *const words[] = { "NaN", "Infinity", "-Infinity" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if ((size_t)(end - p) >= strlen(words[i]) && memcmp(p, words[i], strlen(words[i])) == 0)
            return words[i];
    return NULL;
}

/* Fails with "expected ..., found ...", naming the byte or word at this position. */
static bool unexpected(struct json_scan *s, const char *wanted)
{
    if (s->at >= s->end)
        return scan_fail(s, "expected %s, but the file ends", wanted);
    if (nonfinite(s->at, s->end))
        return scan_fail(s, "expected %s, found %s", wanted, nonfinite(s->at, s->end));
    if ((unsigned char)*s->at < 0x20 || (unsigned char)*s->at >= 0x7f)
        return scan_fail(s, "expected %s, found byte 0x%02x", wanted, (unsigned char)*s->at);
    return scan_fail(s, "expected %s, found '%c'", wanted, *s->at);
}

static void blanks(struct json_scan *s)
{
    const char *p = s->at;

    while (p < s->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    s->at = p;
}

enum json_kind scan_peek(struct json_scan *s)
{
    if (scan_failed(s))
        return JSON_ERROR;
    blanks(s);
    switch (s->at < s->end ? *s->at : 0) {
    case '{':
        return JSON_OBJECT;
    case '[':
        return JSON_ARRAY;
    case '"':
        return JSON_STRING;
    case 't':
        return JSON_TRUE;
    case 'f':
        return JSON_FALSE;
    case 'n':
        return JSON_NULL;
    case '0' ... '9':
        return JSON_NUMBER;
    case '-':
        return nonfinite(s->at, s->end) ? JSON_NONFINITE : JSON_NUMBER;
    default:
        if (nonfinite(s->at, s->end))
            return JSON_NONFINITE;
        unexpected(s, "a value");
        return JSON_ERROR;
    }
}

static bool enter(struct json_scan *s, enum json_kind kind, const char *wanted, char closer)
{
    if (scan_peek(s) != kind)
        return unexpected(s, wanted);
    if (s->depth == JSON_MAX_DEPTH)
        return scan_fail(s, "nested more than %d deep", JSON_MAX_DEPTH);
    s->at++;
    s->depth++;
    s->first[s->depth] = true;
    s->closer[s->depth] = closer;
    return true;
}

bool scan_object(struct json_scan *s)
{
    return enter(s, JSON_OBJECT, "an object", '}');
}

bool scan_array(struct json_scan *s)
{
    return enter(s, JSON_ARRAY, "an array", ']');
}

/* Moves past the comma before the next member. Returns false at the closing bracket, which is taken, or on error. */
static bool another(struct json_scan *s)
{
    char closer = s->closer[s->depth];

    if (scan_failed(s))
        return false;
    blanks(s);
    if (s->at < s->end && *s->at == closer) {
        s->at++;
        s->depth--;
        return false;
    }
    if (s->first[s->depth]) {
        s->first[s->depth] = false;
        return true;
    }
    if (s->at >= s->end || *s->at != ',')
        return unexpected(s, closer == '}' ? "',' or '}'" : "',' or ']'");
    s->at++;
    blanks(s);
    if (s->at < s->end && *s->at == closer)
        return scan_fail(s, "comma before '%c'", closer);
    return true;
}

bool scan_element(struct json_scan *s)
{
    return another(s);
}

/* ---- strings ---- */

/* The first byte from p on that is not plain text: quote, backslash, control or non-ASCII. Tests eight bytes at a
 * time. */
static const char *plain_end(const char *p, const char *end)
{
    const uint64_t ones = 0x0101010101010101, tops = 0x8080808080808080;
    uint64_t v, quote, slash;

    for (; end - p >= 8; p += 8) {
        memcpy(&v, p, 8);
        quote = v ^ ones * '"';
        slash = v ^ ones * '\\';
        if ((v | (v - ones * 0x20) | (quote - ones) | (slash - ones)) & tops)
            break;
    }
    while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80)
        p++;
    return p;
}

static int hex4(const char *p, const char *end)
{
    int v = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];

        if (c >= '0' && c <= '9')
            v = v * 16 + c - '0';
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            v = v * 16 + (c | 32) - 'a' + 10;
        else
            return -1;
    }
    return v;
}

static int put_utf8(unsigned u, char out[4])
{
    if (u < 0x80) {
        out[0] = (char)u;
        return 1;
    }
    if (u < 0x800) {
        out[0] = (char)(0xc0 | u >> 6);
        out[1] = (char)(0x80 | (u & 63));
        return 2;
    }
    if (u < 0x10000) {
        out[0] = (char)(0xe0 | u >> 12);
        out[1] = (char)(0x80 | (u >> 6 & 63));
        out[2] = (char)(0x80 | (u & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | u >> 18);
    out[1] = (char)(0x80 | (u >> 12 & 63));
    out[2] = (char)(0x80 | (u >> 6 & 63));
    out[3] = (char)(0x80 | (u & 63));
    return 4;
}

/* s->at is just behind "\u". Returns the number of bytes put into out, or 0 on error. */
static int unicode_escape(struct json_scan *s, char out[4])
{
    int hi = hex4(s->at, s->end), lo;

    if (hi < 0)
        return scan_fail(s, "\\u needs four hex digits");
    if (hi == 0)
        return scan_fail(s, "NUL in a string");
    s->at += 4;
    if (hi < 0xd800 || hi > 0xdfff)
        return put_utf8((unsigned)hi, out);
    if (hi > 0xdbff || s->end - s->at < 6 || s->at[0] != '\\' || s->at[1] != 'u')
        return scan_fail(s, "half of a surrogate pair");
    lo = hex4(s->at + 2, s->end);
    if (lo < 0xdc00 || lo > 0xdfff)
        return scan_fail(s, "half of a surrogate pair");
    s->at += 6;
    return put_utf8(0x10000u + ((unsigned)(hi - 0xd800) << 10) + (unsigned)(lo - 0xdc00), out);
}

/* s->at is at the backslash. */
static int escape(struct json_scan *s, char out[4])
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *hit;

    if (s->end - s->at < 2)
        return scan_fail(s, "the file ends inside a string");
    hit = memchr(from, s->at[1], sizeof from - 1);
    if (hit) {
        s->at += 2;
        out[0] = to[hit - from];
        return 1;
    }
    if (s->at[1] != 'u')
        return scan_fail(s, "unknown escape in a string");
    s->at += 2;
    return unicode_escape(s, out);
}

/* Takes a run of plain bytes, one UTF-8 sequence or one escape. *from points to its bytes (a decoded escape is in tmp).
 * 0: error. */
static size_t string_piece(struct json_scan *s, char tmp[4], const char **from)
{
    const char *stop = plain_end(s->at, s->end);
    int n;

    *from = s->at;
    if (stop > s->at) {
        s->at = stop;
        return (size_t)(stop - *from);
    }
    if (s->at >= s->end)
        return scan_fail(s, "the file ends inside a string");
    if (*s->at == '\\') {
        *from = tmp;
        return (size_t)escape(s, tmp);
    }
    if ((unsigned char)*s->at < 0x20)
        return scan_fail(s, "control character 0x%02x in a string", (unsigned char)*s->at);
    n = utf8_length((const unsigned char *)s->at, (const unsigned char *)s->end);
    if (n == 0)
        return scan_fail(s, "invalid UTF-8 in a string");
    s->at += n;
    return (size_t)n;
}

/* Takes the string at s->at. A string that exceeds buf is checked but cut off; *ret_len is the full length. buf may be
 * NULL. */
static bool take_string(struct json_scan *s, char *buf, size_t cap, size_t *ret_len)
{
    size_t len = 0, n;
    const char *from;
    char tmp[4];

    s->at++;
    while (s->at >= s->end || *s->at != '"') {
        n = string_piece(s, tmp, &from);
        if (n == 0)
            return false;
        if (buf && len + n < cap)
            memcpy(buf + len, from, n);
        len += n;
    }
    s->at++;
    if (buf && cap)
        buf[len < cap ? len : cap - 1] = '\0';
    *ret_len = len;
    return true;
}

bool scan_string(struct json_scan *s, char *buf, size_t cap, size_t *ret_len)
{
    if (scan_peek(s) != JSON_STRING)
        return unexpected(s, "a string");
    if (!take_string(s, buf, cap, ret_len))
        return false;
    return *ret_len < cap || scan_fail(s, "string of %zu bytes is over the limit of %zu", *ret_len, cap - 1);
}

bool scan_text(struct json_scan *s, char **buf, size_t *cap, size_t *ret_len)
{
    const char *start;
    char *grown;

    if (scan_peek(s) != JSON_STRING)
        return unexpected(s, "a string");
    start = s->at;
    if (!take_string(s, *buf, *cap, ret_len))
        return false;
    if (*ret_len < *cap)
        return true;
    grown = realloc(*buf, *ret_len * 2 + 1);
    if (!grown) {
        err_set(&s->err, -ENOMEM, "%s: no memory for a string of %zu bytes", s->name, *ret_len);
        return false;
    }
    *buf = grown;
    *cap = *ret_len * 2 + 1;
    s->at = start;
    return take_string(s, *buf, *cap, ret_len);
}

bool scan_member(struct json_scan *s)
{
    size_t len;

    if (!another(s))
        return false;
    blanks(s);
    if (s->at >= s->end || *s->at != '"')
        return unexpected(s, "a member name in quotes");
    if (!take_string(s, s->key, sizeof s->key, &len))
        return false;
    if (len >= sizeof s->key)
        s->key[0] = '\0'; /* all known keys are shorter */
    blanks(s);
    if (s->at >= s->end || *s->at != ':')
        return unexpected(s, "':'");
    s->at++;
    return true;
}

/* ---- numbers ---- */

struct digits {
    uint64_t mantissa;
    int count, exponent; /* value = mantissa * 10^exponent when count <= 19 */
};

/* d is NULL for a skipped number. Inlined, so that the compiler then drops the sums. */
#define INNER static inline __attribute__((always_inline))

INNER const char *take_digits(const char *p, const char *end, struct digits *d)
{
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        if (!d)
            continue;
        if (d->count < 19)
            d->mantissa = d->mantissa * 10 + (uint64_t)(*p - '0');
        d->count += d->count > 0 || *p != '0';
    }
    return p;
}

static const char *take_exponent(const char *p, const char *end, int *ret)
{
    int sign = 1, e = 0;

    p++;
    if (p < end && (*p == '-' || *p == '+'))
        sign = *p++ == '-' ? -1 : 1;
    if (p >= end || *p < '0' || *p > '9')
        return NULL;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        e = e < 100000 ? e * 10 + *p - '0' : e;
    *ret += sign * e;
    return p;
}

/* Checks the shape of a number by RFC 8259, section 6. Returns its end, or NULL. */
INNER const char *number_shape(const char *p, const char *end, struct digits *d)
{
    const char *start;
    int exponent = 0;

    p += *p == '-';
    start = p;
    p = take_digits(p, end, d);
    if (p == start || (*start == '0' && p - start > 1))
        return NULL;
    if (p < end && *p == '.') {
        start = ++p;
        p = take_digits(p, end, d);
        if (p == start)
            return NULL;
        exponent -= (int)(p - start > 100000 ? 100000 : p - start);
    }
    if (p < end && (*p == 'e' || *p == 'E'))
        p = take_exponent(p, end, &exponent);
    if (d)
        d->exponent = exponent;
    return p;
}

static const double powers[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };

/* Exact operands and one rounding give the correctly rounded result. Returns false for all other numbers: strtod() is
 * needed. */
static bool fast_real(const struct digits *d, double *ret)
{
    if (d->count > 19 || d->mantissa > (uint64_t)1 << 53 || d->exponent < -22 || d->exponent > 22)
        return false;
    *ret = d->exponent < 0 ? (double)d->mantissa / powers[-d->exponent] : (double)d->mantissa * powers[d->exponent];
    return true;
}

static bool slow_real(struct json_scan *s, const char *stop, double *ret)
{
    char text[JSON_MAX_DIGITS + 1];
    size_t len = (size_t)(stop - s->at);

    if (len > JSON_MAX_DIGITS)
        return scan_fail(s, "number of %zu characters is over the limit of %d", len, JSON_MAX_DIGITS);
    memcpy(text, s->at, len);
    text[len] = '\0';
    *ret = fabs(strtod(text, NULL));
    return true;
}

static void set_integer(struct json_num *n, const struct digits *d, bool negative)
{
    uint64_t v = d->mantissa, limit = (uint64_t)INT64_MAX;
    int e = d->exponent;

    n->is_integer = false;
    if (d->count > 19)
        return;
    for (; e < 0 && v % 10 == 0 && v; e++)
        v /= 10;
    for (; e > 0 && v <= limit / 10 && v; e--)
        v *= 10;
    if ((v && e != 0) || v > limit)
        return;
    n->is_integer = true;
    n->integer = negative ? -(int64_t)v : (int64_t)v;
}

/* A number too large for a double becomes infinite. */
static bool take_number(struct json_scan *s, struct json_num *ret)
{
    struct digits d = { 0 };
    const bool negative = *s->at == '-';
    const char *stop = number_shape(s->at, s->end, &d);

    if (!stop)
        return scan_fail(s, "malformed number");
    if (!fast_real(&d, &ret->real) && !slow_real(s, stop, &ret->real))
        return false;
    if (negative)
        ret->real = -ret->real;
    set_integer(ret, &d, negative);
    s->at = stop;
    return true;
}

bool scan_number(struct json_scan *s, struct json_num *ret)
{
    const char *start;
    int len;

    if (scan_peek(s) != JSON_NUMBER)
        return unexpected(s, "a number");
    start = s->at;
    if (!take_number(s, ret) || isfinite(ret->real))
        return !scan_failed(s);
    len = (int)(s->at - start < 40 ? s->at - start : 40);
    s->at = start; /* the message points there */
    return scan_fail(s, "number %.*s is out of range", len, start);
}

bool scan_finite(struct json_scan *s, struct json_num *ret)
{
    if (scan_peek(s) == JSON_NUMBER)
        return take_number(s, ret) && isfinite(ret->real);
    scan_skip(s);
    return false;
}

/* ---- the rest ---- */

static bool take_word(struct json_scan *s, const char *word)
{
    size_t len = strlen(word);

    if ((size_t)(s->end - s->at) < len || memcmp(s->at, word, len) != 0)
        return scan_fail(s, "expected '%s'", word);
    s->at += len;
    return true;
}

static bool skip_scalar(struct json_scan *s, enum json_kind kind)
{
    const char *stop;
    size_t len;

    switch (kind) {
    case JSON_STRING:
        return take_string(s, NULL, 0, &len);
    case JSON_NUMBER:
        stop = number_shape(s->at, s->end, NULL);
        if (!stop)
            return scan_fail(s, "malformed number");
        s->at = stop;
        return true;
    case JSON_TRUE:
        return take_word(s, "true");
    case JSON_FALSE:
        return take_word(s, "false");
    case JSON_NULL:
        return take_word(s, "null");
    case JSON_NONFINITE:
        return take_word(s, nonfinite(s->at, s->end));
    default:
        return false;
    }
}

/* Not recursive: a file of 100,000 brackets must not exhaust the stack. */
bool scan_skip(struct json_scan *s)
{
    int base = s->depth;

    do {
        if (s->depth > base && !(s->closer[s->depth] == '}' ? scan_member(s) : scan_element(s))) {
            if (scan_failed(s))
                return false;
            continue; /* this level is closed */
        }
        switch (scan_peek(s)) {
        case JSON_OBJECT:
            scan_object(s);
            break;
        case JSON_ARRAY:
            scan_array(s);
            break;
        default:
            skip_scalar(s, scan_peek(s));
        }
    } while (!scan_failed(s) && s->depth > base);
    return !scan_failed(s);
}

bool scan_finish(struct json_scan *s)
{
    if (scan_failed(s))
        return false;
    blanks(s);
    return s->at == s->end || scan_fail(s, "text after the end of the document");
}

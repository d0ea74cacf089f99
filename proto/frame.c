#include "proto/frame.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"

/* An empty cutter keeps at most this, so that one long line does not stay in an idle daemon's memory. */
enum { FRAME_KEEP_BYTES = 16 << 10 };

/* buf[start, whole) holds whole lines, buf[whole, end) the beginning of the next one. */
struct frame {
    char *buf;
    size_t cap, start, whole, end, max_line;
    bool broken; /* the line at `whole` is over the limit: nothing after it can be trusted */
};

struct frame *frame_new(size_t max_line)
{
    struct frame *f = calloc(1, sizeof *f);

    if (f)
        f->max_line = max_line;
    return f;
}

void frame_free(struct frame *f)
{
    if (!f)
        return;
    free(f->buf);
    free(f);
}

/* Moves the remaining bytes to the front and makes room for len bytes and a terminator. */
static int make_room(struct frame *f, size_t len)
{
    size_t used = f->end - f->start, need = used + len + 1, cap;

    if (f->start > 0) {
        memmove(f->buf, f->buf + f->start, used);
        f->whole -= f->start;
        f->end = used;
        f->start = 0;
    }
    if (need <= FRAME_KEEP_BYTES)
        frame_trim(f);
    if (need <= f->cap)
        return 0;
    for (cap = f->cap ? f->cap : 4096; cap < need;)
        cap *= 2;
    char *buf = realloc(f->buf, cap);
    if (!buf)
        return -ENOMEM;
    f->buf = buf;
    f->cap = cap;
    return 0;
}

/* Returns how many of the bytes may be taken: all, or the bytes before a line that is too long. *ret_whole: bytes that
 * end whole lines. */
static size_t measure(const struct frame *f, const char *bytes, size_t len, size_t *ret_whole)
{
    size_t open = f->end - f->whole, at = 0;

    *ret_whole = 0;
    while (at < len) {
        const char *newline = memchr(bytes + at, '\n', len - at);
        size_t part = newline ? (size_t)(newline - (bytes + at)) : len - at;

        if (open + part > f->max_line)
            return *ret_whole;
        at += part;
        if (newline) {
            at++;
            *ret_whole = at;
            open = 0;
        }
    }
    return len;
}

int frame_push(struct frame *f, const char *bytes, size_t len, struct err *err)
{
    size_t whole, take;

    if (!f->broken) {
        take = measure(f, bytes, len, &whole);
        if (make_room(f, take) < 0)
            return err_set(err, -ENOMEM, "out of memory for a line");
        assert(f->buf); /* make_room() always makes room for the terminator */
        memcpy(f->buf + f->end, bytes, take);
        if (whole > 0)
            f->whole = f->end + whole;
        f->end += take;
        f->broken = take < len;
    }
    return f->broken ? err_set(err, ERR_PROTO, "line is longer than %zu bytes", f->max_line) : 0;
}

const char *frame_next(struct frame *f, size_t *ret_len)
{
    if (f->start == f->whole)
        return NULL;
    char *line = f->buf + f->start;
    size_t len = (size_t)((char *)memchr(line, '\n', f->whole - f->start) - line);

    f->start += len + 1;
    if (len > 0 && line[len - 1] == '\r')
        len--;
    line[len] = '\0';
    if (ret_len)
        *ret_len = len;
    return line;
}

size_t frame_bytes(const struct frame *f)
{
    return f->end - f->start;
}

void frame_clear(struct frame *f)
{
    f->start = f->whole = f->end = 0;
    frame_trim(f);
}

void frame_trim(struct frame *f)
{
    if (f->start < f->end || f->cap <= FRAME_KEEP_BYTES)
        return;
    free(f->buf);
    f->buf = NULL;
    f->cap = f->start = f->whole = f->end = 0;
}

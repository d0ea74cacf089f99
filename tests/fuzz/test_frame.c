/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_frame.c - uses: proto
 * Lines out of a byte stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/frame.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "frame";
const int fuzz_places = 120;

enum { LINE_MAX_BYTES = 64 };

/* Feeds the lines before the first overlong line, in two parts. The whole input is accepted if and only if no line is
 * too long. */
static void feed(const char *bytes, size_t len)
{
    size_t half = len / 2, at = 0, line_len;
    struct frame *f = frame_new(LINE_MAX_BYTES);
    struct err err = { 0 };
    const char *line, *end;
    int rc = 0;

    for (int part = 0; part < 2; part++) {
        rc = frame_push(f, bytes + (part ? half : 0), part ? len - half : half, &err);
        while ((line = frame_next(f, &line_len))) {
            end = memchr(bytes + at, '\n', len - at);
            assert_non_null(end);
            size_t want = (size_t)(end - (bytes + at)), shown = want > 0 && end[-1] == '\r' ? want - 1 : want;

            assert_true(want <= LINE_MAX_BYTES && line_len == shown && line[line_len] == '\0');
            assert_memory_equal(line, bytes + at, shown);
            at += want + 1;
        }
    }
    end = memchr(bytes + at, '\n', len - at);
    if ((size_t)((end ? end : bytes + len) - (bytes + at)) > LINE_MAX_BYTES) {
        assert_int_equal(rc, ERR_PROTO);
        assert_string_equal(err.msg, "line is longer than 64 bytes");
    } else {
        assert_int_equal(rc, 0);
        assert_null(end); /* the remaining bytes are the beginning of a line */
    }
    frame_free(f);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    feed((const char *)bytes, size);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* Line cutting: chunks, limits, CR, recycling. uses: proto */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/frame.h"

static void whole_lines(void **state)
{
    struct frame *f = frame_new(100);
    struct err err;
    size_t len;

    (void)state;
    assert_int_equal(frame_push(f, "one\ntwo\r\n\nthr", 13, &err), 0);
    assert_string_equal(frame_next(f, &len), "one");
    assert_int_equal(len, 3);
    assert_string_equal(frame_next(f, &len), "two");
    assert_int_equal(len, 3);
    assert_string_equal(frame_next(f, &len), "");
    assert_int_equal(len, 0);
    assert_null(frame_next(f, &len));
    assert_int_equal(frame_push(f, "ee\n", 3, &err), 0);
    assert_string_equal(frame_next(f, NULL), "three");
    assert_null(frame_next(f, NULL));
    frame_free(f);
    frame_free(NULL);
}

/* The same stream cut at every pair of places gives the same lines. */
static void any_chunks(void **state)
{
    static const char stream[] = "{\"a\":1}\n\nxy\r\nlast line\nrest";
    const size_t n = sizeof stream - 1;
    struct err err;

    (void)state;
    for (size_t a = 0; a <= n; a++) {
        for (size_t b = a; b <= n; b++) {
            struct frame *f = frame_new(16);
            char seen[64] = "";
            const char *line;
            const size_t cut[] = { 0, a, b, n };

            for (int i = 0; i < 3; i++) {
                assert_int_equal(frame_push(f, stream + cut[i], cut[i + 1] - cut[i], &err), 0);
                while ((line = frame_next(f, NULL)))
                    strcat(strcat(seen, line), "|");
            }
            assert_string_equal(seen, "{\"a\":1}||xy|last line|");
            frame_free(f);
        }
    }
}

/* An overlong line breaks the stream for any cut; the lines before it are still returned. */
static void too_long(void **state)
{
    static const char stream[] = "ok\n12345678\n123456789\nnever\n";
    const size_t n = sizeof stream - 1;

    (void)state;
    for (size_t a = 0; a <= n; a++) {
        struct frame *f = frame_new(8);
        struct err err = { 0 };
        int rc = frame_push(f, stream, a, &err);

        if (rc == 0)
            rc = frame_push(f, stream + a, n - a, &err);
        assert_int_equal(rc, ERR_PROTO);
        assert_string_equal(err.msg, "line is longer than 8 bytes");
        assert_string_equal(frame_next(f, NULL), "ok");
        assert_string_equal(frame_next(f, NULL), "12345678");
        assert_null(frame_next(f, NULL));
        assert_int_equal(frame_push(f, "\nx\n", 3, &err), ERR_PROTO);
        assert_null(frame_next(f, NULL));
        frame_free(f);
    }
}

static void many_and_big(void **state)
{
    struct frame *f = frame_new(1 << 20);
    char *big = malloc(1 << 20);
    struct err err;
    size_t len;

    (void)state;
    memset(big, 'x', 1 << 20);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(frame_push(f, big, 1 << 20, &err), 0);
        assert_null(frame_next(f, &len));
        assert_int_equal(frame_push(f, "\n", 1, &err), 0);
        assert_non_null(frame_next(f, &len));
        assert_int_equal(len, 1 << 20);
        int seen = 0;
        for (int i = 0; i < 1000; i++) {
            assert_int_equal(frame_push(f, "a\nbc\n", 5, &err), 0);
            while (i % 3 == 0 && frame_next(f, NULL)) /* sometimes more comes in before anything is read */
                seen++;
        }
        assert_int_equal(seen, 2000);
    }
    free(big);
    frame_free(f);
}

/* The memory of a long line is freed as soon as no bytes are left, and not before. */
static void long_lines_leave_nothing(void **state)
{
    struct frame *f = frame_new(1 << 20);
    char *big = malloc(1 << 20);
    struct mallinfo2 before = mallinfo2(), after;
    struct err err;

    (void)state;
    assert_non_null(big);
    memset(big, 'x', 1 << 20);
    big[(1 << 20) - 4] = '\n';
    assert_int_equal(frame_push(f, big, 1 << 20, &err), 0);
    assert_int_equal(frame_bytes(f), 1 << 20);
    assert_non_null(frame_next(f, NULL));
    frame_trim(f);
    assert_int_equal(frame_bytes(f), 3);
    assert_int_equal(frame_push(f, "y\n", 2, &err), 0);
    assert_string_equal(frame_next(f, NULL), "xxxy");
    assert_int_equal(frame_bytes(f), 0);
    frame_trim(f);
    after = mallinfo2();
    assert_true(after.uordblks + after.hblkhd <= before.uordblks + before.hblkhd);
    assert_int_equal(frame_push(f, big, 100000, &err), 0);
    frame_clear(f);
    assert_int_equal(frame_bytes(f), 0);
    after = mallinfo2();
    assert_true(after.uordblks + after.hblkhd <= before.uordblks + before.hblkhd);
    assert_int_equal(frame_push(f, "z\n", 2, &err), 0);
    assert_string_equal(frame_next(f, NULL), "z");
    free(big);
    frame_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_lines),
        cmocka_unit_test(any_chunks),
        cmocka_unit_test(too_long),
        cmocka_unit_test(many_and_big),
        cmocka_unit_test(long_lines_leave_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

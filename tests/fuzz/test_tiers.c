/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_tiers.c - uses: proto supervisor
 * The changes of tier that a job has agreed to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/line.h"
#include "supervisor/spool/tiers.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "tiers";
const int fuzz_places = 20;

static void written(const struct tiers *t, char *text, size_t size)
{
    struct line l;
    struct err err;

    line_begin(&l, text, size, "go");
    tiers_write(t, &l);
    assert_int_equal(line_done(&l, &err), 0);
}

/* After one more line was added, the lines read before are still there, and the new line is the last. */
void fuzz_one(const uint8_t *bytes, size_t size)
{
    static char before[64 << 10], after[64 << 10];
    struct tiers *t = NULL;
    struct err err = { 0 };

    fuzz_write(fuzz_path(), bytes, size);
    if (tiers_open(fuzz_path(), &t, &err) == 0) {
        assert_int_equal(tiers_add(t, 1 << 30, "world", &err), 0);
        written(t, before, sizeof before);
        assert_non_null(strstr(before, "{\"step\":1073741824,\"tier\":\"world\"}]"));
        tiers_close(t);
        assert_int_equal(tiers_open(fuzz_path(), &t, &err), 0);
        written(t, after, sizeof after);
        assert_string_equal(before, after);
        tiers_close(t);
    } else {
        assert_true(err.code < 0 && strstr(err.msg, fuzz_path()));
    }
    unlink(fuzz_path());
}

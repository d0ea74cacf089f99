/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/core worker/mask worker/data
 * tests/fuzz/test_intrinsics.c - Cameras and patterns of a sequence of frames. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/read/frames/intrinsics.h"

const char fuzz_name[] = "intrinsics";
const int fuzz_places = 200;

static void check_camera(const struct intrinsics *k, const struct intrinsics_camera *c)
{
    for (int i = 0; i < 4; i++)
        assert_true(isfinite(c->k[i]) && c->k[i] >= 0 && (i > 1 || isfinite(1 / c->k[i])));
    assert_true(c->k[2] <= k->w && c->k[3] <= k->h);
}

static void check_pattern(const char *pattern)
{
    char file[512];
    struct err err;

    if (!*pattern)
        return;
    assert_int_equal(pattern_check("here", pattern, &err), 0);
    if (pattern_make(pattern, 123456, file, sizeof file))
        assert_true(strstr(file, "123456") && path_stays(file));
    assert_false(pattern_make(pattern, -1, file, sizeof file));
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    struct intrinsics k;
    struct err err = { 0 };
    int rc = intrinsics_parse("k.json", (const char *)bytes, size, &k, &err);

    if (rc < 0) {
        assert_int_equal(rc, ERR_DATA);
        assert_memory_equal(err.msg, "k.json", 6);
        return;
    }
    assert_true(k.w > 0 && k.h > 0 && (k.left.there || k.nframes > 0));
    if (k.left.there)
        check_camera(&k, &k.left);
    if (k.right.there)
        check_camera(&k, &k.right);
    for (int i = 0; i < k.nframes; i++) {
        check_camera(&k, &k.frame[i].camera);
        assert_ptr_equal(intrinsics_of(&k, k.frame[i].name), &k.frame[i].camera);
    }
    assert_true(isnan(k.depth_unit_m) || k.depth_unit_m > 0);
    check_pattern(k.frame_pattern);
    check_pattern(k.depth_pattern);
    intrinsics_clear(&k);
}

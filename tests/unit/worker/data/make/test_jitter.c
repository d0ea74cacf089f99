/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/core worker/mask worker/data
 * tests/unit/worker/data/make/test_jitter.c - Colours changed as torchvision changes them
 * (tests/golden/frames.json). */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "worker/data/make/jitter.h"

enum { PIXELS = 12 };

static void bytes_of(const json_t *list, uint8_t ret[PIXELS * 3])
{
    assert_int_equal(json_array_size(list), PIXELS * 3);
    for (size_t i = 0; i < PIXELS * 3; i++)
        ret[i] = (uint8_t)json_integer_value(json_array_get(list, i));
}

static void each_step_has_the_reference_s_bits(void **state)
{
    static const char *const name[] = { "brightness", "contrast", "saturation", "hue" };
    json_t *golden = json_load_file("tests/golden/frames.json", 0, NULL), *of = json_object_get(golden, "color_jitter_u8"), *run;
    size_t r;

    (void)state;
    assert_non_null(of);
    json_array_foreach (json_object_get(of, "runs"), r, run) {
        uint8_t rgb[PIXELS * 3], whole[PIXELS * 3], want[PIXELS * 3];
        struct jitter j;

        bytes_of(json_object_get(json_object_get(of, "rgb_hwc"), "data"), rgb);
        memcpy(whole, rgb, sizeof rgb);
        for (size_t k = 0; k < JITTER_OPS; k++) {
            j.amount[k] = (float)json_real_value(json_object_get(run, name[k]));
            j.order[k] = (enum jitter_op)json_integer_value(json_array_get(json_object_get(run, "order"), k));
        }
        for (size_t k = 0; k < JITTER_OPS; k++) {
            jitter_one(j.order[k], j.amount[j.order[k]], rgb, PIXELS);
            bytes_of(json_array_get(json_object_get(run, "after_each_op"), k), want);
            assert_memory_equal(rgb, want, sizeof want);
        }
        jitter(&j, whole, PIXELS);
        assert_memory_equal(whole, want, sizeof want);
    }
    assert_int_equal(r, 3);
    json_decref(golden);
}

/* Grey has no hue, and no factor of saturation gives it a hue. Factors of 1 for brightness and contrast change no
 * byte. */
static void grey_stays_grey(void **state)
{
    uint8_t grey[256 * 3], was[256 * 3];

    (void)state;
    for (int i = 0; i < 256; i++)
        grey[i * 3] = grey[i * 3 + 1] = grey[i * 3 + 2] = (uint8_t)i;
    memcpy(was, grey, sizeof grey);
    jitter_one(JITTER_HUE, 0.3f, grey, 256);
    jitter_one(JITTER_SATURATION, 1.7f, grey, 256);
    jitter_one(JITTER_BRIGHTNESS, 1, grey, 256);
    jitter_one(JITTER_CONTRAST, 1, grey, 256);
    assert_memory_equal(grey, was, sizeof was);
    jitter_one(JITTER_BRIGHTNESS, 0, grey, 256);
    for (size_t i = 0; i < sizeof grey; i++)
        assert_int_equal(grey[i], 0);
    jitter_one(JITTER_CONTRAST, 1, grey, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_step_has_the_reference_s_bits), cmocka_unit_test(grey_stays_grey) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/make/test_resize.c
 * uses: proto worker/core worker/mask worker/data
 * Pictures of other sizes, compared with the results of Pillow and PyTorch (tests/golden/make_resize.py). */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/stand/harness.h"
#include "worker/data/make/resize.h"

static json_t *golden;

static int setup(void **state)
{
    json_error_t where;

    (void)state;
    golden = json_load_file("tests/golden/resize.json", 0, &where);
    return golden ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

static int number(const json_t *row, size_t k)
{
    return (int)json_integer_value(json_array_get(row, k));
}

static int number_of(const json_t *o, const char *key)
{
    return (int)json_integer_value(json_object_get(o, key));
}

static uint8_t pixel(uint32_t y, uint32_t x, uint32_t c)
{
    uint32_t v = y * 2654435761u + x * 40503u + c * 2246822519u + y * x * 97u;

    v = (v ^ v >> 15) * 2246822519u;
    return (uint8_t)(x % 7 == 3 ? 255 * (c & 1) : (v >> 13 & 127) + (y * 3 + x * 5) % 128);
}

static uint8_t *picture(int h, int w)
{
    uint8_t *rgb = malloc((size_t)h * (size_t)w * 3);

    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++)
                rgb[((size_t)y * (size_t)w + (size_t)x) * 3 + (size_t)c] = pixel((uint32_t)y, (uint32_t)x, (uint32_t)c);
    return rgb;
}

/* The bytes behind a row are left alone. any: by the build for any processor. */
static uint8_t *resized(const struct resizing *z, const uint8_t *rgb, bool any)
{
    size_t row = (size_t)z->to.w * 3, pitch = row + 13;
    uint8_t *wide = malloc(pitch * (size_t)z->to.h), *out = malloc(row * (size_t)z->to.h);
    void *scratch = malloc(resize_scratch(z));

    memset(wide, 77, pitch * (size_t)z->to.h);
    (any ? resize_any : resize)(z, rgb, wide, pitch, scratch);
    for (int u = 0; u < z->to.h; u++) {
        memcpy(out + (size_t)u * row, wide + (size_t)u * pitch, row);
        for (size_t i = row; i < pitch; i++)
            assert_int_equal(wide[(size_t)u * pitch + i], 77);
    }
    free(scratch);
    free(wide);
    return out;
}

static uint64_t fnv(const uint8_t *bytes, size_t n)
{
    uint64_t h = 0xcbf29ce484222325;

    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * 0x100000001b3;
    return h;
}

/* The same picture, mirrored after it was resized (d2) or before (tv). */
static void check_flip(const struct resizing *z, const uint8_t *rgb, const uint8_t *out)
{
    struct resizing mirrored = *z;
    uint8_t *before = NULL, *flipped;
    int w = z->to.w;

    mirrored.flip = true;
    flipped = resized(&mirrored, rgb, false);
    if (z->rule == RESIZE_TV) {
        uint8_t *turned = malloc((size_t)z->h * (size_t)z->w * 3);

        for (int y = 0; y < z->h; y++)
            for (int x = 0; x < z->w; x++)
                memcpy(turned + (size_t)(y * z->w + x) * 3, rgb + (size_t)(y * z->w + z->w - 1 - x) * 3, 3);
        before = resized(z, turned, false);
        free(turned);
    }
    for (int u = 0; u < z->to.h; u++)
        for (int t = 0; t < w; t++) {
            const uint8_t *want = before ? before + (size_t)(u * w + t) * 3 : out + (size_t)(u * w + w - 1 - t) * 3;

            assert_memory_equal(flipped + (size_t)(u * w + t) * 3, want, 3);
        }
    free(before);
    free(flipped);
}

static void check_hashes(const char *rows, enum resize_rule rule, size_t least)
{
    size_t i;
    json_t *row;

    json_array_foreach (json_object_get(golden, rows), i, row) {
        const struct resizing z = { rule, number(row, 0), number(row, 1), { number(row, 2), number(row, 3) }, false };
        uint8_t *rgb = picture(z.h, z.w), *out = resized(&z, rgb, false), *any = resized(&z, rgb, true);
        size_t bytes = (size_t)z.to.h * (size_t)z.to.w * 3;
        char hex[17];

        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)fnv(out, bytes));
        if (strcmp(hex, json_string_value(json_array_get(row, 4))) != 0)
            fail_msg("%d x %d to %d x %d: other bits", z.h, z.w, z.to.h, z.to.w);
        assert_memory_equal(out, any, bytes);
        if (rule == RESIZE_D2)
            check_flip(&z, rgb, out);
        free(any);
        free(out);
        free(rgb);
    }
    assert_true(i >= least);
}

static void fixed_point_has_pillow_s_bits(void **state)
{
    (void)state;
    check_hashes("fixed", RESIZE_D2, 50);
    check_hashes("lanczos", RESIZE_LANCZOS, 4); /* large ones: one byte in 10,000 tells how weights below 0 are rounded */
}

/* Half a level is rounding; the remaining tolerance is because the reference's numbers lie between 0 and 1. */
static void floats_are_the_reference_s(void **state)
{
    size_t i;
    json_t *row;

    (void)state;
    json_array_foreach (json_object_get(golden, "float"), i, row) {
        const struct resizing z = { RESIZE_TV, number(row, 0), number(row, 1), { number(row, 2), number(row, 3) }, false };
        uint8_t *rgb = picture(z.h, z.w), *out = resized(&z, rgb, false), *any = resized(&z, rgb, true);
        size_t bytes = (size_t)z.to.h * (size_t)z.to.w * 3;

        assert_int_equal(json_array_size(json_array_get(row, 4)), bytes);
        for (size_t k = 0; k < bytes; k++)
            assert_true(fabs(json_number_value(json_array_get(json_array_get(row, 4), k)) - out[k]) <= 0.502);
        assert_memory_equal(out, any, bytes);
        check_flip(&z, rgb, out);
        free(any);
        free(out);
        free(rgb);
    }
    assert_int_equal(i, 5);
}

static void masks_take_the_nearest(void **state)
{
    size_t i;
    json_t *row;

    (void)state;
    json_array_foreach (json_object_get(golden, "near"), i, row) {
        int from = number(row, 0), to = number(row, 1);
        struct resizing d2 = { RESIZE_D2, from, from, { to, to }, false }, tv = { RESIZE_TV, from, from, { to, to }, false };

        for (int u = 0; u < to; u++) {
            assert_int_equal(resize_nearest_row(&d2, u), number(json_array_get(row, 2), (size_t)u));
            assert_int_equal(resize_nearest_row(&tv, u), number(json_array_get(row, 3), (size_t)u));
            assert_int_equal(resize_nearest_column(&d2, u), resize_nearest_row(&d2, u));
            assert_int_equal(resize_nearest_column(&tv, u), resize_nearest_row(&tv, u));
        }
        d2.flip = tv.flip = true;
        for (int t = 0; t < to; t++) { /* mirrored after, and before */
            assert_int_equal(resize_nearest_column(&d2, t), number(json_array_get(row, 2), (size_t)(to - 1 - t)));
            assert_int_equal(resize_nearest_column(&tv, t), from - 1 - number(json_array_get(row, 3), (size_t)t));
        }
    }
    assert_true(i > 5);
}

static void assert_size(struct canvas c, int h, int w)
{
    if (c.h != h || c.w != w)
        fail_msg("%d x %d, expected %d x %d", c.h, c.w, h, w);
}

static void sizes_follow_the_references(void **state)
{
    size_t i;
    json_t *row;

    (void)state;
    json_array_foreach (json_object_get(golden, "sizes"), i, row) {
        assert_size(resize_target(RESIZE_D2, number(row, 0), number(row, 1), number(row, 2), number(row, 3)), number(row, 4),
                    number(row, 5));
        assert_size(resize_target(RESIZE_TV, number(row, 0), number(row, 1), number(row, 2), number(row, 3)), number(row, 6),
                    number(row, 7));
    }
    assert_int_equal(i, 441 + 441 + 300);
}

/* The references do not accept these sizes. */
static void sizes_have_a_pixel_at_least(void **state)
{
    (void)state;
    for (enum resize_rule rule = RESIZE_D2; rule <= RESIZE_TV; rule++) {
        assert_size(resize_target(rule, 1, 5000, 800, 1333), 1, 1333);
        assert_size(resize_target(rule, 5000, 1, 800, 1333), 1333, 1);
        assert_size(resize_target(rule, 1, 16384, 4096, 1), 1, 1);
        assert_size(resize_target(rule, 1, 1, 800, 1333), 800, 800);
        for (int h = 1; h < 40; h++)
            for (int w = 1; w < 3000; w = w * 3 / 2 + 1) {
                struct canvas c = resize_target(rule, h, w, 100, 160);

                assert_true(c.h >= 1 && c.w >= 1 && c.h <= 160 && c.w <= 160);
            }
    }
}

/* A picture of a single colour keeps that colour at any scale. */
static void flat_pictures_stay_flat(void **state)
{
    static const int sizes[][4] = { { 3000, 2, 1, 1 }, { 2, 3000, 1, 1 }, { 5, 9, 400, 3 }, { 300, 200, 17, 11 } };
    static const uint8_t colours[] = { 0, 1, 127, 255 };

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t c = 0; c < sizeof colours; c++)
            for (enum resize_rule rule = RESIZE_D2; rule <= RESIZE_LANCZOS; rule++) {
                const struct resizing z = { rule, sizes[i][0], sizes[i][1], { sizes[i][2], sizes[i][3] }, c & 1 };
                size_t n = (size_t)z.h * (size_t)z.w * 3;
                uint8_t *rgb = malloc(n), *out;

                memset(rgb, colours[c], n);
                out = resized(&z, rgb, false);
                for (size_t k = 0; k < (size_t)z.to.h * (size_t)z.to.w * 3; k++)
                    assert_int_equal(out[k], colours[c]);
                free(out);
                free(rgb);
            }
}

/* Grey rows of a picture; its other colours are the inverse and zero. */
static void lanczos_has_pillow_s_bits(void **state)
{
    json_t *all = json_load_file("tests/golden/frames.json", 0, NULL), *of = json_object_get(all, "lanczos_u8");
    json_t *grey = json_object_get(json_object_get(of, "gray"), "data"), *run;
    uint8_t rgb[9 * 14 * 3], turned[9 * 14 * 3];
    size_t r;

    (void)state;
    assert_int_equal(json_array_size(grey), 9 * 14);
    for (size_t i = 0; i < 9 * 14; i++) {
        uint8_t v = (uint8_t)json_integer_value(json_array_get(grey, i));

        memcpy(rgb + i * 3, (uint8_t[]){ v, 0, v }, 3);
        memcpy(turned + (i / 14 * 14 + 13 - i % 14) * 3, rgb + i * 3, 3);
    }
    json_array_foreach (json_object_get(of, "runs"), r, run) {
        struct resizing z = { RESIZE_LANCZOS, 9, 14, { number_of(run, "h"), number_of(run, "w") }, false };
        json_t *want = json_object_get(run, "data");

        for (int k = 0; k < 4; k++) {
            uint8_t *out;

            z.flip = k & 2;
            out = resized(&z, z.flip ? turned : rgb, k & 1);
            assert_int_equal(json_array_size(want), z.to.h * z.to.w);
            for (int i = 0; i < z.to.h * z.to.w; i++) {
                assert_int_equal(out[i * 3], json_integer_value(json_array_get(want, (size_t)i)));
                assert_int_equal(out[i * 3 + 1], 0);
                assert_int_equal(out[i * 3 + 2], out[i * 3]);
            }
            free(out);
        }
    }
    assert_true(r > 1);
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_point_has_pillow_s_bits), cmocka_unit_test(floats_are_the_reference_s),
        cmocka_unit_test(masks_take_the_nearest),        cmocka_unit_test(sizes_follow_the_references),
        cmocka_unit_test(sizes_have_a_pixel_at_least),   cmocka_unit_test(flat_pictures_stay_flat),
        cmocka_unit_test(lanczos_has_pillow_s_bits),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/core worker/mask worker/data
 * tests/golden/test_images.c - Pictures of every kind decode as Pillow decodes them. Largest difference of any byte of
 * any picture: 0. images.json is by make_images.py, with Pillow 13.0, libjpeg-turbo 3.2 and libwebp 1.6. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/host/sha256.h"
#include "tests/stand/harness.h"
#include "worker/data/image/exif.h"
#include "worker/data/image/image.h"

#define ODD "../shared/data/odd_images"

static json_t *golden(const char *part)
{
    json_t *all = json_load_file("tests/golden/images.json", 0, NULL), *list = json_incref(json_object_get(all, part));

    assert_true(json_array_size(list) > 0);
    json_decref(all);
    return list;
}

static const char *text(const json_t *e, const char *key)
{
    return json_string_value(json_object_get(e, key));
}

static void must_be(const struct image *img, const json_t *e)
{
    unsigned char hash[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1];

    assert_int_equal(img->w, json_integer_value(json_object_get(e, "w")));
    assert_int_equal(img->h, json_integer_value(json_object_get(e, "h")));
    sha256(img->rgb, (size_t)img->w * (size_t)img->h * 3, hash);
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    if (strcmp(hex, text(e, "sha256")) != 0)
        fail_msg("%s: other pixels than Pillow's", text(e, "file"));
}

/* Files that Pillow reads, except a file with an EXIF block longer than it states, which is refused by name. */
static void odd_images(void **state)
{
    struct decoder *dec;
    json_t *list, *e;
    int read = 0;
    size_t i;

    (void)state;
    if (access(ODD "/manifest.json", R_OK) < 0)
        SKIP("no " ODD);
    dec = decoder_new();
    list = golden("odd");
    json_array_foreach (list, i, e) {
        char path[300];
        struct image img;
        struct err err;

        snprintf(path, sizeof path, ODD "/%s", text(e, "file"));
        if (image_read(dec, path, &img, &err) == 0) {
            must_be(&img, e);
            read++;
        } else if (strcmp(text(e, "file"), "jpeg/hopper_bad_exif.jpg") != 0 || !strstr(err.msg, path)) {
            fail_msg("%s", err.msg);
        }
    }
    assert_int_equal(read, (int)json_array_size(list) - 1);
    assert_in_range(read, 60, 70);
    json_decref(list);
    decoder_free(dec);
}

/* The file of an entry. Caller frees. */
static uint8_t *bytes_of(const json_t *e, size_t *ret_size)
{
    const char *hex = text(e, "bytes");
    size_t n = strlen(hex) / 2;
    uint8_t *bytes = malloc(n);
    unsigned v;

    assert_non_null(bytes);
    for (size_t k = 0; k < n; k++) {
        assert_int_equal(sscanf(hex + 2 * k, "%2x", &v), 1);
        bytes[k] = (uint8_t)v;
    }
    *ret_size = n;
    return bytes;
}

/* Whole files equal Pillow's pictures. Files cut anywhere are refused by name, or still equal Pillow's if only unused
 * bytes are missing. */
static void bmp_and_webp(void **state)
{
    struct decoder *dec = decoder_new();
    json_t *list = golden("made"), *e;
    size_t i;

    (void)state;
    json_array_foreach (list, i, e) {
        struct image img;
        struct err err = { 0 };
        size_t size;
        uint8_t *bytes = bytes_of(e, &size);

        if (image_decode(dec, text(e, "file"), bytes, size, &img, &err) != 0)
            fail_msg("%s", err.msg);
        must_be(&img, e);
        assert_int_equal(exif_orientation(bytes, size), strcmp(text(e, "file"), "webp/exif") == 0 ? 6 : 1);
        for (size_t cut = 0; cut < size; cut += 1 + size / 97) {
            uint8_t *copy = malloc(cut + 1); /* so that a sanitizer sees a read behind it */

            assert_non_null(copy);
            memcpy(copy, bytes, cut);
            if (image_decode(dec, text(e, "file"), copy, cut, &img, &err) == 0)
                must_be(&img, e);
            else
                assert_non_null(strstr(err.msg, text(e, "file")));
            free(copy);
        }
        free(bytes);
    }
    json_decref(list);
    decoder_free(dec);
}

/* Changes one byte of a BMP. */
static void bad_bmp(const char *file, size_t at, uint8_t byte, int code, const char *why)
{
    struct decoder *dec = decoder_new();
    json_t *list = golden("made"), *e;
    size_t i, size, tried = 0;

    json_array_foreach (list, i, e) {
        struct image img;
        struct err err = { 0 };
        uint8_t *bytes;

        if (strcmp(text(e, "file"), file) != 0)
            continue;
        bytes = bytes_of(e, &size);
        bytes[at] = byte;
        if (image_decode(dec, "x.bmp", bytes, size, &img, &err) != code || !strstr(err.msg, why) || !strstr(err.msg, "x.bmp"))
            fail_msg("%s, byte %zu: %d '%s'", file, at, err.code, err.msg);
        free(bytes);
        tried++;
    }
    assert_int_equal(tried, 1);
    json_decref(list);
    decoder_free(dec);
}

static void what_a_bmp_is_refused_for(void **state)
{
    (void)state;
    bad_bmp("bmp/RGB", 30, 1, ERR_UNSUPPORTED, "with run lengths");
    bad_bmp("bmp/RGB", 30, 4, ERR_UNSUPPORTED, "compressed");
    bad_bmp("bmp/RGB", 30, 3, ERR_DATA, "neither 16 nor 32");
    bad_bmp("bmp/RGB", 14, 41, ERR_UNSUPPORTED, "header of that size");
    bad_bmp("bmp/RGB", 28, 25, ERR_UNSUPPORTED, "of so many bits");
    bad_bmp("bmp/RGB", 10, 200, ERR_DATA, "ends before its picture");
    bad_bmp("bmp/RGB", 18, 0, ERR_DATA, "0 x 9 pixels");
    bad_bmp("bmp/RGB", 20, 1, ERR_DATA, "over the limit");
    bad_bmp("bmp/4", 46, 3, ERR_DATA, "not in its palette");
    bad_bmp("bmp/4", 46, 200, ERR_DATA, "its palette has no room");
    bad_bmp("bmp/565", 54, 0x0f, ERR_UNSUPPORTED, "with such masks");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(odd_images), cmocka_unit_test(bmp_and_webp),
                                        cmocka_unit_test(what_a_bmp_is_refused_for) };

    return cmocka_run_group_tests_name("images", tests, NULL, NULL);
}

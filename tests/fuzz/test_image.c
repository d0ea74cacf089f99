/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_image.c - uses: proto worker/core worker/mask worker/data
 * A picture: a JPEG or a PNG. */
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
#include "worker/data/image/image.h"

const char fuzz_name[] = "image";
const int fuzz_places = 40;

static void parse_image(const char *name, const uint8_t *bytes, size_t size)
{
    struct decoder *dec = decoder_new();
    struct image img;
    struct err err = { 0 };
    unsigned sum = 0;

    if (image_decode(dec, name, bytes, size, &img, &err) < 0)
        assert_non_null(strstr(err.msg, name));
    else
        for (int turned = 0; turned < 2; turned++) {
            for (size_t i = 0; i < (size_t)img.w * (size_t)img.h * 3; i++)
                sum += img.rgb[i]; /* every pixel is there to be read */
            assert_true(turned || image_upright(dec, name, &img, &err) >= 0);
        }
    (void)sum;
    decoder_free(dec);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    parse_image("seed", bytes, size);
}

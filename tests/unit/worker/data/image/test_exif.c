/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/image/test_exif.c
 * uses: proto worker/core worker/mask worker/data
 * Rotated pictures: orientations compared with Pillow (tests/golden/make_exif.py), broken blocks, and a split with such
 * pictures. */
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
#include "tests/stand/harness.h"
#include "worker/data/read/check.h"
#include "worker/data/image/exif.h"
#include "worker/data/image/image.h"
#include "worker/data/make/pictures.h"
#include "worker/data/set/problems.h"

enum { MOST = 4096, PIXELS = 11 * 6 };

static json_t *golden;
static char folder[TEMP_MAX];

static size_t bytes_of(const char *hex, uint8_t *bytes)
{
    size_t n;

    assert_non_null(hex);
    n = strlen(hex) / 2;
    assert_true(n <= MOST);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(sscanf(hex + 2 * i, "%2hhx", &bytes[i]), 1);
    return n;
}

/* kind: "files", which are JPEGs, or "pngs". */
static size_t file_of(const char *kind, int orientation, uint8_t *bytes)
{
    char key[16];

    snprintf(key, sizeof key, "%d", orientation);
    return bytes_of(json_string_value(json_object_get(json_object_get(golden, kind), key)), bytes);
}

static void is_turned(const json_t *want, const struct image *img, const uint8_t *stored)
{
    const json_t *places = json_array_get(want, 2);

    assert_int_equal(img->w, json_integer_value(json_array_get(want, 0)));
    assert_int_equal(img->h, json_integer_value(json_array_get(want, 1)));
    for (size_t i = 0; i < PIXELS; i++)
        assert_memory_equal(img->rgb + 3 * i, stored + 3 * json_integer_value(json_array_get(places, i)), 3);
}

static void all_orientations_of(const char *kind)
{
    struct decoder *dec = decoder_new();
    uint8_t bytes[MOST], stored[3 * PIXELS];
    struct image img;
    struct err err;
    char key[16];

    for (int k = 0; k < 10; k++) {
        int upright = k < 1 || k > 8 ? 1 : k;
        size_t n = file_of(kind, k, bytes);

        assert_int_equal(exif_orientation(bytes, n), upright);
        assert_int_equal(image_decode(dec, "x.jpg", bytes, n, &img, &err), 0);
        assert_true(img.w == 11 && img.h == 6);
        memcpy(stored, img.rgb, sizeof stored);
        assert_int_equal(image_upright(dec, "x.jpg", &img, &err), upright > 1);
        snprintf(key, sizeof key, "%d", upright);
        is_turned(json_object_get(json_object_get(golden, "turned"), key), &img, stored);
    }
    decoder_free(dec);
}

static void all_orientations(void **state)
{
    (void)state;
    all_orientations_of("files");
    all_orientations_of("pngs");
}

/* A JPEG's beginning with these bytes as its block. */
static int of_block(const char *block, size_t size)
{
    uint8_t bytes[128] = { 0xff, 0xd8, 0xff, 0xe1, 0, (uint8_t)(2 + size) };

    memcpy(bytes + 6, block, size);
    memcpy(bytes + 6 + size, "\xff\xda\x00\x02", 4);
    return exif_orientation(bytes, 10 + size);
}

#define BLOCK(bytes) of_block(bytes, sizeof bytes - 1)
#define LITTLE       "Exif\0\0II*\0\10\0\0\0"
#define BIG          "Exif\0\0MM\0*\0\0\0\10"

/* A broken block gives no orientation, and nothing behind it is read. Each block is also tried cut at every byte. */
static void broken_blocks(void **state)
{
    static const char whole[] = LITTLE "\2\0\17\1\2\0\1\0\0\0\0\0\0\0\22\1\3\0\1\0\0\0\6\0\0\0";

    (void)state;
    assert_int_equal(BLOCK(LITTLE "\1\0\22\1\3\0\1\0\0\0\6\0\0\0"), 6);
    assert_int_equal(BLOCK(LITTLE "\1\0\22\1\4\0\1\0\0\0\6\0\0\0"), 6);
    assert_int_equal(BLOCK(BIG "\0\1\1\22\0\3\0\0\0\1\0\10\0\0"), 8);
    assert_int_equal(BLOCK(BIG "\0\1\1\22\0\4\0\0\0\1\0\0\0\10"), 8);
    assert_int_equal(BLOCK(whole), 6);
    assert_int_equal(BLOCK(LITTLE "\1\0\22\1\3\0\1\0\0\0\11\0\0\0"), 1); /* no orientation */
    assert_int_equal(BLOCK(LITTLE "\1\0\22\1\3\0\1\0\0\0\0\0\0\0"), 1);
    assert_int_equal(BLOCK(LITTLE "\1\0\22\1\2\0\1\0\0\0\6\0\0\0"), 1);     /* text */
    assert_int_equal(BLOCK(LITTLE "\0\0\22\1\3\0\1\0\0\0\6\0\0\0"), 1);     /* an empty directory */
    assert_int_equal(BLOCK(LITTLE "\377\377\17\1\3\0\1\0\0\0\6\0\0\0"), 1); /* more entries than bytes */
    assert_int_equal(BLOCK("Exif\0\0II*\0\377\377\377\377\1\0\22\1\3\0\1\0\0\0\6\0\0\0"), 1);
    assert_int_equal(BLOCK("Exif\0\0II+\0\10\0\0\0\1\0\22\1\3\0\1\0\0\0\6\0\0\0"), 1);
    assert_int_equal(BLOCK("Exif\0\0IM*\0\10\0\0\0\1\0\22\1\3\0\1\0\0\0\6\0\0\0"), 1);
    assert_int_equal(BLOCK("Exit\0\0II*\0\10\0\0\0\1\0\22\1\3\0\1\0\0\0\6\0\0\0"), 1);
    for (size_t n = 0; n + 1 < sizeof whole - 1 - 2; n++) /* the last two bytes have no meaning */
        assert_int_equal(of_block(whole, n), 1);
}

/* Wrong counts and invalid entries. */
static void odd_entries(void **state)
{
    json_t *blocks = json_object_get(golden, "blocks"), *one;
    size_t i;

    (void)state;
    assert_true(json_array_size(blocks) > 8);
    json_array_foreach (blocks, i, one) {
        uint8_t bytes[MOST] = "Exif\0";
        size_t n = bytes_of(json_string_value(json_array_get(one, 1)), bytes + 6);
        int found = of_block((const char *)bytes, 6 + n);

        if (found != json_integer_value(json_array_get(one, 2)))
            fail_msg("%s: %d", json_string_value(json_array_get(one, 0)), found);
    }
}

/* Memory that ends where the file ends, cut anywhere. */
static void files_that_end(void **state)
{
    static const char *const kind[] = { "files", "pngs" };

    (void)state;
    for (int k = 0; k < 2; k++) {
        uint8_t bytes[MOST], *exact;
        size_t whole = file_of(kind[k], 6, bytes);
        int now = 1, before = 1;

        for (size_t n = 0; n <= whole; n++) {
            exact = malloc(n + (n == 0));
            assert_non_null(exact);
            memcpy(exact, bytes, n);
            now = exif_orientation(exact, n);
            assert_true(now == 6 || (now == 1 && before == 1));
            before = now;
            free(exact);
        }
        assert_int_equal(now, 6);
        assert_int_equal(exif_orientation(bytes, 20), 1);
    }
    assert_int_equal(exif_orientation((const uint8_t *)"\x89PNG\r\n\x1a\n", 8), 1);
}

static size_t find(const uint8_t *bytes, size_t n, const char *letters)
{
    for (size_t i = 0; i + 4 <= n; i++)
        if (memcmp(bytes + i, letters, 4) == 0)
            return i;
    fail_msg("no %s", letters);
    return 0;
}

/* A PNG's block counts at any place, if its checksum is right. */
static void chunks(void **state)
{
    uint8_t bytes[MOST], other[MOST];
    size_t whole = file_of("pngs", 6, bytes), at = find(bytes, whole, "eXIf") - 4, len = 12 + (size_t)(bytes[at + 2] << 8 | bytes[at + 3]);
    size_t end = whole - 12;

    (void)state;
    assert_true(at + len < end);
    memcpy(other, bytes, at); /* behind the picture's data */
    memcpy(other + at, bytes + at + len, end - at - len);
    memcpy(other + end - len, bytes + at, len);
    memcpy(other + end, bytes + end, 12);
    assert_int_equal(exif_orientation(other, whole), 6);
    memcpy(other, bytes, whole);
    for (size_t i = at; i < at + len; i++) { /* any byte of it is another */
        other[i] ^= 1;
        assert_int_equal(exif_orientation(other, whole), 1);
        other[i] ^= 1;
    }
    assert_int_equal(exif_orientation(other, whole), 6);
    memset(other + at, 0xff, 4); /* longer than the file */
    assert_int_equal(exif_orientation(other, whole), 1);
}

/* A WebP's block counts behind a chunk of odd length, which is padded to an even length. */
static void behind_an_odd_chunk(void **state)
{
    static const char webp[] = "RIFF\x3a\0\0\0WEBP"
                               "ICCP\3\0\0\0abc\0"
                               "EXIF\x1a\0\0\0II*\0\10\0\0\0\1\0\22\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0";

    (void)state;
    assert_int_equal(exif_orientation((const uint8_t *)webp, sizeof webp - 1), 6);
}

/* ---- a split ---- */

static void write_file(const char *name, const void *bytes, size_t n)
{
    char path[TEMP_MAX + 32];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Checks a single picture with that orientation. `sides` is the size in the annotations. */
static int check_one(int orientation, const char *sides, bool upright, struct dataset **ret, struct err *err)
{
    static struct problems problems;
    char json[TEMP_MAX + 32], text[512];
    struct check_options opt = { .annotations = json, .images = folder, .on_bad = BAD_ERROR, .threads = 1, .upright = upright };
    uint8_t bytes[MOST];
    size_t n = file_of("files", orientation, bytes);

    write_file("x.jpg", bytes, n);
    snprintf(text, sizeof text,
             "{\"images\": [{\"id\": 4, \"file_name\": \"x.jpg\"%s}], \"categories\": [{\"id\": 1, \"name\": \"a\"}],"
             " \"annotations\": [{\"id\": 1, \"image_id\": 4, \"category_id\": 1, \"bbox\": [0, 0, 3, 3]}]}",
             sides);
    write_file("a.json", text, strlen(text));
    snprintf(json, sizeof json, "%s/a.json", folder);
    memset(&problems, 0, sizeof problems);
    return check_split(&opt, &problems, ret, err);
}

static void refused(int orientation, const char *sides, bool upright, const char *said)
{
    struct dataset *d;
    struct err err = { 0 };

    assert_int_equal(check_one(orientation, sides, upright, &d, &err), ERR_DATA);
    if (!strstr(err.msg, said))
        fail_msg("%s", err.msg);
}

/* Also through an index, as jobs have it. */
static void taken(int orientation, const char *sides, bool upright, bool turned)
{
    char path[TEMP_MAX + 32], json[TEMP_MAX + 32];
    struct check_options opt = { .annotations = json, .images = folder, .on_bad = BAD_ERROR, .threads = 1, .upright = upright };
    struct dataset *d = NULL, *again = NULL;
    struct decoder *dec = decoder_new();
    const uint8_t *rgb;
    struct pictures *p;
    struct image img;
    struct err err = { 0 };
    bool aside = turned && orientation >= 5;

    snprintf(json, sizeof json, "%s/a.json", folder);
    snprintf(path, sizeof path, "%s/index", folder);
    if (check_one(orientation, sides, upright, &d, &err) < 0 || index_write(path, d, &err) < 0 || index_load(path, &opt, &again, &err) < 0)
        fail_msg("%d '%s': %s", orientation, sides, err.msg);
    assert_true(d->images[0].w == (aside ? 6 : 11) && d->images[0].h == (aside ? 11 : 6));
    assert_true(d->upright == turned && again->upright == turned);
    p = pictures_new(again, 0);
    assert_int_equal(pictures_get(p, dec, 0, &rgb, &err) < 0, 0);
    snprintf(path, sizeof path, "%s/x.jpg", folder);
    {
        struct decoder *other = decoder_new();

        assert_int_equal(image_read(other, path, &img, &err), 0);
        assert_true(!turned || image_upright(other, path, &img, &err) == 1);
        assert_memory_equal(rgb, img.rgb, 3 * PIXELS);
        decoder_free(other);
    }
    pictures_free(p);
    decoder_free(dec);
    dataset_free(d);
    dataset_free(again);
}

#define STORED  ", \"width\": 11, \"height\": 6"
#define UPRIGHT ", \"width\": 6, \"height\": 11"

static void splits(void **state)
{
    (void)state;
    for (int k = 2; k <= 8; k++) {
        const char *right = k < 5 ? STORED : UPRIGHT;

        taken(k, right, true, true);
        taken(k, "", true, true); /* the size is the file's */
        taken(k, STORED, false, false);
        taken(k, "", false, false);
    }
    taken(1, STORED, true, false);
    taken(9, "", true, false);
    refused(6, STORED, true, "is 6 x 11 pixels turned by its EXIF orientation, but the annotations say 11 x 6: its size as it is stored");
    refused(6, ", \"width\": 6, \"height\": 10", true, "is 6 x 11 pixels turned by its EXIF orientation, but the annotations say 6 x 10");
    refused(6, UPRIGHT, false, "is 11 x 6 pixels, but the annotations say 6 x 11 (an EXIF orientation is not applied)");
    refused(1, UPRIGHT, true, "is 11 x 6 pixels, but the annotations say 6 x 11");
}

static int set_up(void **state)
{
    (void)state;
    golden = json_load_file("tests/golden/exif.json", 0, NULL);
    return golden && mkdtemp(temp_path(folder, sizeof folder, "test_exif.XXXXXX")) ? 0 : -1;
}

static int tear_down(void **state)
{
    static const char *const names[] = { "x.jpg", "a.json", "index" };
    char path[TEMP_MAX + 32];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    json_decref(golden);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(all_orientations),
                                        cmocka_unit_test(broken_blocks),
                                        cmocka_unit_test(odd_entries),
                                        cmocka_unit_test(files_that_end),
                                        cmocka_unit_test(chunks),
                                        cmocka_unit_test(behind_an_odd_chunk),
                                        cmocka_unit_test(splits) };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

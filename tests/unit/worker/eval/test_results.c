/* SPDX-License-Identifier: Apache-2.0 */ /* COCO results files. uses: proto worker/eval worker/mask worker/core */
#include <jansson.h>
#include <math.h>
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
#include "tests/unit/worker/mask/rle_pairs.h"
#include "worker/eval/results_file.h"
#include "worker/mask/rle.h"

static const int64_t ids[2] = { 0, 900100204805 }, classes[2] = { 3, 90 };
static const char *const names[2] = { "a/\"\\\n\xc3\xa9.png", "\xe9.png" };
static const struct results_images images = { ids, names, 2 };

static void original_ids_and_exact_numbers_come_back(void **state)
{
    const struct detection dets[2] = { { 1, 1, 0, (double).0125000095f, { 1.5, 0, 1e-7, (double)1010.50006f } },
                                       { 0, 0, 0, 1, { 0, 0, 1, 1 } } };
    char path[TEMP_MAX];
    struct err err;
    int fd = mkstemp(temp_path(path, sizeof path, "detd-results-XXXXXX"));
    json_t *list, *first;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(results_write(path, dets, 2, &images, classes, 2, &err), 0);
    list = json_load_file(path, 0, NULL);
    assert_int_equal(json_array_size(list), 2);
    first = json_array_get(list, 0);
    assert_int_equal(json_integer_value(json_object_get(first, "image_id")), 900100204805);
    assert_int_equal(json_integer_value(json_object_get(first, "category_id")), 90);
    assert_true((float)json_number_value(json_object_get(first, "score")) == .0125000095f); /* eight digits would be another */
    assert_true(json_number_value(json_array_get(json_object_get(first, "bbox"), 2)) == 1e-7);
    assert_true((float)json_number_value(json_array_get(json_object_get(first, "bbox"), 3)) == 1010.50006f);
    assert_string_equal(json_string_value(json_object_get(first, "file_name")), "?.png"); /* JSON is UTF-8 */
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "file_name")), names[0]);
    json_decref(list);
    assert_true(results_is_own(path));
    assert_int_equal(results_write(path, NULL, 0, &images, classes, 2, &err), 0);
    list = json_load_file(path, 0, NULL);
    assert_true(json_is_array(list) && json_array_size(list) == 0);
    json_decref(list);
    assert_true(results_is_own(path));
    unlink(path);
}

/* The reader of the file takes the area of the box if it is there, so we leave it out. The run lengths contain a
 * backslash. */
static void masks_come_back_as_run_lengths(void **state)
{
    static const uint8_t rows[3 * 2] = { 0xff, 0xc0, 0x81, 0x40, 0xff, 0xff }; /* 10 x 3 pixels, and rubbish behind the last row's end */
    const struct detection dets[2] = { { 1, 1, 0, .5, { 1.5, 0, 1, 6 } }, { 0, 0, 0, 1, { 0, 0, 1, 1 } } };
    const struct result_mask masks[2] = { { 5, 48, 10, 3, rows }, { 0 } };
    struct results_mask text[2];
    struct rle scratch = { 0 }, back = { 0 };
    char path[TEMP_MAX];
    uint8_t bits[3 * 2];
    struct err err;
    int fd = mkstemp(temp_path(path, sizeof path, "detd-results-XXXXXX"));
    json_t *list, *segm;

    (void)state;
    close(fd);
    for (int i = 0; i < 2; i++)
        assert_int_equal(results_mask_make(&masks[i], 700, 300, &scratch, &text[i], &err), 0);
    assert_non_null(strchr(text[0].counts, '\\'));
    assert_int_equal(results_write_masks(path, dets, text, 2, &images, classes, 2, &err), 0);
    list = json_load_file(path, 0, NULL);
    assert_int_equal(json_array_size(list), 2);
    segm = json_object_get(json_array_get(list, 0), "segmentation");
    assert_null(json_object_get(json_array_get(list, 0), "bbox"));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "category_id")), 90);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(segm, "size"), 0)), 300);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(segm, "size"), 1)), 700);
    segm = json_object_get(segm, "counts");
    assert_int_equal(rle_from_text(&back, 300, 700, json_string_value(segm), json_string_length(segm), &err), 0);
    rle_to_crop(&back, 5, 48, 10, 3, bits);
    assert_memory_equal(bits, rows, 5);
    assert_int_equal(bits[5], 0xc0);
    assert_int_equal(rle_area(&back), 10 + 3 + 10);
    segm = json_object_get(json_object_get(json_array_get(list, 1), "segmentation"), "counts");
    assert_int_equal(rle_from_text(&back, 300, 700, json_string_value(segm), json_string_length(segm), &err), 0);
    assert_int_equal(rle_area(&back), 0);
    json_decref(list);
    assert_true(results_is_own(path));
    unlink(path);
    rle_free(&scratch);
    rle_free(&back);
    for (int i = 0; i < 2; i++)
        free(text[i].counts);
}

static void bad_records_write_nothing(void **state)
{
    struct detection d = { .image = 2 };
    struct err err;

    (void)state;
    assert_int_equal(results_write("/nonexistent/r", &d, 1, &images, classes, 2, &err), ERR_INPUT);
    assert_string_equal(err.msg, "detection 0: image 2 of 2");
    d = (struct detection){ .score = NAN };
    assert_int_equal(results_write("/nonexistent/r", &d, 1, &images, classes, 2, &err), ERR_INPUT);
    d.score = 0;
    assert_true(results_write("/nonexistent/r", &d, 1, &images, classes, 2, &err) < 0);
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void results_of_others_are_told_apart(void **state)
{
    static const char *const others[] = { "",
                                          "[]",
                                          "[\n]\n ",
                                          "[\n{\"image_id\":",
                                          "[\n{\"image_id\":1,\"category_id\":1}]",
                                          "[\n{\"image_id\":1x,\"file_name\":\"a\"}]",
                                          "[{\"image_id\": 1, \"file_name\": \"a\"}]" };
    char path[TEMP_MAX];
    int fd = mkstemp(temp_path(path, sizeof path, "detd-results-XXXXXX"));

    (void)state;
    close(fd);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        put(path, others[i]);
        assert_false(results_is_own(path));
    }
    put(path, "[\n{\"image_id\":-12,\"file_name\":\"a\"");
    assert_true(results_is_own(path));
    unlink(path);
    assert_false(results_is_own(path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(original_ids_and_exact_numbers_come_back),
        cmocka_unit_test(masks_come_back_as_run_lengths),
        cmocka_unit_test(bad_records_write_nothing),
        cmocka_unit_test(results_of_others_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* COCO results files. uses: proto worker/eval worker/core */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/eval/results.h"

static const int64_t images[2] = { 0, 900100204805 }, classes[2] = { 3, 90 };

static void original_ids_and_exact_numbers_come_back(void **state)
{
    const struct detection dets[2] = { { 1, 1, 0, (double).1f, { 1.5, 0, 1e-7, 640 } }, { 0, 0, 0, 1, { 0, 0, 1, 1 } } };
    char path[] = "/tmp/detd-results-XXXXXX";
    struct err err;
    int fd = mkstemp(path);
    json_t *list, *first;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(results_write(path, dets, 2, images, 2, classes, 2, &err), 0);
    list = json_load_file(path, 0, NULL);
    assert_int_equal(json_array_size(list), 2);
    first = json_array_get(list, 0);
    assert_int_equal(json_integer_value(json_object_get(first, "image_id")), 900100204805);
    assert_int_equal(json_integer_value(json_object_get(first, "category_id")), 90);
    assert_true((float)json_number_value(json_object_get(first, "score")) == .1f);
    assert_true(json_number_value(json_array_get(json_object_get(first, "bbox"), 2)) == 1e-7);
    json_decref(list);
    assert_int_equal(results_write(path, NULL, 0, images, 2, classes, 2, &err), 0);
    list = json_load_file(path, 0, NULL);
    assert_true(json_is_array(list) && json_array_size(list) == 0);
    json_decref(list);
    unlink(path);
}

static void bad_records_write_nothing(void **state)
{
    struct detection d = { .image = 2 };
    struct err err;

    (void)state;
    assert_int_equal(results_write("/nonexistent/r", &d, 1, images, 2, classes, 2, &err), ERR_INPUT);
    assert_string_equal(err.msg, "detection 0: image 2 of 2");
    d = (struct detection){ .score = NAN };
    assert_int_equal(results_write("/nonexistent/r", &d, 1, images, 2, classes, 2, &err), ERR_INPUT);
    d.score = 0;
    assert_true(results_write("/nonexistent/r", &d, 1, images, 2, classes, 2, &err) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(original_ids_and_exact_numbers_come_back),
        cmocka_unit_test(bad_records_write_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

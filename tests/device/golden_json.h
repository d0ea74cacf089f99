/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/golden_json.h - arrays of tests/golden/depth_views.json:
 * {"shape", "data"}. Pictures are [n, c, h, w] there and [n, h, w, c] here. Source: specs/vectors/featdepth.json, made
 * in fp64. sparse_rcnn.json is a copy of specs/vectors/sparse_rcnn.json; its arrays are nested. */
#pragma once
#include "tests/device/devices.h"

#include <jansson.h>
#include <math.h>

#ifdef __has_feature
#if __has_feature(memory_sanitizer)
#define GOLDEN_UNREADABLE 1 /* that sanitizer does not see the writes of jansson */
#endif
#endif

__attribute__((unused)) static json_t *golden_file(const char *path)
{
#ifdef GOLDEN_UNREADABLE
    skip();
#endif
    json_t *root = json_load_file(path, 0, NULL);

    assert_non_null(root);
    return root;
}

__attribute__((unused)) static json_t *golden_open(void)
{
    return golden_file("tests/golden/depth_views.json");
}

__attribute__((unused)) static json_t *member(json_t *object, const char *name)
{
    json_t *m = json_object_get(object, name);

    if (!m)
        fail_msg("no %s in the golden file", name);
    return m;
}

__attribute__((unused)) static double number_of(json_t *object, const char *name)
{
    return json_number_value(member(object, name));
}

/* The numbers of an array, plain or with a shape, as they stand there; caller frees. */
__attribute__((unused)) static float *numbers_in_json(json_t *array, size_t n)
{
    json_t *data = json_is_array(array) ? array : member(array, "data");
    float *x = malloc(n * sizeof *x);

    assert_non_null(x);
    assert_int_equal(json_array_size(data), n);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)json_number_value(json_array_get(data, i));
    return x;
}

/* The numbers of nested arrays, as they stand there. Returns how many. */
__attribute__((unused)) static size_t nested_in_json(json_t *array, float *ret)
{
    size_t n = 0;

    if (!json_is_array(array)) {
        *ret = (float)json_number_value(array);
        return 1;
    }
    for (size_t i = 0; i < json_array_size(array); i++)
        n += nested_in_json(json_array_get(array, i), ret + n);
    return n;
}

/* A picture of 4 sides, in NHWC; caller frees. */
__attribute__((unused)) static float *picture_in_json(json_t *array, struct tensor *ret_shape)
{
    json_t *shape = member(array, "shape");
    int side[4];
    float *from, *x;
    size_t i = 0;

    assert_int_equal(json_array_size(shape), 4);
    for (size_t k = 0; k < 4; k++)
        side[k] = (int)json_integer_value(json_array_get(shape, k));
    *ret_shape = tensor_f32(NULL, side[0], side[2], side[3], side[1]);
    from = numbers_in_json(array, tensor_count(ret_shape));
    x = malloc(tensor_count(ret_shape) * sizeof *x);
    assert_non_null(x);
    for (int n = 0; n < side[0]; n++)
        for (int c = 0; c < side[1]; c++)
            for (int y = 0; y < side[2]; y++)
                for (int w = 0; w < side[3]; w++)
                    x[((n * side[2] + y) * side[3] + w) * side[1] + c] = from[i++];
    free(from);
    return x;
}

/* |got - want| <= absolute + relative * max |want| */
__attribute__((unused)) static void close_to(const float *got, const float *want, size_t n, double absolute, double relative,
                                             const char *what)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = fabs((double)want[i]) > most ? fabs((double)want[i]) : most;
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= absolute + relative * most))
            fail_msg("%s[%zu] is %.9g, should be %.9g", what, i, (double)got[i], (double)want[i]);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* .weights files: both headers byte for byte, boundaries, the way there and
 * back. uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/core */
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
#include "tests/unit/worker/models/yolo/darknet_file.h"
#include "worker/core/file.h"
#include "worker/models/yolo/darknet_net.h"
#include "worker/models/yolo/darknet_weights.h"

/* The vector "weights_file" of the specification: 1x1 convolutions 1 -> 2 with normalisation and 2 -> 1 with bias. */
static const char new_hex[] =
    "00000000020000000000000000fa0000000000000000003f000080be0000803f000000400000003e000000be0000803f0000804000004040000040c0"
    "0000403fcdcccc3dcdcc4c3e";
static const char old_hex[] =
    "00000000010000000000000000fa00000000003f000080be0000803f000000400000003e000000be0000803f0000804000004040000040c0"
    "0000403fcdcccc3dcdcc4c3e";

struct arrays {
    float bias0[2], scale[2], mean[2], var[2], weights0[2], bias1[1], weights1[2];
};

static const struct arrays expected = { { .5f, -.25f }, { 1, 2 }, { .125f, -.125f }, { 1, 4 }, { 3, -3 }, { .75f }, { .1f, .2f } };

static void describe(struct arrays *a, struct darknet_block b[2])
{
    b[0] = (struct darknet_block){ 0, 2, 1, 1, a->bias0, a->scale, a->mean, a->var, a->weights0, 0, false };
    b[1] = (struct darknet_block){ 1, 1, 2, 1, a->bias1, NULL, NULL, NULL, a->weights1, 0, false };
}

static size_t unhex(const char *hex, unsigned char *bytes)
{
    size_t n = strlen(hex) / 2;

    for (size_t i = 0; i < n; i++) {
        char pair[3] = { hex[2 * i], hex[2 * i + 1], 0 };

        bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    return n;
}

static void both_headers_are_read(void **state)
{
    static const char *const files[] = { new_hex, old_hex };

    (void)state;
    for (int i = 0; i < 2; i++) {
        unsigned char bytes[128];
        size_t size = unhex(files[i], bytes);
        struct darknet_weights_info info;
        struct darknet_block b[2];
        struct arrays a = { 0 };
        struct err err = { 0 };

        describe(&a, b);
        if (darknet_weights_parse(bytes, size, "f", b, 2, -1, &info, &err) < 0)
            fail_msg("%s", err.msg);
        assert_memory_equal(&a, &expected, sizeof a);
        assert_int_equal(info.seen, 64000);
        assert_int_equal(info.minor, i == 0 ? 2 : 1);
        assert_int_equal(info.nloaded, 2);
        assert_string_equal(info.note, "");
    }
}

static void a_header_of_the_other_width_is_found_by_the_boundary(void **state)
{
    unsigned char bytes[128];
    size_t size = unhex(old_hex, bytes);
    struct darknet_weights_info info;
    struct darknet_block b[2];
    struct arrays a = { 0 };
    struct err err;

    (void)state;
    describe(&a, b);
    bytes[4] = 2; /* version 0.2 with the old header */
    assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 2, -1, &info, &err), 0);
    assert_memory_equal(&a, &expected, sizeof a);
    assert_int_equal(info.seen, 64000);
    assert_string_equal(info.note, "the header has 16 bytes although version 0.2 says 20");
}

static void a_file_may_end_at_any_layer(void **state)
{
    unsigned char bytes[128];
    struct darknet_weights_info info;
    struct darknet_block b[2];
    struct arrays a = { .bias1 = { 9 } };
    struct err err;

    (void)state;
    unhex(new_hex, bytes);
    describe(&a, b);
    assert_int_equal(darknet_weights_parse(bytes, 20 + 40, "f", b, 2, -1, &info, &err), 0);
    assert_int_equal(info.nloaded, 1);
    assert_true(a.weights0[1] == -3 && a.bias1[0] == 9);
    assert_true(b[0].loaded && !b[1].loaded);
    assert_string_equal(info.note, "");
}

static void load_until_takes_the_part_in_front(void **state)
{
    unsigned char bytes[128];
    size_t size = unhex(new_hex, bytes);
    struct darknet_weights_info info;
    struct darknet_block b[2];
    struct arrays a = { .bias1 = { 9 } };
    struct err err;

    (void)state;
    describe(&a, b);
    assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 2, 1, &info, &err), 0);
    assert_int_equal(info.nloaded, 1);
    assert_true(a.bias1[0] == 9);
    b[1].filters = 7; /* bytes behind the layer would not matter, but a single layer does not show the file's network */
    assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 2, 1, &info, &err), ERR_DATA);
    assert_string_equal(
        err.msg, "f: its size fits this network at no layer and no class count, and the layers before model.load_until=1 are too few to "
                 "tell whether it is of the same one: another network or model.width?");
    assert_int_equal(darknet_weights_parse(bytes, size - 20, "f", b, 2, 1, &info, &err), ERR_DATA);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    unsigned char bytes[160] = { 0 };
    size_t size = unhex(new_hex, bytes);
    struct darknet_weights_info info;
    struct darknet_block b[2];
    struct arrays a = { 0 };
    static const struct arrays untouched;
    char said[100];
    struct err err;

    (void)state;
    describe(&a, b);
    assert_int_equal(darknet_weights_parse(bytes, size - 8, "f", b, 2, -1, &info, &err), ERR_DATA);
    assert_string_equal(
        err.msg,
        "f: holds 11 numbers; this network's layers end at 10 (through layer 0) and 13 (through layer 1), and it has as many at no "
        "other class count: another network or model.width? model.load_until takes the part in front");
    assert_int_equal(darknet_weights_parse(bytes, size + 8, "f", b, 2, -1, &info, &err), ERR_DATA);
    assert_string_equal(err.msg, "f: holds 15 numbers, the whole network 13, and as many at no other class count: another network or "
                                 "model.width? model.load_until takes the part in front");
    assert_int_equal(darknet_weights_parse(bytes, size - 21, "f", b, 2, -1, &info, &err), ERR_DATA);
    assert_int_equal(darknet_weights_parse(bytes, 24, "f", b, 2, -1, &info, &err), ERR_DATA);
    assert_string_equal(err.msg, "f: holds 1 numbers, less than the first layer's 10: cut off, or another network");
    assert_int_equal(darknet_weights_parse(bytes, 19, "f", b, 2, -1, &info, &err), ERR_DATA);
    assert_string_equal(err.msg, "f: not a darknet .weights file: its 19 bytes do not begin with a version");
    memset(bytes, 0xff, 4);
    assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 2, -1, &info, &err), ERR_DATA);
    snprintf(said, sizeof said, "f: not a darknet .weights file: its %zu bytes do not begin with a version", size);
    assert_string_equal(err.msg, said);
    assert_memory_equal(&a, &untouched, sizeof a);
}

/* A convolution of 10 numbers, a convolution before a head of one anchor (15 numbers and 3 for each class), and a
 * convolution of 6 numbers. */
static void describe_head(float v[64], struct darknet_block b[3], int classes)
{
    b[0] = (struct darknet_block){ 0, 2, 1, 1, v, v + 2, v + 4, v + 6, v + 8, 0, false };
    b[1] = (struct darknet_block){ 1, 5 + classes, 2, 1, v + 10, NULL, NULL, NULL, v + 20, 1, false };
    b[2] = (struct darknet_block){ 3, 1, 2, 1, v + 40, v + 41, v + 42, v + 43, v + 44, 0, false };
}

static size_t count_bytes(int classes)
{
    return 20 + 4 * (31 + 3 * (size_t)classes);
}

/* The whole network for `classes`; number i is i + 1. */
static size_t count_up(unsigned char *bytes, int classes)
{
    int n = 31 + 3 * classes;

    unhex(new_hex, bytes);
    for (int i = 0; i < n; i++) {
        float number = (float)(i + 1);

        memcpy(bytes + 20 + 4 * (size_t)i, &number, 4);
    }
    return count_bytes(classes);
}

static void heads_of_another_count_are_stepped_over(void **state)
{
    unsigned char bytes[512];
    size_t size = count_up(bytes, 7);
    struct darknet_weights_info info;
    struct darknet_block b[3];
    float v[64] = { 0 };
    struct err err;

    (void)state;
    describe_head(v, b, 3);
    for (int load_until = -1; load_until < 10; load_until += 10) { /* all layers: a load_until behind the last layer means the same */
        memset(v, 0, sizeof v);
        assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 3, load_until, &info, &err), 0);
        assert_true(info.classes == 7 && info.nloaded == 2 && b[0].loaded && !b[1].loaded && b[2].loaded);
        assert_true(v[0] == 1 && v[9] == 10 && v[10] == 0 && v[39] == 0);
        assert_true(v[40] == 10 + 36 + 1 && v[45] == 10 + 36 + 6);
    }
    assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 3, 0, &info, &err), ERR_DATA);
    assert_string_equal(err.msg, "f: nothing is loaded: no convolution stands before layer 0 (model.load_until)");
    describe_head(v, b, 7);
    assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 3, -1, &info, &err), 0);
    assert_true(info.classes == 0 && info.nloaded == 3 && b[1].loaded && v[10] == 11);
    describe_head(v, b, 3);
    bytes[4] = 1; /* version 0.1 with the new header */
    assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 3, 9, &info, &err), 0);
    assert_true(info.classes == 7 && info.nloaded == 2 && strstr(info.note, "the header has 20 bytes"));
}

/* A network has 1 to DARKNET_MAX_CLASSES classes. A file with more classes, or with 0 classes, is of another
 * network. */
static void classes_have_a_limit(void **state)
{
    static const struct {
        int classes, rc;
    } rows[] = { { 0, ERR_DATA }, { 1, 0 }, { DARKNET_MAX_CLASSES, 0 }, { DARKNET_MAX_CLASSES + 1, ERR_DATA } };
    unsigned char *bytes = malloc(count_bytes(DARKNET_MAX_CLASSES + 1));
    struct darknet_weights_info info;
    struct darknet_block b[3];
    float v[64] = { 0 };
    struct err err;

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t size = count_up(bytes, rows[i].classes);

        describe_head(v, b, 4);
        assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 3, 9, &info, &err), rows[i].rc);
        if (rows[i].rc == 0)
            assert_int_equal(info.classes, rows[i].classes);
    }
    free(bytes);
}

/* 34 numbers: the first two convolutions with 3 classes, or all three with 1. */
static void a_size_that_fits_twice_is_refused(void **state)
{
    unsigned char bytes[512];
    size_t size = count_up(bytes, 1);
    struct darknet_weights_info info;
    struct darknet_block b[3];
    float v[64] = { 0 };
    struct err err;

    (void)state;
    describe_head(v, b, 3);
    assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 3, -1, &info, &err), ERR_DATA);
    assert_string_equal(err.msg, "f: is this network through layer 1 with 3 classes, or all of it with 1: its size leaves the choice; "
                                 "model.load_until=1 takes the layers in front of the heads");
    assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 3, 2, &info, &err), ERR_DATA);
    assert_true(v[0] == 0);
    assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 3, 1, &info, &err), 0);
    assert_true(info.nloaded == 1 && v[0] == 1 && v[10] == 0);
}

/* A hint never advises a step that was done already. */
static void the_hint_is_not_what_was_done(void **state)
{
    unsigned char bytes[512];
    struct darknet_weights_info info;
    float v[64] = { 0 };
    struct darknet_block b[3] = { { 0, 2, 1, 1, v, v + 2, v + 4, v + 6, v + 8, 0, false },
                                  { 1, 2, 2, 1, v + 10, v + 12, v + 14, v + 16, v + 18, 0, false },
                                  { 2, 6, 2, 1, v + 22, NULL, NULL, NULL, v + 28, 1, false } };
    struct err err;
    const char *hint;

    (void)state;
    count_up(bytes, 1);
    for (int load_until = -1; load_until <= 2; load_until += 3) {
        assert_int_equal(darknet_weights_parse(bytes, 20 + 4 * 15, "f", b, 3, load_until, &info, &err), ERR_DATA);
        hint = strstr(err.msg, ": another network or model.width?");
        assert_non_null(hint);
        assert_string_equal(hint, load_until < 0
                                      ? ": another network or model.width? model.load_until=2 takes the layers in front of the heads"
                                      : ": another network or model.width?");
    }
}

/* Shifted numbers cannot be variances; a file with a negative variance is refused as a whole. */
static void variances_are_not_negative(void **state)
{
    static const float bad[] = { -0.5f, INFINITY, NAN };
    unsigned char bytes[512];
    size_t size = count_up(bytes, 3);
    struct darknet_weights_info info;
    struct darknet_block b[3];
    float v[64] = { 0 };
    struct err err;

    (void)state;
    describe_head(v, b, 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memcpy(bytes + 20 + 4 * (10 + 24 + 3), &bad[i], 4); /* of layer 3 */
        assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 3, -1, &info, &err), ERR_DATA);
        assert_memory_equal(err.msg, "f: layer 3: ", 12);
        assert_non_null(strstr(err.msg, "cannot be a running variance"));
        assert_true(v[0] == 0);
        assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 3, 2, &info, &err), 0);
        v[0] = 0;
    }
}

/* Ten numbers of layer 0, 8 biases and 16 weights of layer 1, six numbers of layer 3. */
static void numbers_are_finite(void **state)
{
    static const struct {
        size_t at;
        float bad;
        const char *said;
    } rows[] = { { 1, NAN, "f: layer 0: number 1 of the shift is " },      { 2, INFINITY, "f: layer 0: number 0 of the scale is inf" },
                 { 5, -INFINITY, "f: layer 0: number 1 of the mean is " }, { 9, NAN, "f: layer 0: number 1 of the weights is " },
                 { 17, INFINITY, "f: layer 1: number 7 of the bias is " }, { 39, NAN, "f: layer 3: number 1 of the weights is " } };
    unsigned char bytes[512];
    struct darknet_weights_info info;
    struct darknet_block b[3];
    float v[64] = { 0 };
    struct err err;

    (void)state;
    describe_head(v, b, 3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t size = count_up(bytes, 3);

        memcpy(bytes + 20 + 4 * rows[i].at, &rows[i].bad, 4);
        assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 3, -1, &info, &err), ERR_DATA);
        if (strncmp(err.msg, rows[i].said, strlen(rows[i].said)) != 0)
            fail_msg("said '%s'", err.msg);
        assert_true(v[0] == 0);
    }
}

/* The bytes written by these tests equal those of other programs. */
static void written_files_have_the_published_bytes(void **state)
{
    char path[TEMP_MAX];
    unsigned char bytes[128];
    size_t size = unhex(new_hex, bytes);
    struct arrays a = expected;
    struct darknet_block b[2];
    struct file_map map;
    struct err err;
    int fd = mkstemp(temp_path(path, sizeof path, "detd-weights-XXXXXX"));

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    describe(&a, b);
    write_darknet_file(path, b, 2, 64000);
    assert_int_equal(file_map_open(path, 1 << 20, &map, &err), 0);
    assert_int_equal(map.size, size);
    assert_memory_equal(map.data, bytes, size);
    file_map_close(&map);
    unlink(path);
}

/* A single 2x2 convolution 3 -> 2: element (o, i, y, x) of the file is number 12 o + 4 i + 2 y + x. */
static void weights_change_their_layout(void **state)
{
    char path[TEMP_MAX];
    float bias[2] = { 0 }, weights[24], back[24];
    struct darknet_block b = { 0, 2, 3, 2, bias, NULL, NULL, NULL, weights, 0, false };
    struct darknet_weights_info info;
    struct file_map map;
    struct err err;
    int fd = mkstemp(temp_path(path, sizeof path, "detd-weights-XXXXXX"));

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    for (int o = 0; o < 2; o++)
        for (int y = 0; y < 2; y++)
            for (int x = 0; x < 2; x++)
                for (int i = 0; i < 3; i++)
                    weights[((o * 2 + y) * 2 + x) * 3 + i] = (float)(12 * o + 4 * i + 2 * y + x);
    write_darknet_file(path, &b, 1, 0);
    assert_int_equal(file_map_open(path, 1 << 20, &map, &err), 0);
    for (int n = 0; n < 24; n++) {
        float v;

        memcpy(&v, map.data + 20 + 8 + 4 * n, 4);
        assert_true(v == (float)n);
    }
    file_map_close(&map);
    memcpy(back, weights, sizeof back);
    memset(weights, 0, sizeof weights);
    assert_int_equal(darknet_weights_load(path, &b, 1, -1, &info, &err), 0);
    assert_memory_equal(weights, back, sizeof back);
    unlink(path);
    assert_true(darknet_weights_load(path, &b, 1, -1, &info, &err) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_headers_are_read),
        cmocka_unit_test(a_header_of_the_other_width_is_found_by_the_boundary),
        cmocka_unit_test(a_file_may_end_at_any_layer),
        cmocka_unit_test(load_until_takes_the_part_in_front),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(heads_of_another_count_are_stepped_over),
        cmocka_unit_test(classes_have_a_limit),
        cmocka_unit_test(a_size_that_fits_twice_is_refused),
        cmocka_unit_test(the_hint_is_not_what_was_done),
        cmocka_unit_test(variances_are_not_negative),
        cmocka_unit_test(numbers_are_finite),
        cmocka_unit_test(written_files_have_the_published_bytes),
        cmocka_unit_test(weights_change_their_layout),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

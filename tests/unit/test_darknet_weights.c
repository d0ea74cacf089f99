/* .weights files: both headers byte for byte, boundaries, the way there and back.
 * uses: proto worker/models worker/layers worker/eval worker/core */
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
#include "worker/core/file.h"
#include "worker/models/darknet_weights.h"

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
    b[0] = (struct darknet_block){ 0, 2, 1, 1, a->bias0, a->scale, a->mean, a->var, a->weights0 };
    b[1] = (struct darknet_block){ 1, 1, 2, 1, a->bias1, NULL, NULL, NULL, a->weights1 };
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
    bytes[4] = 2; /* says 0.2, has the old header */
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
    assert_string_equal(info.note, "layers from 1 on keep their initial values");
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
    b[1].filters = 7; /* another class count: what lies behind does not matter */
    assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 2, 1, &info, &err), 0);
    assert_int_equal(info.nloaded, 1);
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
    struct err err;

    (void)state;
    describe(&a, b);
    assert_int_equal(darknet_weights_parse(bytes, size - 8, "f", b, 2, -1, &info, &err), ERR_DATA);
    assert_string_equal(
        err.msg, "f: holds 11 numbers; this network's layers end at 10 (through layer 0) and 13 (through layer 1): another network or "
                 "class count? load_until takes the part in front");
    assert_int_equal(darknet_weights_parse(bytes, size + 8, "f", b, 2, -1, &info, &err), ERR_DATA);
    assert_string_equal(err.msg, "f: holds 15 numbers, the whole network 13: another network or class count");
    assert_int_equal(darknet_weights_parse(bytes, size - 21, "f", b, 2, -1, &info, &err), ERR_DATA);
    assert_int_equal(darknet_weights_parse(bytes, 24, "f", b, 2, -1, &info, &err), ERR_DATA);
    assert_string_equal(err.msg, "f: holds 1 numbers, less than the first layer's 10: cut off, or another network");
    assert_int_equal(darknet_weights_parse(bytes, 19, "f", b, 2, -1, &info, &err), ERR_DATA);
    assert_string_equal(err.msg, "f: 19 bytes are no weights file");
    memset(bytes, 0xff, 4);
    assert_int_equal(darknet_weights_parse(bytes, size, "f", b, 2, -1, &info, &err), ERR_DATA);
    assert_string_equal(err.msg, "f: version -1.2 is none of a weights file");
    assert_memory_equal(&a, &untouched, sizeof a);
}

static void saved_files_have_the_published_bytes(void **state)
{
    char path[] = "/tmp/detd-weights-XXXXXX";
    unsigned char bytes[128];
    size_t size = unhex(new_hex, bytes);
    struct arrays a = expected;
    struct darknet_block b[2];
    struct file_map map;
    struct err err;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    describe(&a, b);
    assert_int_equal(darknet_weights_save(path, b, 2, 64000, &err), 0);
    assert_int_equal(file_map_open(path, 1 << 20, &map, &err), 0);
    assert_int_equal(map.size, size);
    assert_memory_equal(map.data, bytes, size);
    file_map_close(&map);
    unlink(path);
    assert_true(darknet_weights_save("/nonexistent/f", b, 2, 0, &err) < 0);
}

/* One 2x2 convolution 3 -> 2: element (o, i, y, x) of the file is number 12 o + 4 i + 2 y + x. */
static void weights_change_their_layout(void **state)
{
    char path[] = "/tmp/detd-weights-XXXXXX";
    float bias[2] = { 0 }, weights[24], back[24];
    struct darknet_block b = { 0, 2, 3, 2, bias, NULL, NULL, NULL, weights };
    struct darknet_weights_info info;
    struct file_map map;
    struct err err;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    for (int o = 0; o < 2; o++)
        for (int y = 0; y < 2; y++)
            for (int x = 0; x < 2; x++)
                for (int i = 0; i < 3; i++)
                    weights[((o * 2 + y) * 2 + x) * 3 + i] = (float)(12 * o + 4 * i + 2 * y + x);
    assert_int_equal(darknet_weights_save(path, &b, 1, 0, &err), 0);
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
        cmocka_unit_test(saved_files_have_the_published_bytes),
        cmocka_unit_test(weights_change_their_layout),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

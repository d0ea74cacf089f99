/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/core/test_safetensors.c - uses: proto worker/core
 * .safetensors files: written arrays come back, and every damaged file is refused by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/stand/harness.h"
#include "worker/core/file.h"
#include "worker/core/safetensors.h"

static char dir[TEMP_MAX];

static const char *path_in_dir(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(temp_path(dir, sizeof dir, "detd-st-XXXXXX")) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path_in_dir("a"));
    unlink(path_in_dir("b"));
    return rmdir(dir);
}

static const float weights[6] = { 1, -2, 3.5f, 0, 1e-40f, INFINITY };
static const int64_t steps[2] = { INT64_MIN, 7 };
static const uint8_t flags[3] = { 1, 2, 255 };
static const float scalar = 42;

static const struct st_array arrays[] = {
    { "w.b", ST_F32, 2, { 2, 3 }, weights }, { "flags", ST_U8, 1, { 3 }, flags },   { "steps", ST_I64, 1, { 2 }, steps },
    { "w.a", ST_F32, 0, { 0 }, &scalar },    { "none", ST_F32, 2, { 0, 7 }, NULL },
};
static const struct st_meta meta[] = { { "z", "last \"quoted\"" }, { "format", "pt" } };

static void what_is_written_comes_back(void **state)
{
    struct safetensors *f;
    struct err err = { 0 };
    float back[6];

    (void)state;
    if (safetensors_write(path_in_dir("a"), arrays, 5, meta, 2, &err) < 0 || safetensors_open(path_in_dir("a"), &f, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(safetensors_count(f), 5);
    assert_string_equal(safetensors_at(f, 0)->name, "flags");
    assert_string_equal(safetensors_at(f, 4)->name, "w.b");
    assert_string_equal(safetensors_meta(f, "z"), "last \"quoted\"");
    assert_null(safetensors_meta(f, "y"));
    assert_null(safetensors_find(f, "w"));
    assert_int_equal(safetensors_find(f, "w.b")->shape[1], 3);
    assert_int_equal(safetensors_f32(safetensors_find(f, "w.b"), back, &err), 0);
    assert_memory_equal(back, weights, sizeof weights);
    assert_int_equal(safetensors_f32(safetensors_find(f, "w.a"), back, &err), 0);
    assert_true(back[0] == 42);
    assert_memory_equal(safetensors_find(f, "steps")->data, steps, sizeof steps);
    assert_int_equal((uintptr_t)safetensors_find(f, "steps")->data % 8, 0);
    assert_int_equal(st_bytes(safetensors_find(f, "none")), 0);
    assert_int_equal(safetensors_f32(safetensors_find(f, "steps"), back, &err), ERR_UNSUPPORTED);
    safetensors_close(f);
}

static void bytes_do_not_depend_on_the_order_given(void **state)
{
    struct st_array shuffled[5];
    struct st_meta other[2] = { meta[1], meta[0] };
    struct file_map a, b;
    struct err err;

    (void)state;
    for (int i = 0; i < 5; i++)
        shuffled[i] = arrays[(i * 3 + 1) % 5];
    assert_int_equal(safetensors_write(path_in_dir("a"), arrays, 5, meta, 2, &err), 0);
    assert_int_equal(safetensors_write(path_in_dir("b"), shuffled, 5, other, 2, &err), 0);
    assert_int_equal(file_map_open(path_in_dir("a"), 1 << 20, &a, &err), 0);
    assert_int_equal(file_map_open(path_in_dir("b"), 1 << 20, &b, &err), 0);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    file_map_close(&a);
    file_map_close(&b);
}

/* ---- exports, to names that a user gives ---- */

static void put(const char *name, const char *text)
{
    FILE *f = fopen(path_in_dir(name), "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int export_to(const char *name, struct err *err)
{
    return safetensors_export(path_in_dir(name), arrays, 5, meta, 2, err);
}

static void exports_replace_exports_alone(void **state)
{
    struct safetensors *f;
    struct stat st;
    struct err err = { 0 };

    (void)state;
    put("a", "");
    assert_int_equal(chmod(path_in_dir("a"), 0600), 0);
    assert_int_equal(export_to("a", &err), 0); /* an empty file: nothing is lost */
    assert_int_equal(export_to("a", &err), 0);
    assert_int_equal(stat(path_in_dir("a"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(safetensors_open(path_in_dir("a"), &f, &err), 0);
    assert_int_equal(safetensors_count(f), 5);
    assert_string_equal(safetensors_meta(f, "z"), "last \"quoted\"");
    safetensors_close(f);
    assert_int_equal(chmod(path_in_dir("a"), 0444), 0);
    assert_int_equal(export_to("a", &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "write-protected"));
    unlink(path_in_dir("a"));
    assert_int_equal(safetensors_write(path_in_dir("a"), arrays, 5, meta, 2, &err), 0); /* a checkpoint's */
    assert_int_equal(export_to("a", &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "/a' is there, and detd did not write it"));
    put("a", "mine");
    assert_int_equal(export_to("a", &err), ERR_INPUT);
    assert_int_equal(stat(path_in_dir("a"), &st), 0);
    assert_int_equal(st.st_size, 4);
}

static void exports_follow_links(void **state)
{
    struct stat st;
    struct err err = { 0 };

    (void)state;
    unlink(path_in_dir("a"));
    assert_int_equal(symlink("c", path_in_dir("b")), 0);
    assert_int_equal(symlink("a", path_in_dir("c")), 0);
    assert_int_equal(export_to("b", &err), 0); /* to a file that is not there yet */
    assert_int_equal(export_to("b", &err), 0);
    assert_true(lstat(path_in_dir("b"), &st) == 0 && S_ISLNK(st.st_mode));
    assert_true(lstat(path_in_dir("a"), &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 100);
    put("a", "mine");
    assert_int_equal(export_to("b", &err), ERR_INPUT);
    unlink(path_in_dir("a"));
    assert_int_equal(symlink("b", path_in_dir("a")), 0);
    assert_true(export_to("b", &err) < 0); /* a ring */
    for (const char *name = "abc"; *name; name++)
        unlink(path_in_dir((char[2]){ *name, '\0' }));
}

static void exports_refuse_what_is_no_file(void **state)
{
    struct err err = { 0 };

    (void)state;
    assert_int_equal(mkfifo(path_in_dir("a"), 0600), 0);
    assert_int_equal(export_to("a", &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "is not a regular file"));
    unlink(path_in_dir("a"));
    assert_int_equal(safetensors_export("/dev/null", arrays, 5, meta, 2, &err), ERR_INPUT);
    assert_int_equal(safetensors_export(dir, arrays, 5, meta, 2, &err), ERR_INPUT);
}

static void bad_names_are_not_written(void **state)
{
    struct st_array twice[2] = { arrays[0], arrays[0] }, reserved = arrays[0], latin = arrays[0];
    struct err err;

    (void)state;
    reserved.name = "__metadata__";
    latin.name = "\xe9";
    assert_int_equal(safetensors_write(path_in_dir("a"), twice, 2, NULL, 0, &err), ERR_INPUT);
    assert_int_equal(safetensors_write(path_in_dir("a"), &reserved, 1, NULL, 0, &err), ERR_INPUT);
    assert_int_equal(safetensors_write(path_in_dir("a"), &latin, 1, NULL, 0, &err), ERR_INPUT);
    assert_true(safetensors_write("/nonexistent/a", arrays, 1, NULL, 0, &err) < 0);
    assert_non_null(strstr(err.msg, "/nonexistent/a.tmp"));
}

/* A file with this header and `data` zero bytes behind. */
static int parse(const char *header, size_t data, struct safetensors **ret, struct err *err)
{
    static unsigned char file[1024]; /* outlives the result */
    uint64_t len = strlen(header);

    memset(file, 0, sizeof file);
    memcpy(file, &len, 8);
    memcpy(file + 8, header, len);
    return safetensors_parse(file, 8 + len + data, "x", ret, err);
}

#define ARRAY(name, dtype, shape, offsets) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct bad {
    const char *header;
    size_t data;
    const char *msg;
} bads[] = {
    { "", 0, "x: header, byte 0: '[' or '{' expected near end of file" },
    { "[]", 0, "x: the header is not an object" },
    { "{}", 1, "x: 1 bytes behind the last array" },
    { "{\"a\":1}", 0, "x: array 'a': its description is not an object" },
    { "{\"a\":{}}", 0, "x: array 'a': dtype is missing" },
    { "{" ARRAY("a", "F31", "[]", "[0,4]") "}", 4, "x: array 'a': unknown dtype" },
    { "{" ARRAY("a", "F32", "1", "[0,4]") "}", 4, "x: array 'a': shape is not a list of at most 8 numbers" },
    { "{" ARRAY("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "x: array 'a': shape is not a list of at most 8 numbers" },
    { "{" ARRAY("a", "F32", "[-1]", "[0,4]") "}", 4, "x: array 'a': a dimension is not a number >= 0" },
    { "{" ARRAY("a", "F32", "[1.0]", "[0,4]") "}", 4, "x: array 'a': a dimension is not a number >= 0" },
    { "{" ARRAY("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "x: array 'a': its shape is too large" },
    { "{" ARRAY("a", "F32", "[1]", "[0]") "}", 4, "x: array 'a': data_offsets is not a pair of numbers" },
    { "{" ARRAY("a", "F32", "[1]", "[0,5]") "}", 4, "x: array 'a': data_offsets lie outside the file" },
    { "{" ARRAY("a", "F32", "[1]", "[4,0]") "}", 4, "x: array 'a': data_offsets lie outside the file" },
    { "{" ARRAY("a", "F32", "[1]", "[-4,0]") "}", 4, "x: array 'a': data_offsets lie outside the file" },
    { "{" ARRAY("a", "F32", "[1]", "[0,3]") "}", 4, "x: array 'a': data_offsets do not fit its shape and dtype" },
    { "{" ARRAY("a", "F32", "[1]", "[0,4]") "," ARRAY("b", "F32", "[1]", "[8,12]") "}", 12, "x: array 'b': a hole before it" },
    { "{" ARRAY("a", "F32", "[1]", "[0,4]") "," ARRAY("b", "F32", "[1]", "[2,6]") "}", 6, "x: array 'b': overlaps another" },
    { "{" ARRAY("a", "F32", "[1]", "[0,4]") "," ARRAY("a", "F32", "[1]", "[4,8]") "}", 8,
      "x: header, byte 57: duplicate object key near '\"a\"'" },
    { "{\"__metadata__\":[]}", 0, "x: __metadata__ is not an object" },
    { "{\"__metadata__\":{\"a\":1}}", 0, "x: metadata 'a' is not a string" },
};

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        struct safetensors *f = NULL;
        struct err err = { 0 };

        if (parse(bads[i].header, bads[i].data, &f, &err) == 0)
            fail_msg("accepted: %s", bads[i].header);
        assert_int_equal(err.code, ERR_CORRUPT);
        assert_string_equal(err.msg, bads[i].msg);
    }
}

static void refuses_short_files_and_huge_headers(void **state)
{
    static const uint64_t huge = 100000001, beyond = 9;
    static const struct {
        const char *bytes, *said;
    } others[] = {
        { "\0\0\0\0\2\0\0\0\5\0\0\0", "weights of Darknet" },
        { "\0\0\0\0\1\0\0\0\0\0\0\0", "weights of Darknet" },
        { "PK\3\4\0\0\0\0\0\0\0\0", "PyTorch's .pth" },
        { "\200\2}q\1X\0\0\0\0\0\0", "detectron2's .pkl" },
    };
    struct safetensors *f;
    struct err err;

    (void)state;
    assert_int_equal(safetensors_parse("1234567", 7, "x", &f, &err), ERR_CORRUPT);
    assert_string_equal(err.msg, "x: not a .safetensors file; it is text");
    assert_int_equal(safetensors_parse(&huge, 8, "x", &f, &err), ERR_CORRUPT);
    assert_string_equal(err.msg, "x: header of 100000001 bytes; the limit is 100000000");
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        assert_int_equal(safetensors_parse(others[k].bytes, 12, "x", &f, &err), ERR_CORRUPT);
        if (!strstr(err.msg, others[k].said) || !strstr(err.msg, "x: not a .safetensors file; it is "))
            fail_msg("%s", err.msg);
    }
    assert_int_equal(safetensors_parse(&beyond, 8, "x", &f, &err), ERR_CORRUPT);
    assert_string_equal(err.msg, "x: header of 9 bytes in a file of 8");
}

static void halves_and_brain_floats_convert_exactly(void **state)
{
    static const struct {
        uint16_t half, brain;
        float as_half, as_brain;
    } cases[] = {
        { 0x3c00, 0x3f80, 1.0f, 1.0f },         { 0xc000, 0xc000, -2.0f, -2.0f },          { 0x0001, 0x0001, 0x1p-24f, 0x1p-133f },
        { 0x83ff, 0x8000, -0x3ffp-24f, -0.0f }, { 0x7bff, 0x7f7f, 65504.0f, 0x1.fep127f }, { 0xfc00, 0xff80, -INFINITY, -INFINITY },
    };
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct st_array half = { "h", ST_F16, 0, { 0 }, &cases[i].half }, brain = { "b", ST_BF16, 0, { 0 }, &cases[i].brain };
        float got[2];

        assert_int_equal(safetensors_f32(&half, &got[0], &err), 0);
        assert_int_equal(safetensors_f32(&brain, &got[1], &err), 0);
        assert_true(got[0] == cases[i].as_half && signbit(got[0]) == signbit(cases[i].as_half));
        assert_true(got[1] == cases[i].as_brain && signbit(got[1]) == signbit(cases[i].as_brain));
    }
    struct st_array nan_half = { "h", ST_F16, 0, { 0 }, &(uint16_t){ 0x7e01 } }, wide = { "d", ST_F64, 0, { 0 }, &(double){ 1.0 / 3 } };
    float got;

    assert_int_equal(safetensors_f32(&nan_half, &got, &err), 0);
    assert_true(isnan(got));
    assert_int_equal(safetensors_f32(&wide, &got, &err), 0);
    assert_true(got == 1.0f / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_comes_back, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(bytes_do_not_depend_on_the_order_given, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(exports_replace_exports_alone, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(exports_follow_links, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(exports_refuse_what_is_no_file, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(bad_names_are_not_written, make_dir, remove_dir),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(refuses_short_files_and_huge_headers),
        cmocka_unit_test(halves_and_brain_floats_convert_exactly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

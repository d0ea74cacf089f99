/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/report/test_val_picture.c - uses: proto trainer cpu
 * Pictures of validation: their contents, the kept files, and a folder without write access. */
#include <dirent.h>
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
#include "proto/host/pictures.h"
#include "tests/stand/harness.h"
#include "worker/data/set/dataset.h"
#include "worker/data/image/image.h"
#include "worker/eval/depth/depth_picture.h"
#include "worker/eval/result.h"
#include "worker/report/val_picture.h"

enum { W = 6, H = 4 };

static char dir[TEMP_MAX];
static uint8_t rgb[W * H * 3];
static float depth[W * H];
static struct dataset_image image = { .file = (char *)"a.png", .w = W, .h = H };
static struct dataset set = { .folder = dir, .nimages = 1, .images = &image };
static const struct result found = { .kind = RESULT_DEPTH, .depth = { W, H, depth } };

static void path_of(const char *name, char ret[2 * TEMP_MAX])
{
    snprintf(ret, 2 * TEMP_MAX, "%s/%s", dir, name);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int setup(void **state)
{
    char path[2 * TEMP_MAX];
    struct err err;

    (void)state;
    for (int i = 0; i < W * H * 3; i++)
        rgb[i] = (uint8_t)(7 * i);
    for (int i = 0; i < W * H; i++)
        depth[i] = 1 + (float)i;
    assert_non_null(mkdtemp(temp_path(dir, sizeof dir, "detd-picture-XXXXXX")));
    path_of("a.png", path);
    return image_write_png(path, rgb, W, H, &err);
}

static int teardown(void **state)
{
    char command[TEMP_MAX + 16];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static void written(int64_t step)
{
    struct err err = { 0 };

    if (val_picture_write(dir, step, &set, 0, &found, &err) < 0)
        fail_msg("%s", err.msg);
}

/* The steps with pictures: bit i is step 100 * i. Any other file fails the test, except mine.png. */
static unsigned there(void)
{
    char path[2 * TEMP_MAX];
    unsigned bits = 0;
    DIR *d;

    path_of(PICTURES_FOLDER, path);
    d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        int64_t step = pictures_step(e->d_name);

        if (e->d_name[0] == '.' || strcmp(e->d_name, "mine.png") == 0)
            continue;
        if (step < 0 || step % 100)
            fail_msg("%s", e->d_name);
        bits |= 1u << step / 100;
    }
    closedir(d);
    return bits;
}

static void names(void **state)
{
    (void)state;
    assert_int_equal(pictures_step("val-step-1200.png"), 1200);
    assert_int_equal(pictures_step("val-step-.png"), -1);
    assert_int_equal(pictures_step("val-step-12.png.1.tmp"), -1);
    assert_int_equal(pictures_step("val-step-1234567890123456789.png"), -1);
    assert_int_equal(pictures_step("step-12.png"), -1);
}

static void the_picture_above_its_depth(void **state)
{
    uint8_t colours[W * H * 3];
    char path[2 * TEMP_MAX], newest[4096];
    struct decoder *dec = decoder_new();
    struct image img;
    struct err err;

    (void)state;
    assert_int_equal(pictures_newest(dir, newest, sizeof newest), -1);
    written(100);
    path_of("pictures/val-step-100.png", path);
    assert_int_equal(pictures_newest(dir, newest, sizeof newest), 100);
    assert_string_equal(newest, path);
    assert_int_equal(image_read(dec, path, &img, &err), 0);
    assert_true(img.w == W && img.h == 2 * H);
    assert_memory_equal(img.rgb, rgb, sizeof rgb);
    assert_int_equal(depth_colours(&found.depth, colours, &err), 0);
    assert_memory_equal(img.rgb + sizeof rgb, colours, sizeof colours);
    decoder_free(dec);
}

/* After an attempt went back, later pictures are removed. Leftovers of a killed writer are removed; foreign files
 * stay. */
static void the_newest_stay(void **state)
{
    char path[2 * TEMP_MAX], newest[4096];

    (void)state;
    for (int64_t step = 100; step <= 800; step += 100)
        written(step);
    assert_int_equal(there(), 0x1f0); /* 400 to 800 */
    assert_int_equal(pictures_newest(dir, newest, sizeof newest), 800);
    path_of("pictures/val-step-900.png.0.tmp", path);
    write_text(path, "half of it");
    path_of("pictures/mine.png", path);
    write_text(path, "not ours");
    written(600);
    assert_int_equal(there(), 0x070);
    assert_int_equal(access(path, F_OK), 0);
    written(700);
    assert_int_equal(there(), 0x0f0);
}

static void what_cannot_be_written(void **state)
{
    const float none[W * H] = { 0 };
    const struct result no_depth = { .kind = RESULT_DEPTH, .depth = { W, H, none } };
    const struct result other = { .kind = RESULT_DEPTH, .depth = { W - 1, H, depth } };
    char path[2 * TEMP_MAX];
    struct err err;

    (void)state;
    assert_int_equal(val_picture_write(dir, 900, &set, 0, &no_depth, &err), ERR_NONFINITE);
    assert_int_equal(val_picture_write(dir, 900, &set, 0, &other, &err), ERR_INPUT);
    image.file = (char *)"b.png";
    assert_true(val_picture_write(dir, 900, &set, 0, &found, &err) < 0);
    assert_non_null(strstr(err.msg, "/b.png"));
    image.file = (char *)"a.png";
    path_of("a.png", path);
    assert_true(val_picture_write(path, 900, &set, 0, &found, &err) < 0);
    assert_non_null(strstr(err.msg, "/a.png/pictures"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(the_picture_above_its_depth),
        cmocka_unit_test(the_newest_stay),
        cmocka_unit_test(what_cannot_be_written),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

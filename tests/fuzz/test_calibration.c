/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/core worker/mask worker/data
 * tests/fuzz/test_calibration.c - KITTI's calibration of a day: any bytes as either of its files. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/set/dataset.h"
#include "worker/data/read/frames/frames.h"
#include "worker/data/set/problems.h"

const char fuzz_name[] = "calibration";
const int fuzz_places = 40;

/* Calibration files of a valid day; the fuzzed bytes replace one of them. */
static const char cam[] =
    "S_rect_02: 41 30\nP_rect_02: 30 0 20 1 0 31 14 0 0 0 1 0\nS_rect_03: 41 30\nP_rect_03: 30 0 20 -9 0 31 14 0 0 0 1 0\n"
    "R_rect_00: 1 0 0 0 1 0 0 0 1\n";
static const char velo[] = "R: 0 -1 0 0 0 -1 1 0 0\nT: 0 0 -0.3\n";

static const char *path(const char *file)
{
    static char buf[256];

    snprintf(buf, sizeof buf, "%s%s", fuzz_path(), file);
    return buf;
}

static void read_set(void)
{
    static struct problems p;
    static char list[256];
    const struct frames_options o = { .list = list, .folder = fuzz_path(), .kitti = true, .truth = true, .depth_unit_m = NAN };
    struct dataset *d;
    struct err err = { 0 };

    p = (struct problems){ 0 };
    snprintf(list, sizeof list, "%s", path("/list"));
    if (frames_read(&o, &p, &d, &err) < 0) {
        assert_int_equal(err.code, ERR_DATA);
        assert_non_null(strstr(err.msg, "/d/calib_"));
        return;
    }
    assert_int_equal(d->views->n, 1);
    for (int i = 0; i < 4; i++)
        assert_true(isfinite(d->views->view[0].camera[i]) && d->views->view[0].camera[i] >= 0);
    assert_int_equal(d->views->nlasers, 2);
    dataset_free(d);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    static const char *const folders[] = { "", "/d", "/d/r", "/d/r/image_02", "/d/r/image_02/data" };

    for (int i = 0; i < 5; i++)
        mkdir(path(folders[i]), 0700);
    fuzz_write(path("/list"), "d/r 1", 5);
    fuzz_write(path("/d/r/image_02/data/0000000001.jpg"), "", 0); /* it is looked for only */
    fuzz_write(path("/d/calib_cam_to_cam.txt"), bytes, size);
    fuzz_write(path("/d/calib_velo_to_cam.txt"), velo, sizeof velo - 1);
    read_set();
    fuzz_write(path("/d/calib_cam_to_cam.txt"), cam, sizeof cam - 1);
    fuzz_write(path("/d/calib_velo_to_cam.txt"), bytes, size);
    read_set();
    unlink(path("/list"));
    unlink(path("/d/r/image_02/data/0000000001.jpg"));
    unlink(path("/d/calib_cam_to_cam.txt"));
    unlink(path("/d/calib_velo_to_cam.txt"));
    for (int i = 5; i > 0; i--)
        rmdir(path(folders[i - 1]));
}

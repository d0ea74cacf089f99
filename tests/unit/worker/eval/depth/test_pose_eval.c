/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/eval/depth/test_pose_eval.c
 * uses: proto worker/eval worker/mask worker/core worker/data
 * The motion of a camera against the true motion: errors equal NumPy's for the same poses (tests/golden/make_ate.py);
 * files of poses. */
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
#include "worker/data/read/frames/poses.h"
#include "worker/data/text/whole_file.h"
#include "worker/eval/depth/ate.h"
#include "worker/eval/depth/depth_view.h"
#include "worker/eval/depth/pose_eval.h"
#include "worker/eval/depth/trajectory.h"

enum { FRAMES = 12, MOTIONS = FRAMES - 1, TURNS = 5 };

static double way[FRAMES][RESULT_POSE], turns[TURNS][RESULT_POSE], quats[TURNS][4];
static double poses[FRAMES][RESULT_POSE], truth[MOTIONS][RESULT_POSE], predicted[MOTIONS][RESULT_POSE], ate[MOTIONS];
static size_t snippets;

static void numbers(const json_t *list, double *ret)
{
    const json_t *x;
    size_t i;

    json_array_foreach (list, i, x)
        ret[i] = json_number_value(x);
}

static int setup(void **state)
{
    json_t *golden = json_load_file("tests/golden/ate.json", 0, NULL);

    (void)state;
    if (!golden)
        return -1;
    for (size_t k = 0; k < FRAMES; k++) {
        numbers(json_array_get(json_object_get(golden, "poses"), k), poses[k]);
        numbers(json_array_get(json_object_get(golden, "way"), k), way[k]);
    }
    for (size_t k = 0; k < TURNS; k++) {
        numbers(json_array_get(json_object_get(golden, "turns"), k), turns[k]);
        numbers(json_array_get(json_object_get(golden, "quats"), k), quats[k]);
    }
    for (size_t k = 0; k < MOTIONS; k++) {
        double back[RESULT_POSE];

        numbers(json_array_get(json_object_get(golden, "motions"), k), predicted[k]);
        pose_undone(poses[k + 1], back);
        pose_times(back, poses[k], truth[k]);
    }
    snippets = json_array_size(json_object_get(golden, "ate"));
    numbers(json_object_get(golden, "ate"), ate);
    json_decref(golden);
    return 0;
}

static void near(double is, double should, double by)
{
    if (!(fabs(is - should) <= by * fabs(should)))
        fail_msg("%.17g, not %.17g", is, should);
}

static void errors_of_snippets(void **state)
{
    const double still[ATE_MOTIONS][RESULT_POSE] = { { 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 },
                                                     { 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 },
                                                     { 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 },
                                                     { 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 } };

    (void)state;
    assert_int_equal(snippets, MOTIONS - ATE_MOTIONS + 1);
    for (size_t k = 0; k < snippets; k++)
        near(ate_of(truth + k, predicted + k), ate[k], 1e-7);
    assert_true(ate_of(truth, truth) < 1e-12);
    assert_true(isfinite(ate_of(truth, still)) && ate_of(truth, still) > 0.1);
}

/* ---- over ranks ---- */

static int gap = -1; /* the frame without a successor; -1: no such frame */

static bool motion(void *of, int image, double ret[RESULT_POSE], int *ret_next)
{
    (void)of;
    if (image >= MOTIONS || image == gap)
        return false;
    memcpy(ret, truth[image], sizeof truth[image]);
    *ret_next = image + 1;
    return true;
}

static const struct eval_poses eval_poses = { NULL, motion, 1 };
static const struct eval_split split = { .nimages = MOTIONS, .poses = &eval_poses }, silent = { .nimages = MOTIONS };

static int add(struct evaluator *e, int image, int nviews, struct err *err)
{
    static float depth = 1;
    struct result_view view[2] = { { { 5 } }, { { 0 } } };
    struct result r = { .kind = RESULT_DEPTH, .image = image, .depth = { 1, 1, &depth }, .nviews = nviews, .views = view };

    for (int i = 0; i < RESULT_POSE && image < MOTIONS; i++)
        view[1].pose[i] = (float)predicted[image][i];
    return e->ops->add(e, &r, err);
}

static struct metrics scored_by(const struct eval_split *of, int ranks, int without)
{
    char all[MOTIONS * 128];
    size_t used = 0, bytes;
    struct metrics m = { 0 };
    struct evaluator *e = NULL;
    struct err err;

    for (int r = 0; r < ranks; r++) {
        const void *mine;

        if (e)
            e->ops->close(e);
        assert_int_equal(depth_poses.open(of, &e, &err), 0);
        for (int k = MOTIONS - 1; k >= 0; k--)
            if (k % ranks == r && k != without)
                assert_int_equal(add(e, k, 2, &err), 0);
        mine = e->ops->pack(e, &bytes);
        assert_true(used + bytes <= sizeof all);
        if (bytes)
            memcpy(all + used, mine, bytes);
        used += bytes;
    }
    assert_int_equal(e->ops->score(e, all, used, &m, &err), 0);
    e->ops->close(e);
    return m;
}

static void mean_and_deviation(size_t from, size_t to, double *ret_mean, double *ret_deviation)
{
    double n = (double)(to - from), square = 0;

    *ret_mean = 0;
    for (size_t k = from; k < to; k++)
        *ret_mean += ate[k] / n;
    for (size_t k = from; k < to; k++)
        square += (ate[k] - *ret_mean) * (ate[k] - *ret_mean) / n;
    *ret_deviation = sqrt(square);
}

static void over_all_snippets(void **state)
{
    struct metrics one = scored_by(&split, 1, -1), three = scored_by(&split, 3, -1), part, none;
    double mean, deviation, behind, ignored;

    (void)state;
    mean_and_deviation(0, snippets, &mean, &deviation);
    assert_int_equal(one.n, 2);
    assert_string_equal(one.row[0].name, "ate");
    assert_string_equal(one.row[1].name, "ate_std");
    near(one.row[0].value, mean, 1e-5);
    near(one.row[1].value, deviation, 1e-4);
    for (int k = 0; k < 2; k++)
        assert_memory_equal(&one.row[k].value, &three.row[k].value, sizeof(double));
    free(one.row);
    free(three.row);
    part = scored_by(&split, 2, 1); /* snippets with a missing frame are left out: snippets 0 and 1 remain */
    mean_and_deviation(2, snippets, &mean, &deviation);
    near(part.row[0].value, mean, 1e-5);
    free(part.row);
    gap = 5; /* snippets end there, and no snippet has all frames behind it */
    part = scored_by(&split, 1, -1);
    mean_and_deviation(0, 2, &mean, &deviation);
    mean_and_deviation(6, snippets, &behind, &ignored);
    near(part.row[0].value, (2 * mean + (double)(snippets - 6) * behind) / (double)(snippets - 4), 1e-5);
    free(part.row);
    gap = -1;
    none = scored_by(&silent, 1, -1);
    assert_int_equal(none.n, 0);
}

static void refused(void **state)
{
    struct evaluator *e;
    struct err err;

    (void)state;
    assert_int_equal(depth_poses.open(&split, &e, &err), 0);
    assert_int_equal(add(e, 3, 1, &err), ERR_INPUT);
    assert_string_equal(err.msg, "picture 3: no motion to view 1, of 1");
    assert_int_equal(add(e, MOTIONS, 2, &err), ERR_INPUT);
    assert_string_equal(err.msg, "poses of picture 11, of 11");
    e->ops->close(e);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* ---- ways ---- */

static void ways_and_turns(void **state)
{
    double is[FRAMES][RESULT_POSE], q[4];

    (void)state;
    trajectory_of((const double(*)[RESULT_POSE])truth, MOTIONS, 3, is);
    for (int k = 0; k < FRAMES; k++)
        for (int i = 0; i < RESULT_POSE; i++)
            assert_true(fabs(is[k][i] - way[k][i]) < 1e-6);
    for (int k = 0; k < TURNS; k++) {
        trajectory_quaternion(turns[k], q);
        for (int i = 0; i < 4; i++)
            assert_true(fabs(q[i] - quats[k][i]) < 1e-7);
    }
}

static void parse_file(const char *path, struct poses *ret)
{
    struct whole_file f = { 0 };
    struct err err;

    assert_int_equal(whole_file_read(&f, path, POSES_MAX_BYTES, &err), 0);
    assert_int_equal(poses_parse(path, (const char *)f.bytes, f.size, ret, &err), 0);
    free(f.bytes);
}

static void read_text(const char *path, char *ret, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n;

    assert_non_null(f);
    n = fread(ret, 1, size - 1, f);
    ret[n] = '\0';
    fclose(f);
}

static void files_of_ways(void **state)
{
    const double two[2][RESULT_POSE] = { { 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 }, { 0, -1, 0, 0.5, 1, 0, -0.0, -2, 0, 0, 1, 1.0 / 3 } };
    char path[TEMP_MAX], text[400];
    struct poses p;
    struct err err;
    int fd = mkstemp(temp_path(path, sizeof path, "detd-way-XXXXXX"));

    (void)state;
    close(fd);
    assert_false(trajectory_is_own(path));
    assert_int_equal(trajectory_write(path, TRAJECTORY_TUM, two, (struct trajectory_frames){ 7, 2, 2 }, &err), 0);
    read_text(path, text, sizeof text);
    assert_string_equal(text, "# poses by detd: time tx ty tz qx qy qz qw\n7 0 0 0 0 0 0 1\n"
                              "9 0.5 -2 0.333333333333 0 0 0.707106781187 0.707106781187\n");
    assert_true(trajectory_is_own(path));
    assert_int_equal(trajectory_write(path, TRAJECTORY_KITTI, two, (struct trajectory_frames){ 7, 2, 2 }, &err), 0);
    read_text(path, text, sizeof text);
    assert_string_equal(text, "+1 +0 +0 +0 +0 +1 +0 +0 +0 +0 +1 +0\n0 -1 0 0.5 1 0 0 -2 0 0 1 0.333333333333\n");
    assert_true(trajectory_is_own(path));
    parse_file(path, &p);
    assert_true(p.n == 2 && p.pose[1][7] == -2);
    poses_free(&p);
    write_text(path, "1.0 0.0 0.0 0.0 0.0 1.0 0.0 0.0 0.0 0.0 1.0 0.0\n");
    assert_false(trajectory_is_own(path));
    write_text(path, "1 0 0 0 0 1 0 0 0 0 1 0\n1 0 0 0 0 1 0 0 0 0 1 1\n"); /* as many programs begin */
    assert_false(trajectory_is_own(path));
    unlink(path);
}

static double crookedness(const double p[RESULT_POSE])
{
    double most = 0;

    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            most = fmax(most, fabs(p[a] * p[b] + p[4 + a] * p[4 + b] + p[8 + a] * p[8 + b] - (a == b)));
    return most;
}

/* Motions are floats, as from a network. Over the number of frames of a long drive they must not add up to a visible
 * distortion. */
static void long_ways_stay_straight(void **state)
{
    enum { MANY = 20000 };
    double(*motion)[RESULT_POSE] = calloc(MANY, sizeof *motion), (*pose)[RESULT_POSE] = calloc(MANY + 1, sizeof *pose), most = 0;
    char path[TEMP_MAX];
    struct poses p;
    struct err err;
    int fd = mkstemp(temp_path(path, sizeof path, "detd-way-XXXXXX"));

    (void)state;
    assert_non_null(motion);
    assert_non_null(pose);
    close(fd);
    for (int k = 0; k < MANY; k++) {
        const float c = 0.96f, s = 0.2800005f, m[] = { c, -s, 0, 0.5f, s, c, 0, 0, 0, 0, 1, 0.25f };

        for (int i = 0; i < 3; i++) /* about each axis in turn */
            for (int j = 0; j < 4; j++)
                motion[k][4 * ((i + k) % 3) + (j < 3 ? (j + k) % 3 : 3)] = (double)m[4 * i + j];
        most = fmax(most, crookedness(motion[k]));
    }
    assert_true(most > 1e-7);
    trajectory_of((const double(*)[RESULT_POSE])motion, MANY, 1, pose);
    assert_int_equal(
        trajectory_write(path, TRAJECTORY_KITTI, (const double(*)[RESULT_POSE])pose, (struct trajectory_frames){ 0, 1, MANY + 1 }, &err),
        0);
    parse_file(path, &p);
    assert_int_equal(p.n, MANY + 1);
    most = 0;
    for (size_t k = 0; k < p.n; k++)
        most = fmax(most, crookedness(p.pose[k]));
    if (most >= 1e-9)
        fail_msg("%g", most);
    poses_free(&p);
    free(motion);
    free(pose);
    unlink(path);
}

/* ---- the part of a picture that is visible in another ---- */

/* Frames 0 and 1 of a real sequence, by another program (warp_oracle.json of the data set). */
static void where_a_point_falls(void **state)
{
    const struct depth_lens lens = { 615.1951904296875, 615.1952514648438, 298.44268798828125, 247.51919555664062 };
    const double pose[] = { 0.999862533, 0.004697025,  -0.015901331, 0.002413393,  -0.004054796, 0.999184134,
                            0.040182396, -0.002611177, 0.016077095,  -0.040112396, 0.999065825,  -0.021711866 };
    double u, v;

    (void)state;
    assert_true(depth_view_place(&lens, pose, 0, 0, 0.827, &u, &v));
    assert_true(fabs(u + 15.0169) < 1e-3 && fabs(v - 19.8994) < 1e-3);
    assert_false(depth_view_place(&lens, pose, 0, 0, 0.01, &u, &v)); /* behind it */
}

/* A wall that is moved by a pixel and a half: the pixels that come in from the left are black. */
static void a_view(void **state)
{
    enum { W = 6, H = 3 };
    const double pose[] = { 1, 0, 0, -1.5, 0, 1, 0, 0, 0, 0, 1, 0 };
    const struct depth_lens lens = { 4, 4, 2, 1 };
    uint8_t source[H][W][3], is[H][W][3];
    float value[H * W];
    const struct result_map depth = { W, H, value };

    (void)state;
    for (int i = 0; i < H * W; i++) {
        value[i] = 4;
        for (int c = 0; c < 3; c++)
            source[i / W][i % W][c] = (uint8_t)(10 + 20 * (i % W) + 3 * (i / W) + c);
    }
    depth_view(&depth, &lens, pose, source[0][0], is[0][0]);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 3; c++)
                assert_int_equal(is[y][x][c], x < 2 ? 0 : source[y][x][c] - 30);
    depth_view(&depth, &lens, (const double[]){ 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 }, source[0][0], is[0][0]);
    assert_memory_equal(is, source, sizeof is);
}

/* ---- files ---- */

static void bad_file(const char *text, const char *where_and_why)
{
    char want[TEMP_MAX];
    struct poses p;
    struct err err;

    assert_int_equal(poses_parse("f", text, strlen(text), &p, &err), ERR_DATA);
    snprintf(want, sizeof want, "f%s", where_and_why);
    assert_string_equal(err.msg, want);
}

#define STILL "1 0 0 0 0 1 0 0 0 0 1 0\n"

static void files_of_poses(void **state)
{
    static const char three[] = STILL "0 -1 0 1.5e+00 1 0 0 -2 0 0 1 3 \r\n1 0 0 0 0 1 0 0 0 0 1 7";
    struct poses p;
    struct err err;

    (void)state;
    assert_int_equal(poses_parse("f", three, strlen(three), &p, &err), 0);
    assert_int_equal(p.n, 3);
    assert_true(p.pose[1][3] == 1.5 && p.pose[1][7] == -2 && p.pose[2][11] == 7);
    poses_free(&p);
    assert_int_equal(poses_parse("f", "", 0, &p, &err), 0);
    assert_int_equal(p.n, 0);
    poses_free(&p);
    bad_file(STILL "1 0 0\n", ":2: number 4 of 12 is missing or no finite number");
    bad_file("1 0 0 0 0 1 0 0 0 0 1 nan\n", ":1: number 12 of 12 is missing or no finite number");
    bad_file("1 0 0 0 0 1 0 0 0 0 1 0 1\n", ":1: more than 12 numbers");
    bad_file(STILL STILL "2 0 0 0 0 1 0 0 0 0 1 0\n", ":3: the first three columns are no rotation");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_snippets),
        cmocka_unit_test(over_all_snippets),
        cmocka_unit_test(refused),
        cmocka_unit_test(ways_and_turns),
        cmocka_unit_test(files_of_ways),
        cmocka_unit_test(long_ways_stay_straight),
        cmocka_unit_test(where_a_point_falls),
        cmocka_unit_test(a_view),
        cmocka_unit_test(files_of_poses),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/read/frames/test_frames_truth.c
 * uses: proto worker/core worker/mask worker/data
 * The measurements that belong to a sequence of frames: measured depth and the camera's poses. */
#include "tests/unit/worker/data/read/frames/frames_set.h"
#include "worker/data/read/frames/depth_truth.h"
#include "worker/data/read/frames/pose_truth.h"

static void depth_is_metres(void **state)
{
    struct tree t;
    struct dataset *d;
    struct depth_truth *truth;
    struct depth_map map;

    (void)state;
    tree_single(&t, 5);
    d = tree_read(&t, "2\n1\n");
    assert_true(depth_truth_any(d));
    assert_int_equal(depth_truth_open(d, &truth, &t.err), 0);
    assert_int_equal(depth_truth_read(truth, 0, &map, &t.err), 0);
    assert_int_equal(map.w, FRAME_W);
    assert_int_equal(map.h, FRAME_H);
    for (int k = 0; k < FRAME_W * FRAME_H; k++) {
        float want = k % 7 == 0 ? 0.0f : (float)((2000 + k) * 0.001);

        assert_float_equal(map.metres[k], want, 0);
    }
    assert_int_equal(depth_truth_read(truth, 1, &map, &t.err), 0);
    assert_null(map.metres);
    assert_int_equal(depth_truth_read(truth, 2, &map, &t.err), 0); /* a neighbour */
    assert_null(map.metres);
    tree_depth(&t, "d/2.png", 3, FRAME_W, FRAME_H);
    assert_int_equal(depth_truth_read(truth, 0, &map, &t.err), ERR_DATA);
    assert_non_null(strstr(t.err.msg, "d/2.png: has changed"));
    depth_truth_close(truth);
    dataset_free(d);
    t.frames.truth = false; /* training */
    d = tree_read(&t, NULL);
    assert_false(depth_truth_any(d));
    dataset_free(d);
    tree_free(&t);
}

/* Damaged pictures and depth, or of another size: refused, or left out with their targets. */
#define POSE(t) "1 0 0 " #t " 0 1 0 0 0 0 1 0\n"
/* Half a turn to the left and two ahead. */
#define TURNED "0 0 1 0 0 1 0 0 -1 0 0 2\n"

/* A pattern that names no file gives a warning, and an error if the job itself gives the pattern. A list is valid if a
 * single frame has depth. */
static void patterns_that_match_nothing(void **state)
{
    char text[DEPTH_TRUTH_TEXT], want[600];
    struct dataset *d;
    struct tree t;

    (void)state;
    tree_single(&t, 6);
    t.frames.nsources = 1;
    d = tree_read(&t, "1\n2\n3\n");
    assert_false(depth_truth_nowhere(d, text));
    dataset_free(d);
    d = tree_read(&t, "1\n3\n");
    assert_true(depth_truth_nowhere(d, text));
    snprintf(want, sizeof want, "no target of 2 has measured depth: no file matches '%s/d/%%d.png'", t.dir);
    assert_string_equal(text, want);
    dataset_free(d);
    t.frames.depth_pattern = "depths/%06d.png";
    snprintf(want, sizeof want, "data.depth_pattern: no target of 3 has measured depth: no file matches '%s/depths/%%06d.png'", t.dir);
    tree_refuses(&t, "1\n2\n3\n", want);
    t.frames.depth_pattern = "d/%d.png";
    tree_refuses(&t, "1\n3\n", "data.depth_pattern: no target of 2 has measured depth");
    tree_refuses(&t, "9\n", "frame f/009.png is not there"); /* without a target the pattern is not checked */
    t.frames.truth = false;                                  /* truth is not requested */
    d = tree_read(&t, "1\n3\n");
    assert_false(depth_truth_nowhere(d, text));
    dataset_free(d);
    t.frames.truth = true;
    t.frames.depth_pattern = NULL;
    tree_text(&t, "intrinsics.json",
              "{\"fx\": 30, \"fy\": 31, \"cx\": 19, \"cy\": 14, \"width\": 41, \"height\": 30, \"frame_pattern\": \"f/%03d.png\"}");
    d = tree_read(&t, "1\n3\n"); /* no pattern */
    assert_false(depth_truth_nowhere(d, text));
    dataset_free(d);
    tree_free(&t);
}

static void check_motion(struct pose_truth *p, int image, const double want[POSES_NUMBERS], int want_next)
{
    double is[POSES_NUMBERS];
    int next;

    assert_true(pose_truth_motion(p, image, is, &next));
    assert_int_equal(next, want_next);
    for (int i = 0; i < POSES_NUMBERS; i++)
        assert_float_equal(is[i], want[i], 1e-12);
}

/* Line k is for frame k at any place in the list; the next frame is the nearest source behind the target. */
static void motion_between_frames(void **state)
{
    const double ahead[] = { 1, 0, 0, -2, 0, 1, 0, 0, 0, 0, 1, 0 }, turned[] = { 0, 0, -1, 2, 0, 1, 0, 0, 1, 0, 0, 3 };
    char text[POSE_TRUTH_TEXT], want[600];
    double ignored[POSES_NUMBERS];
    struct pose_truth *p;
    struct dataset *d;
    struct tree t;
    int next;

    (void)state;
    tree_single(&t, 6);
    t.frames.source[0] = 1;
    t.frames.source[1] = -1;
    d = tree_read(&t, "3\n1\n2\n");
    assert_int_equal(pose_truth_view(d), -1);
    assert_int_equal(pose_truth_lacking(d, &next, text, &t.err), 0);
    assert_int_equal(next, 0);
    dataset_free(d);
    tree_text(&t, "poses.txt", POSE(0) POSE(1) POSE(3) TURNED);
    d = tree_read(&t, "3\n1\n2\n");
    assert_int_equal(pose_truth_view(d), 0);
    assert_int_equal(pose_truth_open(d, &p, &t.err), 0);
    check_motion(p, 1, ahead, 2);
    check_motion(p, 2, turned, 0);
    assert_false(pose_truth_motion(p, 0, ignored, &next)); /* the file ends with frame 3 */
    assert_int_equal(pose_truth_lacking(d, &next, text, &t.err), 0);
    assert_int_equal(next, 1);
    snprintf(want, sizeof want, "1 of 3 targets have no pose of theirs and of the next frame in poses.txt: '%s/poses.txt' has 4 poses",
             t.dir);
    assert_string_equal(text, want);
    assert_false(pose_truth_motion(p, 3, ignored, &next)); /* no target */
    assert_false(pose_truth_motion(p, -1, ignored, &next));
    pose_truth_close(p);
    tree_text(&t, "poses.txt", POSE(0) POSE(1) POSE(4) TURNED);
    assert_int_equal(pose_truth_open(d, &p, &t.err), ERR_DATA);
    assert_non_null(strstr(t.err.msg, "/poses.txt: has changed since the data set was checked"));
    dataset_free(d);
    t.frames.nsources = 1;
    t.frames.source[0] = -1;
    d = tree_read(&t, NULL);
    assert_int_equal(pose_truth_view(d), -1); /* no target has a next frame */
    dataset_free(d);
    tree_free(&t);
}

static void poses_that_are_refused(void **state)
{
    struct dataset *d;
    struct tree t;

    (void)state;
    tree_single(&t, 3);
    tree_text(&t, "poses.txt", POSE(0) "1 0 0 0 0\n");
    tree_refuses(&t, "1\n", "/poses.txt:2: number 6 of 12 is missing or no finite number");
    t.opt.on_bad = BAD_SKIP; /* no frame is to blame */
    tree_refuses(&t, "1\n", "/poses.txt:2: number 6 of 12");
    tree_text(&t, "poses.txt", "");
    tree_refuses(&t, "1\n", "/poses.txt: 0 poses, the file is empty");
    t.frames.truth = false;
    d = tree_read(&t, NULL); /* training does not ask for the camera's poses */
    dataset_free(d);
    tree_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_is_metres),
        cmocka_unit_test(patterns_that_match_nothing),
        cmocka_unit_test(motion_between_frames),
        cmocka_unit_test(poses_that_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

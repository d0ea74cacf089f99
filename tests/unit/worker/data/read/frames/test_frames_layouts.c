/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/core worker/mask worker/data
 * tests/unit/worker/data/read/frames/test_frames_layouts.c - Data sets of several sequences and KITTI's raw data:
 * neighbours, the other camera, calibration, measured depth. */
#include "tests/unit/worker/data/read/frames/frames_set.h"
#include "worker/data/read/frames/pose_truth.h"
#include "worker/data/sample/frames.h"

static const char pixels_json[] =
    "{\"fx\": 30.5, \"fy\": 31, \"cx\": 19.25, \"cy\": 14, \"width\": 41, \"height\": 30, \"nominal_baseline\": 0.1, "
    "\"baseline_m\": 0.54, \"right\": {\"fx\": 29, \"fy\": 28, \"cx\": 21, \"cy\": 15}}";

/* The same with both cameras one. */
static const char rectified_json[] =
    "{\"fx\": 30.5, \"fy\": 31, \"cx\": 19.25, \"cy\": 14, \"width\": 41, \"height\": 30, \"nominal_baseline\": 0.1, "
    "\"baseline_m\": 0.54, \"right\": {\"fx\": 30.5, \"fy\": 31, \"cx\": 19.25, \"cy\": 14}}";

static const char *file_of(const struct dataset *d, int target, int source)
{
    return d->images[d->views->view[target].source[source]].file;
}

#define MARK "\xef\xbb\xbf"

/* ---- sequences ---- */

/* Frames of sequence a: 8 9 10 11 of both cameras; of sequence b, of another size, x9 and x10 of one camera. */
static void two_sequences(struct tree *t)
{
    char file[64];

    tree_new(t);
    tree_text(t, "sequences/a/intrinsics.json", pixels_json);
    tree_text(t, "sequences/b/intrinsics.json",
              "{\"fx\": 30, \"fy\": 31, \"cx\": 19, \"cy\": 14, \"width\": 20, \"height\": 16, \"baseline_m\": 0.25}");
    for (int i = 8; i < 12; i++) {
        snprintf(file, sizeof file, "sequences/a/frames/%d.png", i);
        tree_frame(t, file, i, FRAME_W, FRAME_H);
        snprintf(file, sizeof file, "sequences/a/frames_right/%d.png", i);
        tree_frame(t, file, i + 10, FRAME_W, FRAME_H);
    }
    tree_text(t, "sequences/a/frames/notes.txt", "no picture");
    tree_frame(t, "sequences/b/frames/x10.png", 1, 20, 16);
    tree_frame(t, "sequences/b/frames/x9.png", 2, 20, 16);
    tree_depth(t, "sequences/a/depth/9.png", 3, FRAME_W, FRAME_H);
}

static void neighbours_stand_in_natural_order(void **state)
{
    struct tree t;
    struct dataset *d;
    struct depth_truth *truth;
    struct depth_map map;

    (void)state;
    two_sequences(&t);
    d = tree_read(&t, "a 9\na 10 l\nb x9\na 8\n");
    assert_int_equal(d->views->n, 2);
    assert_int_equal(d->views->dropped, 2); /* neither sequence continues in the other */
    assert_string_equal(file_of(d, 0, 0), "sequences/a/frames/8.png");
    assert_string_equal(file_of(d, 0, 1), "sequences/a/frames/10.png");
    assert_string_equal(file_of(d, 1, 0), "sequences/a/frames/9.png");
    assert_string_equal(file_of(d, 1, 1), "sequences/a/frames/11.png");
    assert_int_equal(d->views->view[1].number, 2);
    assert_float_equal(d->views->view[0].camera[0], 30.5, 0);
    assert_float_equal(d->views->view[0].stereo, 0, 0);
    assert_int_equal(depth_truth_open(d, &truth, &t.err), 0);
    assert_int_equal(depth_truth_read(truth, 0, &map, &t.err), 0);
    assert_float_equal(map.metres[1], 3001 / 256.0, 0);
    assert_int_equal(depth_truth_read(truth, 1, &map, &t.err), 0);
    assert_null(map.metres);
    depth_truth_close(truth);
    dataset_free(d);
    tree_free(&t);
}

/* Each sequence has its own poses, if it has any; they are the poses of one camera. */
static void sequences_have_poses(void **state)
{
    char text[POSE_TRUTH_TEXT], want[600];
    double motion[POSES_NUMBERS];
    struct pose_truth *p;
    struct dataset *d;
    struct tree t;
    int next;

    (void)state;
    two_sequences(&t);
    tree_frame(&t, "sequences/b/frames/x11.png", 3, 20, 16);
    tree_text(&t, "sequences/a/poses.txt", "1 0 0 0 0 1 0 0 0 0 1 0\n1 0 0 0 0 1 0 0 0 0 1 3\n1 0 0 0 0 1 0 0 0 0 1 7\n");
    d = tree_read(&t, "b x10\na 9 r\na 9 l\n");
    assert_int_equal(pose_truth_view(d), 1);
    assert_int_equal(pose_truth_open(d, &p, &t.err), 0);
    assert_false(pose_truth_motion(p, 0, motion, &next));
    assert_false(pose_truth_motion(p, 1, motion, &next));
    assert_true(pose_truth_motion(p, 2, motion, &next));
    assert_true(motion[0] == 1 && motion[11] == -4);
    assert_string_equal(d->images[next].file, "sequences/a/frames/10.png");
    pose_truth_close(p);
    assert_int_equal(pose_truth_lacking(d, &next, text, &t.err), 0);
    assert_string_equal(text,
                        "2 of 3 targets have no pose of theirs and of the next frame in poses.txt"); /* no target has poses ending early */
    dataset_free(d);
    d = tree_read(&t, "b x10\na 10 l\n");
    assert_int_equal(pose_truth_lacking(d, &next, text, &t.err), 0);
    snprintf(want, sizeof want,
             "2 of 2 targets have no pose of theirs and of the next frame in poses.txt: '%s/sequences/a/poses.txt' has 3 poses", t.dir);
    assert_string_equal(text, want);
    dataset_free(d);
    tree_text(&t, "sequences/a/poses.txt", "1 0 0 0\n");
    tree_refuses(&t, NULL, "sequences/a/poses.txt:1: number 5 of 12");
    tree_free(&t);
}

static void the_other_camera(void **state)
{
    struct tree t;
    struct dataset *d;
    char path[256];

    (void)state;
    two_sequences(&t);
    t.frames.nsources = 1;
    t.frames.source[0] = -1;
    d = tree_read(&t, "a 9 l\na 9 r\n");
    assert_float_equal(d->views->view[0].camera[0], 30.5, 0);
    assert_float_equal(d->views->view[1].camera[0], 29, 0);
    assert_string_equal(file_of(d, 1, 0), "sequences/a/frames_right/8.png");
    dataset_free(d);
    t.frames.source[0] = VIEWS_STEREO; /* calibrated alone, the cameras have no common geometry */
    tree_refuses(&t, "a 9 l\n",
                 "line 1: 'a 9': intrinsics.json has another camera on the right; with data.stereo both have to be one, rectified");
    tree_refuses(&t, "a 9 r\n", "intrinsics.json has another camera on the right");
    tree_text(&t, "sequences/a/intrinsics.json", rectified_json);
    d = tree_read(&t, "a 9 l\na 9 r\na 10\n");
    assert_string_equal(file_of(d, 0, 0), "sequences/a/frames_right/9.png");
    assert_string_equal(file_of(d, 1, 0), "sequences/a/frames/9.png");
    assert_int_equal(d->views->view[1].source[0], 0);
    assert_float_equal(d->views->view[0].stereo, -0.1, 0);
    assert_float_equal(d->views->view[1].stereo, 0.1, 0);
    assert_int_equal(d->views->view[1].depth, -1); /* measured for the left one */
    assert_true(d->views->view[0].depth >= 0);
    dataset_free(d);
    assert_int_equal(unlink(tree_path(&t, "sequences/a/frames_right/9.png", path)), 0);
    tree_refuses(&t, "a 9 l\n", "line 1: frame sequences/a/frames/9.png has no picture of the other camera");
    t.frames.missing = FRAMES_REPEAT; /* the target cannot replace it */
    tree_refuses(&t, NULL, "has no picture of the other camera");
    t.frames.missing = FRAMES_ALONE;
    d = tree_read(&t, "a 9 l\na 10 l\n");
    assert_true(views_alone(d->views, 0) && !views_alone(d->views, 1));
    dataset_free(d);
    tree_text(&t, "sequences/a/intrinsics.json", "{\"fx\": 30, \"fy\": 31, \"cx\": 19, \"cy\": 14, \"width\": 41, \"height\": 30}");
    tree_refuses(&t, "a 10 l\n", "data.stereo needs \"nominal_baseline\"");
    tree_free(&t);
}

/* side * flip * b of the golden cases, as a sample has it. */
static void a_mirrored_sample_turns_the_offset(void **state)
{
    struct frames_task_options o = { .train = true, .nsources = 1, .canvas = { 8, 12 } };
    struct hand hand = { .decoder = decoder_new() };
    uint8_t pictures[4][8 * 12 * 3];
    float camera[4], stereo;
    struct sample s = { .array = { pictures[0], pictures[1], pictures[2], pictures[3], camera, &stereo } };
    json_t *golden = json_load_file("tests/golden/depth_views.json", 0, NULL), *run;
    struct task *task;
    struct tree t;
    struct dataset *d;
    size_t i;

    (void)state;
    two_sequences(&t);
    tree_text(&t, "sequences/a/intrinsics.json",
              "{\"fx\": 30.5, \"fy\": 31, \"cx\": 19.25, \"cy\": 14, \"width\": 41, \"height\": 30, \"nominal_baseline\": 0.015}");
    t.frames.nsources = 1;
    t.frames.source[0] = VIEWS_STEREO;
    d = tree_read(&t, "a 9 l\na 9 r\n");
    json_array_foreach (json_object_get(golden, "stereo_T"), i, run) {
        int sample = strcmp(json_string_value(json_object_get(run, "side")), "r") == 0;
        bool flip = json_is_true(json_object_get(run, "flip"));

        o.flip = flip ? 1 : 0;
        assert_int_equal(frames_open(d, &o, &task, &t.err), 0);
        assert_int_equal(task->ops->make(task, &hand, 1, (struct draw){ 0, sample, 0 }, o.canvas, &s, &t.err), 0);
        assert_float_equal(stereo, json_real_value(json_object_get(run, "T03")), 1e-9);
        assert_float_equal(camera[2], flip ? (41 - 19.25) * 12 / 41 : 19.25 * 12 / 41, 1e-6);
        task_free(task);
    }
    assert_int_equal(i, 4);
    hand_free(&hand);
    dataset_free(d);
    json_decref(golden);
    tree_free(&t);
}

/* A frame is accepted with every ending: if a frame were skipped, its neighbours would become neighbours of each
 * other. */
static void endings_of_frames(void **state)
{
    static const char *const endings[] = { "PNG", "jpg", "JPG", "Jpeg", "webp", "bmp", "BMP", "WebP" };
    struct tree t;
    struct dataset *d;
    char file[64], path[256];

    (void)state;
    two_sequences(&t);
    for (int i = 0; i < 8; i++) {
        snprintf(file, sizeof file, "sequences/a/frames/2%d.%s", i, endings[i]);
        tree_frame(&t, file, i, FRAME_W, FRAME_H);
        snprintf(file, sizeof file, "sequences/a/frames_right/2%d.%s", i, endings[7 - i]);
        tree_frame(&t, file, i + 10, FRAME_W, FRAME_H);
    }
    tree_depth(&t, "sequences/a/depth/21.PNG", 3, FRAME_W, FRAME_H);
    tree_text(&t, "sequences/a/depth/21.jpg", "colours for people");
    tree_text(&t, "sequences/a/intrinsics.json", rectified_json);
    t.frames.nsources = 3;
    t.frames.source[2] = VIEWS_STEREO;
    d = tree_read(&t, "a 21\na 22\na 23\na 24\na 25\na 26\n");
    assert_int_equal(d->views->n, 6);
    for (int i = 0; i < 6; i++) {
        snprintf(file, sizeof file, "sequences/a/frames/2%d.%s", i, endings[i]);
        assert_string_equal(file_of(d, i, 0), file);
        snprintf(file, sizeof file, "sequences/a/frames_right/2%d.%s", i + 1, endings[6 - i]);
        assert_string_equal(file_of(d, i, 2), file);
    }
    assert_int_equal(views_measured(d->views), 1);
    dataset_free(d);
    assert_int_equal(t.problems.notes, 1);
    assert_non_null(
        strstr(t.problems.note[0], "sequences/a/frames: files that are no pictures by their names are no frames: 1, as 'notes.txt'"));
    tree_text(&t, "sequences/a/frames/24.tif", "II*");
    tree_refuses(&t, NULL, "frame '24' is there as ");
    assert_int_equal(unlink(tree_path(&t, "sequences/a/frames/24.webp", path)), 0);
    tree_refuses(&t, NULL, "sequences/a/frames/24.tif");
    tree_free(&t);
}

static void lines_of_sequences(void **state)
{
    struct tree t;

    (void)state;
    two_sequences(&t);
    tree_text(&t, "sequences/a/intrinsics.json",
              "{\"fx\": 30, \"fy\": 31, \"cx\": 19, \"cy\": 14, \"width\": 41, \"height\": 30, \"per_frame\": {\"10\": {\"fx\": 33, "
              "\"fy\": 31, \"cx\": 19, \"cy\": 14}}}");
    tree_refuses(&t, "a 9\n", "line 1: 'a 9': intrinsics.json has another camera of a frame that it is compared with");
    tree_text(&t, "sequences/a/intrinsics.json", pixels_json);
    tree_refuses(&t, "a\n", "line 1: 'a ': a line is: sequence, frame");
    tree_refuses(&t, "a 9 x\n", "line 1: 'a 9': a line is");
    tree_refuses(&t, "a 7\n", "the sequence has no such frame");
    tree_refuses(&t, "../a 9\n", "'../a' is no name of a sequence");
    tree_refuses(&t, ".. 9\n", "'..' is no name of a sequence");
    tree_refuses(&t, "c 9\n", "sequences/c/intrinsics.json");
    tree_frame(&t, "sequences/a/frames/9.jpg", 1, FRAME_W, FRAME_H);
    tree_refuses(&t, "a 9\n", "frame '9' is there as");
    tree_free(&t);
}

/* Byte order marks and CRLF in the list, the camera file and the poses. */
static void marks_and_line_ends(void **state)
{
    char camera[1000], list[200];
    struct tree t;
    struct dataset *d;

    (void)state;
    two_sequences(&t);
    snprintf(camera, sizeof camera, MARK "%s\r\n", rectified_json);
    tree_text(&t, "sequences/a/intrinsics.json", camera);
    tree_text(&t, "sequences/a/poses.txt", MARK "1 0 0 0 0 1 0 0 0 0 1 0\r\n1 0 0 0 0 1 0 0 0 0 1 3\r\n1 0 0 0 0 1 0 0 0 0 1 7\r\n");
    d = tree_read(&t, MARK "a 9\r\na 10 l\r\n");
    assert_int_equal(d->views->n, 2);
    dataset_free(d);
    snprintf(t.list, sizeof t.list, "%s/list.JSON", t.dir);
    snprintf(list, sizeof list, MARK "{\"splits\": {\"train\": [\"a 9\\r\"]}}\r\n");
    tree_text(&t, "list.JSON", list);
    d = tree_read(&t, NULL);
    assert_int_equal(d->views->n, 1);
    dataset_free(d);
    tree_free(&t);
}

/* dataset.json names the targets of both splits. */
static void lists_of_several_splits(void **state)
{
    struct tree t;
    struct dataset *d;

    (void)state;
    two_sequences(&t);
    snprintf(t.list, sizeof t.list, "%s/dataset.json", t.dir);
    tree_text(&t, "dataset.json", "{\"version\": 1, \"name\": \"x\", \"splits\": {\"train\": [\"a 9\", \"a 10 l\"], \"val\": [\"a 10\"]}}");
    d = tree_read(&t, NULL);
    assert_int_equal(d->views->n, 2);
    dataset_free(d);
    t.frames.split = "val";
    d = tree_read(&t, NULL);
    assert_int_equal(d->views->n, 1);
    assert_string_equal(d->images[0].file, "sequences/a/frames/10.png");
    dataset_free(d);
    tree_text(&t, "dataset.json", "{\"splits\": {\"train\": [], \"val\": [\"a 10\", \"a 77\"]}}");
    tree_refuses(&t, NULL, "dataset.json, line 2: 'a 77': the sequence has no such frame");
    tree_text(&t, "dataset.json", "{\"splits\": {\"train\": []}}");
    tree_refuses(&t, NULL, "\"splits\" has no \"val\"");
    tree_text(&t, "dataset.json", "{\"splits\": {\"val\": [\"a\\n10\"]}}");
    tree_refuses(&t, NULL, "an element of a split is one line");
    tree_text(&t, "dataset.json", "{\"splits\": {\"val\": [7]}}");
    tree_refuses(&t, NULL, "dataset.json, line 1, byte 21");
    tree_free(&t);
}

/* ---- KITTI ---- */

#define DRIVE "2011_09_26/2011_09_26_drive_0001_sync"

static void write_points(const struct tree *t, const char *file, const char *hex)
{
    char path[256];
    FILE *f = fopen(tree_path(t, file, path), "w");
    unsigned byte;

    for (; *hex; hex += 2) {
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        fputc((int)byte, f);
    }
    fclose(f);
}

/* Four frames of both cameras; points of frame 2. */
static json_t *kitti_tree(struct tree *t)
{
    json_t *golden = json_load_file("tests/golden/frames_samples.json", 0, NULL), *v = json_object_get(golden, "velodyne");
    char file[128];

    assert_non_null(v);
    tree_new(t);
    t->frames.kitti = true;
    tree_text(t, "2011_09_26/calib_cam_to_cam.txt", json_string_value(json_object_get(v, "cam_to_cam")));
    tree_text(t, "2011_09_26/calib_velo_to_cam.txt", json_string_value(json_object_get(v, "velo_to_cam")));
    for (int i = 0; i < 4; i++)
        for (int side = 2; side < 4; side++) {
            snprintf(file, sizeof file, DRIVE "/image_0%d/data/%010d.png", side, i);
            tree_frame(t, file, i * 2 + side, FRAME_W, FRAME_H);
        }
    write_points(t, DRIVE "/velodyne_points/data/0000000002.bin", json_string_value(json_object_get(v, "points")));
    return golden;
}

static void kitti_sides_and_neighbours(void **state)
{
    struct tree t;
    json_t *golden = kitti_tree(&t);
    struct dataset *d;

    (void)state;
    t.frames.nsources = 3;
    t.frames.source[2] = VIEWS_STEREO;
    d = tree_read(&t, DRIVE " 0000000001 l\n" DRIVE " 2 r\n" DRIVE "\n");
    assert_int_equal(d->views->n, 2);
    assert_int_equal(d->views->dropped, 1); /* a word alone is frame 0 */
    assert_string_equal(d->images[0].file, DRIVE "/image_02/data/0000000001.png");
    assert_int_equal(d->views->view[1].number, 2);
    assert_string_equal(file_of(d, 0, 0), DRIVE "/image_02/data/0000000000.png");
    assert_string_equal(file_of(d, 0, 1), DRIVE "/image_02/data/0000000002.png");
    assert_string_equal(file_of(d, 0, 2), DRIVE "/image_03/data/0000000001.png");
    assert_string_equal(file_of(d, 1, 0), DRIVE "/image_03/data/0000000001.png");
    assert_string_equal(file_of(d, 1, 2), DRIVE "/image_02/data/0000000002.png");
    assert_float_equal(d->views->view[0].stereo, -0.015, 0);
    assert_float_equal(d->views->view[1].stereo, 0.015, 0);
    assert_float_equal(d->views->view[0].camera[0], 30, 0);
    assert_float_equal(d->views->view[0].camera[1], 31, 0);
    assert_float_equal(d->views->view[0].camera[2], 20.25, 0);
    assert_float_equal(d->views->view[0].camera[3], 14.5, 0);
    dataset_free(d);
    json_decref(golden);
    tree_free(&t);
}

/* A test list of Eigen's form: all its frames are scored, with or without neighbours or the other camera in their
 * drive. */
static void all_frames_of_a_test_list_are_scored(void **state)
{
    static const char list[] = DRIVE " 0000000000 l\n" DRIVE " 0000000002 l\n" DRIVE " 0000000003 l\n";
    struct tree t;
    json_t *golden = kitti_tree(&t);
    struct dataset *d;
    char path[256];

    (void)state;
    assert_int_equal(unlink(tree_path(&t, DRIVE "/image_03/data/0000000002.png", path)), 0);
    for (int stereo = 0; stereo < 2; stereo++) {
        t.frames.nsources = stereo ? 3 : 2;
        t.frames.source[2] = VIEWS_STEREO;
        t.frames.missing = FRAMES_ALONE;
        d = tree_read(&t, list);
        assert_int_equal(d->views->n, 3);
        assert_int_equal(d->views->dropped, 0);
        assert_true(views_alone(d->views, 0) && views_alone(d->views, 1) == stereo && views_alone(d->views, 2));
        assert_int_equal(views_measured(d->views), 1);
        dataset_free(d);
        t.frames.missing = FRAMES_DROP;
        if (stereo)
            tree_refuses(&t, NULL, "line 2: frame " DRIVE "/image_02/data/0000000002.png has no picture of the other camera");
    }
    json_decref(golden);
    tree_free(&t);
}

/* A map of the index of pixels and their metres, everything else unknown. */
static void same_depth(const struct depth_map *map, const json_t *points)
{
    size_t next = 0;

    for (int k = 0; k < FRAME_W * FRAME_H; k++) {
        const json_t *point = json_array_get(points, next);
        bool there = point && json_integer_value(json_array_get(point, 0)) == k;

        assert_float_equal(map->metres[k], there ? json_real_value(json_array_get(point, 1)) : 0, 1e-6);
        next += there;
    }
    assert_true(next > 100);
    assert_int_equal(next, json_array_size(points));
}

static void points_become_depth(void **state)
{
    struct tree t;
    json_t *golden = kitti_tree(&t), *depth = json_object_get(json_object_get(golden, "velodyne"), "depth");
    struct dataset *d, *back;
    struct depth_truth *truth;
    struct depth_map map;
    char path[256];

    (void)state;
    d = tree_read(&t, DRIVE " 1 l\n" DRIVE " 2 r\n" DRIVE " 2 l\n");
    assert_int_equal(index_write(tree_path(&t, "index", path), d, &t.err), 0);
    dataset_free(d);
    assert_int_equal(index_load(path, &t.opt, &back, &t.err), 0);
    assert_int_equal(views_measured(back->views), 2);
    assert_int_equal(depth_truth_open(back, &truth, &t.err), 0);
    assert_int_equal(depth_truth_read(truth, 0, &map, &t.err), 0);
    assert_null(map.metres);
    assert_int_equal(depth_truth_read(truth, 1, &map, &t.err), 0);
    same_depth(&map, json_object_get(depth, "03"));
    assert_int_equal(depth_truth_read(truth, 2, &map, &t.err), 0);
    same_depth(&map, json_object_get(depth, "02"));
    depth_truth_close(truth);
    dataset_free(back);
    json_decref(golden);
    tree_free(&t);
}

/* A note names each key that this layout does not obey. */
static void kitti_obeys_no_patterns(void **state)
{
    static const char *const keys[] = { "data.frame_pattern has no effect", "data.depth_pattern has no effect",
                                        "data.depth_unit_m has no effect" };
    struct tree t;
    json_t *golden = kitti_tree(&t);

    (void)state;
    dataset_free(tree_read(&t, DRIVE " 1 l\n"));
    assert_int_equal(t.problems.notes, 0);
    t.frames.frame_pattern = "frame-%d.png";
    t.frames.depth_pattern = "depth-%d.png";
    t.frames.depth_unit_m = 0.001;
    dataset_free(tree_read(&t, DRIVE " 1 l\n"));
    assert_int_equal(t.problems.notes, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(strncmp(t.problems.note[i], keys[i], strlen(keys[i])), 0);
    json_decref(golden);
    tree_free(&t);
}

static void endings_of_kitti(void **state)
{
    struct tree t;
    json_t *golden = kitti_tree(&t);
    struct dataset *d;

    (void)state;
    tree_text(&t, "2011_09_26/calib_cam_to_cam.txt",
              MARK "S_rect_02: 41 30\r\nP_rect_02: 30 0 20 0 0 31 14 0 0 0 1 0\r\nS_rect_03: 41 30\r\n"
                   "P_rect_03: 30 0 20 0 0 31 14 0 0 0 1 0\r\nR_rect_00: 1 0 0 0 1 0 0 0 1\r\n");
    tree_frame(&t, DRIVE "/image_02/data/0000000004.PNG", 1, FRAME_W, FRAME_H);
    tree_frame(&t, DRIVE "/image_02/data/0000000005.webp", 2, FRAME_W, FRAME_H);
    d = tree_read(&t, DRIVE " 4 l\n");
    assert_int_equal(d->views->n, 1);
    assert_string_equal(d->images[0].file, DRIVE "/image_02/data/0000000004.PNG");
    assert_string_equal(file_of(d, 0, 1), DRIVE "/image_02/data/0000000005.webp");
    dataset_free(d);
    json_decref(golden);
    tree_free(&t);
}

static void kitti_that_is_refused(void **state)
{
    struct tree t;
    json_t *golden = kitti_tree(&t);
    char path[256];

    (void)state;
    tree_refuses(&t, "drive 1 l\n", "line 1: 'drive': a line begins with date/drive");
    tree_refuses(&t, "2011_09_26/../x 1 l\n", "a line begins with date/drive");
    tree_refuses(&t, DRIVE " one l\n", "no number of a frame");
    tree_refuses(&t, DRIVE " 1 m\n", "neither l nor r");
    tree_refuses(&t, DRIVE " 9 l\n", "line 1: frame " DRIVE "/image_02/data/0000000009.png is not there");
    tree_text(&t, DRIVE "/velodyne_points/data/0000000002.bin", "seventeen bytes..");
    tree_refuses(&t, DRIVE " 2 l\n", "17 bytes are no points");
    tree_text(&t, "2011_09_26/calib_cam_to_cam.txt", "S_rect_02: 41 30\n");
    tree_refuses(&t, DRIVE " 2 l\n", "calib_cam_to_cam.txt: \"P_rect_02:\" is missing");
    tree_text(&t, "2011_09_26/calib_cam_to_cam.txt", "S_rect_02: 41 30\nP_rect_02: 1 2\n3 4 5 6 7 8 9 10 11 12\n");
    tree_refuses(&t, DRIVE " 2 l\n", "\"P_rect_02:\" needs 12 numbers");
    tree_text(&t, "2011_09_26/calib_cam_to_cam.txt", "S_rect_02: 41 30\nP_rect_02: 1 2 99 4 5 6 7 8 9 10 11 12\n");
    tree_refuses(&t, DRIVE " 2 l\n", "P_rect_02: the principal point 99, 7 lies outside");
    assert_int_equal(unlink(tree_path(&t, "2011_09_26/calib_cam_to_cam.txt", path)), 0);
    tree_refuses(&t, DRIVE " 2 l\n", "calib_cam_to_cam.txt");
    json_decref(golden);
    tree_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_stand_in_natural_order),
        cmocka_unit_test(sequences_have_poses),
        cmocka_unit_test(the_other_camera),
        cmocka_unit_test(a_mirrored_sample_turns_the_offset),
        cmocka_unit_test(endings_of_frames),
        cmocka_unit_test(lines_of_sequences),
        cmocka_unit_test(marks_and_line_ends),
        cmocka_unit_test(lists_of_several_splits),
        cmocka_unit_test(kitti_sides_and_neighbours),
        cmocka_unit_test(all_frames_of_a_test_list_are_scored),
        cmocka_unit_test(points_become_depth),
        cmocka_unit_test(endings_of_kitti),
        cmocka_unit_test(kitti_obeys_no_patterns),
        cmocka_unit_test(kitti_that_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

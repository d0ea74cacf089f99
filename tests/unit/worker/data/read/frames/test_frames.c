/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/read/frames/test_frames.c
 * uses: proto worker/core worker/mask worker/data
 * Data sets of frames: a single sequence, its samples, the index, and the refused sets. */
#include "proto/hash/hash.h"
#include "tests/unit/worker/data/read/frames/frames_set.h"
#include "worker/data/set/census.h"
#include "worker/data/loader.h"
#include "worker/data/sample/frames.h"

#define DATA "../shared/data"

enum { CANVAS_W = 12, CANVAS_H = 8, PIXELS = CANVAS_W * CANVAS_H };

static struct frames_task_options plain(bool train, int nsources)
{
    return (struct frames_task_options){ .train = train,
                                         .seed = 7,
                                         .nsources = nsources,
                                         .canvas = { CANVAS_H, CANVAS_W },
                                         .flip = 0.5f,
                                         .jitter_prob = 0.5f,
                                         .jitter = { 0.2f, 0.3f, 1.4f, 0.1f } };
}

/* Arrays of one sample. */
struct made {
    uint8_t picture[8][PIXELS * 3];
    float camera[4], stereo;
};

static void make(struct task *t, int nsources, int64_t epoch, int sample, struct made *ret)
{
    struct hand hand = { .decoder = decoder_new() };
    struct sample s = { .room = t->room };
    struct err err = { 0 };

    for (int k = 0; k < 2 + 2 * nsources; k++)
        s.array[k] = ret->picture[k];
    s.array[2 + 2 * nsources] = ret->camera;
    s.array[3 + 2 * nsources] = &ret->stereo;
    if (t->ops->make(t, &hand, 1, (struct draw){ epoch, sample, 0 }, (struct canvas){ CANVAS_H, CANVAS_W }, &s, &err) != 0)
        fail_msg("%s", err.msg);
    hand_free(&hand);
}

static void bytes_of(const char *hex, uint8_t *ret, size_t n)
{
    unsigned byte;

    assert_int_equal(strlen(hex), 2 * n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        ret[i] = (uint8_t)byte;
    }
}

/* Samples are mirrored, resized and coloured as by Pillow and torchvision, with draws of Philox; all frames of a sample
 * in the same way. */
static void samples_have_the_reference_s_bits(void **state)
{
    json_t *golden = json_load_file("tests/golden/frames_samples.json", 0, NULL), *run;
    const struct frames_task_options o = plain(true, 2);
    static struct made made;
    struct tree t;
    struct dataset *d;
    struct task *task;
    size_t r, k;
    json_t *hex;

    (void)state;
    tree_single(&t, 5);
    d = tree_read(&t, "1\n3\n");
    assert_int_equal(frames_open(d, &o, &task, &t.err), 0);
    json_array_foreach (json_object_get(golden, "samples"), r, run) {
        bool flip = json_is_true(json_object_get(run, "flip"));
        uint8_t want[PIXELS * 3];

        make(task, 2, json_integer_value(json_object_get(run, "epoch")), (int)json_integer_value(json_object_get(run, "sample")), &made);
        json_array_foreach (json_object_get(run, "pictures"), k, hex) {
            bytes_of(json_string_value(hex), want, sizeof want);
            assert_memory_equal(made.picture[k], want, sizeof want);
        }
        assert_int_equal(k, 6);
        assert_float_equal(made.camera[0], 30.5 * 12 / 41, 1e-6);
        assert_float_equal(made.camera[1], 31.0 * 8 / 30, 1e-6);
        assert_float_equal(made.camera[2], flip ? (41 - 19.25) * 12 / 41 : 19.25 * 12 / 41, 1e-6);
        assert_float_equal(made.camera[3], 14.0 * 8 / 30, 1e-6);
        assert_float_equal(made.stereo, 0, 0);
    }
    assert_int_equal(r, 8);
    task_free(task);
    dataset_free(d);
    json_decref(golden);
    tree_free(&t);
}

/* Validation draws nothing: "seen" is the picture, which is the same in all epochs. */
static void validation_shows_frames_as_they_are(void **state)
{
    struct frames_task_options o = plain(false, 2);
    static struct made a, b;
    struct tree t;
    struct dataset *d;
    struct task *task;

    (void)state;
    tree_single(&t, 5);
    d = tree_read(&t, "1\n3\n");
    o.flip = o.jitter_prob = 1;
    assert_int_equal(frames_open(d, &o, &task, &t.err), 0);
    make(task, 2, 0, 1, &a);
    make(task, 2, 5, 1, &b);
    assert_memory_equal(&a, &b, sizeof a);
    for (int k = 0; k < 6; k += 2)
        assert_memory_equal(a.picture[k], a.picture[k + 1], sizeof a.picture[k]);
    assert_float_equal(a.camera[2], 19.25 * 12 / 41, 1e-6);
    task_free(task);
    dataset_free(d);
    tree_free(&t);
}

/* Pictures of a prediction: without views, so without sources and with a default camera. */
static void a_picture_alone_is_a_sample(void **state)
{
    const struct frames_task_options o = plain(false, 2), train = plain(true, 2);
    static struct made made;
    struct tree t;
    struct dataset_image image = { .file = "f/001.png", .w = FRAME_W, .h = FRAME_H };
    struct dataset d = { .source = "a picture", .folder = t.dir, .nimages = 1, .images = &image, .offset = (int64_t[2]){ 0 } };
    struct task *task;

    (void)state;
    tree_single(&t, 2);
    assert_int_equal(frames_open(&d, &train, &task, &t.err), ERR_INPUT);
    assert_int_equal(frames_open(&d, &o, &task, &t.err), 0);
    memset(&made, 1, sizeof made);
    make(task, 2, 0, 0, &made);
    for (int k = 2; k < 6; k++)
        for (int i = 0; i < PIXELS * 3; i++)
            assert_int_equal(made.picture[k][i], 0);
    assert_float_equal(made.camera[2], 6, 0);
    assert_float_equal(made.stereo, 0, 0);
    task_free(task);
    tree_free(&t);
}

/* Targets come first, in the order of the list; frames that are only neighbours follow. */
static void targets_come_first(void **state)
{
    static const char *const files[] = { "f/003.png", "f/001.png", "f/002.png", "f/004.png", "f/000.png" };
    char text[CENSUS_TEXT];
    struct tree t;
    struct dataset *d;

    (void)state;
    tree_single(&t, 5);
    d = tree_read(&t, "3\n\n  1 \r\n");
    assert_int_equal(d->nimages, 5);
    assert_int_equal(dataset_targets(d), 2);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(d->images[i].file, files[i]);
        assert_int_equal(d->images[i].id, i);
    }
    assert_int_equal(d->views->view[0].number, 3);
    assert_int_equal(d->views->view[0].source[0], 2);
    assert_int_equal(d->views->view[0].source[1], 3);
    assert_int_equal(d->views->view[1].source[0], 4);
    assert_int_equal(d->views->view[1].source[1], 2);
    assert_string_equal(census_text(d, 0, text, sizeof text), "2 targets with 2 sources each, of 5 frames, 41 x 30; 0 with measured depth");
    dataset_free(d);
    d = tree_read(&t, "2\n3\n");
    assert_string_equal(census_text(d, 0, text, sizeof text), "2 targets with 2 sources each, of 4 frames, 41 x 30; 1 with measured depth");
    dataset_free(d);
    tree_free(&t);
}

static void missing_neighbours(void **state)
{
    struct tree t;
    struct dataset *d;

    (void)state;
    tree_single(&t, 5);
    d = tree_read(&t, "0\n1\n2\n3\n4\n");
    assert_int_equal(d->views->n, 3);
    assert_int_equal(d->views->dropped, 2);
    assert_string_equal(d->images[0].file, "f/001.png");
    dataset_free(d);
    t.frames.source[0] = -2; /* given by data.stride: frames further away */
    t.frames.source[1] = 2;
    d = tree_read(&t, NULL);
    assert_int_equal(d->views->n, 1);
    assert_int_equal(d->views->dropped, 4);
    dataset_free(d);
    t.frames.missing = FRAMES_REPEAT;
    d = tree_read(&t, NULL);
    assert_int_equal(d->views->n, 5);
    assert_int_equal(d->views->repeated, 4);
    assert_int_equal(d->views->dropped, 0);
    assert_int_equal(d->views->view[0].source[0], 0);
    assert_int_equal(d->views->view[0].source[1], 2);
    dataset_free(d);
    t.frames.missing = FRAMES_DROP;
    tree_refuses(&t, "0\n4\n", "no frame of 2 has all its neighbours");
    t.frames.nsources = 0; /* an autoencoder */
    d = tree_read(&t, NULL);
    assert_int_equal(d->nimages, 2);
    dataset_free(d);
    tree_free(&t);
}

/* A split that is scored: depth needs only the frame. A source is missing if it is not there, has another camera, or
 * cannot be read. */
static void scored_targets_stay_alone(void **state)
{
    char text[CENSUS_TEXT];
    struct tree t;
    struct dataset *d;

    (void)state;
    tree_single(&t, 6);
    t.frames.missing = FRAMES_ALONE;
    d = tree_read(&t, "0\n1\n2\n3\n4\n5\n");
    assert_int_equal(d->views->n, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(views_alone(d->views, i), i == 0 || i == 5);
    assert_int_equal(d->views->view[0].source[1], 1);
    assert_int_equal(views_measured(d->views), 3);
    assert_string_equal(census_text(d, 0, text, sizeof text), "6 targets with 2 sources each, of 6 frames, 41 x 30; 2 lack a neighbour: "
                                                              "scored, but without losses; 3 with measured depth");
    dataset_free(d);
    tree_frame(&t, "f/003.png", 3, FRAME_W, FRAME_H + 1);
    tree_refuses(&t, NULL, "f/003.png is 41 x 31 pixels");
    t.opt.on_bad = BAD_SKIP;
    d = tree_read(&t, NULL);
    assert_int_equal(d->views->n, 5);
    assert_string_equal(d->images[3].file, "f/004.png");
    for (int i = 0; i < 5; i++)
        assert_int_equal(views_alone(d->views, i), i != 1); /* targets 2 and 4 have the flawed frame as a neighbour */
    dataset_free(d);
    tree_frame(&t, "f/003.png", 3, FRAME_W, FRAME_H);
    t.opt.on_bad = BAD_ERROR;
    tree_text(&t, "intrinsics.json",
              "{\"fx\": 30, \"fy\": 31, \"cx\": 19, \"cy\": 14, \"width\": 41, \"height\": 30, \"frame_pattern\": \"f/%03d.png\", "
              "\"per_frame\": {\"3\": {\"fx\": 33, \"fy\": 31, \"cx\": 19, \"cy\": 14}}}");
    d = tree_read(&t, "1\n2\n");
    assert_true(!views_alone(d->views, 0) && views_alone(d->views, 1));
    dataset_free(d);
    tree_free(&t);
}

/* A missing neighbour that validation can do without must not refuse the data set. A frame without a score and without
 * losses does. */
static void a_bad_neighbour_of_a_scored_frame_is_told(void **state)
{
    struct tree t;
    struct dataset *d;

    (void)state;
    tree_single(&t, 6);
    t.frames.missing = FRAMES_ALONE;
    tree_frame(&t, "f/003.png", 3, FRAME_W, FRAME_H + 1);
    d = tree_read(&t, "1\n2\n"); /* frame 2 has measured depth */
    assert_int_equal(t.problems.count, 0);
    assert_int_equal(t.problems.notes, 1);
    assert_non_null(strstr(t.problems.note[0], "f/003.png is 41 x 31 pixels"));
    assert_non_null(strstr(t.problems.note[0], "; frames next to it are scored, but without losses"));
    assert_true(d->nimages == 3 && !views_alone(d->views, 0) && views_alone(d->views, 1));
    dataset_free(d);
    tree_refuses(&t, "2\n3\n", "f/003.png is 41 x 31 pixels");
    tree_frame(&t, "f/004.png", 4, FRAME_W, FRAME_H + 1);
    tree_frame(&t, "f/003.png", 3, FRAME_W, FRAME_H);
    tree_refuses(&t, "2\n3\n", "f/004.png is 41 x 31 pixels"); /* 3 has no measured depth */
    t.frames.missing = FRAMES_DROP;
    tree_refuses(&t, "2\n3\n", "f/004.png is 41 x 31 pixels");
    tree_free(&t);
}

static void validation_without_a_loss_is_told(void **state)
{
    char text[CENSUS_TEXT];
    struct tree t;
    struct dataset *d;

    (void)state;
    tree_single(&t, 5);
    t.frames.missing = FRAMES_ALONE;
    d = tree_read(&t, "0\n1\n");
    assert_false(census_lossless(d, "loss", text, sizeof text));
    dataset_free(d);
    d = tree_read(&t, "0\n4\n");
    assert_true(census_lossless(d, "abs_rel", text, sizeof text));
    assert_string_equal(text, "no frame has all of its neighbours: a validation has no loss");
    assert_true(census_lossless(d, "loss", text, sizeof text));
    assert_string_equal(text, "no frame has all of its neighbours: a validation has no loss to choose the best checkpoint by; "
                              "checkpoint.best=abs_rel chooses by depth");
    dataset_free(d);
    t.frames.nsources = 0; /* as of an autoencoder: no source is missing */
    d = tree_read(&t, "0\n4\n");
    assert_false(census_lossless(d, "loss", text, sizeof text));
    dataset_free(d);
    tree_free(&t);
}

static void lists_that_are_refused(void **state)
{
    char path[256];
    struct tree t;
    struct dataset *d;

    (void)state;
    tree_single(&t, 5);
    tree_refuses(&t, "1\nx\n", "line 2: 'x' is not the number of a frame");
    tree_refuses(&t, "1\n-1\n", "line 2: '-1' is not the number of a frame");
    tree_refuses(&t, "1\n\n2 3\n", "line 3: '2 ...' is not the number");
    tree_refuses(&t, "1\n2 3 4 5\n", "line 2: more than three words");
    tree_refuses(&t, "1\n99999999999999999999\n", "line 2");
    tree_refuses(&t, "1\n\001\n", "line 2: not a line of text");
    d = tree_read(&t, "1\n2\n1\n");
    assert_int_equal(d->views->n, 2);
    assert_int_equal(t.problems.notes, 1);
    assert_non_null(strstr(t.problems.note[0], "line 3: frame f/001.png is that of line 1; it counts once"));
    dataset_free(d);
    tree_refuses(&t, "1\n7\n", "line 2: frame f/007.png is not there");
    tree_refuses(&t, "", "no images");
    t.opt.on_bad = BAD_SKIP;
    d = tree_read(&t, "x\n1\n7\n1\n3\n");
    assert_int_equal(d->views->n, 2);
    assert_int_equal(t.problems.count, 2);
    dataset_free(d);
    assert_int_equal(unlink(tree_path(&t, "list.txt", path)), 0);
    tree_refuses(&t, NULL, "list.txt");
    tree_free(&t);
}

static void cameras_that_are_refused(void **state)
{
    static const struct {
        const char *json, *why;
    } bad[] = {
        { "{\"fx\": 0, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30}", "fx is 0 pixels" },
        { "{\"fx\": 3, \"fy\": -3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30}", "fy is -3 pixels" },
        { "{\"fx\": 0.8, \"fy\": 1.1, \"cx\": 0.5, \"cy\": 0.5, \"width\": 41, \"height\": 30}", "fx is 0.8 pixels of 41" },
        { "{\"fx\": 3, \"fy\": 0.6, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30}", "fy is 0.6 pixels of 30" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 42, \"cy\": 1, \"width\": 41, \"height\": 30}", "principal point 42, 1 lies outside" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 4, \"cy\": -1, \"width\": 41, \"height\": 30}", "principal point 4, -1 lies outside" },
        { "{\"fx\": NaN, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30}", "line 1, byte 8" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"width\": 41, \"height\": 30}", "cy is missing" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41}", "\"height\" is missing" },
        { "{\"width\": 41, \"height\": 30}", "no camera" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 0, \"height\": 30}", "\"width\" must be" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30, \"units\": \"mm\"}", "units must be" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30, \"distortion\": [1]}", "distortion must be null" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30}", "neither \"frame_pattern\"" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30, \"frame_pattern\": \"f/%s.png\"}", "needs one %d" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30, \"frame_pattern\": \"f/%d%d.png\"}",
          "needs one %d" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30, \"frame_pattern\": \"../%d.png\"}",
          "leaves its folder" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30, \"frame_pattern\": \"f/%03d.png\", "
          "\"depth_pattern\": "
          "\"d/%d.png\"}",
          "neither \"depth_unit_m\"" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 31, \"frame_pattern\": \"f/%03d.png\"}",
          "is 41 x 30 pixels, but its sequence has frames of 41 x 31" },
        { "{\"per_frame\": {\"1\": {\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 99}}, \"width\": 41, \"height\": 30}",
          "frame '1': the principal" },
        { "{\"per_frame\": {\"2\": {\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 9}}, \"width\": 41, \"height\": 30, \"frame_pattern\": "
          "\"f/%03d.png\"}",
          "no camera of frame 1" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30,\n\"fx\": 3}",
          "intrinsics.json, line 2, byte 6: \"fx\" stands here a second time" },
        { "{\"frame_pattern\": \"f/%03d.png\", \"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30, "
          "\"frame_pattern\": \"\"}",
          "\"frame_pattern\" stands here a second time" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30, \"right\": {\"cx\": 3, \"cx\": 3}}",
          "\"cx\" stands here a second time" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30, \"baseline\": 0.5}",
          "\"baseline\" is no key; did you mean \"baseline_m\"?" },
        { "{\"FX\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30}", "\"FX\" is no key; did you mean \"fx\"?" },
        { "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30, \"right\": {\"distorsion\": 1}}",
          "\"distorsion\" is no key; did you mean \"distortion\"?" },
        { "{\"per_frame\": {}, \"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30, \"per_frame\": {}}",
          "\"per_frame\" stands here a second time" },
    };
    struct tree t;

    (void)state;
    tree_single(&t, 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tree_text(&t, "intrinsics.json", bad[i].json);
        tree_refuses(&t, "1\n", bad[i].why);
    }
    tree_text(&t, "intrinsics.json", camera_json);
    t.frames.source[1] = VIEWS_STEREO;
    tree_refuses(&t, "1\n", "data.stereo");
    tree_free(&t);
}

/* Fractions of the sides, and a camera for each frame, found by its number. Unused entries may be there twice. */
static void cameras_in_other_forms(void **state)
{
    struct tree t;
    struct dataset *d;

    (void)state;
    tree_single(&t, 5);
    tree_text(&t, "intrinsics.json",
              "{\"units\": \"fraction\", \"fx\": 0.5, \"fy\": 2, \"cx\": 0.5, \"cy\": 0.25, \"width\": 41, \"height\": 30, \"note\": 1, "
              "\"note\": 2, \"frame_pattern\": \"%03d.png\", \"per_frame\": {\"3\": {\"fx\": 1, \"fy\": 1, \"cx\": 1, \"cy\": 1}}}");
    t.frames.frame_pattern = "f/%03d.png"; /* the job's value overrides the file's */
    t.frames.nsources = 0;
    d = tree_read(&t, "1\n3\n");
    assert_float_equal(d->views->view[0].camera[0], 20.5, 0);
    assert_float_equal(d->views->view[0].camera[1], 60, 0);
    assert_float_equal(d->views->view[0].camera[2], 20.5, 0);
    assert_float_equal(d->views->view[0].camera[3], 7.5, 0);
    assert_float_equal(d->views->view[1].camera[1], 30, 0);
    dataset_free(d);
    tree_free(&t);
}

/* A frame is compared with frames of the same camera. A difference of a tenth of a pixel is allowed, and a missing
 * frame has no camera. */
static void one_camera_for_all_frames_of_a_sample(void **state)
{
    static const struct {
        double fx, fy, cx, cy;
        bool other;
    } cameras[] = { { 30, 31, 19, 14, false },   { 30.07, 31.1, 19.09, 13.91, false }, { 30.08, 31, 19, 14, true },
                    { 30, 30.89, 19, 14, true }, { 30, 31, 18.89, 14, true },          { 30, 31, 19, 14.11, true } };
    char json[512];
    struct tree t;
    struct dataset *d;

    (void)state;
    tree_single(&t, 5);
    t.opt.on_bad = BAD_SKIP;
    for (size_t i = 0; i < sizeof cameras / sizeof *cameras; i++) {
        snprintf(json, sizeof json,
                 "{\"fx\": 30, \"fy\": 31, \"cx\": 19, \"cy\": 14, \"width\": 41, \"height\": 30, \"frame_pattern\": \"f/%%03d.png\", "
                 "\"per_frame\": {\"3\": {\"fx\": %g, \"fy\": %g, \"cx\": %g, \"cy\": %g}, \"5\": {\"fx\": 1, \"fy\": 1, \"cx\": 1, "
                 "\"cy\": 1}}}",
                 cameras[i].fx, cameras[i].fy, cameras[i].cx, cameras[i].cy);
        tree_text(&t, "intrinsics.json", json);
        d = tree_read(&t, "1\n2\n4\n");
        assert_int_equal(d->views->n, cameras[i].other ? 1 : 2);
        assert_int_equal(d->views->dropped, cameras[i].other ? 0 : 1);
        dataset_free(d);
    }
    t.opt.on_bad = BAD_ERROR;
    tree_refuses(&t, "1\n2\n", "line 2: by intrinsics.json frame 3 is another camera's than frame 2; they are compared as one camera's");
    t.frames.nsources = 0; /* an autoencoder compares nothing */
    dataset_free(tree_read(&t, NULL));
    tree_free(&t);
}

static void bad_files(void **state)
{
    struct tree t;
    struct dataset *d;

    (void)state;
    tree_single(&t, 8);
    tree_frame(&t, "f/003.png", 3, FRAME_W, FRAME_H + 1);
    tree_refuses(&t, "1\n2\n4\n5\n6\n", "f/003.png is 41 x 31 pixels");
    t.opt.on_bad = BAD_SKIP;
    d = tree_read(&t, NULL);
    assert_int_equal(d->views->n, 3); /* 2 and 4 have it as a neighbour */
    assert_string_equal(d->images[0].file, "f/001.png");
    assert_string_equal(d->images[1].file, "f/005.png");
    assert_string_equal(d->images[2].file, "f/006.png");
    assert_int_equal(d->nimages, 7);
    assert_string_equal(d->images[d->views->view[0].source[0]].file, "f/000.png");
    assert_string_equal(d->images[d->views->view[0].source[1]].file, "f/002.png");
    assert_string_equal(d->images[d->views->view[1].source[0]].file, "f/004.png");
    assert_int_equal(d->views->view[1].source[1], 2);
    assert_string_equal(d->images[d->views->view[2].source[1]].file, "f/007.png");
    dataset_free(d);
    t.opt.on_bad = BAD_ERROR;
    tree_depth(&t, "d/6.png", 6, FRAME_W, FRAME_H - 1);
    tree_refuses(&t, "6\n", "d/6.png: is 41 x 29 pixels, but its frame is 41 x 30");
    tree_frame(&t, "d/6.png", 6, FRAME_W, FRAME_H);
    tree_refuses(&t, "6\n", "d/6.png: is no PNG of one grey channel of 16 bits");
    tree_text(&t, "d/6.png", "PNG");
    tree_refuses(&t, "6\n", "d/6.png: damaged PNG");
    tree_free(&t);
}

/* ---- the index ---- */

static void index_path(const struct tree *t, char path[256])
{
    snprintf(path, 256, "%s/index", t->dir);
}

static void the_index_keeps_all(void **state)
{
    struct tree t;
    struct dataset *d, *back;
    struct hash128 a, b;
    char path[256];

    (void)state;
    tree_single(&t, 5);
    t.frames.missing = FRAMES_REPEAT;
    d = tree_read(&t, "2\n4\n1\n");
    index_path(&t, path);
    assert_int_equal(index_write(path, d, &t.err), 0);
    if (index_load(path, &t.opt, &back, &t.err) != 0)
        fail_msg("%s", t.err.msg);
    assert_int_equal(back->views->n, 3);
    assert_int_equal(back->views->repeated, 1);
    assert_int_equal(back->views->nfiles, 3); /* intrinsics and two depths */
    assert_memory_equal(back->views->view, d->views->view, sizeof *d->views->view * 3);
    assert_memory_equal(back->views->source, d->views->source, sizeof d->views->source);
    assert_float_equal(back->views->depth_unit_m, 0.001, 0);
    assert_int_equal(index_hash(d, &a, &t.err), 0);
    assert_int_equal(index_hash(back, &b, &t.err), 0);
    assert_memory_equal(&a, &b, sizeof a);
    back->views->view[1].camera[2] += 1e-9; /* another camera is another data set */
    assert_int_equal(index_hash(back, &b, &t.err), 0);
    assert_memory_not_equal(&a, &b, sizeof a);
    dataset_free(back);
    t.opt.frames = NULL;
    assert_int_equal(index_load(path, &t.opt, &back, &t.err), ERR_CORRUPT);
    t.opt.frames = &t.frames;
    tree_text(&t, "intrinsics.json", "{}");
    assert_int_equal(index_load(path, &t.opt, &back, &t.err), ERR_DATA);
    assert_non_null(strstr(t.err.msg, "intrinsics.json: has changed"));
    tree_text(&t, "intrinsics.json", camera_json);
    assert_int_equal(index_load(path, &t.opt, &back, &t.err), 0); /* the same bytes at another time */
    dataset_free(back);
    tree_depth(&t, "d/2.png", 9, FRAME_W, FRAME_H);
    assert_int_equal(index_load(path, &t.opt, &back, &t.err), ERR_DATA);
    assert_non_null(strstr(t.err.msg, "d/2.png: "));
    dataset_free(d);
    tree_free(&t);
}

/* Their depth files have not been read, so later changes of these files must not count as errors. */
static void targets_that_are_left_out_take_their_depth_along(void **state)
{
    struct tree t;
    struct dataset *d, *back = NULL;
    char path[256];

    (void)state;
    tree_single(&t, 8);
    tree_text(&t, "f/004.png", "");
    t.opt.on_bad = BAD_SKIP;
    d = tree_read(&t, "1\n2\n3\n4\n5\n6\n");
    assert_int_equal(d->views->n, 3);      /* 3 and 5 have it as a neighbour */
    assert_int_equal(d->views->nfiles, 3); /* intrinsics and two depths */
    assert_int_equal(d->views->view[0].depth, -1);
    assert_string_equal(d->views->files[d->views->view[1].depth].file, "d/2.png");
    assert_string_equal(d->views->files[d->views->view[2].depth].file, "d/6.png");
    index_path(&t, path);
    assert_int_equal(index_write(path, d, &t.err), 0);
    if (index_load(path, &t.opt, &back, &t.err) != 0)
        fail_msg("%s", t.err.msg);
    dataset_free(back);
    dataset_free(d);
    tree_free(&t);
}

/* Each byte of the index is changed and its hash made to fit: the index is refused, or all numbers of its data set are
 * within their bounds. */
static void a_twisted_index_is_bounded(void **state)
{
    struct tree t;
    struct dataset *d, *back;
    char path[256];
    uint8_t bytes[8192];
    size_t n;
    FILE *f;

    (void)state;
    tree_single(&t, 5);
    d = tree_read(&t, "2\n1\n");
    index_path(&t, path);
    assert_int_equal(index_write(path, d, &t.err), 0);
    dataset_free(d);
    f = fopen(path, "r");
    n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_in_range(n, 200, sizeof bytes - 1);
    for (size_t i = n - 400; i < n - 16; i++) {
        struct hash128 h;

        bytes[i] ^= 0xff;
        h = hash_bytes(bytes, n - sizeof h, 0);
        memcpy(bytes + n - sizeof h, &h, sizeof h);
        f = fopen(path, "w");
        fwrite(bytes, 1, n, f);
        fclose(f);
        bytes[i] ^= 0xff;
        if (index_load(path, &t.opt, &back, &t.err) < 0)
            continue;
        for (int k = 0; k < back->views->n; k++)
            for (int s = 0; s < back->views->nsources; s++)
                assert_in_range(back->views->view[k].source[s], 0, back->nimages - 1);
        dataset_free(back);
    }
    tree_free(&t);
}

/* ---- through the loader ---- */

enum { STEPS = 6 };

/* Hashes of the samples of each step from `first` on, as so many threads make them with such a cache. */
static void stream(const struct dataset *d, size_t cache_bytes, int64_t first, int workers, int lo, int hi,
                   struct hash128 ret[STEPS + 1][4])
{
    struct frames_task_options o = plain(true, 2);
    struct loader_options l = { .train = true,
                                .batch = 4,
                                .shards = 4,
                                .shard_lo = lo,
                                .shard_hi = hi,
                                .waves = 2,
                                .first_step = first,
                                .steps = STEPS,
                                .hashes = true,
                                .workers = workers };
    struct loader *loader;
    struct task *task;
    struct batch b;
    struct err err = { 0 };
    int rc, waves = 0;

    o.cache_bytes = cache_bytes;
    assert_int_equal(frames_open(d, &o, &task, &err), 0);
    assert_int_equal(loader_open(task, &l, &loader, &err), 0);
    while (waves < (int)(STEPS + 1 - first) * 2 && (rc = loader_next(loader, &b, &err)) == 0) {
        waves++;
        for (int v = 0; v < b.nshards; v++)
            ret[b.step][b.shard[v].shard] = b.shard[v].hash[0];
    }
    assert_int_equal(waves, (int)(STEPS + 1 - first) * 2);
    loader_close(loader);
    task_free(task);
}

static void the_stream_is_the_same_for_all(void **state)
{
    static struct hash128 all[STEPS + 1][4], other[STEPS + 1][4];
    struct tree t;
    struct dataset *d;

    (void)state;
    tree_single(&t, 9);
    d = tree_read(&t, "1\n2\n3\n4\n5\n6\n7\n");
    stream(d, 1 << 20, 1, 1, 0, 4, all);
    stream(d, 5000, 1, 3, 0, 2, other); /* two ranks, and a cache for one picture */
    stream(d, 0, 1, 2, 2, 4, other);
    assert_memory_equal(all, other, sizeof all);
    memset(other[4], 0, (STEPS - 3) * sizeof other[0]);
    stream(d, 1 << 20, 4, 2, 0, 4, other); /* resumed */
    assert_memory_equal(all, other, sizeof all);
    assert_memory_not_equal(&all[1][0], &all[2][0], sizeof all[1][0]);
    dataset_free(d);
    tree_free(&t);
}

/* ---- real data ---- */

static void real_split(const char *list, const char *folder, bool truth, int targets, int frames, int measured)
{
    static struct problems p;
    const struct frames_options o = {
        .list = list, .folder = folder, .nsources = 2, .source = { -1, 1 }, .truth = truth, .depth_unit_m = NAN
    };
    const struct check_options opt = { .annotations = list, .images = folder, .on_bad = BAD_ERROR, .threads = 2, .frames = &o };
    struct frames_task_options task_options = plain(false, 2);
    struct err err = { 0 };
    struct dataset *d;
    struct task *task;
    static struct made made;

    if (check_split(&opt, &p, &d, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(d->views->n, targets);
    assert_int_equal(d->nimages, frames);
    assert_int_equal(views_measured(d->views), measured);
    assert_int_equal(d->views->dropped, 0);
    assert_int_equal(frames_open(d, &task_options, &task, &err), 0);
    make(task, 2, 0, targets - 1, &made);
    task_free(task);
    dataset_free(d);
}

static void real_sequences(void **state)
{
    (void)state;
    if (access(DATA "/depth_bin/train.txt", R_OK) != 0)
        SKIP("no " DATA "/depth_bin");
    real_split(DATA "/depth_bin/val.txt", DATA "/depth_bin", true, 8, 10, 8);
    real_split(DATA "/depth_highway/val.txt", DATA "/depth_highway", true, 38, 40, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_have_the_reference_s_bits),
        cmocka_unit_test(validation_shows_frames_as_they_are),
        cmocka_unit_test(a_picture_alone_is_a_sample),
        cmocka_unit_test(targets_come_first),
        cmocka_unit_test(missing_neighbours),
        cmocka_unit_test(scored_targets_stay_alone),
        cmocka_unit_test(validation_without_a_loss_is_told),
        cmocka_unit_test(a_bad_neighbour_of_a_scored_frame_is_told),
        cmocka_unit_test(lists_that_are_refused),
        cmocka_unit_test(cameras_that_are_refused),
        cmocka_unit_test(cameras_in_other_forms),
        cmocka_unit_test(one_camera_for_all_frames_of_a_sample),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(the_index_keeps_all),
        cmocka_unit_test(targets_that_are_left_out_take_their_depth_along),
        cmocka_unit_test(a_twisted_index_is_bounded),
        cmocka_unit_test(the_stream_is_the_same_for_all),
        cmocka_unit_test(real_sequences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

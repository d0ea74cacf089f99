/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/predict/test_way.c
 * uses: proto worker worker/modes worker/predict worker/backend trainer cpu
 * The frames of a folder in order, the frames that a network sees for each, and the estimated way of the camera. */
#include "proto/job/jobspec.h"
#include "tests/unit/worker/data/read/frames/frames_set.h"
#include "worker/predict/way.h"

/* A job with the sources list times stride. */
static struct jobspec *job(const char *sources, int stride)
{
    json_t *root = json_pack("{s:{s:s,s:f}, s:{s:{s:s,s:s,s:s}, s:o, s:i}, s:{s:i,s:i}}", "model", "preset", "featdepth_baseline_r18",
                             "width", 0.0625, "data", "train", "format", "frames", "annotations", "a", "images", "i", "sources",
                             json_loads(sources, 0, NULL), "stride", stride, "train", "steps", 1, "batch", 1);
    struct jobspec *spec = NULL;
    struct err err;

    if (jobspec_parse(root, &spec, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(root);
    return spec;
}

/* Frames f/007.png to f/013.png without 12, and other files. */
static void folder(struct tree *t)
{
    static const char *const others[] = { "f/08.png", "f/x.png", "f/009.jpg", "f/0010.png", "f/011.png.1.tmp" };
    char file[32];

    tree_new(t);
    tree_text(t, "intrinsics.json", camera_json);
    for (int i = 7; i < 14; i++) {
        snprintf(file, sizeof file, "f/%03d.png", i);
        if (i != 12)
            tree_text(t, file, "");
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        tree_text(t, others[i], "");
}

static struct way *opened(const struct tree *t, const struct jobspec *spec)
{
    struct way *w = NULL;
    struct err err;

    if (way_open(t->dir, spec, &w, &err) < 0)
        fail_msg("%s", err.msg);
    return w;
}

static void frames_in_their_order(void **state)
{
    struct jobspec *spec = job("[-1, 1]", 1), *far = job("[-1, 1, 2]", 3);
    char *const *frames, path[256];
    struct way *w;
    struct tree t;
    int n;

    (void)state;
    folder(&t);
    assert_true(way_is(t.dir));
    assert_false(way_is(tree_path(&t, "intrinsics.json", path)));
    w = opened(&t, spec);
    frames = way_frames(w, &n);
    assert_int_equal(n, 5);
    assert_string_equal(frames[0], tree_path(&t, "f/007.png", path));
    assert_string_equal(frames[4], tree_path(&t, "f/011.png", path));
    assert_int_equal(way_gap(w), 12);
    way_close(w);
    w = opened(&t, far);
    frames = way_frames(w, &n);
    assert_int_equal(n, 3);
    assert_string_equal(frames[1], tree_path(&t, "f/010.png", path));
    assert_int_equal(way_gap(w), -1);
    way_close(w);
    jobspec_free(spec);
    jobspec_free(far);
    tree_free(&t);
}

static void what_the_network_sees(void **state)
{
    struct jobspec *spec = job("[-1, 2, 1]", 1);
    const struct dataset *d;
    struct depth_lens lens;
    struct tree t;
    struct way *w;

    (void)state;
    folder(&t);
    w = opened(&t, spec);
    d = way_set(w, 3);
    assert_string_equal(d->images[0].file, "f/010.png");
    assert_string_equal(d->images[1].file, "f/011.png");
    assert_true(d->views->n == 1 && d->views->nsources == 3 && d->images[0].w == FRAME_W && d->images[1].h == FRAME_H);
    assert_true(d->views->view[0].source[0] == 0 && d->views->view[0].source[1] == 0 && d->views->view[0].source[2] == 1);
    assert_float_equal(d->views->view[0].camera[2], 19.25, 0);
    lens = way_lens(w, 3);
    assert_true(lens.fx == 30.5 && lens.fy == 31 && lens.cx == 19.25 && lens.cy == 14);
    d = way_set(w, 4); /* the last one */
    assert_int_equal(d->views->view[0].source[2], 0);
    way_close(w);
    jobspec_free(spec);
    tree_free(&t);
}

static void read_text(const char *path, char *ret, size_t size)
{
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    ret[fread(ret, 1, size - 1, f)] = '\0';
    fclose(f);
}

/* The second of two views, that of the next frame, counts. A step ahead moves points back. */
static void the_way(void **state)
{
    struct jobspec *spec = job("[-1, 1]", 1);
    struct result_view views[2] = { { { 1, 0, 0, 9, 0, 1, 0, 9, 0, 0, 1, 9 } }, { { 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 } } };
    struct result r = { .kind = RESULT_DEPTH, .nviews = 2, .views = views };
    char tum[256], kitti[256], text[600];
    const double *motion;
    struct tree t;
    struct way *w;

    (void)state;
    folder(&t);
    w = opened(&t, spec);
    for (int i = 0; i < 5; i++) {
        views[1].pose[11] = -(float)(i + 1);
        assert_int_equal(way_add(w, i, &r, &motion, &t.err), 0);
        assert_true(i < 4 ? motion[11] == -(i + 1) : !motion);
    }
    r.nviews = 1;
    assert_int_equal(way_add(w, 0, &r, &motion, &t.err), ERR_STATE);
    assert_int_equal(way_write(w, 2, tree_path(&t, "tum", tum), tree_path(&t, "kitti", kitti), &t.err), 0);
    read_text(kitti, text, sizeof text);
    assert_string_equal(text,
                        "+1 +0 +0 +0 +0 +1 +0 +0 +0 +0 +1 +0\n1 0 0 0 0 1 0 0 0 0 1 2\n1 0 0 0 0 1 0 0 0 0 1 6\n1 0 0 0 0 1 0 0 0 0 1 12\n"
                        "1 0 0 0 0 1 0 0 0 0 1 20\n");
    read_text(tum, text, sizeof text);
    assert_non_null(strstr(text, "\n11 0 0 20 0 0 0 1\n"));
    way_close(w);
    jobspec_free(spec);
    tree_free(&t);
}

/* The way covers the first frames that follow each other; a lost frame is never a next frame. */
static void frames_that_are_lost(void **state)
{
    struct jobspec *spec = job("[-1, 1]", 1);
    struct result_view views[2] = { { { 0 } }, { { 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, -1 } } };
    struct result r = { .kind = RESULT_DEPTH, .nviews = 2, .views = views };
    char tum[256], kitti[256], text[600];
    const double *motion;
    struct tree t;
    struct way *w;
    int first, width, height;

    (void)state;
    folder(&t);
    w = opened(&t, spec);
    way_size(w, &width, &height);
    assert_true(width == FRAME_W && height == FRAME_H);
    assert_true(way_length(w, &first) == 5 && first == 0);
    way_lose(w, 4);
    assert_true(way_length(w, &first) == 4 && first == 0);
    assert_true(way_lost(w, 4) && !way_lost(w, 3));
    assert_int_equal(way_set(w, 3)->views->view[0].source[1], 0);
    assert_int_equal(way_add(w, 3, &r, &motion, &t.err), 0);
    assert_null(motion);
    way_lose(w, 0);
    assert_true(way_length(w, &first) == 3 && first == 1);
    for (int i = 1; i < 3; i++) {
        views[1].pose[11] = -(float)i;
        assert_int_equal(way_add(w, i, &r, &motion, &t.err), 0);
    }
    assert_int_equal(way_write(w, 1, tree_path(&t, "tum", tum), tree_path(&t, "kitti", kitti), &t.err), 0);
    read_text(kitti, text, sizeof text);
    assert_string_equal(text, "+1 +0 +0 +0 +0 +1 +0 +0 +0 +0 +1 +0\n1 0 0 0 0 1 0 0 0 0 1 1\n1 0 0 0 0 1 0 0 0 0 1 3\n");
    read_text(tum, text, sizeof text);
    assert_non_null(strstr(text, "\n8 0 0 0 0 0 0 1\n9 0 0 1 0 0 0 1\n10 0 0 3 0 0 0 1\n"));
    for (int i = 1; i < 4; i++)
        way_lose(w, i);
    assert_int_equal(way_length(w, &first), 0);
    way_close(w);
    jobspec_free(spec);
    tree_free(&t);
}

static void refuses(const struct tree *t, const struct jobspec *spec, int code, const char *why)
{
    struct way *w;
    struct err err;

    assert_int_equal(way_open(t->dir, spec, &w, &err), code);
    if (!strstr(err.msg, why))
        fail_msg("'%s', not '%s'", err.msg, why);
}

static void folders_that_are_refused(void **state)
{
    struct jobspec *spec = job("[-1, 1]", 1), *back = job("[-1, -2]", 1);
    struct tree t;

    (void)state;
    folder(&t);
    refuses(&t, back, ERR_INPUT, "no frame behind its target");
    tree_text(&t, "intrinsics.json", "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30}");
    refuses(&t, spec, ERR_DATA, "neither \"frame_pattern\"");
    tree_text(&t, "intrinsics.json",
              "{\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 1, \"width\": 41, \"height\": 30, \"frame_pattern\": \"%d/f.png\"}");
    refuses(&t, spec, ERR_UNSUPPORTED, "in many folders");
    tree_text(&t, "intrinsics.json",
              "{\"per_frame\": {\"7\": {\"fx\": 3, \"fy\": 3, \"cx\": 1, \"cy\": 9}}, \"width\": 41, \"height\": 30, "
              "\"frame_pattern\": \"f/%03d.png\"}");
    refuses(&t, spec, ERR_DATA, "intrinsics.json has no camera of frame 8");
    jobspec_free(spec);
    jobspec_free(back);
    tree_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_in_their_order), cmocka_unit_test(what_the_network_sees),    cmocka_unit_test(the_way),
        cmocka_unit_test(frames_that_are_lost),  cmocka_unit_test(folders_that_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

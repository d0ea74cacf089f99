/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/modes/test_frames_job.c
 * uses: proto worker worker/modes worker/predict worker/backend trainer cpu
 * From a job file to frames: the messages of detctl check and detctl submit about its data, and its samples. */
#include "proto/job/jobspec.h"
#include "tests/unit/worker/data/read/frames/frames_set.h"
#include "worker/data/sample/frames.h"
#include "worker/modes/datacheck.h"
#include "worker/models/depth/family.h"
#include "worker/models/registry.h"

static const struct model_family *const families[] = { &depth_models };
static const struct model_registry models = { &job_presets, families, 1 };

/* A job on the tree's list and on "val.txt", with `more` in its data and this preset. */
static struct jobspec *job_of(const struct tree *t, const char *preset, const char *more)
{
    char text[2048];
    struct jobspec *s = NULL;
    struct err err = { 0 };
    json_t *root;

    snprintf(text, sizeof text,
             "{\"model\": {\"preset\": \"%s\"}, \"data\": {\"train\": {\"annotations\": \"%s/list.txt\", \"images\": \"%s\"}, \"val\": "
             "{\"annotations\": \"%s/val.txt\", \"images\": \"%s\"}%s}, \"train\": {\"steps\": 10, \"batch\": 2}}",
             preset, t->dir, t->dir, t->dir, t->dir, more);
    root = json_loads(text, 0, NULL);
    assert_non_null(root);
    if (jobspec_parse(root, &s, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(root);
    return s;
}

/* Runs datacheck_run(). Returns its output and its error. */
static int run_check(const struct jobspec *s, char *text, size_t size, struct err *err)
{
    FILE *out = fmemopen(text, size, "w");
    int rc;

    memset(text, 0, size);
    *err = (struct err){ 0 };
    rc = datacheck_run(&models, s, &(struct datacheck_out){ .facts = out, .warnings = out }, err);
    fclose(out);
    return rc;
}

static void a_check_tells_of_frames(void **state)
{
    char text[4096];
    struct jobspec *s;
    struct tree t;
    int images;

    (void)state;
    tree_single(&t, 7);
    tree_text(&t, "list.txt", "0\n1\n2\n3\n");
    tree_text(&t, "val.txt", "4\n5\n");
    s = job_of(&t, "featdepth_baseline_r18", "");
    if (run_check(s, text, sizeof text, &t.err) < 0)
        fail_msg("%s", t.err.msg);
    assert_string_equal(
        text, "train: 5 images, 0 bad records skipped\n"
              "train: 3 targets with 2 sources each, of 5 frames, 41 x 30; 1 left out that lack a neighbour; 0 with measured depth\n"
              "val: 4 images, 0 bad records skipped\n"
              "val: 2 targets with 2 sources each, of 4 frames, 41 x 30; 1 with measured depth\n"
              "val: 2 of its 4 frames are the same bytes as frames of train, which flatters its losses; the first is 'f/004.png'\n");
    assert_int_equal(datacheck_count(&models, s, &images, stderr, &t.err), 0);
    assert_int_equal(images, 3); /* an epoch counts the targets */
    jobspec_free(s);
    s = job_of(&t, "featdepth_baseline_r18", ", \"missing_neighbour\": \"repeat\", \"sources\": -1, \"stride\": 2");
    assert_int_equal(run_check(s, text, sizeof text, &t.err), 0);
    assert_non_null(
        strstr(text, "train: 4 targets with 1 source each, of 4 frames, 41 x 30; 2 lack a neighbour, and are used in its place"));
    jobspec_free(s);
    tree_free(&t);
}

static void a_check_tells_what_is_wrong(void **state)
{
    char text[4096];
    struct jobspec *s;
    struct tree t;
    FILE *out;
    int images;

    (void)state;
    tree_single(&t, 7);
    tree_text(&t, "list.txt", "1\nx\n9\n");
    tree_text(&t, "val.txt", "4\n5\n");
    s = job_of(&t, "featdepth_baseline_r18", "");
    assert_int_equal(run_check(s, text, sizeof text, &t.err), ERR_DATA);
    assert_non_null(strstr(text, "list.txt, line 2: 'x' is not the number of a frame\n"));
    assert_non_null(strstr(text, "list.txt, line 3: frame f/009.png is not there\n"));
    assert_non_null(strstr(t.err.msg, "list.txt: 2 problems"));
    out = fmemopen(text, sizeof text, "w");
    assert_int_equal(datacheck_count(&models, s, &images, out, &t.err), ERR_DATA);
    fclose(out);
    assert_non_null(strstr(text, "line 3: frame f/009.png is not there\n"));
    jobspec_free(s);
    s = job_of(&t, "featdepth_baseline_r18", ", \"on_bad\": \"skip\"");
    assert_int_equal(run_check(s, text, sizeof text, &t.err), 0);
    assert_non_null(strstr(text, "train: 3 images, 2 bad records skipped\n"));
    assert_int_equal(datacheck_count(&models, s, &images, stderr, &t.err), 0);
    assert_int_equal(images, 1);
    jobspec_free(s);
    s = job_of(&t, "featdepth_baseline_r18", ", \"on_bad\": \"skip\", \"frame_pattern\": \"f/../%d.png\"");
    assert_int_equal(run_check(s, text, sizeof text, &t.err), ERR_DATA);
    assert_non_null(strstr(t.err.msg, "data.frame_pattern: the pattern 'f/../%d.png' leaves its folder"));
    jobspec_free(s);
    tree_free(&t);
}

/* Sources of the job's keys, and the form of its samples. */
static void sources_of_jobs(void **state)
{
    int source[FRAMES_MAX_SOURCES];
    struct tree t;
    struct jobspec *s;
    struct frames_options o;

    (void)state;
    tree_new(&t);
    s = job_of(&t, "featdepth_joint_r18", ", \"stereo\": true, \"stride\": 3");
    assert_int_equal(frames_sources(s, source), 3);
    assert_int_equal(source[0], -3);
    assert_int_equal(source[1], 3);
    assert_int_equal(source[2], FRAMES_STEREO);
    assert_true(frames_split(s, true, &o));
    assert_true(o.truth && o.missing == FRAMES_ALONE);
    assert_string_equal(o.split, "val");
    assert_string_equal(o.list, s->data_val_annotations);
    assert_int_equal(o.nsources, 3);
    assert_true(frames_split(s, false, &o));
    assert_false(o.truth || o.kitti || o.missing != FRAMES_DROP);
    jobspec_free(s);
    s = job_of(&t, "featdepth_joint_r18", ", \"missing_neighbour\": \"repeat\"");
    assert_true(frames_split(s, false, &o) && o.missing == FRAMES_REPEAT);
    assert_true(frames_split(s, true, &o) && o.missing == FRAMES_ALONE);
    jobspec_free(s);
    s = job_of(&t, "featdepth_autoencoder_r18", "");
    assert_int_equal(frames_sources(s, source), 0);
    jobspec_free(s);
    for (int n = 0; n <= FRAMES_MAX_SOURCES; n++) {
        const struct batch_form *f = frames_form(n);

        assert_int_equal(f->narrays, 4 + 2 * n);
        assert_int_equal(batch_array_of(f, "stereo"), f->narrays - 1);
        assert_int_equal(batch_array_of(f, "seen2"), n == 3 ? 7 : -1);
    }
    tree_free(&t);
}

/* A job's task over its own split: the draws are the job's. */
static void samples_of_a_job(void **state)
{
    static uint8_t pictures[6][64 * 32 * 3];
    float camera[4], stereo;
    struct sample sample = { .array = { pictures[0], pictures[1], pictures[2], pictures[3], pictures[4], pictures[5], camera, &stereo } };
    struct hand hand = { .decoder = decoder_new() };
    struct tree t;
    struct jobspec *s;
    struct frames_options o;
    struct dataset *d;
    struct task *task;
    int mirrored = 0, coloured = 0;

    (void)state;
    tree_single(&t, 5);
    s = job_of(&t, "featdepth_baseline_r18", ", \"augment\": {\"flip\": 1, \"color_jitter_prob\": 0}");
    assert_true(frames_split(s, false, &o));
    t.opt.frames = &o;
    d = tree_read(&t, "1\n2\n3\n");
    for (int jitter = 0; jitter < 2; jitter++) {
        const struct task_options to = { s, true, { 32, 64 }, 32, 0 };

        s->data_augment_flip = jitter ? 0 : 1;
        s->data_augment_color_jitter_prob = jitter;
        assert_int_equal(task_frames.open(d, &to, &task, &t.err), 0);
        assert_int_equal(task->samples, 3);
        assert_int_equal(task_frames.count(d, s), 3);
        assert_int_equal(task->ops->make(task, &hand, 1, (struct draw){ 2, 1, 0 }, to.canvas, &sample, &t.err), 0);
        mirrored += camera[2] > 32;
        coloured += memcmp(pictures[2], pictures[3], sizeof pictures[2]) != 0;
        assert_int_equal(mirrored, 1);
        assert_int_equal(coloured, jitter);
        task_free(task);
    }
    hand_free(&hand);
    dataset_free(d);
    jobspec_free(s);
    tree_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_check_tells_of_frames),
        cmocka_unit_test(a_check_tells_what_is_wrong),
        cmocka_unit_test(sources_of_jobs),
        cmocka_unit_test(samples_of_a_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* tests/unit/test_coco.c - uses: proto worker/core worker/mask worker/data worker/data/sample
 * Every file of the collection of odd annotation files, and the rules of the reader one by one. */
#include <fcntl.h>
#include <malloc.h>
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
#include "tests/harness.h"
#include "worker/data/check.h"
#include "worker/data/coco.h"
#include "worker/data/problems.h"

#define DATA "../shared/data"

/* What reading and checking must say. boxes: kept under BAD_SKIP, -1: fails in any case. */
struct expectation {
    const char *file;
    const char *error; /* a part of the message under BAD_ERROR, NULL: valid */
    int images, boxes;
};

static const struct expectation odd[] = {
    { "ok_base", NULL, 2, 6 },
    { "ok_bom_crlf", NULL, 2, 6 },
    { "ok_minified_unicode_escape", NULL, 2, 6 },
    { "ok_utf8_names", NULL, 2, 6 },
    { "ok_float_ids", NULL, 2, 6 },
    { "ok_big_ids", NULL, 2, 6 },
    { "ok_sparse_unsorted_categories", NULL, 2, 6 },
    { "ok_category_id_zero", NULL, 2, 6 },
    { "ok_no_annotations", NULL, 2, 0 },
    { "ok_missing_area_iscrowd", NULL, 2, 6 },
    { "ok_extra_fields", NULL, 2, 6 },
    { "ok_scientific_numbers", NULL, 2, 6 },
    { "box_zero_size", "annotation 2806 (image 0, 'BloodImage_00000.jpg'): box has no area", 2, 5 },
    { "box_negative_size", "annotation 2806 (image 0, 'BloodImage_00000.jpg'): box has a negative size", 2, 5 },
    { "box_outside", "annotation 2806 (image 0, 'BloodImage_00000.jpg'): box lies outside its image", 2, 5 },
    { "box_partly_outside", NULL, 2, 6 },
    { "box_nan", "line 1, byte ", -1, -1 },
    { "box_strings", "annotation 2806 (line ", 2, 5 },
    { "box_three_numbers", "bbox is not a list of four numbers", 2, 5 },
    { "box_missing", "annotation 2806 (line 17): bbox is missing", 2, 5 },
    { "box_null", "bbox is not a list of four numbers", 2, 5 },
    { "ref_unknown_image", "image_id 99999 is not in \"images\"", 2, 5 },
    { "ref_unknown_category", "is not in \"categories\"", 2, 5 },
    { "dup_image_id", "image id 0 is used twice", -1, -1 },
    { "dup_annotation_id", "is used more than once", 2, 6 },
    { "dup_category_name", "are both named 'RBC'", 2, 6 },
    { "image_missing_file", "No such file or directory", 1, 3 },
    { "image_wrong_size", "BloodImage_00000.jpg", 1, 3 },
    { "image_path_escape", "image 0: file_name '../../../../etc/hostname' leaves the image folder", 1, 3 },
    { "image_no_size", NULL, 2, 6 },
    { "seg_odd_count", "odd number of coordinates", 2, 5 },
    { "seg_two_points", "fewer than three points", 2, 5 },
    { "seg_flat_list", "not a list inside the list", 2, 5 },
    { "seg_outside", NULL, 2, 6 },
    { "seg_self_crossing", NULL, 2, 6 },
    { "seg_rle_wrong_sum", "the runs do not fill its size", 2, 5 },
    { "seg_rle_wrong_size", "the size of its segmentation is not that of the image", 2, 5 },
    { "seg_rle_negative", "a run is negative", 2, 5 },
    { "seg_rle_bad_string", "the run string is malformed", 2, 5 },
    { "seg_empty_crowd", NULL, 2, 6 },
    { "syntax_truncated", "but the file ends", -1, -1 },
    { "syntax_trailing_comma", "comma before", -1, -1 },
    { "syntax_trailing_text", "text after the end", -1, -1 },
    { "syntax_empty", "file is empty", -1, -1 },
    { "root_array", "expected an object, found '['", -1, -1 },
    { "syntax_deep_nesting", "expected an object, found '['", -1, -1 },
    { "syntax_bad_utf8", "invalid UTF-8", -1, -1 },
    { "syntax_bad_escape", "unknown escape", -1, -1 },
    { "key_missing_images", "there is no \"images\"", -1, -1 },
    { "key_missing_categories", "there is no \"categories\"", -1, -1 },
    { "key_empty_categories", "\"categories\" is empty", -1, -1 },
    { "mmdet_wrong_format_sample", "is used more than once", -1, -1 },
};

static bool have_data(void)
{
    return access(DATA "/odd_json/ok_base.json", R_OK) == 0;
}

static int check(const char *name, const char *images, enum bad_policy on_bad, struct problems *p, struct dataset **ret, struct err *err)
{
    char path[256];

    snprintf(path, sizeof path, DATA "/odd_json/%s.json", name);
    memset(p, 0, sizeof *p);
    return check_split(&(struct check_options){ .annotations = path, .images = images, .on_bad = on_bad, .threads = 2 }, p, ret, err);
}

static void check_one(const struct expectation *e, struct problems *p)
{
    struct dataset *d;
    struct err err = { 0 };
    int rc = check(e->file, DATA "/bccd/images", BAD_ERROR, p, &d, &err);

    if (!e->error) {
        if (rc != 0)
            fail_msg("%s: %s", e->file, err.msg);
        assert_int_equal(d->nimages, e->images);
        assert_int_equal(d->offset[d->nimages], e->boxes);
        dataset_free(d);
        return;
    }
    if (rc != ERR_DATA || !strstr(err.msg, e->error) || !strstr(err.msg, e->file))
        fail_msg("%s: rc %d, message \"%s\", wanted \"%s\"", e->file, rc, err.msg, e->error);
    rc = check(e->file, DATA "/bccd/images", BAD_SKIP, p, &d, &err);
    if (e->boxes < 0) {
        assert_int_equal(rc, ERR_DATA);
        return;
    }
    if (rc != 0)
        fail_msg("%s, skipping: %s", e->file, err.msg);
    assert_true(p->count > 0);
    assert_int_equal(d->nimages, e->images);
    assert_int_equal(d->offset[d->nimages], e->boxes);
    dataset_free(d);
}

static void odd_files_are_told_or_read(void **state)
{
    static struct problems store, *p = &store;

    (void)state;
    if (!have_data())
        SKIP("no " DATA "/odd_json");
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        check_one(&odd[i], p);
}

static void ids_names_and_boxes_arrive(void **state)
{
    static struct problems store, *p = &store;
    struct dataset *d;
    struct err err;

    (void)state;
    if (!have_data())
        SKIP("no " DATA "/odd_json");
    assert_int_equal(check("ok_sparse_unsorted_categories", DATA "/bccd/images", BAD_ERROR, p, &d, &err), 0);
    assert_int_equal(d->nclasses, 3);
    assert_true(d->classes[0].id == 7 && d->classes[1].id == 13 && d->classes[2].id == 90);
    assert_int_equal(dataset_class_index(d, 13), 1);
    assert_int_equal(dataset_class_index(d, 8), -1);
    assert_true(d->images[0].hash.lane[0] != 0 && d->images[0].size_bytes > 0);
    dataset_free(d);
    assert_int_equal(check("ok_base", DATA "/bccd/images", BAD_ERROR, p, &d, &err), 0);
    assert_true(d->boxes[0].id == 2806 && d->boxes[0].cls == 1 && d->boxes[0].x == 260 && d->boxes[0].w == 231 &&
                d->boxes[0].area == 45969);
    assert_int_equal(dataset_image_index(d, 2), 1);
    dataset_free(d);
    assert_int_equal(check("ok_subfolder_names", DATA "/bccd", BAD_ERROR, p, &d, &err), 0);
    dataset_free(d);
    assert_int_equal(check("box_partly_outside", DATA "/bccd/images", BAD_ERROR, p, &d, &err), 0);
    assert_int_equal(d->clipped, 1);
    assert_true(d->boxes[0].x + d->boxes[0].w <= 640 && d->boxes[0].y + d->boxes[0].h <= 480 && d->boxes[0].x >= 0);
    dataset_free(d);
    assert_int_equal(check("ok_minified_unicode_escape", DATA "/bccd/images", BAD_ERROR, p, &d, &err), 0);
    assert_non_null(strchr(d->classes[0].name, '"'));
    dataset_free(d);
}

/* The images of these two come with the collection's origin only. */
static void foreign_tools_are_read(void **state)
{
    static struct problems store, *p = &store;
    struct dataset *d;
    struct err err;

    (void)state;
    if (!have_data())
        SKIP("no " DATA "/odd_json");
    assert_int_equal(coco_read(DATA "/odd_json/datumaro_instances_val.json", "nowhere", BAD_ERROR, p, &d, &err), 0);
    assert_int_equal(d->offset[1], 2);
    assert_true(d->boxes[1].crowd && d->boxes[1].area == 20);
    dataset_free(d);
    assert_int_equal(coco_read(DATA "/odd_json/datumaro_instances_train.json", "nowhere", BAD_ERROR, p, &d, &err), 0);
    dataset_free(d);
}

static void real_sets_count_right(void **state)
{
    static struct problems store, *p = &store;
    struct dataset *d;
    struct err err = { 0 };

    (void)state;
    if (!have_data())
        SKIP("no " DATA "/odd_json");
    assert_int_equal(coco_read(DATA "/bccd/train.json", DATA "/bccd/images", BAD_ERROR, p, &d, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "annotation 2288"));
    memset(p, 0, sizeof *p);
    assert_int_equal(coco_read(DATA "/bccd/train.json", DATA "/bccd/images", BAD_SKIP, p, &d, &err), 0);
    assert_int_equal(p->count, 1);
    assert_true(d->nimages == 205 && d->nclasses == 3 && d->offset[205] == 2804);
    dataset_free(d);
    memset(p, 0, sizeof *p);
    assert_int_equal(coco_read(DATA "/bccd/val.json", DATA "/bccd/images", BAD_KEEP, p, &d, &err), 0);
    assert_int_equal(d->offset[87], 1138);
    dataset_free(d);
    assert_int_equal(coco_read(DATA "/coco_tiny/instances_val.json", DATA "/coco_tiny/val", BAD_ERROR, p, &d, &err), 0);
    assert_true(d->nimages == 20 && d->nclasses == 80 && d->offset[20] == 110);
    for (int i = 0; i < 110; i++)
        assert_int_equal(d->boxes[i].crowd, d->boxes[i].id == 900100329323);
    dataset_free(d);
    assert_int_equal(coco_read(DATA "/nuclei/train_rle.json", DATA "/nuclei/images", BAD_ERROR, p, &d, &err), 0);
    assert_true(d->nimages == 268 && d->offset[268] == 11823 && d->max_boxes == 375);
    dataset_free(d);
}

/* ---- rules that need no files but one ---- */

static int read_text(const char *text, enum bad_policy on_bad, struct problems *p, struct dataset **ret, struct err *err)
{
    char path[TEMP_MAX];
    int rc, fd = mkstemp(temp_path(path, sizeof path, "detd-coco-XXXXXX"));
    FILE *f = fdopen(fd, "w");

    fputs(text, f);
    fclose(f);
    memset(p, 0, sizeof *p);
    rc = coco_read(path, "nowhere", on_bad, p, ret, err);
    unlink(path);
    return rc;
}

#define CATEGORIES "{\"categories\": [{\"id\": 1, \"name\": \"x\"}], "

/* An image of 100 x 50 named `file`, and one annotation. */
static int read_one(const char *file, const char *annotation, enum bad_policy on_bad, struct problems *p, struct dataset **ret,
                    struct err *err)
{
    char text[512];

    snprintf(text, sizeof text,
             CATEGORIES "\"images\": [{\"id\": 4, \"file_name\": \"%s\", \"width\": 100, \"height\": 50}],"
                        "\"annotations\": [{\"id\": 7, \"image_id\": 4, \"category_id\": 1, %s}]}",
             file, annotation);
    return read_text(text, on_bad, p, ret, err);
}

static void impossible_values_are_told(void **state)
{
    static const struct {
        const char *annotation, *want; /* NULL: good */
    } rows[] = {
        { "\"bbox\": [0, 0, 10000000, 5]", NULL },
        { "\"bbox\": [0, 0, 10000001, 5]", "bbox holds an impossible number" },
        { "\"bbox\": [0, -10000001, 5, 20000000]", "bbox holds an impossible number" },
        { "\"bbox\": [1, 1, 2, 2], \"area\": -1", "area is not a number >= 0" },
        { "\"bbox\": [1, 1, 2, 2], \"area\": \"1\"", "area is not a number >= 0" },
        { "\"bbox\": [1, 1, 2, 2], \"area\": null", NULL },
        { "\"bbox\": [1, 1, 2, 2], \"iscrowd\": 2", "iscrowd is neither 0 nor 1" },
        { "\"bbox\": [1, 1, 2, 2], \"iscrowd\": -1", "iscrowd is neither 0 nor 1" },
        { "\"bbox\": [1, 1, 2, 2], \"iscrowd\": true", NULL },
        { "\"bbox\": [1, 1, 2, 2], \"iscrowd\": null", NULL },
        { "\"bbox\": [1, 1, 2, 2], \"ignore\": 1", "ignore is true, and iscrowd is not 1: COCO's tools look at that alone" },
        { "\"bbox\": [1, 1, 2, 2], \"ignore\": -0.5", "ignore is true" },
        { "\"ignore\": true, \"bbox\": [1, 1, 2, 2], \"iscrowd\": 1", NULL },
        { "\"bbox\": [1, 1, 2, 2], \"ignore\": 0", NULL },
        { "\"bbox\": [1, 1, 2, 2], \"ignore\": false", NULL },
        { "\"bbox\": [1, 1, 2, 2], \"ignore\": null", NULL },
    };
    static struct problems store, *p = &store;
    struct dataset *d;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = read_one("x", rows[i].annotation, BAD_ERROR, p, &d, &err);

        assert_int_equal(rc, rows[i].want ? ERR_DATA : 0);
        if (!rows[i].want)
            dataset_free(d);
        else if (!strstr(err.msg, "annotation 7 (line 1): ") || !strstr(err.msg, rows[i].want))
            fail_msg("%s, wanted: %s", err.msg, rows[i].want);
    }
}

/* COCO's tools mark what is matched with its id, and test that for 0. The object itself is good. */
static void ids_of_annotations_are_positive(void **state)
{
    static const int ids[] = { 0, -4 };
    static struct problems store, *p = &store;
    struct dataset *d;
    char text[512], want[64];
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        snprintf(text, sizeof text,
                 CATEGORIES "\"images\": [{\"id\": 0, \"file_name\": \"x\", \"width\": 9, \"height\": 9}], \"annotations\": "
                            "[{\"id\": %d, \"image_id\": 0, \"category_id\": 1, \"bbox\": [1, 1, 2, 2]},"
                            " {\"id\": 1, \"image_id\": 0, \"category_id\": 1, \"bbox\": [1, 1, 2, 2]}]}",
                 ids[i]);
        snprintf(want, sizeof want, "1 problem: annotation %d (line 1): id must be at least 1", ids[i]);
        assert_int_equal(read_text(text, BAD_ERROR, p, &d, &err), ERR_DATA);
        if (!strstr(err.msg, want))
            fail_msg("%s", err.msg);
        assert_int_equal(read_text(text, BAD_SKIP, p, &d, &err), 0);
        assert_true(p->count == 1 && d->offset[1] == 2 && d->boxes[0].id == ids[i]);
        dataset_free(d);
        assert_int_equal(read_text(text, BAD_KEEP, p, &d, &err), 0);
        dataset_free(d);
    }
}

static void sides_and_sections_are_checked(void **state)
{
    static const struct {
        const char *image, *want;
    } rows[] = {
        { "\"width\": 100", "only one of width and height is stated" },
        { "\"height\": 100", "only one of width and height is stated" },
        { "\"width\": 0, \"height\": 5", "width is not a positive integer" },
        { "\"width\": 5, \"height\": -5", "height is not a positive integer" },
        { "\"width\": 5, \"height\": 5.5", "height is not a positive integer" },
        { "\"width\": 4294967296, \"height\": 5", "width is not a positive integer" },
    };
    static struct problems store, *p = &store;
    struct dataset *d;
    char text[256];
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, CATEGORIES "\"images\": [{\"id\": 4, \"file_name\": \"x\", %s}], \"annotations\": []}", rows[i].image);
        assert_int_equal(read_text(text, BAD_ERROR, p, &d, &err), ERR_DATA);
        if (!strstr(err.msg, "image 4 (line 1): ") || !strstr(err.msg, rows[i].want))
            fail_msg("%s, wanted: %s", err.msg, rows[i].want);
    }
    assert_int_equal(read_text(CATEGORIES "\"images\": [], \"annotations\": [], \"images\": []}", BAD_SKIP, p, &d, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "\"images\" stands here a second time"));
}

/* Fresh memory holds the id of the only image, so that one more image would have it too. A sanitizer, whose memory is its own, sees a read behind
 * an array that is full. */
static void nothing_behind_the_last_image_is_read(void **state)
{
    static struct problems store, *p = &store;
    char text[8192];
    size_t used;
    struct dataset *d;
    struct err err = { 0 };
    int rc;

    (void)state;
    snprintf(text, sizeof text,
             CATEGORIES "\"images\": [{\"id\": %lld, \"file_name\": \"x\", \"width\": 9, \"height\": 9}], \"annotations\": []}",
             0x1111111111111111LL);
    mallopt(M_PERTURB, 0xEE); /* its complement fills what malloc() gives */
    rc = read_text(text, BAD_ERROR, p, &d, &err);
    mallopt(M_PERTURB, 0);
    if (rc < 0)
        fail_msg("%s", err.msg);
    dataset_free(d);
    for (int n = 63; n <= 65; n++) { /* 64: as many as the first piece of memory has room for */
        used =
            (size_t)snprintf(text, sizeof text, CATEGORIES "\"images\": [{\"id\": 0, \"file_name\": \"x\", \"width\": 9, \"height\": 9}");
        for (int i = 1; i < n; i++)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, ", {\"id\": %d, \"file_name\": \"x\", \"width\": 9, \"height\": 9}", i);
        snprintf(text + used, sizeof text - used, "], \"annotations\": []}");
        assert_int_equal(read_text(text, BAD_ERROR, p, &d, &err), 0);
        assert_int_equal(d->nimages, n);
        dataset_free(d);
    }
}

static void problems_are_counted_and_the_first_told(void **state)
{
    static struct problems store, *p = &store;
    struct err err;

    (void)state;
    memset(p, 0, sizeof *p);
    problems_add(p, "a is %d", 1);
    assert_int_equal(problems_err(p, "f", &err), ERR_DATA);
    assert_string_equal(err.msg, "f: 1 problem: a is 1");
    problems_add(p, "b");
    problems_err(p, "f", &err);
    assert_string_equal(err.msg, "f: 2 problems: a is 1; b");
    for (int i = 0; i < 2000; i++)
        problems_add(p, "%0*d", (int)sizeof err.msg - 32, 3); /* does not fit behind the others */
    problems_err(p, "f", &err);
    assert_string_equal(err.msg, "f: 2002 problems: a is 1; b; ...");
    assert_true(p->count == 2002 && p->kept == PROBLEMS_KEPT);
}

static void names_stay_below_the_folder(void **state)
{
    static const char *const out[] = { "/etc/x", "../x", "a/../../x", "a/..", "a/../b", "./..", "a//../x" }, *const in[] = {
        "x", "a/b/x", "..x", "x..", "a/..x/y", "a/x../y", "...", "a/.../x", ".", "a//x"
    };
    static struct problems store, *p = &store;
    struct dataset *d;
    char want[128];
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
        snprintf(want, sizeof want, "image 4: file_name '%s' leaves the image folder", out[i]);
        assert_int_equal(read_one(out[i], "\"bbox\": [1, 1, 2, 2]", BAD_ERROR, p, &d, &err), ERR_DATA);
        assert_non_null(strstr(err.msg, want));
    }
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        if (read_one(in[i], "\"bbox\": [1, 1, 2, 2]", BAD_ERROR, p, &d, &err) != 0)
            fail_msg("%s", err.msg);
        assert_string_equal(d->images[0].file, in[i]);
        dataset_free(d);
    }
}

static void boxes_are_clipped_to_the_last_pixel(void **state)
{
    static const struct {
        const char *box;
        double want[4];
        int clipped;
    } rows[] = {
        { "[0, 0, 100, 50]", { 0, 0, 100, 50 }, 0 },   { "[99, 49, 1, 1]", { 99, 49, 1, 1 }, 0 },
        { "[90, 40, 10.5, 3]", { 90, 40, 10, 3 }, 1 }, { "[90, 40, 3, 10.5]", { 90, 40, 3, 10 }, 1 },
        { "[-2, 5, 10, 7]", { 0, 5, 8, 7 }, 1 },       { "[5, -2, 7, 10]", { 5, 0, 7, 8 }, 1 },
        { "[-1, -1, 102, 52]", { 0, 0, 100, 50 }, 1 }, { "[99.5, 49.5, 9, 9]", { 99.5, 49.5, .5, .5 }, 1 },
    };
    static struct problems store, *p = &store;
    char annotation[64];
    struct dataset *d;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(annotation, sizeof annotation, "\"bbox\": %s", rows[i].box);
        assert_int_equal(read_one("x", annotation, BAD_ERROR, p, &d, &err), 0);
        assert_true(d->boxes[0].x == rows[i].want[0] && d->boxes[0].y == rows[i].want[1] && d->boxes[0].w == rows[i].want[2] &&
                    d->boxes[0].h == rows[i].want[3]);
        assert_int_equal(d->clipped, rows[i].clipped);
        assert_int_equal(p->count, 0);
        dataset_free(d);
        assert_int_equal(read_one("x", annotation, BAD_KEEP, p, &d, &err), 0);
        assert_int_equal(d->clipped, 0);
        dataset_free(d);
    }
    assert_int_equal(read_one("x", "\"bbox\": [100, 0, 5, 5]", BAD_ERROR, p, &d, &err), ERR_DATA);
    assert_int_equal(read_one("x", "\"bbox\": [0, 50, 5, 5]", BAD_ERROR, p, &d, &err), ERR_DATA);
}

/* Of the box as it was written, as the reference evaluator has it. */
static void area_is_the_file_s_or_the_box_s(void **state)
{
    static const struct {
        const char *annotation;
        double area;
    } rows[] = {
        { "\"bbox\": [1, 1, 4, 2.5]", 10 },
        { "\"bbox\": [1, 1, 4, 2.5], \"area\": 3", 3 },
        { "\"bbox\": [1, 1, 4, 2.5], \"area\": 0", 0 },
        { "\"bbox\": [98, 1, 4, 2]", 8 },
    };
    static struct problems store, *p = &store;
    struct dataset *d;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(read_one("x", rows[i].annotation, BAD_ERROR, p, &d, &err), 0);
        assert_true(d->boxes[0].area == rows[i].area);
        dataset_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_files_are_told_or_read),
        cmocka_unit_test(ids_names_and_boxes_arrive),
        cmocka_unit_test(foreign_tools_are_read),
        cmocka_unit_test(real_sets_count_right),
        cmocka_unit_test(impossible_values_are_told),
        cmocka_unit_test(ids_of_annotations_are_positive),
        cmocka_unit_test(sides_and_sections_are_checked),
        cmocka_unit_test(nothing_behind_the_last_image_is_read),
        cmocka_unit_test(problems_are_counted_and_the_first_told),
        cmocka_unit_test(names_stay_below_the_folder),
        cmocka_unit_test(boxes_are_clipped_to_the_last_pixel),
        cmocka_unit_test(area_is_the_file_s_or_the_box_s),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

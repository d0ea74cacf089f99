/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/core worker/mask worker/data
 * tests/unit/worker/data/read/coco/test_coco.c - Every file of the collection of odd annotation files, and the rules of
 * the reader one by one. */
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
#include "tests/stand/harness.h"
#include "worker/data/read/check.h"
#include "worker/data/read/coco/coco.h"
#include "worker/data/image/image.h"
#include "worker/data/set/problems.h"

#define DATA "../shared/data"

/* The expected results of reading and checking. boxes: kept under BAD_SKIP, -1: fails in any case. */
struct expectation {
    const char *file;
    const char *error; /* a part of the message under BAD_ERROR, NULL: valid */
    int images, boxes;
    const char *doubt; /* a part of the note about a record that stays, NULL: no note */
};

static const struct expectation odd[] = {
    { "ok_base", NULL, 2, 6, NULL },
    { "ok_bom_crlf", NULL, 2, 6, NULL },
    { "ok_minified_unicode_escape", NULL, 2, 6, NULL },
    { "ok_utf8_names", NULL, 2, 6, NULL },
    { "ok_float_ids", NULL, 2, 6, NULL },
    { "ok_big_ids", NULL, 2, 6, NULL },
    { "ok_sparse_unsorted_categories", NULL, 2, 6, NULL },
    { "ok_category_id_zero", NULL, 2, 6, NULL },
    { "ok_no_annotations", NULL, 2, 0, NULL },
    { "ok_missing_area_iscrowd", NULL, 2, 6, NULL },
    { "ok_extra_fields", NULL, 2, 6, NULL },
    { "ok_scientific_numbers", NULL, 2, 6, NULL },
    { "box_zero_size", "annotation 2806 (image 0, 'BloodImage_00000.jpg'): box has no area", 2, 5, NULL },
    { "box_negative_size", "annotation 2806 (image 0, 'BloodImage_00000.jpg'): box has a negative size", 2, 5, NULL },
    { "box_outside", "annotation 2806 (image 0, 'BloodImage_00000.jpg'): box lies outside its image", 2, 5, NULL },
    { "box_partly_outside", NULL, 2, 6, NULL },
    { "box_nan", "bbox holds NaN or Infinity", 2, 5, NULL },
    { "box_strings", "annotation 2806 (line ", 2, 5, NULL },
    { "box_three_numbers", "bbox is not a list of four numbers", 2, 5, NULL },
    { "box_missing", "annotation 2806 (line 17): bbox is missing", 2, 5, NULL },
    { "box_null", "bbox is not a list of four numbers", 2, 5, NULL },
    { "ref_unknown_image", "image_id 99999 is not in \"images\"", 2, 5, NULL },
    { "ref_unknown_category", "is not in \"categories\"", 2, 5, NULL },
    { "dup_image_id", "image id 0 is used twice", -1, -1, NULL },
    { "dup_annotation_id", NULL, 2, 6, "annotation id 1 is used more than once" },
    { "dup_category_name", NULL, 2, 6, "are both named 'RBC'" },
    { "image_missing_file", "No such file or directory", 1, 3, NULL },
    { "image_wrong_size", "BloodImage_00000.jpg", 1, 3, NULL },
    { "image_path_escape", "image 0: file_name '../../../../etc/hostname' leaves the image folder", 1, 3, NULL },
    { "image_no_size", NULL, 2, 6, NULL },
    { "seg_odd_count", NULL, 2, 6, "odd number of coordinates" },
    { "seg_two_points", NULL, 2, 6, "fewer than three points" },
    { "seg_flat_list", NULL, 2, 6, "not a list inside the list" },
    { "seg_outside", NULL, 2, 6, NULL },
    { "seg_self_crossing", NULL, 2, 6, NULL },
    { "seg_rle_wrong_sum", NULL, 2, 6, "the runs do not fill its size" },
    { "seg_rle_wrong_size", NULL, 2, 6, "the size of its segmentation is not that of the image" },
    { "seg_rle_negative", NULL, 2, 6, "a run is negative" },
    { "seg_rle_bad_string", NULL, 2, 6, "the run string is malformed" },
    { "seg_empty_crowd", NULL, 2, 6, NULL },
    { "syntax_truncated", "but the file ends", -1, -1, NULL },
    { "syntax_trailing_comma", "comma before", -1, -1, NULL },
    { "syntax_trailing_text", "text after the end", -1, -1, NULL },
    { "syntax_empty", "file is empty", -1, -1, NULL },
    { "root_array", "found '[': results files are such lists", -1, -1, NULL },
    { "syntax_deep_nesting", "found '['", -1, -1, NULL },
    { "syntax_bad_utf8", "invalid UTF-8", -1, -1, NULL },
    { "syntax_bad_escape", "unknown escape", -1, -1, NULL },
    { "key_missing_images", "there is no \"images\"", -1, -1, NULL },
    { "key_missing_categories", "there is no \"categories\"", -1, -1, NULL },
    { "key_empty_categories", "\"categories\" is empty", -1, -1, NULL },
    { "mmdet_wrong_format_sample", "No such file or directory", -1, -1, "is used more than once" },
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
        if ((p->notes > 0) != !!e->doubt || (e->doubt && !strstr(p->note[0], e->doubt)))
            fail_msg("%s: %d notes, \"%s\", wanted \"%s\"", e->file, (int)p->notes, p->note[0], e->doubt ? e->doubt : "none");
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

static int read_set(const char *annotations, const char *images, enum bad_policy on_bad, struct problems *p, struct dataset **ret,
                    struct err *err)
{
    return coco_read(&(struct coco_options){ .annotations = annotations, .images = images, .on_bad = on_bad }, p, ret, err);
}

/* The images of these two are only in the collection's original. */
static void foreign_tools_are_read(void **state)
{
    static struct problems store, *p = &store;
    struct dataset *d;
    struct err err;

    (void)state;
    if (!have_data())
        SKIP("no " DATA "/odd_json");
    assert_int_equal(read_set(DATA "/odd_json/datumaro_instances_val.json", "nowhere", BAD_ERROR, p, &d, &err), 0);
    assert_int_equal(d->offset[1], 2);
    assert_true(d->boxes[1].crowd && d->boxes[1].area == 20);
    dataset_free(d);
    assert_int_equal(read_set(DATA "/odd_json/datumaro_instances_train.json", "nowhere", BAD_ERROR, p, &d, &err), 0);
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
    assert_int_equal(read_set(DATA "/bccd/train.json", DATA "/bccd/images", BAD_ERROR, p, &d, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "annotation 2288"));
    memset(p, 0, sizeof *p);
    assert_int_equal(read_set(DATA "/bccd/train.json", DATA "/bccd/images", BAD_SKIP, p, &d, &err), 0);
    assert_int_equal(p->count, 1);
    assert_true(d->nimages == 205 && d->nclasses == 3 && d->offset[205] == 2804);
    dataset_free(d);
    memset(p, 0, sizeof *p);
    assert_int_equal(read_set(DATA "/bccd/val.json", DATA "/bccd/images", BAD_KEEP, p, &d, &err), 0);
    assert_int_equal(d->offset[87], 1138);
    dataset_free(d);
    assert_int_equal(read_set(DATA "/coco_tiny/instances_val.json", DATA "/coco_tiny/val", BAD_ERROR, p, &d, &err), 0);
    assert_true(d->nimages == 20 && d->nclasses == 80 && d->offset[20] == 110);
    for (int i = 0; i < 110; i++)
        assert_int_equal(d->boxes[i].crowd, d->boxes[i].id == 900100329323);
    dataset_free(d);
    assert_int_equal(read_set(DATA "/nuclei/train_rle.json", DATA "/nuclei/images", BAD_ERROR, p, &d, &err), 0);
    assert_true(d->nimages == 268 && d->offset[268] == 11823 && d->max_boxes == 375);
    dataset_free(d);
}

/* ---- rules that need no files but one ---- */

/* near: a file in the folder of the pictures. */
static int read_below(const char *text, const char *near, enum bad_policy on_bad, struct problems *p, struct dataset **ret, struct err *err)
{
    char path[TEMP_MAX], folder[TEMP_MAX];
    int rc, fd = mkstemp(temp_path(path, sizeof path, "detd-coco-XXXXXX"));
    FILE *f = fdopen(fd, "w");

    fputs(text, f);
    fclose(f);
    memset(p, 0, sizeof *p);
    snprintf(folder, sizeof folder, "%s", near);
    if (strrchr(folder, '/'))
        *strrchr(folder, '/') = '\0';
    rc = read_set(path, folder, on_bad, p, ret, err);
    unlink(path);
    return rc;
}

static int read_text(const char *text, enum bad_policy on_bad, struct problems *p, struct dataset **ret, struct err *err)
{
    return read_below(text, "nowhere", on_bad, p, ret, err);
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

/* An absolute name is valid if it begins with the image folder, by the folder's own path or by its path with links
 * resolved. */
static void absolute_names(void **state)
{
    struct problems *p = calloc(1, sizeof *p);
    char dir[TEMP_MAX], link[TEMP_MAX + 8], near[TEMP_MAX + 16], text[3 * TEMP_MAX + 512];
    struct dataset *d;
    struct err err;

    (void)state;
    assert_non_null(mkdtemp(temp_path(dir, sizeof dir, "detd-coco-XXXXXX")));
    snprintf(link, sizeof link, "%s-link", dir);
    snprintf(near, sizeof near, "%s/x", link);
    assert_int_equal(symlink(dir, link), 0);
    snprintf(text, sizeof text,
             CATEGORIES "\"images\": [{\"id\": 1, \"file_name\": \"%s//a/b.jpg\", \"width\": 9, \"height\": 9},"
                        "{\"id\": 2, \"file_name\": \"%s/c.jpg\", \"width\": 9, \"height\": 9},"
                        "{\"id\": 2, \"file_name\": \"c.jpg\", \"width\": 9, \"height\": 9}," /* the same picture again */
                        "{\"id\": 3, \"file_name\": \"%sx/c.jpg\", \"width\": 9, \"height\": 9}], \"annotations\": []}",
             dir, link, link);
    assert_int_equal(read_below(text, near, BAD_SKIP, p, &d, &err), 0);
    assert_int_equal(d->nimages, 2);
    assert_string_equal(d->images[0].file, "a/b.jpg");
    assert_string_equal(d->images[1].file, "c.jpg");
    assert_int_equal(p->count, 1);
    assert_non_null(strstr(p->text[0], "x/c.jpg' leaves the image folder"));
    dataset_free(d);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(dir), 0);
    free(p);
}

/* want: the reason of a refusal; doubt: the note about a record that stays. Both NULL: it is good. */
struct value {
    const char *annotation, *want, *doubt;
};

static void check_value(const struct value *v, struct problems *p)
{
    struct dataset *d;
    struct err err = { 0 };
    int rc = read_one("x", v->annotation, BAD_ERROR, p, &d, &err);

    if (rc != (v->want ? ERR_DATA : 0))
        fail_msg("%s: rc %d, %s", v->annotation, rc, err.msg);
    if (v->want && (!strstr(err.msg, "annotation 7 (line 1): ") || !strstr(err.msg, v->want)))
        fail_msg("%s: %s, wanted: %s", v->annotation, err.msg, v->want);
    if (v->want)
        return;
    if (p->notes != (v->doubt != NULL) || (v->doubt && !strstr(p->note[0], v->doubt)))
        fail_msg("%s: %d notes, '%s', wanted: %s", v->annotation, (int)p->notes, p->note[0], v->doubt ? v->doubt : "none");
    assert_int_equal(d->offset[1], 1);
    assert_true(!v->doubt || d->boxes[0].area == d->boxes[0].w * d->boxes[0].h);
    dataset_free(d);
}

static void impossible_values_are_told(void **state)
{
    static const char area[] = "annotation 7 (line 1): area is not a number >= 0: that of the box is taken";
    static const struct value rows[] = {
        { "\"bbox\": [0, 0, 10000000, 5]", NULL, NULL },
        { "\"bbox\": [0, 0, 10000001, 5]", "bbox holds an impossible number", NULL },
        { "\"bbox\": [0, -10000001, 5, 20000000]", "bbox holds an impossible number", NULL },
        { "\"bbox\": [0, 0, NaN, 5]", "bbox holds NaN or Infinity", NULL },
        { "\"bbox\": [-Infinity, 0, 5, 5]", "bbox holds NaN or Infinity", NULL },
        { "\"bbox\": [0, 0, 1e999, 5]", "bbox is not a list of four numbers", NULL },
        { "\"bbox\": NaN", "bbox is not a list of four numbers", NULL },
        { "\"bbox\": [1, 1, 2, 2], \"area\": -1", NULL, area },
        { "\"bbox\": [1, 1, 2, 2], \"area\": \"1\"", NULL, area },
        { "\"bbox\": [1, 1, 2, 2], \"area\": NaN", NULL, area },
        { "\"bbox\": [1, 1, 2, 2], \"area\": [4]", NULL, area },
        { "\"bbox\": [1, 1, 2, 2], \"area\": 1e999", NULL, area },
        { "\"bbox\": [1, 1, 2, 2], \"area\": null", NULL, NULL },
        { "\"bbox\": [1, 1, 2, 2], \"score\": NaN, \"x\": {\"y\": [Infinity, -Infinity]}", NULL, NULL },
        { "\"bbox\": [1, 1, 2, 2], \"iscrowd\": 2", "iscrowd is neither 0 nor 1", NULL },
        { "\"bbox\": [1, 1, 2, 2], \"iscrowd\": -1", "iscrowd is neither 0 nor 1", NULL },
        { "\"bbox\": [1, 1, 2, 2], \"iscrowd\": NaN", "iscrowd is neither 0 nor 1", NULL },
        { "\"bbox\": [1, 1, 2, 2], \"iscrowd\": true", NULL, NULL },
        { "\"bbox\": [1, 1, 2, 2], \"iscrowd\": null", NULL, NULL },
        { "\"bbox\": [1, 1, 2, 2], \"ignore\": 1", "ignore is true, and iscrowd is not 1: COCO's tools look at that alone", NULL },
        { "\"bbox\": [1, 1, 2, 2], \"ignore\": -0.5", "ignore is true", NULL },
        { "\"ignore\": true, \"bbox\": [1, 1, 2, 2], \"iscrowd\": 1", NULL, NULL },
        { "\"bbox\": [1, 1, 2, 2], \"ignore\": 0", NULL, NULL },
        { "\"bbox\": [1, 1, 2, 2], \"ignore\": false", NULL, NULL },
        { "\"bbox\": [1, 1, 2, 2], \"ignore\": null", NULL, NULL },
        { "\"bbox\": [1, 1, 2, 2], \"segmentation\": [[]]", NULL, "annotation 7 (line 1): segmentation: a polygon has fewer than three" },
        { "\"bbox\": [1, 1, 2, 2], \"segmentation\": [[1, 1]]", NULL, "a polygon has fewer than three points" },
        { "\"bbox\": [1, 1, 2, 2], \"segmentation\": [1, 1, 2, 1, 2, 2]", NULL, "a polygon is not a list inside the list" },
        { "\"bbox\": [1, 1, 2, 2], \"segmentation\": \"none\"", NULL, "segmentation is neither a list nor an object" },
        { "\"bbox\": [1, 1, 2, 2], \"segmentation\": NaN", NULL, "segmentation is neither a list nor an object" },
        { "\"bbox\": [1, 1, 2, 2], \"segmentation\": {\"size\": [9, 9], \"counts\": [81]}", NULL, "is not that of the image" },
    };
    static struct problems store;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_value(&rows[i], &store);
}

/* Nothing depends on an annotation's id: with any id the object is good. "%s" is the id of the first of two. */
static void odd_ids_of_annotations_cost_no_object(void **state)
{
    static const struct {
        const char *id, *doubt; /* NULL: no note */
        int64_t want;
    } rows[] = {
        { "\"id\": 0,", "annotation 0 (line 2): pycocotools counts a detection that matches an object of id 0 as unmatched", 0 },
        { "\"id\": 1,", "annotation id 1 is used more than once (line 3)", 1 },
        { "\"id\": -4,", NULL, -4 },
        { "\"id\": 3.0,", NULL, 3 },
        { "\"id\": \"12\",", "1 ids are integers written as text", 12 },
        { "\"id\": \"a7\",", "annotation in line 2: id is not an integer, or missing", 0 },
        { "\"id\": 3.5,", "annotation in line 2: id is not an integer, or missing", 0 },
        { "\"id\": null,", "annotation in line 2: id is not an integer, or missing", 0 },
        { "", "annotation in line 2: id is not an integer, or missing", 0 },
    };
    static const enum bad_policy all[] = { BAD_ERROR, BAD_SKIP };
    static struct problems store, *p = &store;
    struct dataset *d;
    char text[512];
    struct err err = { 0 };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text,
                 CATEGORIES "\"images\": [{\"id\": 0, \"file_name\": \"x\", \"width\": 9, \"height\": 9}], \"annotations\": [\n"
                            "{%s \"image_id\": 0, \"category_id\": 1, \"bbox\": [1, 1, 2, 2]},\n"
                            "{\"id\": 1, \"image_id\": 0, \"category_id\": 1, \"bbox\": [1, 1, 2, 2]}]}",
                 rows[i / 2].id);
        if (read_text(text, all[i % 2], p, &d, &err) != 0)
            fail_msg("%s", err.msg);
        assert_true(p->count == 0 && d->offset[1] == 2 && d->boxes[0].id == rows[i / 2].want);
        if (p->notes != (rows[i / 2].doubt != NULL) || (rows[i / 2].doubt && !strstr(p->note[0], rows[i / 2].doubt)))
            fail_msg("%s: '%s'", rows[i / 2].id, p->note[0]);
        dataset_free(d);
        assert_int_equal(read_text(text, BAD_KEEP, p, &d, &err), 0);
        dataset_free(d);
    }
}

/* Ids of images and categories join records, so each must be an integer of any sign, as number or as text. */
static void ids_of_images_and_categories_join(void **state)
{
    static const struct {
        const char *image, *image_id, *cls, *category_id, *want; /* want NULL: good */
        int64_t id, cls_id;
    } rows[] = {
        { "0", "0", "0", "0", NULL, 0, 0 },
        { "-3", "-3", "-9", "-9", NULL, -3, -9 },
        { "3.0", "3", "2", "2.0", NULL, 3, 2 },
        { "\"17\"", "\"17\"", "\"-2\"", "-2", NULL, 17, -2 },
        { "\"a\"", "\"a\"", "1", "1", "image in line 2: id is not an integer, or missing", 0, 0 },
        { "\"007\"", "\"007\"", "1", "1", "image in line 2: id is not an integer, or missing", 0, 0 },
        { "-1e999", "1", "1", "1", "image in line 2: id is not an integer, or missing", 0, 0 },
        { "1.5", "1.5", "1", "1", "image in line 2: id is not an integer, or missing", 0, 0 },
        { "null", "1", "1", "1", "image in line 2: id is not an integer, or missing", 0, 0 },
        { "1", "null", "1", "1", "annotation 5 (line 3): image_id is not an integer, or missing", 0, 0 },
        { "1", "\"\"", "1", "1", "annotation 5 (line 3): image_id is not an integer, or missing", 0, 0 },
        { "1", "1", "1", "\"cat\"", "annotation 5 (line 3): category_id is not an integer, or missing", 0, 0 },
        { "1", "1", "\"cat\"", "1", "the id of a category is not an integer", 0, 0 },
        { "1", "1", "NaN", "1", "the id of a category is not an integer", 0, 0 },
    };
    static struct problems store, *p = &store;
    struct dataset *d;
    char text[512];
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc;

        snprintf(text, sizeof text,
                 "{\"categories\": [{\"id\": %s, \"name\": \"x\"}], \"images\": [\n"
                 "{\"id\": %s, \"file_name\": \"x\", \"width\": 9, \"height\": 9}], \"annotations\": [\n"
                 "{\"id\": 5, \"image_id\": %s, \"category_id\": %s, \"bbox\": [1, 1, 2, 2]}]}",
                 rows[i].cls, rows[i].image, rows[i].image_id, rows[i].category_id);
        err = (struct err){ 0 };
        rc = read_text(text, BAD_ERROR, p, &d, &err);
        if (rc != (rows[i].want ? ERR_DATA : 0) || (rows[i].want && !strstr(err.msg, rows[i].want)))
            fail_msg("%zu: rc %d, '%s', wanted '%s'", i, rc, err.msg, rows[i].want ? rows[i].want : "none");
        if (rc < 0)
            continue;
        assert_true(d->offset[1] == 1 && d->images[0].id == rows[i].id && d->classes[0].id == rows[i].cls_id);
        assert_int_equal(p->notes, strchr(rows[i].image, '"') ? 1 : 0);
        dataset_free(d);
    }
}

/* Files merged from others repeat images: no annotation is lost. */
static void the_same_image_again_is_one_image(void **state)
{
#define IMAGE(file, w) "{\"id\": 4, \"file_name\": \"" file "\", \"width\": " w ", \"height\": 9}"
#define BOXES                                                                                        \
    "], \"annotations\": [{\"id\": 1, \"image_id\": 4, \"category_id\": 1, \"bbox\": [1, 1, 2, 2]}," \
    "{\"id\": 2, \"image_id\": 4, \"category_id\": 1, \"bbox\": [3, 3, 2, 2]}]}"
    static const char *const other[] = { CATEGORIES "\"images\": [" IMAGE("x", "9") ", " IMAGE("y", "9") BOXES,
                                         CATEGORIES "\"images\": [" IMAGE("x", "9") ", " IMAGE("x", "8") BOXES };
    static struct problems store, *p = &store;
    struct dataset *d;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(
        read_text(CATEGORIES "\"images\": [" IMAGE("x", "9") ", " IMAGE("x", "9") ", " IMAGE("x", "9") BOXES, BAD_ERROR, p, &d, &err), 0);
    assert_true(d->nimages == 1 && d->offset[1] == 2 && p->notes == 2);
    assert_non_null(strstr(p->note[0], "image 4 stands in \"images\" more than once, with the same file 'x'"));
    dataset_free(d);
    assert_int_equal(read_text(CATEGORIES "\"images\": [" IMAGE("x", "9") ", " IMAGE("x", "null") BOXES, BAD_ERROR, p, &d, &err), 0);
    assert_true(d->nimages == 1 && d->offset[1] == 2 && d->images[0].w == 9); /* one record may state no size */
    dataset_free(d);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        assert_int_equal(read_text(other[i], BAD_SKIP, p, &d, &err), ERR_DATA);
        assert_non_null(strstr(err.msg, "image id 4 is used twice ("));
    }
}

/* If the stated size is invalid, the size comes from the picture's file. */
static void a_size_that_cannot_be_is_the_file_s(void **state)
{
    static const struct {
        const char *image, *doubt; /* NULL: no note */
    } rows[] = {
        { "\"width\": 100", "only one of width and height is stated" },
        { "\"height\": 100", "only one of width and height is stated" },
        { "\"width\": 0, \"height\": 5", "width is not a positive integer" },
        { "\"width\": 0, \"height\": 0", "width is not a positive integer" },
        { "\"width\": null, \"height\": null", NULL },
        { "\"width\": null, \"height\": 5", "only one of width and height is stated" },
        { "\"width\": 5, \"height\": -5", "height is not a positive integer" },
        { "\"width\": 5, \"height\": 5.5", "height is not a positive integer" },
        { "\"width\": 1e999, \"height\": 5", "width is not a positive integer" },
        { "\"width\": 5, \"height\": NaN", "height is not a positive integer" },
        { "\"width\": \"5\", \"height\": 5", "width is not a positive integer" },
        { "\"width\": 4294967296, \"height\": 5", "width is not a positive integer" },
        { "\"height\": 9", "only one of width and height is stated" },
    };
    static struct problems store, *p = &store;
    static const uint8_t rgb[13 * 9 * 3];
    char path[TEMP_MAX], text[TEMP_MAX + 256];
    struct dataset *d;
    struct err err = { 0 };

    (void)state;
    close(mkstemp(temp_path(path, sizeof path, "detd-picture-XXXXXX")));
    assert_int_equal(image_write_png(path, rgb, 13, 9, &err), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, CATEGORIES "\"images\": [{\"id\": 4, \"file_name\": \"%s\", %s}], \"annotations\": []}",
                 strrchr(path, '/') + 1, rows[i].image);
        if (read_below(text, path, BAD_ERROR, p, &d, &err) != 0)
            fail_msg("%s", err.msg);
        assert_true(d->images[0].w == 13 && d->images[0].h == 9);
        if (p->notes != (rows[i].doubt != NULL) ||
            (rows[i].doubt && (!strstr(p->note[0], "image 4 (line 1): ") || !strstr(p->note[0], rows[i].doubt) ||
                               !strstr(p->note[0], ": 13 x 9 is the size of its file"))))
            fail_msg("%s: '%s'", rows[i].image, p->note[0]);
        dataset_free(d);
    }
    unlink(path);
    assert_int_equal(read_text(CATEGORIES "\"images\": [], \"annotations\": [], \"images\": []}", BAD_SKIP, p, &d, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "\"images\" stands here a second time"));
}

/* An unknown key is reported once if it may change a result: if it is misspelt, or if other tools obey it. Other
 * unknown keys are ignored. */
static void keys_that_are_not_read_are_told(void **state)
{
    static const struct {
        const char *image, *annotation, *cls, *doubt; /* members; doubt NULL: no note */
    } rows[] = {
        { "", "\"bboxs\": [1, 1, 2, 2], ", "",
          "annotations: key \"bboxs\" is not read (2 times, first in line 4); did you mean \"bbox\"?" },
        { "", "\"catagory_id\": 3, ", "",
          "annotations: key \"catagory_id\" is not read (2 times, first in line 4); did you mean \"category_id\"?" },
        { "", "\"categoryId\": 3, ", "", "did you mean \"category_id\"?" },
        { "", "\"isCrowd\": 1, ", "", "did you mean \"iscrowd\"?" },
        { "", "\"is_crowd\": 1, ", "", "did you mean \"iscrowd\"?" },
        { "", "\"segmentations\": [], ", "", "did you mean \"segmentation\"?" },
        { "", "\"bbox_mode\": 0, ", "",
          "annotations: key \"bbox_mode\" is not read (2 times, first in line 4): each bbox is read as x, y," },
        { "\"fileName\": \"y\", ", "", "", "images: key \"fileName\" is not read (1 times, first in line 2); did you mean \"file_name\"?" },
        { "\"heigth\": 5, ", "", "", "did you mean \"height\"?" },
        { "\"neg_category_ids\": [3], ", "", "", "images: key \"neg_category_ids\" is not read (1 times, first in line 2): LVIS scores" },
        { "\"not_exhaustive_category_ids\": [3], ", "", "", "LVIS forgives detections of these categories" },
        { "", "", "\"Name\": \"z\", ", "categories: key \"Name\" is not read (1 times, first in line 1); did you mean \"name\"?" },
        { "\"license\": 1, \"coco_url\": \"\", \"tags\": [], ", "\"score\": 1, \"attributes\": {\"bboxs\": 1}, \"keypoints\": [], ",
          "\"supercategory\": \"\", \"color\": 1, ", NULL },
    };
    static struct problems store, *p = &store;
    struct dataset *d;
    char text[1024];
    struct err err = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text,
                 "{\"info\": {}, \"categories\": [{%s\"id\": 1, \"name\": \"x\"}], \"images\": [\n"
                 "{%s\"id\": 4, \"file_name\": \"x\", \"width\": 9, \"height\": 9}], \"annotations\": [\n\n"
                 "{%s\"id\": 5, \"image_id\": 4, \"category_id\": 1, \"bbox\": [1, 1, 2, 2]},\n"
                 "{%s\"id\": 6, \"image_id\": 4, \"category_id\": 1, \"bbox\": [1, 1, 2, 2]}]}",
                 rows[i].cls, rows[i].image, rows[i].annotation, rows[i].annotation);
        if (read_text(text, BAD_ERROR, p, &d, &err) != 0)
            fail_msg("%s", err.msg);
        if (p->notes != (rows[i].doubt != NULL) || (rows[i].doubt && !strstr(p->note[0], rows[i].doubt)))
            fail_msg("%zu: %d notes, '%s', wanted '%s'", i, (int)p->notes, p->note[0], rows[i].doubt ? rows[i].doubt : "none");
        dataset_free(d);
    }
    assert_int_equal(read_text(CATEGORIES "\"images\": [], \"annotation\": []}", BAD_ERROR, p, &d, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "there is no \"annotations\"; is it \"annotation\"?"));
    assert_int_equal(
        read_text(CATEGORIES "\"annotations\": [], \"images\": [{\"id\": 1, \"coco_url\": \"http://h/1.jpg\"}]}", BAD_ERROR, p, &d, &err),
        ERR_DATA);
    assert_non_null(strstr(err.msg, "image 1 (line 1): file_name is missing: make it the end of coco_url"));
}

/* Fresh memory holds the id of the only image, so a further image would have this id too. A sanitizer has its own
 * memory, and reports a read behind a full array. */
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
    mallopt(M_PERTURB, 0xEE); /* malloc() fills its blocks with the complement */
    rc = read_text(text, BAD_ERROR, p, &d, &err);
    mallopt(M_PERTURB, 0);
    if (rc < 0)
        fail_msg("%s", err.msg);
    dataset_free(d);
    for (int n = 63; n <= 65; n++) { /* 64: the first piece of memory has room for so many */
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

/* The area of the box as written, as in the reference evaluator. */
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
        cmocka_unit_test(absolute_names),
        cmocka_unit_test(impossible_values_are_told),
        cmocka_unit_test(odd_ids_of_annotations_cost_no_object),
        cmocka_unit_test(ids_of_images_and_categories_join),
        cmocka_unit_test(the_same_image_again_is_one_image),
        cmocka_unit_test(a_size_that_cannot_be_is_the_file_s),
        cmocka_unit_test(keys_that_are_not_read_are_told),
        cmocka_unit_test(nothing_behind_the_last_image_is_read),
        cmocka_unit_test(problems_are_counted_and_the_first_told),
        cmocka_unit_test(names_stay_below_the_folder),
        cmocka_unit_test(boxes_are_clipped_to_the_last_pixel),
        cmocka_unit_test(area_is_the_file_s_or_the_box_s),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

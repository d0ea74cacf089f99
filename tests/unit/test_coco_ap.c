/* COCO average precision against the numbers of the reference implementation (../shared/data/coco_eval).
 * uses: proto worker/eval worker/core */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/harness.h"
#include "tests/unit/eval_scores.h"
#include "worker/eval/coco_eval.h"

#define DATA "../shared/data/"

enum { MAX_ROWS = 20000, MAX_IDS = 2000 };

struct ids {
    json_int_t id[MAX_IDS];
    int n;
};

struct set {
    struct ids images, classes;
    struct truth truths[MAX_ROWS];
    struct detection dets[MAX_ROWS];
    size_t ntruths, ndets;
};

static json_t *load(const char *name)
{
    char path[512];

    snprintf(path, sizeof path, DATA "%s", name);
    return json_load_file(path, 0, NULL);
}

static int compare_ids(const void *a, const void *b)
{
    json_int_t p = *(const json_int_t *)a, q = *(const json_int_t *)b;

    return (p > q) - (p < q);
}

static void read_ids(struct ids *ids, const json_t *list)
{
    size_t i;
    json_t *entry;

    ids->n = (int)json_array_size(list);
    assert_true(ids->n <= MAX_IDS);
    json_array_foreach (list, i, entry) {
        ids->id[i] = json_integer_value(json_object_get(entry, "id"));
    }
    qsort(ids->id, (size_t)ids->n, sizeof *ids->id, compare_ids);
}

static int32_t find_id(const struct ids *ids, const json_t *value)
{
    json_int_t id = json_integer_value(value);
    const json_int_t *at = bsearch(&id, ids->id, (size_t)ids->n, sizeof *ids->id, compare_ids);

    assert_non_null(at);
    return (int32_t)(at - ids->id);
}

static void read_box(double box[4], const json_t *list)
{
    for (size_t i = 0; i < 4; i++)
        box[i] = json_number_value(json_array_get(list, i));
}

static void read_truths(struct set *s, const json_t *gt)
{
    size_t i;
    json_t *a;

    read_ids(&s->images, json_object_get(gt, "images"));
    read_ids(&s->classes, json_object_get(gt, "categories"));
    s->ntruths = json_array_size(json_object_get(gt, "annotations"));
    assert_true(s->ntruths <= MAX_ROWS);
    json_array_foreach (json_object_get(gt, "annotations"), i, a) {
        s->truths[i] = (struct truth){ .image = find_id(&s->images, json_object_get(a, "image_id")),
                                       .cls = find_id(&s->classes, json_object_get(a, "category_id")),
                                       .crowd = json_integer_value(json_object_get(a, "iscrowd")) != 0,
                                       .area = json_number_value(json_object_get(a, "area")) };
        read_box(s->truths[i].box, json_object_get(a, "bbox"));
    }
}

/* Written last row first: the order in which detections arrive must not show. */
static void read_dets(struct set *s, const json_t *list)
{
    size_t i;
    json_t *d;

    s->ndets = json_array_size(list);
    assert_true(s->ndets <= MAX_ROWS);
    json_array_foreach (list, i, d) {
        struct detection *to = &s->dets[s->ndets - 1 - i];

        *to = (struct detection){ .image = find_id(&s->images, json_object_get(d, "image_id")),
                                  .cls = find_id(&s->classes, json_object_get(d, "category_id")),
                                  .slot = (int32_t)i,
                                  .score = json_number_value(json_object_get(d, "score")) };
        read_box(to->box, json_object_get(d, "bbox"));
    }
}

static void near(const char *name, const char *what, double got, const json_t *want)
{
    if (fabs(got - json_number_value(want)) > 1e-6)
        fail_msg("%s: %s is %.10f, expected %.10f", name, what, got, json_number_value(want));
}

static void compare(const struct set *s, const struct coco_ap *ap, const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    size_t i;
    json_t *entry;

    for (i = 0; i < COCO_STATS; i++)
        near(name, coco_stat_name[i], ap->stat[i], json_array_get(json_object_get(c, "stats"), i));
    for (int t = 0; t < COCO_THRESHOLDS; t++) {
        char key[8];

        snprintf(key, sizeof key, "0.%02d", 50 + 5 * t);
        assert_non_null(json_object_get(json_object_get(c, "ap_at_iou"), key));
        near(name, key, ap->at_iou[t], json_object_get(json_object_get(c, "ap_at_iou"), key));
    }
    json_array_foreach (json_object_get(c, "per_category"), i, entry) {
        int32_t cls = find_id(&s->classes, json_object_get(entry, "category_id"));

        near(name, "AP of a class", ap->class_ap[cls], json_object_get(entry, "AP"));
        near(name, "AP50 of a class", ap->class_ap50[cls], json_object_get(entry, "AP50"));
        near(name, "AR100 of a class", ap->class_ar100[cls], json_object_get(entry, "AR100"));
    }
}

/* Detections that are masks need their decoder. */
static bool has_boxes(const json_t *c, const json_t *dets)
{
    return strcmp(json_string_value(json_object_get(c, "iou_type")), "bbox") == 0 && json_object_get(json_array_get(dets, 0), "bbox");
}

static bool run_case(struct set *s, const json_t *c)
{
    json_t *gt = load(json_string_value(json_object_get(c, "gt"))), *dets = load(json_string_value(json_object_get(c, "detections")));
    bool scored = has_boxes(c, dets);
    struct coco_ap ap;

    if (scored) {
        read_truths(s, gt);
        read_dets(s, dets);
        ap = coco_scores(s->dets, s->ndets, s->truths, s->ntruths, s->classes.n);
        compare(s, &ap, c);
        coco_ap_free(&ap);
    } else {
        print_message("not run, needs masks: %s\n", json_string_value(json_object_get(c, "name")));
    }
    json_decref(gt);
    json_decref(dets);
    return scored;
}

static void agrees_with_the_reference(void **state)
{
    json_t *cases = load("coco_eval/cases.json"), *c;
    struct set *s = calloc(1, sizeof *s);
    int scored = 0;
    size_t i;

    (void)state;
    assert_non_null(s);
    if (!cases) {
        free(s);
        SKIP("no " DATA "coco_eval");
    }
    json_array_foreach (json_object_get(cases, "cases"), i, c) {
        scored += run_case(s, c);
    }
    assert_int_equal(scored, 8);
    json_decref(cases);
    free(s);
}

static void nothing_to_find_is_minus_one(void **state)
{
    struct detection d = { .score = .5, .box = { 0, 0, 10, 10 } };
    struct coco_ap ap;

    (void)state;
    ap = coco_scores(&d, 1, NULL, 0, 2);
    for (int i = 0; i < COCO_STATS; i++)
        assert_true(ap.stat[i] == -1);
    assert_true(ap.class_ap[1] == -1);
    coco_ap_free(&ap);
}

static void nothing_found_is_zero(void **state)
{
    struct truth t = { .area = 100, .box = { 0, 0, 10, 10 } };
    struct coco_ap ap;

    (void)state;
    ap = coco_scores(NULL, 0, &t, 1, 1);
    assert_true(ap.stat[COCO_AP] == 0);
    assert_true(ap.stat[COCO_AP_SMALL] == 0);
    assert_true(ap.stat[COCO_AP_LARGE] == -1);
    coco_ap_free(&ap);
}

/* What counts of one image and class are its 100 best. */
static void the_101st_detection_does_not_count(void **state)
{
    struct truth t = { .area = 100, .box = { 0, 0, 10, 10 } };
    struct detection d[101];
    struct coco_ap ap;

    (void)state;
    for (int i = 0; i < 101; i++)
        d[i] = (struct detection){ .slot = i, .score = 1 - i / 200.0, .box = { 50, 50, 10, 10 } };
    memcpy(d[100].box, t.box, sizeof t.box);
    ap = coco_scores(d, 101, &t, 1, 1);
    assert_true(ap.stat[COCO_AP] == 0 && ap.stat[COCO_AR100] == 0);
    coco_ap_free(&ap);
    ap = coco_scores(d + 1, 100, &t, 1, 1);
    assert_float_equal(ap.stat[COCO_AP], .01, 1e-12);
    assert_true(ap.stat[COCO_AR100] == 1 && ap.stat[COCO_AR10] == 0);
    coco_ap_free(&ap);
}

static void an_overlap_of_exactly_the_threshold_counts(void **state)
{
    struct truth t = { .area = 100, .box = { 0, 0, 10, 10 } };
    struct detection d = { .score = .5, .box = { 0, 0, 10, 5 } };
    struct coco_ap ap;

    (void)state;
    ap = coco_scores(&d, 1, &t, 1, 1);
    assert_float_equal(ap.at_iou[0], 1, 1e-9);
    assert_true(ap.at_iou[1] == 0);
    coco_ap_free(&ap);
    for (int k = 0; k < COCO_THRESHOLDS; k++) { /* the reference's thresholds, in its own arithmetic */
        memcpy(d.box, (double[]){ 0, 0, 20, 10 + k }, sizeof d.box);
        memcpy(t.box, (double[]){ 0, 0, 20, 20 }, sizeof t.box);
        ap = coco_scores(&d, 1, &t, 1, 1);
        assert_float_equal(ap.at_iou[k], 1, 1e-9);
        assert_true(k + 1 == COCO_THRESHOLDS || ap.at_iou[k + 1] == 0);
        coco_ap_free(&ap);
    }
    memcpy(t.box, (double[]){ 0, 0, 10, 10 }, sizeof t.box);
    memcpy(d.box, (double[]){ 0, 0, 10, 5 }, sizeof d.box);
    d.box[3] = 4.9999999;
    ap = coco_scores(&d, 1, &t, 1, 1);
    assert_true(ap.at_iou[0] == 0);
    coco_ap_free(&ap);
}

static void check_truths(const struct truth *t, const char *said)
{
    const struct eval_split split = { .nimages = 1, .nclasses = 3, .truths = t, .ntruths = 1 };
    struct evaluator *e;
    struct err err;

    assert_int_equal(coco_boxes.open(&split, &e, &err), ERR_INPUT);
    assert_string_equal(err.msg, said);
}

static void check_dets(const struct detection *d, const char *said)
{
    const struct eval_split split = { .nimages = 1, .nclasses = 3 };
    const struct result r = { .kind = RESULT_BOXES, .n = 2, .boxes = d };
    struct evaluator *e;
    struct err err;

    assert_int_equal(coco_boxes.open(&split, &e, &err), 0);
    assert_int_equal(coco_boxes.add(e, &r, &err), ERR_INPUT);
    assert_string_equal(err.msg, said);
    coco_boxes.close(e);
}

static void bad_records_are_named(void **state)
{
    struct detection d[2] = { { .score = .5 }, { .score = .5, .cls = 3 } };
    struct truth t = { .box = { 0, 0, NAN, 1 } };

    (void)state;
    check_dets(d, "detection 1: class 3 of 3");
    d[1].cls = 0;
    d[1].score = NAN;
    check_dets(d, "detection 1: a number is not finite");
    check_truths(&t, "truth 0: a number is not finite");
    t.image = -1;
    check_truths(&t, "truth 0: image -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_reference),
        cmocka_unit_test(nothing_to_find_is_minus_one),
        cmocka_unit_test(nothing_found_is_zero),
        cmocka_unit_test(the_101st_detection_does_not_count),
        cmocka_unit_test(an_overlap_of_exactly_the_threshold_counts),
        cmocka_unit_test(bad_records_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

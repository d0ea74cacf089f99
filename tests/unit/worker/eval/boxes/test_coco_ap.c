/* SPDX-License-Identifier: Apache-2.0 */ /* COCO average precision against the numbers of the reference implementation
 * (../shared/data/coco_eval). uses: proto worker/eval worker/mask worker/core */
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
#include "tests/stand/harness.h"
#include "tests/unit/worker/eval/boxes/eval_scores.h"
#include "tests/unit/worker/mask/rle_pairs.h"
#include "worker/eval/boxes/coco_eval.h"
#include "worker/eval/boxes/coco_masks.h"
#include "worker/mask/rle.h"

#define DATA "../shared/data/"

enum { MAX_ROWS = 20000, MAX_IDS = 2000 };

struct ids {
    json_int_t id[MAX_IDS];
    int n;
};

struct set {
    struct ids images, classes;
    struct {
        int w, h;
    } size[MAX_IDS]; /* of images */
    struct truth truths[MAX_ROWS];
    struct detection dets[MAX_ROWS];
    struct rle truth_mask[MAX_ROWS], det_mask[MAX_ROWS];
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

static void read_sizes(struct set *s, const json_t *images)
{
    size_t i;
    json_t *im;

    json_array_foreach (images, i, im) {
        int32_t at = find_id(&s->images, json_object_get(im, "id"));

        s->size[at].w = (int)json_integer_value(json_object_get(im, "width"));
        s->size[at].h = (int)json_integer_value(json_object_get(im, "height"));
    }
}

/* ---- masks: polygons, run lengths as numbers or as text; the box if there is no mask ---- */

static void read_polygons(struct rle *m, int h, int w, const json_t *list)
{
    size_t parts = json_array_size(list), i, k;
    int64_t *first = calloc(parts + 1, sizeof *first);
    json_t *p, *v;
    double(*xy)[2];
    struct err err;

    json_array_foreach (list, i, p) {
        first[i + 1] = first[i] + (int64_t)json_array_size(p) / 2;
    }
    xy = calloc((size_t)first[parts] + 1, sizeof *xy);
    json_array_foreach (list, i, p) {
        json_array_foreach (p, k, v) {
            xy[(size_t)first[i] + k / 2][k % 2] = json_number_value(v);
        }
    }
    assert_int_equal(rle_from_polygons(m, h, w, xy, first, (int)parts, &err), 0);
    free(xy);
    free(first);
}

static void read_runs(struct rle *m, int h, int w, const json_t *counts)
{
    struct err err;
    size_t i;
    json_t *run;

    if (json_is_string(counts)) {
        assert_int_equal(rle_from_text(m, h, w, json_string_value(counts), json_string_length(counts), &err), 0);
        return;
    }
    assert_int_equal(rle_begin(m, h, w, &err), 0);
    json_array_foreach (counts, i, run) {
        assert_int_equal(rle_add(m, json_integer_value(run), &err), 0);
    }
    assert_int_equal(rle_end(m, &err), 0);
}

static void read_mask(const struct set *s, int32_t image, const json_t *record, struct rle *m)
{
    const json_t *segm = json_object_get(record, "segmentation"), *bbox = json_object_get(record, "bbox");
    int w = s->size[image].w, h = s->size[image].h;
    double box[4];
    struct err err;

    if (json_is_object(segm)) {
        read_runs(m, h, w, json_object_get(segm, "counts"));
    } else if (json_array_size(segm) > 0) {
        read_polygons(m, h, w, segm);
    } else {
        read_box(box, bbox);
        assert_int_equal(rle_from_box(m, h, w, box, &err), 0);
    }
}

static void read_truths(struct set *s, const json_t *gt)
{
    size_t i;
    json_t *a;

    read_ids(&s->images, json_object_get(gt, "images"));
    read_ids(&s->classes, json_object_get(gt, "categories"));
    read_sizes(s, json_object_get(gt, "images"));
    s->ntruths = json_array_size(json_object_get(gt, "annotations"));
    assert_true(s->ntruths <= MAX_ROWS);
    json_array_foreach (json_object_get(gt, "annotations"), i, a) {
        s->truths[i] = (struct truth){ .image = find_id(&s->images, json_object_get(a, "image_id")),
                                       .cls = find_id(&s->classes, json_object_get(a, "category_id")),
                                       .crowd = json_integer_value(json_object_get(a, "iscrowd")) != 0,
                                       .area = json_number_value(json_object_get(a, "area")) };
        read_box(s->truths[i].box, json_object_get(a, "bbox"));
        read_mask(s, s->truths[i].image, a, &s->truth_mask[i]);
    }
}

/* Written last row first: the order of the detections must not matter. */
static void read_dets(struct set *s, const json_t *list)
{
    size_t i;
    json_t *d;

    s->ndets = json_array_size(list);
    assert_true(s->ndets <= MAX_ROWS);
    json_array_foreach (list, i, d) {
        struct detection *to = &s->dets[s->ndets - 1 - i];
        struct rle *mask = &s->det_mask[s->ndets - 1 - i];
        int tight[4];

        *to = (struct detection){ .image = find_id(&s->images, json_object_get(d, "image_id")),
                                  .cls = find_id(&s->classes, json_object_get(d, "category_id")),
                                  .slot = (int32_t)i,
                                  .score = json_number_value(json_object_get(d, "score")) };
        read_mask(s, to->image, d, mask);
        rle_bounds(mask, tight);
        if (json_object_get(d, "bbox"))
            read_box(to->box, json_object_get(d, "bbox"));
        else /* as the reference does */
            for (int k = 0; k < 4; k++)
                to->box[k] = tight[k];
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
        near(name, "AR100 of a class", ap->class_ar[cls], json_object_get(entry, "AR100"));
    }
}

/* ---- scores of masks ---- */

static int copy_mask(void *of, size_t k, struct rle *ret, struct err *err)
{
    const struct rle *from = &((const struct set *)of)->truth_mask[k];
    int rc = rle_begin(ret, from->h, from->w, err);

    for (size_t i = 0; i < from->n && rc >= 0; i++)
        rc = rle_add(ret, from->run[i], err);
    return rc;
}

/* The crop that a model would have given: a little more than the mask's bounds. The caller frees the bits. */
static struct result_mask crop_of(const struct rle *m)
{
    struct result_mask crop = { 0 };
    uint8_t *bits;
    int box[4];

    rle_bounds(m, box);
    crop.x = box[0] > 3 ? box[0] - 3 : box[0];
    crop.y = box[1] > 2 ? box[1] - 2 : box[1];
    crop.w = box[0] + box[2] - crop.x;
    crop.h = box[1] + box[3] - crop.y;
    bits = calloc((size_t)crop.h + 1, (size_t)(crop.w + 7) / 8 + 1);
    assert_non_null(bits);
    rle_to_crop(m, crop.x, crop.y, crop.w, crop.h, bits);
    crop.bits = bits;
    return crop;
}

/* The detections of a picture, and where they stand in the set. */
struct picture {
    const struct set *s;
    struct detection *dets;
    size_t *from;
};

static double area_of_mask(void *of, size_t det)
{
    const struct picture *p = of;

    return (double)rle_area(&p->s->det_mask[p->from[det]]);
}

static double overlap_of_boxes(void *of, size_t det, size_t truth)
{
    const struct picture *p = of;

    return box_overlap(p->dets[det].box, p->s->truths[truth].box, p->s->truths[truth].crowd);
}

/* Without masks: boxes that stand for masks; the reference counts their area. */
static void match_picture(const struct set *s, struct coco_masks *masks, struct coco_matcher *matcher, int32_t image)
{
    size_t *from = calloc(s->ndets + 1, sizeof *from);
    struct detection *dets = calloc(s->ndets + 1, sizeof *dets);
    struct result_mask *crops = calloc(s->ndets + 1, sizeof *crops);
    struct result r = { .kind = RESULT_MASKS, .image = image, .boxes = dets, .masks = crops };
    const struct truth *const *truths;
    struct picture picture = { s, dets, from };
    struct coco_measure by = { &picture, area_of_mask, overlap_of_boxes };
    size_t ntruths;
    struct err err;

    for (size_t i = 0; i < s->ndets; i++)
        if (s->dets[i].image == image) {
            dets[r.n] = s->dets[i];
            from[r.n] = i;
            crops[r.n++] = crop_of(&s->det_mask[i]);
        }
    truths = coco_truths_of(matcher, image, &ntruths);
    if (masks)
        assert_int_equal(coco_masks_begin(masks, &r, truths, ntruths, &by, &err), 0);
    assert_int_equal(coco_match(matcher, dets, (size_t)r.n, &by, &err), 0);
    for (int i = 0; i < r.n; i++)
        free((void *)crops[i].bits);
    free(crops);
    free(dets);
    free(from);
}

static struct coco_ap mask_scores(struct set *s, int counted, bool boxes)
{
    const struct eval_masks masks = { s, copy_mask };
    const struct eval_split split = { .nclasses = s->classes.n, .truths = s->truths, .ntruths = s->ntruths, .masks = &masks };
    struct coco_verdict *verdicts;
    struct coco_matcher *matcher;
    struct coco_masks *m;
    struct coco_ap ap;
    struct err err;
    size_t n;

    assert_int_equal(coco_matcher_open(s->truths, s->ntruths, counted, &matcher, &err), 0);
    assert_int_equal(coco_masks_open(&split, &m, &err), 0);
    for (int32_t i = s->images.n; i-- > 0;)
        match_picture(s, boxes ? NULL : m, matcher, i);
    coco_verdicts(matcher, &n);
    verdicts = calloc(n + 1, sizeof *verdicts);
    memcpy(verdicts, coco_verdicts(matcher, &n), n * sizeof *verdicts);
    assert_int_equal(coco_ap_score(verdicts, n, s->truths, s->ntruths, s->classes.n, &ap, &err), 0);
    coco_masks_close(m);
    coco_matcher_close(matcher);
    free(verdicts);
    return ap;
}

/* It stands in the case, or in a file that the case names. */
static json_t *part_of(const json_t *c, const char *key)
{
    json_t *part = json_object_get(c, key);

    return json_is_string(part) ? load(json_string_value(part)) : json_incref(part);
}

static void run_case(struct set *s, const json_t *c)
{
    const json_t *number = json_object_get(c, "counted");
    json_t *gt = part_of(c, "gt"), *dets = part_of(c, "detections");
    int counted = number ? (int)json_integer_value(number) : COCO_COUNTED;
    struct coco_ap ap;

    read_truths(s, gt);
    read_dets(s, dets);
    if (strcmp(json_string_value(json_object_get(c, "iou_type")), "segm") == 0)
        ap = mask_scores(s, counted, false);
    else if (!json_object_get(json_array_get(dets, 0), "bbox"))
        ap = mask_scores(s, counted, true);
    else
        ap = coco_scores_of(s->dets, s->ndets, s->truths, s->ntruths, s->classes.n, counted);
    compare(s, &ap, c);
    coco_ap_free(&ap);
    json_decref(gt);
    json_decref(dets);
}

/* Runs the cases. Members common to all cases may be stated once. Returns the number of cases. */
static int run_cases(json_t *cases)
{
    struct set *s = calloc(1, sizeof *s);
    int scored = 0;
    size_t i;
    json_t *c;

    assert_non_null(s);
    json_array_foreach (json_object_get(cases, "cases"), i, c) {
        json_object_update(c, json_object_get(cases, "same"));
        run_case(s, c);
        scored++;
    }
    json_decref(cases);
    for (i = 0; i < MAX_ROWS; i++) {
        rle_free(&s->truth_mask[i]);
        rle_free(&s->det_mask[i]);
    }
    free(s);
    return scored;
}

static void agrees_with_the_reference(void **state)
{
    json_t *cases = load("coco_eval/cases.json");

    (void)state;
    if (!cases)
        SKIP("no " DATA "coco_eval");
    assert_int_equal(run_cases(cases), 14);
}

/* tests/golden/make_segm_ap.py */
static void agrees_with_the_reference_on_odd_masks(void **state)
{
    json_t *cases = json_load_file("tests/golden/segm_ap.json", 0, NULL);

    (void)state;
    assert_non_null(cases);
    assert_int_equal(run_cases(cases), 3);
}

/* tests/golden/make_max_dets.py: 170 objects in a picture. */
static void agrees_with_the_reference_where_more_count(void **state)
{
    json_t *cases = json_load_file("tests/golden/max_dets_ap.json", 0, NULL);

    (void)state;
    assert_non_null(cases);
    assert_int_equal(run_cases(cases), 4);
}

/* specs rcnn, section 13.5: a crowd that takes a detection, two of one score, areas of each range. Numbers there have
 * six places. */
static void the_example_of_the_specs(void **state)
{
    static const struct truth truths[] = { { .image = 0, .cls = 0, .area = 2500, .box = { 10, 10, 50, 50 } },
                                           { .image = 0, .cls = 0, .area = 400, .box = { 100, 100, 20, 20 } },
                                           { .image = 0, .cls = 0, .area = 3600, .crowd = true, .box = { 120, 10, 60, 60 } },
                                           { .image = 1, .cls = 0, .area = 14400, .box = { 0, 0, 120, 120 } },
                                           { .image = 1, .cls = 1, .area = 1600, .box = { 30, 30, 40, 40 } } };
    static const struct detection dets[] = { { 0, 0, 0, .9, { 12, 12, 50, 50 } },  { 0, 0, 1, .8, { 125, 15, 20, 20 } },
                                             { 0, 0, 2, .7, { 60, 120, 30, 30 } }, { 0, 0, 3, .6, { 101, 101, 20, 20 } },
                                             { 1, 0, 4, .5, { 0, 0, 110, 120 } },  { 1, 0, 5, .5, { 0, 0, 118, 118 } },
                                             { 1, 1, 6, .95, { 30, 30, 40, 36 } } };
    static const double stats[COCO_STATS] = { 0.774530, 0.917079, 0.917079, 0.350000, 0.850000, 0.950000,
                                              0.733333, 0.866667, 0.866667, 0.700000, 0.850000, 1.000000 };
    struct coco_ap ap = coco_scores(dets, sizeof dets / sizeof *dets, truths, sizeof truths / sizeof *truths, 2);

    (void)state;
    for (int i = 0; i < COCO_STATS; i++)
        if (fabs(ap.stat[i] - stats[i]) > 5.1e-7)
            fail_msg("%s is %.10f, expected %.6f", coco_stat_name[i], ap.stat[i], stats[i]);
    assert_true(fabs(ap.class_ap50[0] - 0.834158) < 5.1e-7 && fabs(ap.class_ap50[1] - 1) < 5.1e-7);
    coco_ap_free(&ap);
}

/* Four objects; hits at .9 and .6, misses at .8 and, of one score with a hit, at .5: F1 is 2 / 5 from .9 on, 1 / 3, 4 /
 * 7 from .6 on, 2 / 3 from .5 on. */
static void the_best_score_to_begin_at(void **state)
{
    static const struct {
        double score;
        int truth; /* index of the object; -1: no object */
    } found[] = { { 0.5, -1 }, { 0.9, 0 }, { 0.8, -1 }, { 0.5, 2 }, { 0.6, 1 }, { 0.1, -1 } };
    struct truth truths[5] = { 0 };
    struct detection dets[7] = { 0 };
    struct coco_ap ap;

    (void)state;
    for (int k = 0; k < 5; k++)
        truths[k] = (struct truth){ 0, k == 4, false, false, 100, { 20. * k, 0, 10, 10 } };
    for (int k = 0; k < 6; k++) {
        double x = found[k].truth < 0 ? 500 + 20 * k : 20 * found[k].truth;

        dets[k] = (struct detection){ .image = 0, .cls = 0, .score = found[k].score, .box = { x, 0, 10, 10 } };
    }
    dets[6] = (struct detection){ .image = 0, .cls = 1, .score = 0.7, .box = { 700, 0, 10, 10 } };
    ap = coco_scores(dets, 7, truths, 5, 3);
    assert_true(ap.class_best[0].conf == 0.5);
    assert_float_equal(ap.class_best[0].precision, 3. / 5, 1e-12);
    assert_float_equal(ap.class_best[0].recall, 3. / 4, 1e-12);
    assert_int_equal(ap.class_best[0].truths, 4);
    assert_true(ap.class_best[1].conf == -1 && ap.class_best[1].precision == -1 && ap.class_best[1].recall == 0);
    assert_true(ap.class_best[1].truths == 1); /* all detections of this class were wrong */
    assert_true(ap.class_best[2].recall == -1 && ap.class_best[2].truths == 0);
    coco_ap_free(&ap);
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

/* Only the 100 best detections of an image and class count. */
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
    assert_true(ap.stat[COCO_AP] == 0 && ap.stat[COCO_AR_ALL] == 0);
    coco_ap_free(&ap);
    ap = coco_scores(d + 1, 100, &t, 1, 1);
    assert_float_equal(ap.stat[COCO_AP], .01, 1e-12);
    assert_true(ap.stat[COCO_AR_ALL] == 1 && ap.stat[COCO_AR10] == 0);
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
    for (int i = 0; i < 4; i++) {
        d[1] = (struct detection){ .score = .5 };
        t = (struct truth){ .area = 1 };
        d[1].box[i] = t.box[i] = i % 2 ? NAN : -INFINITY;
        check_dets(d, "detection 1: a number is not finite");
        check_truths(&t, "truth 0: a number is not finite");
    }
    t = (struct truth){ .area = INFINITY };
    check_truths(&t, "truth 0: a number is not finite");
    t.image = -1;
    check_truths(&t, "truth 0: image -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_reference),
        cmocka_unit_test(agrees_with_the_reference_on_odd_masks),
        cmocka_unit_test(agrees_with_the_reference_where_more_count),
        cmocka_unit_test(the_example_of_the_specs),
        cmocka_unit_test(the_best_score_to_begin_at),
        cmocka_unit_test(nothing_to_find_is_minus_one),
        cmocka_unit_test(nothing_found_is_zero),
        cmocka_unit_test(the_101st_detection_does_not_count),
        cmocka_unit_test(an_overlap_of_exactly_the_threshold_counts),
        cmocka_unit_test(bad_records_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

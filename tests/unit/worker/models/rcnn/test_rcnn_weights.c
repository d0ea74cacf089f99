/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/rcnn/test_rcnn_weights.c - weights of Faster and
 * Mask R-CNN from files of torchvision and detectron2, and into them.
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu */
#include "tests/unit/worker/models/rcnn/rcnn_files.h"

/* There and back: each flavor's file, in either's names, gives the same numbers again; of d2 the background's boxes do
 * not exist. */
static void both_ways(void **state)
{
    static const char *const preset[] = { "faster_rcnn_r50_fpn", "mask_rcnn_r18_fpn" };

    (void)state;
    for (int p = 0; p < 2; p++)
        for (int dialect = 0; dialect < 2; dialect++) {
            struct model *m = opened(preset[p], "d2", NULL, CLASSES), *again;

            again = opened(preset[p], "d2", file_of(m, dialect, NULL), CLASSES);
            same_weights(m, again, false);
            assert_non_null(strstr(again->loaded, dialect == 0 ? "torchvision's names" : "detectron2's names"));
            assert_null(strstr(again->loaded, "not in the file"));
            assert_null(strstr(again->loaded, "without a place"));
            model_free(m);
            model_free(again);
        }
}

static float number(struct model *m, const struct net_conv *c, bool bias, int row)
{
    struct param *p = bias ? c->bias : c->w;
    struct err err;
    float *w = weights_get(m, p, &err), x = w[(size_t)row * (bias ? 1 : (size_t)p->c)];

    free(w);
    return x;
}

/* Torchvision has the background as first class, also for boxes and masks. Detectron2 has it last, and has no boxes and
 * masks for it. */
static void columns_change_places(void **state)
{
    struct model *tv = opened("mask_rcnn_r18_fpn", "tv", NULL, CLASSES), *d2;
    const struct rcnn_network *a = rcnn_network_of(tv), *b;

    (void)state;
    backbone = "torchvision";
    d2 = opened("mask_rcnn_r18_fpn", "d2", file_of(tv, 0, NULL), CLASSES);
    assert_non_null(strstr(d2->loaded, "; its model.flavor is tv, the job's is d2"));
    b = rcnn_network_of(d2);
    for (int bias = 0; bias < 2; bias++)
        for (int k = 0; k < CLASSES; k++) {
            assert_true(number(tv, &a->cls, bias, k + 1) == number(d2, &b->cls, bias, k));
            assert_true(number(tv, &a->predictor, bias, k + 1) == number(d2, &b->predictor, bias, k));
            for (int i = 0; i < 4; i++)
                assert_true(number(tv, &a->box, bias, 4 * (k + 1) + i) == number(d2, &b->box, bias, 4 * k + i));
        }
    assert_true(number(tv, &a->cls, true, 0) == number(d2, &b->cls, true, CLASSES));
    model_free(tv);
    tv = opened("mask_rcnn_r18_fpn", "tv", file_of(d2, 1, NULL), CLASSES);
    backbone = NULL;
    a = rcnn_network_of(tv);
    assert_true(number(tv, &a->box, true, 0) == 0.0f && number(tv, &a->predictor, true, 0) == 0.0f);
    assert_true(number(tv, &a->cls, true, 0) == number(d2, &b->cls, true, CLASSES));
    model_free(tv);
    model_free(d2);
}

/* Reads the written file: number `at` of an array with so many rows. */
static float stored(const char *path, const char *name, int64_t rows, size_t at)
{
    struct safetensors *f = NULL;
    const struct st_array *a;
    struct err err;
    float x;

    assert_int_equal(safetensors_open(path, &f, &err), 0);
    a = safetensors_find(f, name);
    assert_non_null(a);
    assert_int_equal(a->shape[0], rows);
    assert_true(at < st_count(a));
    memcpy(&x, (const char *)a->data + at * sizeof x, sizeof x);
    safetensors_close(f);
    return x;
}

/* Torchvision's programs take a category's id as the row: for ids up to 9 there are ten rows, with the background's.
 * Rows without a category are never detected. */
static void rows_by_id(void **state)
{
    static const int64_t ids[CLASSES] = { 2, 5, 9 }, others[CLASSES] = { 2, 5, 7 };
    static const char scores[] = "roi_heads.box_predictor.cls_score.bias", boxes[] = "roi_heads.box_predictor.bbox_pred.bias";
    static const char predictor[] = "roi_heads.mask_predictor.mask_fcn_logits.weight";
    struct model *m = opened("mask_rcnn_r18_fpn", "tv", NULL, CLASSES), *again;
    const struct rcnn_network *n = rcnn_network_of(m);
    const char *path;
    int k = 0;

    (void)state;
    class_ids = ids;
    path = file_of(m, 0, NULL);
    assert_true(stored(path, scores, 10, 0) == number(m, &n->cls, true, 0));
    for (int row = 1; row < 10; row++) {
        bool ours = row == ids[k];

        k += ours;
        assert_true(stored(path, scores, 10, (size_t)row) == (ours ? number(m, &n->cls, true, k) : -10000));
        assert_true(stored(path, boxes, 40, 4 * (size_t)row + 3) == (ours ? number(m, &n->box, true, 4 * k + 3) : 0));
        assert_true(stored(path, predictor, 10, 8 * (size_t)row) == (ours ? number(m, &n->predictor, false, k) : 0));
    }
    again = opened("mask_rcnn_r18_fpn", "tv", path, CLASSES);
    assert_non_null(strstr(again->loaded, "(torchvision's names, classes by the ids of their categories)"));
    assert_null(strstr(again->loaded, "left out"));
    same_weights(m, again, false);
    model_free(again);
    backbone = "torchvision";
    again = opened("mask_rcnn_r18_fpn", "d2", path, CLASSES);
    for (k = 0; k < CLASSES; k++)
        assert_true(number(again, &rcnn_network_of(again)->cls, true, k) == number(m, &n->cls, true, k + 1));
    assert_true(number(again, &rcnn_network_of(again)->cls, true, CLASSES) == number(m, &n->cls, true, 0));
    stored(file_of(again, 1, NULL), "roi_heads.box_predictor.cls_score.bias", CLASSES + 1, 0); /* detectron2 counts classes */
    model_free(again);
    backbone = NULL;
    path = file_of(m, 0, NULL);
    class_ids = others;
    again = opened("mask_rcnn_r18_fpn", "tv", path, CLASSES);
    assert_non_null(strstr(again->loaded, "left out, as the file is of 9 classes and the job of 3"));
    model_free(again);
    class_ids = ids; /* nor do rows of a checkpoint stand for ids, though their count may be right for it */
    named_classes = true;
    path = file_of(m, 0, NULL);
    named_classes = false;
    again = opened("mask_rcnn_r18_fpn", "tv", path, CLASSES);
    assert_non_null(strstr(again->loaded, "left out, as the file is of 9 classes and the job of 3"));
    model_free(again);
    class_ids = NULL;
    path = file_of(m, 0, NULL);
    class_ids = ids; /* a count that is the job's is just that */
    again = opened("mask_rcnn_r18_fpn", "tv", path, CLASSES);
    assert_null(strstr(again->loaded, "by the ids"));
    same_weights(m, again, false);
    model_free(again);
    model_free(m);
    class_ids = NULL;
}

/* Id 0 is the background's, large numbers are no rows, and ids that do not ascend mean a broken file. In these cases
 * classes are taken in order. */
static void ids_that_are_no_rows(void **state)
{
    static const int64_t bad[][CLASSES] = { { 0, 1, 5 }, { 1, 2, 4096 }, { -3, 4, 5 }, { 1, 7, 7 } }, good[CLASSES] = { 1, 2, 4095 };
    static const char scores[] = "roi_heads.box_predictor.cls_score.bias";
    struct model *m = opened("faster_rcnn_r18_fpn", "tv", NULL, CLASSES);

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        class_ids = bad[i];
        stored(file_of(m, 0, NULL), scores, CLASSES + 1, CLASSES);
    }
    class_ids = good;
    assert_true(stored(file_of(m, 0, NULL), scores, 4096, 3) == -10000);
    class_ids = NULL;
    model_free(m);
}

/* Linear layers and transposed convolutions as the files have them. */
static void layouts(void **state)
{
    struct model *m = opened("mask_rcnn_r18_fpn", "tv", NULL, CLASSES);
    const struct rcnn_network *n = rcnn_network_of(m);
    struct err err;
    float *krsc = weights_get(m, n->fc1.w, &err), *stored = weights_get_stored(m, n->fc1.w, &err);
    int64_t shape[4];

    (void)state;
    assert_int_equal(weights_shape(n->fc1.w, shape), 2);
    assert_true(shape[0] == 16 && shape[1] == 49 * 8);
    for (int k = 0; k < 16; k += 5) /* file: channel, then pixel; memory: pixel, then channel */
        for (int c = 0; c < 8; c++)
            for (int p = 0; p < 49; p++)
                assert_true(stored[k * 392 + c * 49 + p] == krsc[k * 392 + p * 8 + c]);
    free(krsc);
    free(stored);
    krsc = weights_get(m, n->deconv.w, &err);
    stored = weights_get_stored(m, n->deconv.w, &err);
    assert_int_equal(weights_shape(n->deconv.w, shape), 4);
    assert_true(shape[0] == 8 && shape[1] == 8 && shape[2] == 2 && shape[3] == 2);
    for (int in = 0; in < 8; in++)
        for (int out = 0; out < 8; out++)
            for (int q = 0; q < 4; q++)
                assert_true(stored[(in * 8 + out) * 4 + q] == krsc[(q * 8 + out) * 8 + in]);
    free(krsc);
    free(stored);
    model_free(m);
}

static void pools(int of_job, const char *file, const char *said, struct model *same)
{
    struct model *m;

    pool = of_job;
    m = opened("mask_rcnn_r18_fpn", "d2", file, CLASSES);
    if ((strstr(m->loaded, "mask_pool") != NULL) != (said != NULL) || (said && !strstr(m->loaded, said)))
        fail_msg("%s", m->loaded);
    same_weights(m, same, false);
    model_free(m);
    pool = 0;
}

/* The mask head is convolutions: its weights fit masks of any size, but were not trained on them. */
static void masks_of_another_size(void **state)
{
    struct model *usual = opened("mask_rcnn_r18_fpn", "d2", NULL, CLASSES), *fine, *boxes;

    (void)state;
    pool = 28;
    fine = opened("mask_rcnn_r18_fpn", "d2", NULL, CLASSES);
    pool = 0;
    for (int dialect = 0; dialect < 2; dialect++) {
        pools(0, file_of(usual, dialect, NULL), NULL, usual);
        pools(28, file_of(usual, dialect, NULL), "; its model.mask_pool is 14, the job's is 28", usual);
        pools(28, file_of(fine, dialect, NULL), NULL, fine);
        pools(0, file_of(fine, dialect, NULL), "; its model.mask_pool is 28, the job's is 14", fine);
    }
    silent = true;
    pools(28, file_of(usual, 1, NULL), NULL, usual); /* the file cannot show it */
    silent = false;
    boxes = opened("faster_rcnn_r18_fpn", "d2", NULL, CLASSES);
    pool = 28;
    model_free(opened("mask_rcnn_r18_fpn", "d2", file_of(boxes, 1, NULL), CLASSES));
    pool = 0;
    model_free(opened("faster_rcnn_r18_fpn", "d2", file_of(fine, 1, NULL), CLASSES));
    model_free(boxes);
    model_free(fine);
    model_free(usual);
}

/* The frozen parameters, and the scale of a frozen normalisation. */
static void freezing(void **state)
{
    struct model *m = opened("faster_rcnn_r18_fpn", "d2", NULL, CLASSES),
                 *again = opened("faster_rcnn_r18_fpn", "d2", file_of(m, 1, NULL), CLASSES);
    const struct rcnn_network *a = rcnn_network_of(m), *b = rcnn_network_of(again);

    (void)state;
    assert_true(a->front.body.stem.w->trainable && m->norms[a->front.body.stem.norm].gamma->trainable &&
                !m->norms[a->front.body.stem.norm].frozen);
    assert_true(!b->front.body.stem.w->trainable && again->norms[b->front.body.stem.norm].frozen &&
                !again->norms[b->front.body.stem.norm].gamma->trainable);
    assert_true(!b->front.body.block[0][1].conv[1].w->trainable);
    assert_true(b->front.body.block[1][0].conv[0].w->trainable && again->norms[b->front.body.block[1][0].conv[0].norm].frozen);
    assert_true(b->front.lateral[0].w->trainable);
    model_free(m);
    model_free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways),
        cmocka_unit_test(columns_change_places),
        cmocka_unit_test(layouts),
        cmocka_unit_test(freezing),
        cmocka_unit_test(rows_by_id),
        cmocka_unit_test(ids_that_are_no_rows),
        cmocka_unit_test(masks_of_another_size),
    };
    return cmocka_run_group_tests_name("rcnn_weights", tests, set_up, tear_down);
}

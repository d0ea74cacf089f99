/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/rcnn/test_rcnn_weights.c - weights of Faster and
 * Mask R-CNN from files of torchvision and detectron2, and into them.
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu */
#include <fcntl.h>
#include <math.h>
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
#include "proto/job/jobspec.h"
#include "tests/stand/harness.h"
#include "worker/core/safetensors.h"
#include "worker/models/builtin.h"
#include "worker/models/rcnn/load.h"
#include "worker/models/rcnn/names.h"
#include "worker/models/rcnn/network.h"
#include "worker/models/rcnn/rcnn.h"
#include "worker/models/weights.h"

const struct device_ops *cpu_backend_generic(void);

enum { CLASSES = 3, MORE = 256 /* arrays that a change may add */ };

static struct device *dev;
static char folder[TEMP_MAX];
static const char *backbone;     /* of jobs; NULL: as the flavor has it */
static const int64_t *class_ids; /* of jobs and of exports; NULL: unknown */
static int pool;                 /* model.mask_pool of jobs; 0: its default */
static bool silent;              /* files do not name their origin, like other programs' files */
static bool named_classes;       /* files name their classes, like checkpoints */

static struct jobspec *spec_of(const char *preset, const char *flavor, const char *init)
{
    json_t *root = json_pack("{s:{s:s,s:s,s:f,s:i,s:i},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", preset, "flavor", flavor, "width",
                             0.0625, "fpn_channels", 8, "head_channels", 16, "data", "train", "annotations", "a", "images", "i", "train",
                             "steps", 1, "batch", 1);
    struct jobspec *spec = NULL;
    struct err err;

    assert_non_null(root);
    if (preset[0] == 'm')
        json_object_set_new(json_object_get(root, "model"), "mask_channels", json_integer(8));
    if (pool)
        json_object_set_new(json_object_get(root, "model"), "mask_pool", json_integer(pool));
    if (backbone)
        json_object_set_new(json_object_get(root, "model"), "backbone", json_string(backbone));
    if (init)
        json_object_set_new(json_object_get(root, "model"), "init", json_string(init));
    if (jobspec_parse(root, &spec, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(root);
    return spec;
}

static int try_open(const char *preset, const char *flavor, const char *init, int classes, struct model **ret, struct err *err)
{
    struct jobspec *spec = spec_of(preset, flavor, init);
    int rc = model_open(&models_builtin, spec, (struct model_classes){ classes, class_ids, NULL }, dev, ret, err);

    jobspec_free(spec);
    return rc;
}

static struct model *opened(const char *preset, const char *flavor, const char *init, int classes)
{
    struct model *m = NULL;
    struct err err = { 0 };

    if (try_open(preset, flavor, init, classes, &m, &err) < 0)
        fail_msg("%s", err.msg);
    return m;
}

/* The exported arrays of m, `change`d, as a file. */
typedef void change(struct st_array *a, size_t *n);

static const char *file_of(struct model *m, int dialect, change *how)
{
    static char path[TEMP_MAX + 32];
    struct st_meta meta[1 + MODEL_TRAITS] = { { "classes", "[]" } };
    struct st_array *a, *kept;
    struct err err;
    size_t n, all;

    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    assert_int_equal(rcnn_export_as(m, dialect, (struct model_classes){ rcnn_classes(m), class_ids, NULL }, &a, &n, &err), 0);
    all = n;
    kept = calloc(n + MORE, sizeof *kept);
    assert_non_null(kept);
    memcpy(kept, a, n * sizeof *kept);
    if (how)
        how(kept, &n);
    memcpy(&meta[1], m->traits, (size_t)m->ntraits * sizeof *meta);
    if (safetensors_write(path, kept, n, &meta[!named_classes], silent ? 0 : (size_t)(m->ntraits + named_classes), &err) < 0)
        fail_msg("%s", err.msg);
    free(kept);
    weights_named_free(a, all);
    return path;
}

/* Are the numbers of both models, of one flavor, the same, except for the places in `left`? */
static void same_weights(struct model *a, struct model *b, bool but_columns)
{
    const struct rcnn_network *n = rcnn_network_of(a);
    struct err err;

    assert_int_equal(a->nparams, b->nparams);
    for (int i = 0; i < a->nparams; i++) {
        enum rcnn_place place = n->front.named[i].part.place;
        float *x = weights_get(a, a->params[i], &err), *y = weights_get(b, b->params[i], &err);

        if (!but_columns || (place != RCNN_CLASSES && place != RCNN_BOXES && place != RCNN_PREDICTOR))
            if (memcmp(x, y, a->params[i]->count * sizeof *x) != 0)
                fail_msg("%s differs", a->params[i]->name);
        free(x);
        free(y);
    }
}

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

static void rename_to(struct st_array *a, const char *from, const char *to)
{
    static char name[512][96];
    static int used;

    snprintf(name[used], sizeof name[used], "%s%s", to, a->name + strlen(from));
    a->name = name[used];
    used = (used + 1) % 512;
}

static const char prefix[] = "backbone.body.";

/* Keeps only the arrays of an ImageNet file: names without the prefix, and a classifier. */
static void backbone_alone(struct st_array *a, size_t *n)
{
    static const float zero[4];
    size_t kept = 0;

    for (size_t i = 0; i < *n; i++)
        if (strncmp(a[i].name, prefix, sizeof prefix - 1) == 0) {
            rename_to(&a[i], prefix, "");
            a[kept++] = a[i];
        }
    a[kept++] = (struct st_array){ "fc.bias", ST_F32, 1, { 4 }, zero };
    a[kept++] = (struct st_array){ "layer9.extra", ST_F32, 1, { 2 }, zero };
    *n = kept;
}

static void old_names(struct st_array *a, size_t *n)
{
    static const char *const rename[][2] = { { "rpn.head.conv.0.0", "rpn.head.conv" },
                                             { "roi_heads.mask_head.0.0", "roi_heads.mask_head.mask_fcn1" },
                                             { "roi_heads.mask_head.1.0", "roi_heads.mask_head.mask_fcn2" },
                                             { "roi_heads.mask_head.2.0", "roi_heads.mask_head.mask_fcn3" },
                                             { "roi_heads.mask_head.3.0", "roi_heads.mask_head.mask_fcn4" } };
    char from[64], to[64];

    for (size_t i = 0; i < *n; i++) {
        for (size_t k = 0; k < sizeof rename / sizeof *rename; k++)
            if (strncmp(a[i].name, rename[k][0], strlen(rename[k][0])) == 0) {
                rename_to(&a[i], rename[k][0], rename[k][1]);
                break;
            }
        for (int level = 0; level < 8; level++) {
            snprintf(from, sizeof from, "backbone.fpn.%s_blocks.%d.0", level < 4 ? "inner" : "layer", level % 4);
            snprintf(to, sizeof to, "backbone.fpn.%s_blocks.%d", level < 4 ? "inner" : "layer", level % 4);
            if (strncmp(a[i].name, from, strlen(from)) == 0)
                rename_to(&a[i], from, to);
        }
    }
}

static void other_files(void **state)
{
    struct model *m = opened("mask_rcnn_r18_fpn", "tv", NULL, CLASSES), *again;

    (void)state;
    again = opened("mask_rcnn_r18_fpn", "tv", file_of(m, 0, old_names), CLASSES);
    same_weights(m, again, false);
    assert_non_null(strstr(again->loaded, "torchvision's old names"));
    model_free(again);
    again = opened("mask_rcnn_r18_fpn", "tv", file_of(m, 0, backbone_alone), CLASSES);
    assert_non_null(strstr(again->loaded, "a backbone of torchvision"));
    assert_non_null(strstr(again->loaded,
                           "not in the file: the feature pyramid, the RPN, the box head, the box predictor, the mask head, the "
                           "mask predictor"));
    assert_non_null(strstr(again->loaded, "without a place in the model: layer9.extra"));
    assert_null(strstr(again->loaded, "fc.bias"));
    model_free(again);
    again = opened("mask_rcnn_r18_fpn", "tv", file_of(m, 0, NULL), CLASSES + 1);
    assert_non_null(strstr(again->loaded, "left out, as the file is of 3 classes and the job of 4: the box predictor, the mask predictor"));
    model_free(again);
    again = opened("faster_rcnn_r18_fpn", "tv", file_of(m, 0, NULL), CLASSES);
    assert_non_null(strstr(again->loaded, "without a place in the model: roi_heads.mask_head.0.0.bias"));
    model_free(again);
    model_free(m);
}

static const float small[4];
static const char bottom_up[] = "backbone.bottom_up.";

/* A backbone of detectron2 by itself, with a classifier. */
static void body_of_detectron2(struct st_array *a, size_t *n)
{
    size_t kept = 0;

    for (size_t i = 0; i < *n; i++)
        if (strncmp(a[i].name, bottom_up, sizeof bottom_up - 1) == 0) {
            rename_to(&a[i], bottom_up, "");
            a[kept++] = a[i];
        }
    a[kept++] = (struct st_array){ "stem.fc.weight", ST_F32, 1, { 4 }, small };
    *n = kept;
}

enum { WIDEST = 128 /* channels of the last stage at this width */ };

static float scale_of(int i)
{
    return 0.5f + (float)i / 64;
}

static float shift_of(int i)
{
    return 2 - (float)i / 32;
}

/* "res2.0.conv1" to "res2_0_branch2a", "stem.conv1" to "conv1". */
static void detectron_layer(const char *layer, bool norm, char *buf, size_t size)
{
    int stage, block, conv;

    if (sscanf(layer, "res%d.%d.conv%d", &stage, &block, &conv) == 3)
        snprintf(buf, size, "res%d_%d_branch2%c", stage, block, "abc"[conv - 1]);
    else if (sscanf(layer, "res%d.%d.short", &stage, &block) == 2)
        snprintf(buf, size, "res%d_%d_branch1", stage, block);
    else
        snprintf(buf, size, "%s", norm ? "res_conv1" : "conv1");
}

/* Detectron's file of a backbone: its norms have only scales and shifts, with the statistics folded in. Momenta and a
 * classifier are in the file, too. */
static void of_detectron(struct st_array *a, size_t *n)
{
    static char name[512][32];
    static float scale[WIDEST], shift[WIDEST];
    size_t kept = 0;

    for (int i = 0; i < WIDEST; i++) {
        scale[i] = scale_of(i);
        shift[i] = shift_of(i);
    }
    for (size_t i = 0; i < *n; i++) {
        const char *norm = strstr(a[i].name, ".norm."), *end = !norm ? "_w" : strcmp(norm, ".norm.weight") == 0 ? "_bn_s" : "_bn_b";
        char layer[24];

        if (strncmp(a[i].name, bottom_up, sizeof bottom_up - 1) != 0 || strstr(a[i].name, "running_"))
            continue;
        detectron_layer(a[i].name + sizeof bottom_up - 1, norm, layer, sizeof layer);
        snprintf(name[kept], sizeof name[kept], "%s%s", layer, end);
        if (norm)
            a[i].data = end[4] == 's' ? scale : shift;
        a[i].name = name[kept];
        a[kept++] = a[i];
    }
    a[kept++] = (struct st_array){ "conv1_w_momentum", ST_F32, 1, { 4 }, small };
    a[kept++] = (struct st_array){ "pred_w", ST_F32, 1, { 4 }, small };
    *n = kept;
}

/* The expected numbers of an array of the backbone after Detectron's file has been read; NULL: as in m. */
static float (*detectron_number(const struct rcnn_named *a))(int)
{
    return a->array == RCNN_GAMMA ? scale_of : a->array == RCNN_BETA ? shift_of : NULL;
}

static void is_detectrons(struct model *m, struct model *again, int i)
{
    const struct rcnn_named *named = &rcnn_network_of(m)->front.named[i];
    float (*told)(int) = detectron_number(named);
    size_t count = m->params[i]->count;
    struct err err;
    float *before = weights_get(m, m->params[i], &err), *now = weights_get(again, again->params[i], &err);

    for (size_t k = 0; k < count; k++) {
        float want = told ? told((int)k) : named->array == RCNN_MEAN ? 0 : named->array == RCNN_VAR ? 1 : before[k];

        if (now[k] != want)
            fail_msg("%s: number %zu is %g, not %g", m->params[i]->name, k, (double)now[k], (double)want);
    }
    free(before);
    free(now);
}

static void backbones_of_detectron(void **state)
{
    struct model *m = opened("faster_rcnn_r50_fpn", "d2", NULL, CLASSES), *again;
    int found = 0;

    (void)state;
    silent = true;
    again = opened("faster_rcnn_r50_fpn", "d2", file_of(m, 1, body_of_detectron2), CLASSES);
    assert_non_null(strstr(again->loaded, " (a backbone of detectron2)"));
    assert_null(strstr(again->loaded, "without a place"));
    for (int i = 0; i < m->nparams; i++)
        if (rcnn_network_of(m)->front.named[i].part.place <= RCNN_SHORTCUT) {
            struct err err;
            float *x = weights_get(m, m->params[i], &err), *y = weights_get(again, again->params[i], &err);

            assert_memory_equal(x, y, m->params[i]->count * sizeof *x);
            free(x);
            free(y);
        }
    model_free(again);
    again = opened("faster_rcnn_r50_fpn", "d2", file_of(m, 1, of_detectron), CLASSES);
    assert_non_null(strstr(again->loaded, " (a backbone of Detectron)"));
    assert_non_null(strstr(again->loaded, "not in the file: the feature pyramid, the RPN, the box head, the box predictor"));
    assert_null(strstr(again->loaded, "without a place"));
    for (int i = 0; i < m->nparams; i++)
        if (rcnn_network_of(m)->front.named[i].part.place <= RCNN_SHORTCUT) {
            is_detectrons(m, again, i);
            found++;
        }
    assert_int_equal(found, 53 * 5); /* all of the backbone */
    model_free(again);
    model_free(m);
    silent = false;
}

/* Arrays of other programs' files that no detector needs are not reported; names that only look similar are
 * reported. */
static const char *const idle[] = { "fc.weight",
                                    "fc.bias",
                                    "pixel_mean",
                                    "pixel_std",
                                    "pred_w",
                                    "pred_b",
                                    "fc1000_w",
                                    "fc1000_b",
                                    "stem.fc.weight",
                                    "stem.fc.bias",
                                    "linear.weight",
                                    "linear.bias",
                                    "backbone.body.bn1.num_batches_tracked",
                                    "conv1_w_momentum",
                                    "proposal_generator.anchor_generator.cell_anchors.0" };
static const char *const busy[] = { "fc.weights", "xfc.bias", "pixel_means", "pred_w2", "num_batches", "conv1_w_momentums" };

static void add_arrays(struct st_array *a, size_t *n, const char *const *name, size_t count)
{
    for (size_t i = 0; i < count; i++)
        a[(*n)++] = (struct st_array){ name[i], ST_F32, 1, { 4 }, small };
}

static void with_idle(struct st_array *a, size_t *n)
{
    add_arrays(a, n, idle, sizeof idle / sizeof *idle);
}

static void idle_arrays(void **state)
{
    struct model *m = opened("faster_rcnn_r18_fpn", "tv", NULL, CLASSES), *again;

    (void)state;
    again = opened("faster_rcnn_r18_fpn", "tv", file_of(m, 0, with_idle), CLASSES);
    assert_null(strstr(again->loaded, "without a place"));
    same_weights(m, again, false);
    model_free(again);
    model_free(m);
    for (size_t i = 0; i < sizeof busy / sizeof *busy; i++)
        assert_false(rcnn_is_idle(busy[i]));
}

static void without_a_scale(struct st_array *a, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(a[i].name, "backbone.body.layer2.0.bn1.weight") == 0)
            a[i] = a[--*n];
}

static void half_an_rpn(struct st_array *a, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(a[i].name, "rpn.head.cls_logits.bias") == 0)
            a[i] = a[--*n];
}

static void two_of_an_rpn(struct st_array *a, size_t *n)
{
    half_an_rpn(a, n);
    for (size_t i = 0; i < *n; i++)
        if (strcmp(a[i].name, "rpn.head.bbox_pred.weight") == 0)
            a[i] = a[--*n];
}

enum { STRAY = 205 };

/* The name of the last must not reach a terminal unchanged. */
static void with_many(struct st_array *a, size_t *n)
{
    static char name[STRAY][16];

    for (int i = 0; i < STRAY; i++) {
        snprintf(name[i], sizeof name[i], i < 3 ? "zz\n\033[%03d" : "zzz%03d", i);
        a[(*n)++] = (struct st_array){ name[i], ST_F32, 1, { 4 }, small };
    }
}

/* Redirects the rank's log to a file, then back. */
static int log_fd, stderr_fd;

static void log_begin(void)
{
    char path[TEMP_MAX + 32];

    snprintf(path, sizeof path, "%s/log", folder);
    log_fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);
    stderr_fd = dup(2);
    assert_true(log_fd >= 0 && stderr_fd >= 0 && dup2(log_fd, 2) == 2);
    unlink(path);
}

static const char *log_end(void)
{
    static char text[1 << 16];
    ssize_t n;

    fflush(stderr);
    assert_true(dup2(stderr_fd, 2) == 2 && lseek(log_fd, 0, SEEK_SET) == 0);
    n = read(log_fd, text, sizeof text - 1);
    assert_true(n >= 0);
    text[n] = '\0';
    close(log_fd);
    close(stderr_fd);
    return text;
}

static int lines(const char *text, const char *with)
{
    int n = 0;

    for (const char *p = text; (p = strstr(p, with)); p++)
        n++;
    return n;
}

/* Sentences are short, the log has every name, up to a bound. */
static void the_log_has_all_names(void **state)
{
    struct model *m = opened("faster_rcnn_r18_fpn", "tv", NULL, CLASSES), *again = NULL;
    struct err err = { 0 };
    const char *path = file_of(m, 0, with_many), *said;

    (void)state;
    log_begin();
    again = opened("faster_rcnn_r18_fpn", "tv", path, CLASSES);
    said = log_end();
    assert_non_null(strstr(again->loaded, " and 202 more, which the log names"));
    assert_int_equal(lines(said, ".safetensors': without a place in the model: zz"), 200);
    assert_non_null(strstr(said, ": zz??[000\n"));
    assert_non_null(strstr(said, "': without a place in the model: and 5 more\n"));
    assert_int_equal(lines(said, "\n"), 201);
    model_free(again);
    path = file_of(m, 0, backbone_alone);
    log_begin();
    again = opened("faster_rcnn_r18_fpn", "tv", path, CLASSES);
    said = log_end();
    assert_non_null(strstr(said, "': not in the file: roi_heads.box_head.fc6.weight\n"));
    assert_non_null(strstr(said, "': without a place in the model: layer9.extra\n"));
    assert_int_equal(lines(said, "': not in the file: "), 16 + 6 + 8);
    assert_null(strstr(said, "backbone.body."));
    model_free(again);
    path = file_of(m, 0, two_of_an_rpn);
    log_begin();
    assert_int_equal(try_open("faster_rcnn_r18_fpn", "tv", path, CLASSES, &again, &err), ERR_DATA);
    said = log_end();
    assert_non_null(
        strstr(err.msg, " is not in the file, which has torchvision's names; 2 arrays are missing in all, the rank's log names them"));
    assert_non_null(strstr(said, "': not in the file: rpn.head.cls_logits.bias\n"));
    assert_non_null(strstr(said, "': not in the file: rpn.head.bbox_pred.weight\n"));
    assert_int_equal(lines(said, "\n"), 2);
    model_free(m);
}

static void odd_boxes(struct st_array *a, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(a[i].name, "roi_heads.box_predictor.bbox_pred.bias") == 0)
            a[i].shape[0] = 15;
}

static void not_a_number(struct st_array *a, size_t *n)
{
    static const float bad[8] = { 1, 2, NAN };

    for (size_t i = 0; i < *n; i++)
        if (strcmp(a[i].name, "backbone.body.bn1.bias") == 0)
            a[i].data = bad;
}

static void wrong_files(void **state)
{
    static const struct {
        change *how;
        const char *said;
    } rows[] = {
        { without_a_scale, "backbone.body.layer2.0.bn1.weight is not in the file, which has torchvision's names" },
        { half_an_rpn, "rpn.head.cls_logits.bias is not in the file" },
        { odd_boxes, "4 scores and 15 numbers of boxes belong to no count of classes" },
        { not_a_number, "backbone.body.bn1.bias: number 2 is nan, which is not finite" },
    };
    struct model *m = opened("faster_rcnn_r18_fpn", "tv", NULL, CLASSES), *again = NULL;
    struct err err = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(try_open("faster_rcnn_r18_fpn", "tv", file_of(m, 0, rows[i].how), CLASSES, &again, &err), ERR_DATA);
        if (!strstr(err.msg, rows[i].said))
            fail_msg("%s", err.msg);
    }
    silent = true;
    assert_int_equal(try_open("faster_rcnn_r18_fpn", "d2", file_of(m, 0, backbone_alone), CLASSES, &again, &err), ERR_DATA);
    silent = false;
    assert_non_null(strstr(err.msg, "the file is a backbone of torchvision, which fits model.backbone=torchvision; it is msra"));
    assert_string_equal(err.field, "model.backbone");
    assert_int_equal(try_open("faster_rcnn_r34_fpn", "tv", file_of(m, 0, NULL), CLASSES, &again, &err), ERR_DATA);
    assert_int_equal(try_open("faster_rcnn_r50_fpn", "tv", file_of(m, 0, NULL), CLASSES, &again, &err), ERR_DATA);
    model_free(m);
}

static void refused(const char *flavor, const char *file, const char *said)
{
    struct model *m = NULL;
    struct err err = { 0 };

    assert_int_equal(try_open("mask_rcnn_r18_fpn", flavor, file, CLASSES, &m, &err), ERR_DATA);
    assert_string_equal(err.field, "model.backbone");
    if (!strstr(err.msg, said))
        fail_msg("%s", err.msg);
}

static void taken(const char *flavor, const char *file, const char *of)
{
    struct model *m = opened("mask_rcnn_r18_fpn", flavor, file, CLASSES);
    char said[64];

    snprintf(said, sizeof said, "; its model.flavor is %s, the job's is %s", of ? of : "", flavor);
    if ((strstr(m->loaded, "model.flavor") != NULL) != (of != NULL) || (of && !strstr(m->loaded, said)))
        fail_msg("%s", m->loaded);
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

/* Names and shapes do not show strides and colours: a whole detector of torchvision must not be taken for a detector of
 * detectron2, under any names. */
static void of_another_kind(void **state)
{
    static const char tv_says[] =
        "the file is a detector of torchvision, which fits model.flavor=tv, or at least model.backbone=torchvision; it is msra";
    static const char says_tv[] = "the file is of a job with model.backbone=torchvision; it is msra";
    struct model *tv = opened("mask_rcnn_r18_fpn", "tv", NULL, CLASSES), *d2 = opened("mask_rcnn_r18_fpn", "d2", NULL, CLASSES);

    (void)state;
    silent = true;
    refused("d2", file_of(tv, 0, NULL), tv_says);
    refused("d2", file_of(tv, 0, old_names), tv_says);
    taken("tv", file_of(tv, 0, old_names), NULL);
    taken("d2", file_of(d2, 1, NULL), NULL);
    backbone = "torchvision";
    taken("d2", file_of(tv, 0, NULL), "tv");
    taken("d2", file_of(tv, 1, NULL), NULL); /* the file cannot show it */
    taken("d2", file_of(tv, 1, body_of_detectron2), NULL);
    refused("d2", file_of(d2, 1, of_detectron), "the file is a backbone of Detectron, which fits model.backbone=msra; it is torchvision");
    refused("tv", file_of(d2, 1, of_detectron), "the file is a backbone of Detectron, which fits model.backbone=msra; it is torchvision");
    backbone = NULL;
    taken("d2", file_of(d2, 1, body_of_detectron2), NULL);
    taken("d2", file_of(d2, 1, of_detectron), NULL);
    silent = false;
    refused("d2", file_of(tv, 0, NULL), says_tv);
    refused("d2", file_of(tv, 1, NULL), says_tv);
    refused("tv", file_of(d2, 0, NULL), "the file is of a job with model.backbone=msra; it is torchvision");
    taken("d2", file_of(d2, 0, NULL), NULL);
    backbone = "msra";
    taken("tv", file_of(d2, 0, NULL), "d2");
    backbone = NULL;
    model_free(tv);
    model_free(d2);
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

static int set_up(void **state)
{
    struct device_options opt = { .threads = 1 };
    struct err err;

    (void)state;
    return mkdtemp(temp_path(folder, sizeof folder, "test_rcnn_weights.XXXXXX")) ? cpu_backend_generic()->open(0, &opt, &dev, &err) : -1;
}

static int tear_down(void **state)
{
    char path[TEMP_MAX + 32];

    (void)state;
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    unlink(path);
    rmdir(folder);
    dev->ops->close(dev);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways),
        cmocka_unit_test(columns_change_places),
        cmocka_unit_test(layouts),
        cmocka_unit_test(other_files),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(freezing),
        cmocka_unit_test(rows_by_id),
        cmocka_unit_test(the_log_has_all_names),
        cmocka_unit_test(ids_that_are_no_rows),
        cmocka_unit_test(masks_of_another_size),
        cmocka_unit_test(of_another_kind),
        cmocka_unit_test(backbones_of_detectron),
        cmocka_unit_test(idle_arrays),
    };
    return cmocka_run_group_tests_name("rcnn_weights", tests, set_up, tear_down);
}

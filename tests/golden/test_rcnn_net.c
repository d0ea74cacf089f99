/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto trainer cpu cuda
 * tests/golden/test_rcnn_net.c - Faster and Mask R-CNN against torchvision, set up as detectron2 too: features, losses,
 * gradients of step 0, ten steps of the optimizer, detections, masks, and the losses of validation, which draws by
 * counter (make_rcnn_net.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/golden/net_training.h"
#include "tests/golden/rcnn_net.h"

const struct device_ops *cpu_backend_avx512(void);
const struct device_ops *cpu_backend_avx2(void);
const struct device_ops *cpu_backend_generic(void);
const struct device_ops *cuda_backend_emu(void);

static void check_mask_gradients(struct net *n, const struct training *t, const struct safetensors *f)
{
    int checked = 0;

    for (int i = 0; i < n->model->nparams; i++) {
        char name[128];

        snprintf(name, sizeof name, "grad.%s", name_of(n, i));
        if (strncmp(name, "grad.roi_heads.mask_", 20) != 0)
            continue;
        check_gradient(n, t, f, n->model->params[i], name, 2e-3);
        checked++;
    }
    assert_int_equal(checked, 2 * (RCNN_MASK_CONVS + 2));
}

static void check_gradients(struct net *n, const struct training *t, const struct safetensors *f, double tol)
{
    int trained = 0;

    for (int i = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];
        char name[128];

        snprintf(name, sizeof name, "grad.%s", name_of(n, i));
        if (!param_trainable(p)) {
            assert_null(safetensors_find(f, name));
            continue;
        }
        trained++;
        check_gradient(n, t, f, p, name, tol);
    }
    for (size_t i = 0; i < safetensors_count(f); i++)
        trained -= strncmp(safetensors_at(f, i)->name, "grad.", 5) == 0;
    assert_int_equal(trained, 0);
}

/* Biases after the last step, which decay as weights do. */
static void check_biases(struct net *n, const struct safetensors *f)
{
    int found = 0;

    for (int i = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];
        char name[128];
        const float *want;
        float *got;
        size_t count;
        struct err err;

        if (!param_trainable(p) || p->layout != LAYOUT_VECTOR)
            continue;
        snprintf(name, sizeof name, "after.%s", name_of(n, i));
        want = array(f, name, &count);
        assert_int_equal(count, p->count);
        got = weights_get_stored(n->model, p, &err);
        assert_non_null(got);
        close_to(name, got, 1, want, count, 2e-3);
        free(got);
        found++;
    }
    assert_true(found > 10);
}

static void check_losses(const struct net *n, const struct safetensors *f, int at, const double *got, double tol)
{
    const struct st_array *a = safetensors_find(f, "losses");
    int terms = n->model->nterms - 1;
    double row[8], sum = 0;

    assert_true(a && a->dtype == ST_F64 && a->shape[1] == terms);
    memcpy(row, (const double *)a->data + (size_t)at * (size_t)terms, (size_t)terms * sizeof *row);
    for (int k = 0; k < terms; k++) {
        if (!(fabs(got[k + 1] - row[k]) <= tol * row[k]))
            fail_msg("step %d, %s: %.9g, should be %.9g", at, n->model->terms[k + 1].name, got[k + 1], row[k]);
        sum += row[k];
    }
    assert_true(fabs(got[0] - sum) <= tol * sum);
}

static void check_features(struct net *n, const struct safetensors *f)
{
    static const char *const name[RCNN_LEVELS] = { "feature.0", "feature.1", "feature.2", "feature.3", "feature.pool" };
    struct rcnn_network *net = (struct rcnn_network *)(uintptr_t)rcnn_network_of(n->model);
    const struct batch_form *form = n->batch.form;
    struct tensor image = batch_tensor(form, &n->shard, batch_array_of(form, "image"));
    const int32_t *size = n->shard.array[batch_array_of(form, "size")];
    struct value *p[RCNN_LEVELS];

    tape_begin(n->tape, TAPE_EVAL, 1, NULL);
    rcnn_pyramid(net, n->tape, &image, &size, p);
    for (int l = 0; l < RCNN_LEVELS; l++) {
        const struct tensor *x = &p[l]->x[0];
        size_t count, floats = tensor_pixels(x) * (size_t)x->stride, at = 0;
        const float *want = array(f, name[l], &count);
        float *host = malloc(floats * sizeof *host), *got = malloc(count * sizeof *got);
        struct err err;

        assert_int_equal(n->dev->ops->download(n->dev, host, x->data, floats * sizeof *host, &err), 0);
        for (int i = 0; i < x->n; i++)
            for (int c = 0; c < x->c; c += 4)
                for (int at_pixel = 0; at_pixel < x->h * x->w; at_pixel++)
                    got[at++] = host[((size_t)i * (size_t)(x->h * x->w) + (size_t)at_pixel) * (size_t)x->stride + (size_t)c];
        assert_int_equal(at, count);
        close_to(name[l], got, 1, want, count, 2e-5);
        free(host);
        free(got);
    }
}

/* Which pixels of a picture the mask has, row after row. Caller frees. */
static bool *pixels_of(const struct result_mask *m, const int32_t size[2])
{
    bool *ret = calloc((size_t)(size[0] * size[1]), sizeof *ret);
    int bytes = (m->w + 7) / 8;

    for (int y = 0; y < m->h; y++)
        for (int x = 0; x < m->w; x++)
            ret[(m->y + y) * size[1] + m->x + x] = m->bits[y * bytes + x / 8] >> (7 - x % 8) & 1;
    return ret;
}

/* A few pixels lie on the border as far as rounding goes. Returns how many are set. */
static int check_mask(const struct safetensors *f, int image, size_t k, const struct result_mask *m, const int32_t size[2])
{
    bool *got = pixels_of(m, size), want = false;
    int wrong = 0, set = 0, at = 0;
    char name[32];
    const float *run;
    size_t count;

    snprintf(name, sizeof name, "mask.%d.%zu", image, k);
    run = array(f, name, &count);
    for (size_t i = 0; i < count; i++, want = !want)
        for (int end = at + (int)run[i]; at < end; at++) {
            wrong += got[at] != want;
            set += want;
        }
    assert_int_equal(at, size[0] * size[1]);
    if (wrong > set / 50)
        fail_msg("%s: %d pixels of %d differ", name, wrong, set);
    free(got);
    return set;
}

static void check_masks(const struct net *n, const struct safetensors *f, int image, const struct result *r)
{
    char name[32];
    int set = 0;

    for (size_t k = 0; snprintf(name, sizeof name, "mask.%d.%zu", image, k) > 0 && safetensors_find(f, name); k++)
        set += check_mask(f, image, k, &r->masks[k], n->scene->picture[image]);
    assert_true(n->scene != &edges || set > 150);
}

/* The best detections, after all steps. */
static void check_found(struct net *n, const struct safetensors *f)
{
    const struct model_want want = { .results = true };
    struct err err = { 0 };

    n->batch.step = 0;
    tape_begin(n->tape, TAPE_EVAL, 1, NULL);
    assert_int_equal(n->model->ops->forward(n->model, n->tape, &n->batch, &want, &err), 0);
    for (int i = 0; i < IMAGES; i++) {
        const struct model_picture picture = { .index = i, .w = n->scene->picture[i][1], .h = n->scene->picture[i][0] };
        struct result r;
        char name[16];
        const float *row;
        size_t count;

        snprintf(name, sizeof name, "found.%d", i);
        row = array(f, name, &count);
        if (n->model->ops->result(n->model, 0, i, &picture, NAN, &r, &err) < 0)
            fail_msg("%s", err.msg);
        assert_true(count > 0 && (size_t)r.n >= count / 6);
        for (size_t k = 0; k < count / 6; k++, row += 6) {
            const double *b = r.boxes[k].box, corner[4] = { b[0], b[1], b[0] + b[2], b[1] + b[3] };

            if (fabs(r.boxes[k].score - (double)row[4]) > 2e-4)
                fail_msg("%s[%zu]: score %g, should be %g", name, k, r.boxes[k].score, (double)row[4]);
            assert_int_equal(r.boxes[k].cls, (int)row[5] - 1);
            assert_true(n->tv || (corner[2] <= picture.w && corner[3] <= picture.h)); /* to the last bit, which scaling may pass */
            for (int c = 0; c < 4; c++)
                if (fabs(corner[c] - (double)row[c]) > 0.02)
                    fail_msg("%s[%zu]: corner %d is %g, should be %g", name, k, c, corner[c], (double)row[c]);
        }
        check_masks(n, f, i, &r);
    }
}

static void check(const struct device_ops *ops, const char *preset, bool tv, const char *file, int steps, double tol)
{
    struct safetensors *f = golden(file);
    struct training t;
    double got[8];
    struct net n;

    net_open(&n, ops, &plain_scene, preset, tv);
    training_open(&t, ops, &n);
    check_features(&n, f);
    for (int s = 0; s < steps; s++) {
        step(&n, &t, got);
        check_losses(&n, f, s, got, s == 0 ? 1e-4 : 1e-3);
        if (s == 0)
            check_gradients(&n, &t, f, tol);
        update(&n, &t, 1);
    }
    if (steps == STEPS) {
        check_biases(&n, f);
        check_found(&n, f);
    }
    training_close(&t);
    net_close(&n);
    safetensors_close(f);
}

static const char *const of_edges[] = { "train.weight_decay=1e-4", NULL };
/* Masks of 56 x 56. */
static const char *const fine[] = { "train.weight_decay=1e-4", "model.mask_pool=28", NULL };

/* Checks a single step, then the detections. */
static void check_edges(const struct device_ops *ops, const char *preset, bool tv, const char *file, const char *const *keys)
{
    struct safetensors *f = golden(file);
    struct training t;
    double got[8];
    struct net n;

    more_keys = keys;
    net_open(&n, ops, &edges, preset, tv);
    more_keys = no_keys;
    training_open(&t, ops, &n);
    step(&n, &t, got);
    check_losses(&n, f, 0, got, 1e-4);
    if (keys != of_edges)
        check_mask_gradients(&n, &t, f);
    update(&n, &t, 1);
    check_found(&n, f);
    training_close(&t);
    net_close(&n);
    safetensors_close(f);
}

/* Losses of validation: rows are images, each with normalisers of its own; the last is their mean. */
static void validate(struct net *n, double ret[IMAGES + 1][8])
{
    static const int32_t place[IMAGES] = { 3, 70000 };
    const struct model_want want = { .raw = n->raw };
    double raw[64], record[32], sum[32] = { 0 };
    struct err err = { 0 };

    n->shard.index = place;
    n->batch.seed = 0x1234567890;
    n->batch.step = 0;
    n->dev->ops->set_tier(n->dev, TIER_WORLD);
    tape_begin(n->tape, TAPE_EVAL, 1, NULL);
    if (n->model->ops->forward(n->model, n->tape, &n->batch, &want, &err) < 0)
        fail_msg("%s", err.msg);
    for (int i = 0; i <= IMAGES; i++) {
        if (i < IMAGES) {
            assert_int_equal(n->dev->ops->download(n->dev, raw, n->raw[i], n->model->raw_terms * sizeof *raw, &err), 0);
            n->model->ops->sum_terms(n->model, raw, 1, record);
        }
        for (int k = 0; k < 2 * n->model->nterms; k++)
            sum[k] += i < IMAGES ? record[k] : 0;
        for (int k = 0; k < n->model->nterms; k++)
            ret[i][k] = i < IMAGES ? record[2 * k] / record[2 * k + 1] : sum[2 * k] / sum[2 * k + 1];
    }
}

/* The same keys as in run_val() of make_rcnn_net.py. */
static const char *const drawn_keys[] = { "model.rpn_batch=40",
                                          "model.rpn_positive=0.05",
                                          "model.rpn_pre_nms_val=100",
                                          "model.rpn_post_nms_val=30",
                                          "model.roi_batch=12",
                                          "model.roi_positive=0.1667",
                                          NULL };

static void check_validation(const struct device_ops *ops, bool tv, const char *file)
{
    struct safetensors *f = golden(file);
    double got[IMAGES + 1][8];
    struct net n;

    more_keys = drawn_keys;
    net_open(&n, ops, &plain_scene, "mask_rcnn_r18_fpn", tv);
    more_keys = no_keys;
    validate(&n, got);
    for (int i = 0; i <= IMAGES; i++)
        check_losses(&n, f, i, got[i], 1e-4);
    net_close(&n);
    safetensors_close(f);
}

static const struct device_ops *cpu(void)
{
    return __builtin_cpu_supports("x86-64-v4")   ? cpu_backend_avx512()
           : __builtin_cpu_supports("x86-64-v3") ? cpu_backend_avx2()
                                                 : cpu_backend_generic();
}

static void faster(void **state)
{
    (void)state;
    check(cpu(), "faster_rcnn_r50_fpn", true, "rcnn_net_faster", STEPS, 2e-3);
}

static void mask(void **state)
{
    (void)state;
    check(cpu(), "mask_rcnn_r18_fpn", true, "rcnn_net_mask", STEPS, 2e-3);
}

static void detectron(void **state)
{
    (void)state;
    check(cpu(), "mask_rcnn_r50_fpn", false, "rcnn_net_d2", STEPS, 2e-3);
}

static void detectron_at_edges(void **state)
{
    (void)state;
    check_edges(cpu(), "mask_rcnn_r18_fpn", false, "rcnn_net_edges", of_edges);
}

static void torchvision_at_edges(void **state)
{
    (void)state;
    check_edges(cpu(), "mask_rcnn_r18_fpn", true, "rcnn_net_edges_tv", of_edges);
}

static void fine_masks_of_detectron(void **state)
{
    (void)state;
    check_edges(cpu(), "mask_rcnn_r18_fpn", false, "rcnn_net_fine", fine);
}

static void fine_masks_of_torchvision(void **state)
{
    (void)state;
    check_edges(cpu(), "mask_rcnn_r18_fpn", true, "rcnn_net_fine_tv", fine);
}

static void validation_of_detectron(void **state)
{
    (void)state;
    check_validation(cpu(), false, "rcnn_net_val_d2");
    check_validation(cuda_backend_emu(), false, "rcnn_net_val_d2");
}

static void validation_of_torchvision(void **state)
{
    (void)state;
    check_validation(cpu(), true, "rcnn_net_val_tv");
    check_validation(cuda_backend_emu(), true, "rcnn_net_val_tv");
}

static void mask_on_emulated_gpu(void **state)
{
    (void)state;
    check(cuda_backend_emu(), "mask_rcnn_r18_fpn", true, "rcnn_net_mask", 1, 2e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faster),
        cmocka_unit_test(mask),
        cmocka_unit_test(detectron),
        cmocka_unit_test(detectron_at_edges),
        cmocka_unit_test(torchvision_at_edges),
        cmocka_unit_test(validation_of_detectron),
        cmocka_unit_test(validation_of_torchvision),
        cmocka_unit_test(fine_masks_of_detectron),
        cmocka_unit_test(fine_masks_of_torchvision),
        cmocka_unit_test(mask_on_emulated_gpu),
    };
    return cmocka_run_group_tests_name("rcnn_net", tests, NULL, NULL);
}

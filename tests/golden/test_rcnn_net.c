/* tests/golden/test_rcnn_net.c - Faster and Mask R-CNN against torchvision, set up as detectron2 too: features, losses of ten steps, gradients of step 0, detections (make_rcnn_net.py).
 * uses: proto worker/models worker/models/yolo worker/models/rcnn worker/layers worker/data worker/data/sample worker/eval worker/mask worker/comm worker/core cpu cuda */
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
#include "proto/jobspec.h"
#include "worker/core/arena.h"
#include "worker/core/safetensors.h"
#include "worker/data/sample/instances.h"
#include "worker/layers/layers.h"
#include "worker/layers/tape.h"
#include "worker/models/builtin.h"
#include "worker/models/rcnn/network.h"
#include "worker/models/rcnn/rcnn.h"
#include "worker/models/weights.h"

const struct device_ops *cpu_backend_avx512(void);
const struct device_ops *cpu_backend_avx2(void);
const struct device_ops *cpu_backend_generic(void);
const struct device_ops *cuda_backend_emu(void);

enum { IMAGES = 2, H = 96, W = 128, CLASSES = 3, STEPS = 10, MAX_PARAMS = 512, EVERY = 5, LARGE = 1000, MAX_RUNS = 4096 };

static const int32_t sizes[IMAGES][2] = { { 96, 128 }, { 80, 112 } };
/* image, class, x1 y1 x2 y2; as BOXES in make_rcnn_net.py */
static const struct {
    int image, cls;
    float box[4];
} boxes[] = {
    { 0, 0, { 10.5f, 12.25f, 52.0f, 60.5f } }, { 0, 2, { 60.0f, 20.0f, 121.5f, 90.25f } }, { 0, 1, { 30.25f, 50.0f, 44.0f, 66.0f } },
    { 1, 1, { 8.0f, 9.5f, 40.0f, 71.75f } },   { 1, 0, { 50.5f, 30.0f, 108.25f, 76.0f } },
};
enum { NBOXES = sizeof boxes / sizeof *boxes };

/* ---- what goes in: the formulas of make_rcnn_net.py ---- */

static uint32_t noise(uint32_t i)
{
    i = i * 2654435761u + 1;
    i ^= i >> 15;
    i *= 2246822519u;
    return i ^ i >> 13;
}

static uint32_t key_of(const char *name)
{
    uint32_t h = 2166136261u;

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

static bool ends(const char *text, const char *end)
{
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

/* Element i of an array, of which fan_in numbers make an output (1: of a vector). */
static float value(const char *name, uint32_t i, bool vector, int fan_in)
{
    double u = (noise(key_of(name) + i) >> 8) / 16777216.0;

    if (ends(name, "running_mean"))
        return (float)(0.2 * u - 0.1);
    if (ends(name, "running_var"))
        return (float)(0.75 + 0.5 * u);
    if (vector && (strstr(name, ".bn") || strstr(name, "downsample.1")))
        return (float)(ends(name, "weight") ? (0.75 + 0.5 * u) * (strstr(name, ".bn3") ? 0.25 : 1) : 0.2 * u - 0.1);
    if (vector)
        return (float)(0.1 * u - 0.05);
    return (float)((u - 0.5) * sqrt((strstr(name, "rpn.head.bbox") || strstr(name, "box_predictor") ? 0.2 : 6.0) / fan_in));
}

/* A model on a device, and everything a step needs, in plain buffers. */
struct net {
    struct device *dev;
    struct jobspec *spec;
    bool tv;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    float *grad[MAX_PARAMS], *momentum[MAX_PARAMS];
    double *raw[IMAGES];
    struct shard_batch shard;
    struct batch batch;
    int nbuffers;
    void *buffer[16];
};

/* What torchvision calls parameter i, whatever the flavor does. */
static const char *name_of(const struct net *n, int i)
{
    static char name[128];
    const struct rcnn_named *a = &rcnn_network_of(n->model)->named[i];

    assert_true(rcnn_spell(RCNN_TV, &a->part, a->array, name, sizeof name));
    return name;
}

static void fill(struct net *n)
{
    for (int i = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];
        const char *name = name_of(n, i);
        float *w = calloc(p->count, sizeof *w);
        int fan_in = p->layout == LAYOUT_IOHW ? p->c : p->c * p->r * p->s;
        float scale = !n->tv && strcmp(name, "backbone.body.conv1.weight") == 0 ? 1.0f / 64 : 1; /* pictures reach 150 there */
        struct err err;

        for (size_t e = 0; e < p->count; e++)
            w[e] = scale * value(name, (uint32_t)e, p->layout == LAYOUT_VECTOR, fan_in);
        assert_int_equal(weights_put_stored(n->model, p, w, false, &err), 0);
        free(w);
    }
}

static void *put(struct net *n, const void *host, size_t bytes)
{
    void *p = n->dev->ops->alloc(n->dev, bytes + 1);
    struct err err;

    assert_non_null(p);
    n->buffer[n->nbuffers++] = p;
    if (host)
        assert_int_equal(n->dev->ops->upload(n->dev, p, host, bytes, &err), 0);
    return p;
}

/* Is the pixel the object's? A box of whole pixels without a corner, as bitmap() in make_rcnn_net.py. */
static bool inside(const float box[4], int y, int x)
{
    int x1 = (int)rintf(box[0]), y1 = (int)rintf(box[1]), x2 = (int)rintf(box[2]), y2 = (int)rintf(box[3]), corner = (y2 - y1) / 3;

    return x >= x1 && x < x2 && y >= y1 && y < y2 && !(y - y1 < corner && x < x1 + corner - (y - y1));
}

/* Run lengths down the columns of the picture. */
static int runs_of(int b, int32_t *ret)
{
    const int32_t *size = sizes[boxes[b].image];
    bool now = false;
    int n = 1;

    ret[0] = 0;
    for (int x = 0; x < size[1]; x++)
        for (int y = 0; y < size[0]; y++) {
            if (inside(boxes[b].box, y, x) != now) {
                now = !now;
                ret[n++] = 0;
            }
            ret[n - 1]++;
        }
    return n;
}

static void make_batch(struct net *n)
{
    const struct batch_form *f = task_instances.form;
    static uint8_t pixel[IMAGES * H * W * 3];
    static int32_t run[MAX_RUNS];
    int32_t offset[IMAGES + 1] = { 0 }, cls[NBOXES], at[NBOXES + 1] = { 0 }, none[NBOXES + 1] = { 0 };
    int32_t polygon[NBOXES + 1] = { 0 }, point[NBOXES + 1] = { 0 };
    double xy[NBOXES * 8];
    float box[NBOXES][4];
    struct shard_batch *s = &n->shard;
    static const int32_t index[IMAGES] = { 0, 1 };

    for (uint32_t i = 0; i < sizeof pixel; i++)
        pixel[i] = (uint8_t)(noise(i + 77) >> 24);
    for (int b = 0; b < NBOXES; b++) {
        cls[b] = boxes[b].cls;
        memcpy(box[b], boxes[b].box, sizeof box[b]);
        offset[boxes[b].image + 1] = b + 1;
        at[b + 1] = at[b] + runs_of(b, run + at[b]);
        assert_true(at[b + 1] < MAX_RUNS - 1024);
        polygon[b + 1] = b + 1;
        point[b + 1] = 4 * (b + 1);
        for (int k = 0; k < 8; k++) /* the box, corner by corner */
            xy[8 * b + k] = (double)boxes[b].box[(k % 2 ? 1 : 0) + (k % 2 ? k >= 4 : k == 2 || k == 4) * 2];
    }
    *s = (struct shard_batch){ .n = IMAGES, .canvas = { H, W }, .index = index };
    s->array[batch_array_of(f, "image")] = put(n, pixel, sizeof pixel);
    s->array[batch_array_of(f, "size")] = put(n, sizes, sizeof sizes);
    s->array[batch_array_of(f, "truth.class")] = put(n, cls, sizeof cls);
    s->array[batch_array_of(f, "truth.box")] = put(n, box, sizeof box);
    s->array[batch_array_of(f, "run.length")] = put(n, run, (size_t)at[NBOXES] * sizeof *run);
    s->array[batch_array_of(f, "point.xy")] = put(n, xy, sizeof xy);
    s->offset[batch_list_of(f, "truth")] = put(n, offset, sizeof offset);
    s->offset[batch_list_of(f, "run")] = put(n, n->tv ? at : none, sizeof at);
    s->offset[batch_list_of(f, "polygon")] = put(n, n->tv ? none : polygon, sizeof polygon);
    s->offset[batch_list_of(f, "point")] = put(n, point, sizeof point);
    s->rows[batch_list_of(f, "truth")] = NBOXES;
    s->rows[batch_list_of(f, "run")] = n->tv ? at[NBOXES] : 0;
    s->rows[batch_list_of(f, "polygon")] = n->tv ? 0 : NBOXES;
    s->rows[batch_list_of(f, "point")] = n->tv ? 0 : 4 * NBOXES;
    n->batch = (struct batch){ .form = f, .seed = 1, .step = 1, .nshards = 1, .shard = s };
}

/* ---- a model ---- */

static struct jobspec *spec_of(const char *preset, bool tv)
{
    static const char text[] =
        "{\"model\":{\"preset\":\"%s\",\"flavor\":\"%s\",\"init\":\"/none\",\"width\":0.0625,\"fpn_channels\":16,\"head_channels\":24,"
        "\"mask_channels\":8,\"anchors\":[8,16,32,64,128],\"rpn_batch\":4096,\"rpn_pre_nms\":200,\"rpn_pre_nms_val\":200,"
        "\"rpn_post_nms\":60,\"rpn_post_nms_val\":60,\"roi_positive\":0.5},"
        "\"data\":{\"train\":{\"annotations\":\"a\",\"images\":\"i\"}},\"train\":{\"steps\":10,\"batch\":2,\"shards\":1}}";
    char *full = NULL;
    struct jobspec *spec = NULL;
    struct err err = { 0 };
    json_t *root;

    assert_true(asprintf(&full, text, preset, tv ? "tv" : "d2") > 0);
    root = json_loads(full, 0, NULL);
    assert_non_null(root);
    if (jobspec_parse(root, &spec, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(root);
    free(full);
    free(spec->model_init); /* weights are a formula here */
    spec->model_init = NULL;
    return spec;
}

static void net_open(struct net *n, const struct device_ops *ops, const char *preset, bool tv)
{
    struct device_options opt = { 2, "auto", PRECISION_FP32 };
    struct err err = { 0 };

    memset(n, 0, sizeof *n);
    n->tv = tv;
    n->spec = spec_of(preset, tv);
    if (ops->open(0, &opt, &n->dev, &err) < 0 || model_open(&models_builtin, n->spec, CLASSES, n->dev, &n->model, &err) < 0)
        fail_msg("%s", err.msg);
    n->arena = arena_new(n->dev, 16 << 20);
    n->tape = tape_new(n->dev, n->arena, n->model->nparams);
    assert_true(n->model->nparams <= MAX_PARAMS);
    for (int i = 0; i < n->model->nparams; i++) {
        n->grad[i] = n->dev->ops->alloc(n->dev, n->model->params[i]->count * sizeof(float));
        n->momentum[i] = calloc(n->model->params[i]->count, sizeof(float));
        assert_true(n->grad[i] && n->momentum[i]);
    }
    fill(n);
    make_batch(n);
    for (int i = 0; i < IMAGES; i++)
        n->raw[i] = put(n, NULL, n->model->raw_terms * sizeof(double));
}

static void net_close(struct net *n)
{
    for (int i = 0; i < n->model->nparams; i++) {
        n->dev->ops->free(n->dev, n->grad[i]);
        free(n->momentum[i]);
    }
    while (n->nbuffers > 0)
        n->dev->ops->free(n->dev, n->buffer[--n->nbuffers]);
    tape_free(n->tape);
    arena_free(n->arena);
    model_free(n->model);
    n->dev->ops->close(n->dev);
    jobspec_free(n->spec);
}

static float *grad_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    (void)shard;
    *ret_written = false;
    return ((struct net *)arg)->grad[p->index];
}

static int grad_ready(void *arg, const struct param *p, struct err *err)
{
    (void)arg, (void)p, (void)err;
    return 0;
}

/* ret: [nterms] losses; gradients stand in n->grad. */
static void step(struct net *n, double *ret)
{
    const struct tape_hooks hooks = { n, grad_dest, grad_ready, NULL, NULL };
    const struct model_want want = { .raw = n->raw, .images_of_step = IMAGES, .shards_of_step = 1 };
    double raw[64], record[32];
    struct err err = { 0 };

    n->dev->ops->set_tier(n->dev, TIER_WORLD);
    tape_begin(n->tape, TAPE_TRAIN, 1, &hooks);
    if (n->model->ops->forward(n->model, n->tape, &n->batch, &want, &err) < 0 ||
        tape_backward(n->tape, n->model->params, n->model->nparams, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(n->dev->ops->download(n->dev, raw, n->raw[0], n->model->raw_terms * sizeof *raw, &err), 0);
    n->model->ops->sum_terms(n->model, raw, IMAGES, record);
    for (int k = 0; k < n->model->nterms; k++)
        ret[k] = record[2 * k] / record[2 * k + 1];
}

/* Momentum .9, decay 1e-4 on everything. */
static void update(struct net *n)
{
    struct err err;

    for (int i = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];
        size_t bytes = p->count * sizeof(float);
        float *w = malloc(bytes), *g = malloc(bytes), *v = n->momentum[i];

        if (param_trainable(p)) {
            assert_int_equal(n->dev->ops->download(n->dev, w, p->data, bytes, &err), 0);
            assert_int_equal(n->dev->ops->download(n->dev, g, n->grad[i], bytes, &err), 0);
            for (size_t e = 0; e < p->count; e++) {
                v[e] = 0.9f * v[e] + (g[e] + 1e-4f * w[e]);
                w[e] -= 0.002f * v[e];
            }
            assert_int_equal(weights_put(n->model, p, w, &err), 0);
        }
        free(w);
        free(g);
    }
}

/* ---- what is compared ---- */

static struct safetensors *golden(const char *name)
{
    char path[64];
    struct safetensors *f;
    struct err err;

    snprintf(path, sizeof path, "tests/golden/%s.safetensors", name);
    if (safetensors_open(path, &f, &err) < 0)
        fail_msg("%s", err.msg);
    return f;
}

static const float *array(const struct safetensors *f, const char *name, size_t *ret_n)
{
    const struct st_array *a = safetensors_find(f, name);

    if (!a)
        fail_msg("%s is not in the golden file", name);
    *ret_n = (size_t)st_count(a);
    return a->data;
}

/* Of two lists of numbers: the largest difference, beside the largest number. */
static void close_to(const char *what, const float *got, size_t every, const float *want, size_t n, double tol)
{
    double most = 0, largest = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i * every] - (double)want[i]);

        if (!(d <= most))
            most = d;
        largest = fabs((double)want[i]) > largest ? fabs((double)want[i]) : largest;
    }
    if (!(most <= tol * largest + 1e-9))
        fail_msg("%s: differs by %g where numbers reach %g", what, most, largest);
}

/* The gradient of p as its file would have it. */
static float *gradient(struct net *n, struct param *p)
{
    float *weights = p->data, *ret;
    struct err err;

    p->data = n->grad[p->index];
    ret = weights_get_stored(n->model, p, &err);
    p->data = weights;
    assert_non_null(ret);
    return ret;
}

static void check_gradients(struct net *n, const struct safetensors *f, double tol)
{
    int trained = 0;

    for (int i = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];
        char name[128];
        const float *want;
        float *got;
        size_t count;

        snprintf(name, sizeof name, "grad.%s", name_of(n, i));
        if (!param_trainable(p)) {
            assert_null(safetensors_find(f, name));
            continue;
        }
        trained++;
        want = array(f, name, &count);
        got = gradient(n, p);
        close_to(name, got, p->count > LARGE ? EVERY : 1, want, count, tol);
        free(got);
    }
    for (size_t i = 0; i < safetensors_count(f); i++)
        trained -= strncmp(safetensors_at(f, i)->name, "grad.", 5) == 0;
    assert_int_equal(trained, 0);
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

/* The best detections, after ten steps. */
static void check_found(struct net *n, const struct safetensors *f)
{
    const struct model_want want = { .results = true };
    struct err err = { 0 };

    n->batch.step = 0;
    tape_begin(n->tape, TAPE_EVAL, 1, NULL);
    assert_int_equal(n->model->ops->forward(n->model, n->tape, &n->batch, &want, &err), 0);
    for (int i = 0; i < IMAGES; i++) {
        const struct model_picture picture = { .index = i, .w = sizes[i][1], .h = sizes[i][0] };
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
            for (int c = 0; c < 4; c++)
                if (fabs(corner[c] - (double)row[c]) > 0.02)
                    fail_msg("%s[%zu]: corner %d is %g, should be %g", name, k, c, corner[c], (double)row[c]);
        }
    }
}

static void check(const struct device_ops *ops, const char *preset, bool tv, const char *file, int steps, double tol)
{
    struct safetensors *f = golden(file);
    double got[8];
    struct net n;

    net_open(&n, ops, preset, tv);
    check_features(&n, f);
    for (int s = 0; s < steps; s++) {
        step(&n, got);
        check_losses(&n, f, s, got, s == 0 ? 1e-4 : 1e-3);
        if (s == 0)
            check_gradients(&n, f, tol);
        update(&n);
    }
    if (steps == STEPS)
        check_found(&n, f);
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
        cmocka_unit_test(mask_on_emulated_gpu),
    };
    return cmocka_run_group_tests_name("rcnn_net", tests, NULL, NULL);
}

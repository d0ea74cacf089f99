/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto trainer cpu cuda
 * tests/golden/test_sparse_net.c - Sparse R-CNN against PyTorch in float64 (make_sparse_net.py): pyramid, outputs and
 * matches of each stage, losses, gradients of step 0, ten steps of AdamW, detections, and the sums of validation. */
#include "tests/golden/net_training.h"
#include "worker/ops/families.h"

const struct device_ops *cpu_backend_avx512(void);
const struct device_ops *cpu_backend_avx2(void);
const struct device_ops *cpu_backend_generic(void);
const struct device_ops *cuda_backend_emu(void);

enum { STAGES = 3, LEVELS = 4, MOST_ROWS = IMAGES * 8, TERMS = 7 + STAGES };

static const char *const terms[TERMS] = {
    "total", "cls", "l1", "giou", "last_cls", "last_l1", "last_giou", "total_1", "total_2", "total_3"
};

/* The networks of make_sparse_net.py. */
struct one {
    const char *name, *model, *train; /* prefix of its arrays; keys of the job */
    int proposals, boxes, pairs;      /* boxes: the first of the scene */
};

static const struct one frozen = { "frozen", "\"init\":\"/none\"", ",\"backbone_lr\":0.5", 8, 3, 3 };
static const struct one batch = { "batch", "\"delta_clamp\":0.4,\"delta_floor\":true", "", 6, 9, 8 };

static const struct scene all_boxes = {
    96,
    128,
    9,
    { { 96, 128 }, { 80, 112 } },
    { { 96, 128 }, { 80, 112 } },
    { { 0, 0, { 10.5f, 12.25f, 52.0f, 60.5f } },
      { 0, 2, { 60.0f, 20.0f, 121.5f, 90.25f } },
      { 0, 1, { 30.25f, 50.0f, 44.0f, 66.0f } },
      { 0, 1, { 5.0f, 6.0f, 25.5f, 30.0f } },
      { 0, 0, { 70.25f, 4.0f, 118.0f, 50.5f } },
      { 0, 2, { 84.0f, 60.5f, 100.0f, 92.0f } },
      { 0, 1, { 2.5f, 40.0f, 64.0f, 94.0f } },
      { 1, 1, { 8.0f, 9.5f, 40.0f, 71.75f } },
      { 1, 0, { 50.5f, 30.0f, 108.25f, 76.0f } } },
};

/* ---- the network ---- */

static struct jobspec *spec_of(const struct one *o)
{
    static const char text[] =
        "{\"model\":{\"preset\":\"sparse_rcnn_r18_fpn\",\"width\":0.0625,\"fpn_channels\":16,\"proposals\":%d,\"stages\":3,\"heads\":4,"
        "\"dynamic_channels\":8,\"ffn_channels\":32,%s},\"data\":{\"train\":{\"annotations\":\"a\",\"images\":\"i\"}},"
        "\"train\":{\"steps\":10,\"batch\":2,\"shards\":1,\"lr\":0.001,\"weight_decay\":2,\"burn_in\":4,\"lr_steps\":[0.7]%s}}";
    char *full = NULL;
    struct jobspec *spec = NULL;
    struct err err = { 0 };
    json_t *root;

    assert_true(asprintf(&full, text, o->proposals, o->model, o->train) > 0);
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

static bool ends(const char *name, const char *end)
{
    return strlen(name) >= strlen(end) && strcmp(name + strlen(name) - strlen(end), end) == 0;
}

/* Element i of an array; fan_in numbers make an output. */
static float value(const char *name, uint32_t i, bool vector, int fan_in)
{
    double u = (noise(key_of(name) + i) >> 8) / 16777216.0;

    if (strcmp(name, "init_proposal_boxes.weight") == 0)
        return (float)(i % 4 < 2 ? 0.3 + 0.4 * u : 0.25 + 8 * u * u * u);
    if (strcmp(name, "init_proposal_features.weight") == 0)
        return (float)(2 * u - 1);
    if (ends(name, "running_var") || (vector && ends(name, "weight")))
        return (float)(0.75 + 0.5 * u);
    if (vector)
        return (float)(0.2 * u - 0.1 - (ends(name, "class_logits.bias") ? 2 : 0));
    return (float)((u - 0.5) * sqrt((strstr(name, "bboxes_delta") ? 2.0 : 6.0) / fan_in));
}

/* As the file would have it. */
static float *start_of(const struct param *p)
{
    float *w = calloc(p->count, sizeof *w);

    for (size_t e = 0; e < p->count; e++)
        w[e] = value(p->name, (uint32_t)e, p->layout == LAYOUT_VECTOR, p->c * p->r * p->s);
    return w;
}

static void fill(struct net *n)
{
    for (int i = 0; i < n->model->nparams; i++) {
        float *w = start_of(n->model->params[i]);
        struct err err;

        assert_int_equal(weights_put_stored(n->model, n->model->params[i], w, false, &err), 0);
        free(w);
    }
}

/* ---- inputs of the operations in a pass ---- */

static struct {
    const struct families *on;
    struct scene scene;
    float *level[LEVELS]; /* every fourth channel, image by image, channel by channel */
    float logits[STAGES][MOST_ROWS * CLASSES], box[STAGES][MOST_ROWS * 4];
    int32_t truth[STAGES * MOST_ROWS];
} seen;

static void fetch(struct device *dev, void *ret, const void *from, size_t bytes)
{
    struct err err;

    assert_int_equal(dev->ops->download(dev, ret, from, bytes, &err), 0);
}

static float *channels_of(struct device *dev, const struct tensor *x)
{
    size_t pixels = (size_t)(x->h * x->w), at = 0;
    float *host = malloc((size_t)x->n * pixels * (size_t)x->stride * sizeof *host);
    float *ret = malloc((size_t)x->n * pixels * (size_t)(x->c / 4) * sizeof *ret);

    fetch(dev, host, x->data, (size_t)x->n * pixels * (size_t)x->stride * sizeof *host);
    for (size_t i = 0; i < (size_t)x->n; i++)
        for (size_t c = 0; c < (size_t)x->c; c += 4)
            for (size_t p = 0; p < pixels; p++)
                ret[at++] = host[(i * pixels + p) * (size_t)x->stride + c];
    free(host);
    return ret;
}

static int align_seen(struct device *dev, const struct roi_align *roi, struct tensor *y, const struct tensor *const *x,
                      const struct roi_rows *rows, int nshards, struct err *err)
{
    for (int l = 0; l < LEVELS && !seen.level[l]; l++)
        seen.level[l] = channels_of(dev, &x[l][0]);
    return seen.on->roi->align_fwd(dev, roi, y, x, rows, nshards, err);
}

static int match_seen(struct device *dev, const struct set_head *head, const struct set_match *ret, const struct tensor *const *logits,
                      const float *const *const *box, const struct rcnn_images *images, const struct rcnn_truth *truth, int nshards,
                      struct err *err)
{
    size_t rows = (size_t)(IMAGES * head->proposals);
    int rc = seen.on->set->match(dev, head, ret, logits, box, images, truth, nshards, err);

    for (int s = 0; s < STAGES; s++) {
        for (size_t r = 0; r < rows; r++)
            fetch(dev, seen.logits[s] + r * CLASSES, (const float *)logits[s][0].data + r * (size_t)logits[s][0].stride,
                  CLASSES * sizeof(float));
        fetch(dev, seen.box[s], box[s][0], rows * 4 * sizeof(float));
    }
    fetch(dev, seen.truth, ret[0].truth, STAGES * rows * sizeof(int32_t));
    return rc;
}

/* Opens the network. Its operations leave their inputs in `seen`. */
static void open_one(struct net *n, const struct device_ops *ops, const struct one *o)
{
    static struct families on;
    static struct roi_ops roi;
    static struct set_ops set;

    memset(n, 0, sizeof *n);
    seen.scene = all_boxes;
    seen.scene.n = o->boxes;
    net_begin(n, ops, &seen.scene, spec_of(o), fill);
    seen.on = n->dev->on;
    on = *seen.on;
    roi = *on.roi;
    set = *on.set;
    roi.align_fwd = align_seen;
    set.match = match_seen;
    on.roi = &roi;
    on.set = &set;
    n->dev->on = &on;
}

/* The next pass leaves its pyramid. */
static void forget_pyramid(void)
{
    for (int l = 0; l < LEVELS; l++) {
        free(seen.level[l]);
        seen.level[l] = NULL;
    }
}

static void close_one(struct net *n)
{
    n->dev->on = seen.on;
    forget_pyramid();
    net_close(n);
}

/* ---- comparisons ---- */

static const float *part(const struct safetensors *f, const struct one *o, const char *what, char name[128], size_t *ret_n)
{
    snprintf(name, 128, "%s.%s", o->name, what);
    return array(f, name, ret_n);
}

static void check_outputs(const struct safetensors *f, const struct one *o, double tol)
{
    size_t rows = (size_t)(IMAGES * o->proposals), count;
    char name[128], what[16];
    const float *want;

    for (int l = 0; l < LEVELS; l++) {
        snprintf(what, sizeof what, "feature.%d", l);
        want = part(f, o, what, name, &count);
        close_to(name, seen.level[l], 1, want, count, tol);
    }
    for (size_t s = 0; s < STAGES; s++) {
        want = part(f, o, "logits", name, &count);
        assert_int_equal(count, STAGES * rows * CLASSES);
        close_to(name, seen.logits[s], 1, want + s * rows * CLASSES, rows * CLASSES, tol);
        want = part(f, o, "boxes", name, &count);
        close_to(name, seen.box[s], 1, want + s * rows * 4, rows * 4, tol);
        want = part(f, o, "match", name, &count);
        for (size_t r = 0; r < rows; r++)
            if (seen.truth[s * rows + r] != (int32_t)want[s * rows + r])
                fail_msg("stage %zu, row %zu: matched to %d, should be %g", s, r, seen.truth[s * rows + r], (double)want[s * rows + r]);
    }
}

static void check_gradients(struct net *n, const struct training *t, const struct safetensors *f, const struct one *o, double weight,
                            double tol)
{
    int trained = 0;

    for (int i = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];
        char name[128], what[128];
        const float *want;
        float *got;
        size_t count;

        if (!param_trainable(p))
            continue;
        trained++;
        snprintf(what, sizeof what, "grad.%s", p->name);
        want = part(f, o, what, name, &count);
        got = gradient(n, t, p);
        for (size_t e = 0; e < p->count; e++)
            got[e] *= (float)weight;
        close_to(name, got, p->count > LARGE ? EVERY : 1, want, count, tol);
        free(got);
    }
    for (size_t i = 0; i < safetensors_count(f); i++) {
        const char *dot = strchr(safetensors_at(f, i)->name, '.');

        trained -= strncmp(safetensors_at(f, i)->name, o->name, strlen(o->name)) == 0 && strncmp(dot, ".grad.", 6) == 0;
    }
    assert_int_equal(trained, 0);
}

/* AdamW moves each weight by about the rate, however small its gradient is: rounding counts where that is near 0. So
 * the sum of all differences is compared with how far the weights went. */
static void check_after(struct net *n, const struct safetensors *f, const struct one *o)
{
    for (int i = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];
        char name[128], what[128];
        const float *want;
        double wrong = 0, way = 0;
        float *got, *start;
        size_t count;
        struct err err;

        if (!param_trainable(p))
            continue;
        snprintf(what, sizeof what, "after.%s", p->name);
        want = part(f, o, what, name, &count);
        got = weights_get_stored(n->model, p, &err);
        start = start_of(p);
        for (size_t e = 0; e < count; e++) {
            size_t at = e * (p->count > LARGE ? EVERY : 1);

            wrong += isnan(want[e]) ? 0 : fabs((double)got[at] - (double)want[e]);
            way += isnan(want[e]) ? 0 : fabs((double)start[at] - (double)want[e]);
        }
        if (!(wrong <= 0.02 * way))
            fail_msg("%s: differs by %g in all, where the weights went %g", name, wrong, way);
        free(got);
        free(start);
    }
}

/* Row `at` of losses or of validation. */
static void check_terms(const struct net *n, const struct safetensors *f, const struct one *o, const char *what, int at, const double *got,
                        double tol)
{
    char name[128];
    size_t count, columns = strcmp(what, "val") == 0 ? TERMS + 1 : TERMS;
    const double *want = (const double *)(const void *)part(f, o, what, name, &count) + (size_t)at * columns;

    assert_int_equal(n->model->nterms, TERMS);
    for (int k = 0; k < TERMS; k++) {
        assert_string_equal(n->model->terms[k].name, terms[k]);
        assert_int_equal(n->model->terms[k].aggregate, TERM_RATIO);
        if (!(fabs(got[k] - want[k]) <= tol * fabs(want[k])))
            fail_msg("%s, row %d, %s: %.9g, should be %.9g", name, at, terms[k], got[k], want[k]);
    }
}

/* Sums of each image, over the number of its pairs. */
static void check_validation(struct net *n, const struct safetensors *f, const struct one *o, double tol)
{
    const struct model_want want = { .raw = n->raw };
    double raw[64], record[32], sum[TERMS];
    char name[128];
    size_t count;
    const double *rows = (const double *)(const void *)part(f, o, "val", name, &count);
    struct err err = { 0 };

    n->dev->ops->set_tier(n->dev, TIER_WORLD);
    tape_begin(n->tape, TAPE_EVAL, 1, NULL);
    if (n->model->ops->forward(n->model, n->tape, &n->batch, &want, &err) < 0)
        fail_msg("%s", err.msg);
    for (int i = 0; i < IMAGES; i++) {
        fetch(n->dev, raw, n->raw[i], n->model->raw_terms * sizeof *raw);
        n->model->ops->sum_terms(n->model, raw, 1, record);
        for (int k = 0; k < TERMS; k++) {
            sum[k] = record[2 * k];
            assert_true(record[2 * k + 1] == rows[i * (TERMS + 1) + TERMS]);
        }
        check_terms(n, f, o, "val", i, sum, tol);
    }
}

/* The best detections, after all steps. */
static void check_found(struct net *n, const struct safetensors *f, const struct one *o)
{
    const struct model_want want = { .results = true };
    struct err err = { 0 };

    tape_begin(n->tape, TAPE_EVAL, 1, NULL);
    assert_int_equal(n->model->ops->forward(n->model, n->tape, &n->batch, &want, &err), 0);
    for (int i = 0; i < IMAGES; i++) {
        const struct model_picture picture = { .index = i, .w = n->scene->picture[i][1], .h = n->scene->picture[i][0] };
        char name[128], what[16];
        struct result r;
        const float *row;
        size_t count;

        snprintf(what, sizeof what, "found.%d", i);
        row = part(f, o, what, name, &count);
        if (n->model->ops->result(n->model, 0, i, &picture, NAN, &r, &err) < 0)
            fail_msg("%s", err.msg);
        assert_true(count > 0 && (size_t)r.n >= count / 6);
        for (size_t k = 0; k < count / 6; k++, row += 6) {
            const double *b = r.boxes[k].box, corner[4] = { b[0], b[1], b[0] + b[2], b[1] + b[3] };

            assert_int_equal(r.boxes[k].cls, (int)row[5] - 1);
            if (fabs(r.boxes[k].score - (double)row[4]) > 1e-4)
                fail_msg("%s[%zu]: score %g, should be %g", name, k, r.boxes[k].score, (double)row[4]);
            for (int c = 0; c < 4; c++)
                if (fabs(corner[c] - (double)row[c]) > 0.02)
                    fail_msg("%s[%zu]: corner %d is %g, should be %g", name, k, c, corner[c], (double)row[c]);
        }
    }
}

/* ---- all ---- */

/* A step's terms against row `at`; *ret_weight: the factor of the gradient. */
static double check_step(struct net *n, struct training *t, const struct safetensors *f, const struct one *o, int at)
{
    double got[TERMS];

    step(n, t, got);
    check_terms(n, f, o, "losses", at, got, at == 0 ? 2e-5 : 1e-3);
    if (n->dev->host_memory)
        assert_int_equal(n->model->ops->objects(n->model, n->batch.form, &n->shard), o->pairs);
    return (double)IMAGES / o->pairs;
}

static void check(const struct device_ops *ops, const struct one *o, int steps)
{
    struct safetensors *f = golden("sparse_net");
    struct training t;
    struct net n;

    open_one(&n, ops, o);
    training_open(&t, ops, &n);
    check_validation(&n, f, o, 2e-5);
    forget_pyramid();
    for (int s = 0; s < steps; s++) {
        double weight = check_step(&n, &t, f, o, s);

        if (s == 0) {
            check_outputs(f, o, 2e-5);
            check_gradients(&n, &t, f, o, weight, 2e-4);
        }
        update(&n, &t, weight);
    }
    if (steps == STEPS)
        check_after(&n, f, o);
    if (steps == STEPS && o == &frozen) /* running statistics are the trainer's */
        check_found(&n, f, o);
    training_close(&t);
    close_one(&n);
    safetensors_close(f);
}

static const struct device_ops *cpu(void)
{
    return __builtin_cpu_supports("x86-64-v4")   ? cpu_backend_avx512()
           : __builtin_cpu_supports("x86-64-v3") ? cpu_backend_avx2()
                                                 : cpu_backend_generic();
}

static void with_frozen_statistics(void **state)
{
    (void)state;
    check(cpu(), &frozen, STEPS);
}

static void with_statistics_of_the_batch(void **state)
{
    (void)state;
    check(cpu(), &batch, STEPS);
}

static void on_emulated_gpu(void **state)
{
    (void)state;
    check(cuda_backend_emu(), &frozen, 2);
    check(cuda_backend_emu(), &batch, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_frozen_statistics),
        cmocka_unit_test(with_statistics_of_the_batch),
        cmocka_unit_test(on_emulated_gpu),
    };

    return cmocka_run_group_tests_name("sparse_net", tests, NULL, NULL);
}

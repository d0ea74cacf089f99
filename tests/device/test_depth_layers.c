/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_depth_layers.c - poses, warps and the losses over them on
 * the tape: differences through all of it, values that are read twice, and results of each image.
 * uses: proto worker/layers worker/comm worker/core cpu cuda */
#include "tests/device/tape_net.h"

#include <math.h>

#include "worker/layers/depth.h"

enum { SHARDS = 2 };

/* A value that no layer has computed, of `shape` in each shard. */
static struct value *leaf(struct net *n, const struct tensor *shape, float *const *host, bool needs_grad)
{
    struct value *v = tape_value(n->tape, shape, needs_grad, "leaf");

    assert_non_null(v);
    for (int s = 0; s < n->nshards; s++)
        for (size_t i = 0; i < tensor_pixels(&v->x[s]); i++)
            NET_OK(n, n->dev->ops->upload(n->dev, (float *)v->x[s].data + i * (size_t)v->x[s].stride, host[s] + i * (size_t)v->x[s].c,
                                          (size_t)v->x[s].c * sizeof(float), &n->err));
    return v;
}

/* Its gradient in shard s; caller frees. */
static float *gradient(struct net *n, const struct value *v, int s)
{
    const struct tensor *g = &v->grad[s];
    float *x = malloc(tensor_count(g) * sizeof *x);

    assert_true(x && v->grad_mem);
    for (size_t i = 0; i < tensor_pixels(g); i++)
        get(n->dev, x + i * (size_t)g->c, (const float *)g->data + i * (size_t)g->stride, (size_t)g->c * sizeof *x);
    return x;
}

static void open_net(struct net *n, int device, int nshards)
{
    static const int side[SHARDS] = { 2, 2 };

    net_open_on(n, device, 0, nshards, 1, side, side, 1);
    net_begin(n);
}

static double *result(struct net *n)
{
    return put(n->dev, NULL, sizeof(double));
}

static double value_of(struct net *n, const double *ret)
{
    double x;

    get(n->dev, &x, ret, sizeof x);
    return x;
}

/* ---- all of a step, by differences ---- */

enum { FEATURES = 6, MOVED = 4, LEAVES = 5 };

/* Leaves: the disparities, the pose, the features that are warped, the features they are compared with, and others for
 * an identity, which gets no gradient. */
struct step {
    struct net net;
    struct tensor shape[LEAVES][SHARDS];
    float *host[LEAVES][SHARDS];
    struct value *leaf[LEAVES];
    double *ret[3][SHARDS];
};

static const int high[SHARDS] = { 8, 5 }, wide[SHARDS] = { 9, 11 }, images[SHARDS] = { 2, 1 };

static void fill_step(struct step *s)
{
    for (int v = 0; v < SHARDS; v++) {
        s->shape[0][v] = tensor_f32(NULL, images[v], high[v], wide[v], 1);
        s->shape[1][v] = tensor_f32(NULL, images[v], 1, 1, POSE_IN);
        s->shape[2][v] = s->shape[3][v] = s->shape[4][v] = tensor_f32(NULL, images[v], high[v], wide[v], FEATURES);
        for (int i = 0; i < LEAVES; i++) {
            size_t n = tensor_count(&s->shape[i][v]);

            s->host[i][v] = numbers(n, (uint64_t)(20 * v + i),
                                    i == 0   ? 0.4f
                                    : i == 1 ? -0.06f
                                             : 0.0f,
                                    i == 0   ? 0.6f
                                    : i == 1 ? 0.06f
                                             : 0.3f);
            for (size_t k = 0; k < n && i >= 2; k++) /* slopes, mostly */
                s->host[i][v][k] =
                    0.2f * s->host[i][v][k] + 0.1f * (float)(k / FEATURES % (size_t)wide[v]) * (float)(1 + k % 3) + 0.3f * (float)i;
        }
    }
}

/* The sum of all losses of all shards. */
static double run_step(struct step *s, int device, enum tape_mode mode)
{
    struct net *n = &s->net;
    const float *camera[SHARDS];
    struct value *warped, *map, *pose;
    double sum = 0;

    net_open_on(n, device, 0, SHARDS, 1, high, wide, 1);
    tape_begin(n->tape, mode, SHARDS, &n->hooks);
    for (int v = 0; v < SHARDS; v++) {
        static const float of[2][CAMERA_NUMBERS] = { { 7, 8, 4, 3.5f }, { 6, 7, 5, 3 } };

        camera[v] = put(n->dev, of, sizeof of);
        for (int i = 0; i < 3; i++)
            s->ret[i][v] = put(n->dev, NULL, 2 * sizeof(double));
    }
    for (int i = 0; i < LEAVES; i++)
        s->leaf[i] = leaf(n, s->shape[i], s->host[i], mode == TAPE_TRAIN);
    pose = layer_pose(n->tape, s->leaf[1], true);
    warped = layer_warp(n->tape, s->leaf[2], s->leaf[0], pose, camera, &(struct warp){ 0.5f, 20.0f, true, 1 });
    map = layer_photometric_map(n->tape, s->leaf[4], s->leaf[3], 0.5f);
    NET_OK(n, tape_status(n->tape, &n->err));
    if (mode == TAPE_TRAIN) {
        NET_OK(n, layer_feature_metric(n->tape, &warped, 1, s->leaf[3], 0.5f, 1.0f, s->ret[0]));
        NET_OK(n, layer_photometric_mean(n->tape, warped, s->leaf[3], 0.3f, 2.0f, 1.0f, s->ret[1]));
        NET_OK(n, layer_reprojection(n->tape, &warped, 1, layer_detach(n->tape, s->leaf[3]), &map, NULL, 0.85f, 1.0f, 1.0f, s->ret[2]));
        for (int i = 0; i < 3; i++)
            for (int v = 0; v < SHARDS; v++)
                sum += value_of(n, s->ret[i][v]);
    }
    return sum;
}

static void free_step(struct step *s)
{
    for (int i = 0; i < LEAVES; i++)
        for (int v = 0; v < SHARDS; v++)
            free(s->host[i][v]);
}

/* The first two losses only: the target's gradient of pictures is left out by definition, so leaf 3 is compared without
 * it. */
static double feature_loss(struct step *s, int device, bool all)
{
    double sum = run_step(s, device, TAPE_TRAIN);

    if (!all) {
        sum = 0;
        for (int v = 0; v < SHARDS; v++)
            sum += value_of(&s->net, s->ret[0][v]);
    }
    net_free(&s->net);
    return sum;
}

static void differences(void **state)
{
    static const double step[MOVED] = { 1.0 / 2048, 1.0 / 8192, 1.0 / 256, 1.0 / 256 };

    (void)state;
    for (int device = 0; device < devices.n; device += devices.n - 1) {
        float *grad[MOVED][SHARDS];
        struct step s;

        fill_step(&s);
        run_step(&s, device, TAPE_TRAIN);
        net_back(&s.net);
        for (int i = 0; i < MOVED; i++)
            for (int v = 0; v < SHARDS; v++)
                grad[i][v] = gradient(&s.net, s.leaf[i], v);
        net_free(&s.net);
        for (int i = 0; i < MOVED; i++)
            for (int v = 0; v < SHARDS; v++) {
                size_t n = tensor_count(&s.shape[i][v]);
                double most = 0, error = 0;

                for (size_t k = 0; k < n; k += i == 1 ? 1 : n / 7) {
                    float was = s.host[i][v][k];
                    double side[2];

                    for (int up = 0; up < 2; up++) {
                        s.host[i][v][k] = was + (float)(up ? step[i] : -step[i]);
                        side[up] = feature_loss(&s, device, i < 3);
                    }
                    s.host[i][v][k] = was;
                    error = fmax(error, fabs((side[1] - side[0]) / (2 * step[i]) - (double)grad[i][v][k]));
                    most = fmax(most, fabs((double)grad[i][v][k]));
                }
                if (!(error <= 0.04 * most + 2e-4) || !(most > 0))
                    fail_msg("leaf %d of shard %d: gradients of %g are off by %g", i, v, most, error);
            }
        for (int i = 0; i < MOVED; i++)
            for (int v = 0; v < SHARDS; v++)
                free(grad[i][v]);
        free_step(&s);
    }
}

/* A map's gradient goes to the first picture only, and is added to the earlier values. */
static void map_gradient(void **state)
{
    (void)state;
    for (int device = 0; device < devices.n; device++) {
        struct tensor shape = tensor_f32(NULL, 1, 5, 6, 3);
        float *x = numbers(90, 3, 0.0f, 1.0f), *y = numbers(90, 4, 0.0f, 1.0f), *once, *twice;
        struct value *a, *b, *map;
        struct net n;

        open_net(&n, device, 1);
        a = leaf(&n, &shape, &x, true);
        b = leaf(&n, &shape, &y, true);
        map = layer_photometric_map(n.tape, a, b, 0.85f);
        net_seed(&n, map, 1);
        net_back(&n);
        once = gradient(&n, a, 0);
        assert_null(b->grad_mem);
        net_begin(&n);
        a = leaf(&n, &shape, &x, true);
        b = leaf(&n, &shape, &y, false);
        for (int i = 0; i < 2; i++) {
            map = layer_photometric_map(n.tape, a, b, 0.85f);
            net_seed(&n, map, 1);
        }
        net_back(&n);
        twice = gradient(&n, a, 0);
        for (size_t i = 0; i < 90; i++)
            near((double)twice[i], 2 * (double)once[i], 1e-7, "gradient", i);
        free(x), free(y), free(once), free(twice);
        net_free(&n);
    }
}

/* ---- each image ---- */

/* In validation each image has its result. Without noise, their mean over a shard is the loss in training. */
static void images_alone(void **state)
{
    (void)state;
    for (int device = 0; device < devices.n; device++) {
        double train[3][SHARDS];
        struct step s;
        struct value *warped, *map, *pose;
        const float *camera[SHARDS];
        double *ret[3][3];
        struct philox_key key[3] = { { .seed = 1 } };
        const struct philox_key *keys = key;
        struct automask_noise noise = { AUTOMASK_UNIFORM, 100.0f, &keys }; /* would show */

        fill_step(&s);
        run_step(&s, device, TAPE_TRAIN);
        for (int i = 0; i < 3; i++)
            for (int v = 0; v < SHARDS; v++)
                train[i][v] = value_of(&s.net, s.ret[i][v]);
        net_free(&s.net);
        run_step(&s, device, TAPE_EVAL);
        for (int v = 0; v < SHARDS; v++)
            camera[v] = put(s.net.dev, (const float[2][CAMERA_NUMBERS]){ { 7, 8, 4, 3.5f }, { 6, 7, 5, 3 } }, 8 * sizeof(float));
        for (int i = 0; i < 9; i++)
            ret[i / 3][i % 3] = result(&s.net);
        pose = layer_pose(s.net.tape, s.leaf[1], true);
        warped = layer_warp(s.net.tape, s.leaf[2], s.leaf[0], pose, camera, &(struct warp){ 0.5f, 20.0f, true, 1 });
        map = layer_photometric_map(s.net.tape, s.leaf[4], s.leaf[3], 0.5f);
        NET_OK(&s.net, layer_feature_metric(s.net.tape, &warped, 1, s.leaf[3], 0.5f, 1.0f, ret[0]));
        NET_OK(&s.net, layer_photometric_mean(s.net.tape, warped, s.leaf[3], 0.3f, 2.0f, 1.0f, ret[1]));
        NET_OK(&s.net, layer_reprojection(s.net.tape, &warped, 1, s.leaf[3], &map, &noise, 0.85f, 1.0f, 1.0f, ret[2]));
        for (int i = 0; i < 3; i++) {
            near((value_of(&s.net, ret[i][0]) + value_of(&s.net, ret[i][1])) / 2, train[i][0], 1e-9, "mean of two images", (size_t)i);
            near(value_of(&s.net, ret[i][2]), train[i][1], 1e-12, "one image", (size_t)i);
        }
        net_free(&s.net);
        free_step(&s);
    }
}

/* Noise decides between equal maps, separately for each image: two images with equal pictures choose other pixels. */
static void noise_decides(void **state)
{
    enum { H = 6, W = 7, N = H * W * 3 };

    (void)state;
    for (int device = 0; device < devices.n; device++) {
        struct tensor shape = tensor_f32(NULL, 2, H, W, 3);
        float *x = numbers(2 * N, 3, 0.0f, 1.0f), *y = numbers(2 * N, 4, 0.0f, 1.0f), *grad;
        struct philox_key key[2] = { { .seed = 6, .shard = 0 }, { .seed = 6, .shard = 1 } };
        const struct philox_key *keys = key;
        struct automask_noise noise = { AUTOMASK_UNIFORM, 0.05f, &keys };
        struct value *w, *t, *map;
        double *ret;
        int none[2] = { 0 }, other = 0;
        struct net n;

        for (int i = 0; i < N; i++) {
            x[N + i] = x[i];
            y[N + i] = y[i];
        }
        open_net(&n, device, 1);
        ret = result(&n);
        w = leaf(&n, &shape, &x, true);
        t = leaf(&n, &shape, &y, false);
        map = layer_photometric_map(n.tape, w, t, 0.0f);
        NET_OK(&n, layer_reprojection(n.tape, &w, 1, t, &map, &noise, 0.0f, 1.0f, 1.0f, &ret));
        grad = gradient(&n, w, 0);
        for (int i = 0; i < H * W; i++) {
            none[0] += grad[3 * i] == 0.0f;
            none[1] += grad[N + 3 * i] == 0.0f;
            other += (grad[3 * i] == 0.0f) != (grad[N + 3 * i] == 0.0f);
        }
        assert_true(none[0] > 5 && none[0] < H * W - 5 && none[1] > 5 && none[1] < H * W - 5 && other > 5);
        free(x), free(y), free(grad);
        net_free(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(differences), cmocka_unit_test(images_alone), cmocka_unit_test(noise_decides),
                                        cmocka_unit_test(map_gradient) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_photo_loss.c - uses: proto worker/core cpu cuda
 * Losses that take the least of several values: the vectors of specs featdepth section 12, the scalar bodies on every
 * device and in every shard, ties, noise, and NaN. */
#include "tests/device/photo_cases.h"

#include "worker/core/tree.h"

/* ---- the least ---- */

enum { SOURCES = 2 };

struct least_case {
    int nshards, nidentity, nwarped;
    struct tensor shape[SHARDS];
    const float *identity[SOURCES][SHARDS], *warped[SOURCES][SHARDS];
    struct automask_noise noise;
    float weight, grad_scale;
};

static size_t least_bytes(const struct least_case *t)
{
    size_t n = 0;

    for (int v = 0; v < t->nshards; v++)
        n += floats_of(&t->shape[v]) * SOURCES * sizeof(float);
    return n + SHARDS * sizeof(double);
}

/* The results, then each shard's gradients. */
static void run_least(struct device *dev, const void *arg, void *ret)
{
    struct tensor identity[SOURCES][SHARDS], warped[SOURCES][SHARDS], back[SOURCES][SHARDS], *dwarped[SOURCES];
    const struct least_case *t = arg;
    struct photo_maps in = { .nidentity = t->nidentity, .nwarped = t->nwarped, .noise = t->noise };
    double *sum[SHARDS];
    char *out = ret;
    struct err err;

    for (int i = 0; i < SOURCES; i++) {
        for (int v = 0; v < t->nshards; v++) {
            identity[i][v] = on(dev, &t->shape[v], t->identity[i][v]);
            warped[i][v] = on(dev, &t->shape[v], t->warped[i][v]);
            back[i][v] = on(dev, &t->shape[v], NULL);
            sum[v] = put(dev, NULL, sizeof(double));
        }
        in.identity[i] = identity[i];
        in.warped[i] = warped[i];
        dwarped[i] = back[i];
    }
    if (dev->on->photo->least(dev, &in, dwarped, t->weight, t->grad_scale, sum, t->nshards, &err) < 0)
        fail_msg("%s: %s", dev->ops->name, err.msg);
    memset(ret, 0, least_bytes(t));
    for (int v = 0; v < t->nshards; v++, out += sizeof(double))
        get(dev, out, sum[v], sizeof(double));
    out = (char *)ret + SHARDS * sizeof(double);
    for (int v = 0; v < t->nshards; v++)
        for (int i = 0; i < SOURCES; i++, out += floats_of(&t->shape[v]) * sizeof(float))
            if (i < t->nwarped)
                get(dev, out, back[i][v].data, floats_of(&t->shape[v]) * sizeof(float));
    for (int v = 0; v < t->nshards; v++) { /* without gradients: the same */
        double again, was;

        memcpy(&was, (char *)ret + (size_t)v * sizeof was, sizeof was);
        if (dev->on->photo->least(dev, &in, NULL, t->weight, t->grad_scale, sum, t->nshards, &err) < 0)
            fail_msg("%s: %s", dev->ops->name, err.msg);
        get(dev, &again, sum[v], sizeof again);
        assert_memory_equal(&again, &was, sizeof was);
    }
}

static char *least_run(const struct least_case *t)
{
    char *out = malloc(least_bytes(t));

    assert_non_null(out);
    same_on_all(run_least, t, out, least_bytes(t));
    return out;
}

/* Whether a distance replaces the best before it: a smaller distance does, and so does the first NaN. */
static bool before(float v, float best)
{
    if (isnan(best))
        return false;
    return isnan(v) ? true : v < best;
}

/* The source that each pixel takes, and the sum of the taken values: by the scalar bodies. */
static double least_of(const struct least_case *t, int v, int image0, int *chosen)
{
    const struct tensor *s = &t->shape[v];
    double *rows = calloc((size_t)(s->n * s->h), sizeof *rows), sum;

    assert_non_null(rows);
    for (int r = 0; r < s->n * s->h; r++) {
        double lane[PHOTO_LANES] = { 0 };

        for (int x = 0; x < s->w; x++) {
            int pixel = r * s->w + x, image = image0 + r / s->h;
            float best = 0;

            for (int i = 0; i < t->nidentity + t->nwarped; i++) {
                const float *of = i < t->nidentity ? t->identity[i][v] : t->warped[i - t->nidentity][v];
                float value = of[pixel * s->stride];

                if (i < t->nidentity && t->noise.kind != AUTOMASK_NONE)
                    value += photo_noise(t->noise.kind, &t->noise.key[i][image], (uint64_t)(r % s->h * s->w + x), t->noise.sigma,
                                         photo_uniform_scale(t->noise.sigma));
                if (i == 0 || before(value, best)) {
                    best = value;
                    chosen[pixel] = i;
                }
            }
            lane[x % PHOTO_LANES] += (double)best;
        }
        for (int half = PHOTO_LANES / 2; half > 0; half /= 2)
            for (int i = 0; i < half; i++)
                lane[i] = lane[2 * i] + lane[2 * i + 1];
        rows[r] = lane[0];
    }
    sum = tree_sum(rows, 1, s->n * s->h);
    free(rows);
    return sum;
}

static void check_least(const struct least_case *t)
{
    char *all = least_run(t);
    const float *out = (const float *)(const void *)(all + SHARDS * sizeof(double));
    int image = 0;

    for (int v = 0; v < t->nshards; v++) {
        const struct tensor *s = &t->shape[v];
        int *chosen = calloc(tensor_pixels(s), sizeof *chosen);
        double got, want;

        assert_non_null(chosen);
        want = (double)t->weight * (least_of(t, v, image, chosen) / (double)tensor_pixels(s));
        memcpy(&got, all + (size_t)v * sizeof got, sizeof got);
        if (memcmp(&got, &want, sizeof got) != 0 && !(got != got && want != want))
            fail_msg("shard %d: %.17g, by the bodies %.17g", v, got, want);
        for (int i = 0; i < SOURCES; i++, out += floats_of(s))
            for (size_t p = 0; p < tensor_pixels(s) && i < t->nwarped; p++) {
                float g = chosen[p] == t->nidentity + i ? photo_pixel_grad(t->weight, t->grad_scale, tensor_pixels(s)) : 0.0f;

                if (out[p * (size_t)s->stride] != g)
                    fail_msg("shard %d, source %d, pixel %zu: %g, should be %g", v, i, p, (double)out[p * (size_t)s->stride], (double)g);
            }
        free(chosen);
        image += s->n;
    }
    free(all);
}

/* Each kind of noise, with maps that differ only by the noise; with and without identities; gaps. */
static void least_bodies(void **state)
{
    struct philox_key key[SOURCES][6];
    const struct philox_key *keys[SOURCES] = { key[0], key[1] };

    (void)state;
    for (int i = 0; i < SOURCES * 6; i++)
        key[i / 6][i % 6] = (struct philox_key){ .seed = 5, .step = 9, .op = (uint16_t)(3 + i / 6), .shard = (uint16_t)(i % 6) };
    for (int kind = AUTOMASK_NONE; kind <= AUTOMASK_NORMAL; kind++)
        for (int gap = 0; gap < 3; gap++) {
            struct least_case t = { .nshards = SHARDS,
                                    .nidentity = gap == 1 ? 0 : 2,
                                    .nwarped = 2 - gap / 2,
                                    .noise = { kind, 0.25f, keys },
                                    .weight = 0.25f,
                                    .grad_scale = 3.0f };
            float *x[SHARDS][4];

            for (int v = 0; v < SHARDS; v++) {
                t.shape[v] = tensor_f32(NULL, 1 + v, 3 + v, 17 + 300 * (v % 2), 1);
                t.shape[v].stride = 1 + gap;
                for (int i = 0; i < 4; i++)
                    x[v][i] = numbers(floats_of(&t.shape[v]), (uint64_t)(10 * v + i), 0.0f, 1.0f);
                for (size_t i = 0; i < floats_of(&t.shape[v]); i += 3) /* ties */
                    x[v][1][i] = x[v][2][i] = x[v][3][i] = x[v][0][i];
                t.identity[0][v] = x[v][0], t.identity[1][v] = x[v][1], t.warped[0][v] = x[v][2], t.warped[1][v] = x[v][3];
            }
            check_least(&t);
            for (int v = 0; v < SHARDS; v++)
                for (int i = 0; i < 4; i++)
                    free(x[v][i]);
        }
}

/* Uniform noise is centred, has the requested deviation, and stays within sqrt(3) of it; normal noise is
 * philox_normal(). */
static void noise_is(void **state)
{
    enum { N = 4096 };
    struct philox_key key = { .seed = 77, .op = 4 };
    double sum = 0, squares = 0;

    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        double u = (double)photo_noise(AUTOMASK_UNIFORM, &key, i, 1e-5f, photo_uniform_scale(1e-5f));

        assert_true(fabs(u) <= 1.7320509e-5);
        near(1e5 * u, ((double)philox_uniform(&key, i) - 0.5) * 2 * 1.7320508075688772, 1e-6, "uniform noise", i);
        sum += u;
        squares += u * u;
        assert_true(photo_noise(AUTOMASK_NORMAL, &key, i, 1e-5f, 0.0f) == (float)(philox_normal(&key, i) * (double)1e-5f));
    }
    assert_true(fabs(sum / N) < 1e-6 && fabs(sqrt(squares / N) - 1e-5) < 5e-7);
    assert_true(photo_noise(AUTOMASK_NONE, &key, 1, 1e-5f, 1.0f) == 0.0f);
}

/* The vector: noise is given, so it is on the maps already. If noise decides, the argmin shows it. */
static void automask_golden(void **state)
{
    json_t *root = golden_open(), *t = member(root, "min_reprojection_automask"), *argmin = member(t, "argmin");
    struct tensor shape, map;
    float *target = picture_in_json(member(t, "target"), &shape), *of[2][SOURCES], *warped[SOURCES];
    struct least_case c = { .nshards = 1, .nidentity = 2, .nwarped = 2, .weight = 1.0f, .grad_scale = 1.0f };
    size_t n = tensor_pixels(&shape);
    double mean;
    char *out;

    (void)state;
    map = shape;
    map.c = map.stride = 1;
    c.shape[0] = map;
    for (size_t i = 0; i < SOURCES; i++) {
        float *source = picture_in_json(json_array_get(member(t, "source"), i), &shape), *zero = room(n);
        float *noise = numbers_in_json(json_array_get(member(t, "noise_standard_normal"), i), n);

        warped[i] = picture_in_json(json_array_get(member(t, "warped"), i), &shape);
        of[0][i] = one_map(&shape, 0.85f, source, target, zero);
        of[1][i] = one_map(&shape, 0.85f, warped[i], target, zero);
        for (size_t k = 0; k < n; k++)
            of[0][i][k] += (float)number_of(t, "noise_scale") * noise[k];
        c.identity[i][0] = of[0][i];
        c.warped[i][0] = of[1][i];
        free(source), free(zero), free(noise);
    }
    out = least_run(&c);
    memcpy(&mean, out, sizeof mean);
    near(mean, number_of(t, "mean"), 2e-5, "mean", 0);
    for (size_t i = 0; i < SOURCES; i++) {
        const float *chosen = (const float *)(const void *)(out + SHARDS * sizeof(double)) + i * n;
        float *want = picture_in_json(json_array_get(member(t, "grad_warped"), i), &shape);
        float *got = one_map(&shape, 0.85f, warped[i], target, chosen);

        for (size_t k = 0; k < n; k++)
            assert_int_equal(chosen[k] != 0.0f, json_integer_value(json_array_get(argmin, k)) == (json_int_t)(2 + i));
        close_to(got + n, want, tensor_count(&shape), 1e-5, 1e-3, "gradient");
        free(want), free(got);
    }
    free(out);
    c.nidentity = 0;
    out = least_run(&c);
    memcpy(&mean, out, sizeof mean);
    near(mean, number_of(member(t, "no_automask"), "mean"), 2e-5, "mean without identities", 0);
    free(out), free(target);
    for (int i = 0; i < SOURCES; i++)
        free(of[0][i]), free(of[1][i]), free(warped[i]);
    json_decref(root);
}

/* NaN counts as the least of all, and the loss shows it; infinity does not. */
static void no_numbers(void **state)
{
    float x[4][5] = { { 1, NAN, 1, INFINITY, 1 }, { 2, 2, 2, 2, NAN }, { 3, 3, NAN, 3, NAN }, { 4, 4, 4, 1, 4 } };
    struct least_case t = {
        .nshards = 1, .nidentity = 2, .nwarped = 2, .shape = { tensor_f32(NULL, 1, 1, 5, 1) }, .weight = 1.0f, .grad_scale = 1.0f
    };
    char *out;
    double sum;

    (void)state;
    for (int i = 0; i < 2; i++) {
        t.identity[i][0] = x[i];
        t.warped[i][0] = x[2 + i];
    }
    check_least(&t);
    out = least_run(&t);
    memcpy(&sum, out, sizeof sum);
    assert_true(sum != sum);
    free(out);
}

/* ---- the nearest features ---- */

struct nearest_case {
    int nshards, nwarped;
    struct tensor shape[SHARDS];
    float *warped[SOURCES][SHARDS], *target[SHARDS], *old[SOURCES + 1][SHARDS];
    float beta, weight, grad_scale;
    bool frozen; /* the second source and the target need no gradient */
};

static size_t nearest_bytes(const struct nearest_case *t)
{
    size_t n = 0;

    for (int v = 0; v < t->nshards; v++)
        n += floats_of(&t->shape[v]) * (SOURCES + 1) * sizeof(float);
    return n + SHARDS * sizeof(double);
}

/* The results, then each shard's gradients: of the sources, of the target. */
static void run_nearest(struct device *dev, const void *arg, void *ret)
{
    struct tensor warped[SOURCES][SHARDS], target[SHARDS], back[SOURCES + 1][SHARDS];
    const struct nearest_case *t = arg;
    struct photo_features in = { .nwarped = t->nwarped, .target = target };
    struct photo_grads to = { .beta_target = t->beta };
    double *sum[SHARDS];
    char *out = ret;
    struct err err;

    for (int i = 0; i <= SOURCES; i++) {
        for (int v = 0; v < t->nshards; v++) {
            back[i][v] = on(dev, &t->shape[v], t->old[i][v]);
            if (i < SOURCES)
                warped[i][v] = on(dev, &t->shape[v], t->warped[i][v]);
            else
                target[v] = on(dev, &t->shape[v], t->target[v]);
            sum[v] = put(dev, NULL, sizeof(double));
        }
        if (i < SOURCES) {
            in.warped[i] = warped[i];
            to.warped[i] = t->frozen && i == 1 ? NULL : back[i];
            to.beta[i] = t->beta;
        }
    }
    to.target = t->frozen ? NULL : back[SOURCES];
    if (dev->on->photo->nearest(dev, &in, &to, t->weight, t->grad_scale, sum, t->nshards, &err) < 0)
        fail_msg("%s: %s", dev->ops->name, err.msg);
    memset(ret, 0, nearest_bytes(t));
    for (int v = 0; v < t->nshards; v++, out += sizeof(double))
        get(dev, out, sum[v], sizeof(double));
    out = (char *)ret + SHARDS * sizeof(double);
    for (int v = 0; v < t->nshards; v++)
        for (int i = 0; i <= SOURCES; i++, out += floats_of(&t->shape[v]) * sizeof(float))
            get(dev, out, back[i][v].data, floats_of(&t->shape[v]) * sizeof(float));
}

static float lanes_added(float lane[PHOTO_LANES])
{
    for (int half = PHOTO_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[2 * i] + lane[2 * i + 1];
    return lane[0];
}

/* The same by the scalar bodies, for the gradients of one shard; old: replaced by them. */
static void nearest_of(const struct nearest_case *t, int v, float *old[SOURCES + 1])
{
    const struct tensor *s = &t->shape[v];
    float g = photo_pixel_grad(t->weight, t->grad_scale, tensor_pixels(s)) * (1.0f / (float)s->c);

    for (size_t p = 0; p < tensor_pixels(s); p++) {
        float best = 0;
        int chosen = 0;

        for (int i = 0; i < t->nwarped; i++) {
            float lane[PHOTO_LANES] = { 0 }, d;

            for (int k = 0; k < s->c; k++)
                lane[k % PHOTO_LANES] +=
                    robust(t->warped[i][v][p * (size_t)s->stride + (size_t)k] - t->target[v][p * (size_t)s->stride + (size_t)k]);
            d = lanes_added(lane) * (1.0f / (float)s->c);
            if (i == 0 || before(d, best)) {
                best = d;
                chosen = i;
            }
        }
        for (int k = 0; k < s->c; k++) {
            size_t at = p * (size_t)s->stride + (size_t)k;
            float d = t->warped[chosen][v][at] - t->target[v][at];

            for (int i = 0; i < t->nwarped; i++)
                if (!t->frozen || i != 1)
                    old[i][at] = act_store(t->beta, &old[i][at], i == chosen ? g * (d / robust(d)) : 0.0f);
            if (!t->frozen)
                old[SOURCES][at] = act_store(t->beta, &old[SOURCES][at], -g * (d / robust(d)));
        }
    }
}

static void check_nearest(const struct nearest_case *t)
{
    char *all = malloc(nearest_bytes(t));
    const float *out;

    assert_non_null(all);
    same_on_all(run_nearest, t, all, nearest_bytes(t));
    out = (const float *)(const void *)(all + SHARDS * sizeof(double));
    for (int v = 0; v < t->nshards; v++) {
        float *old[SOURCES + 1];

        for (int i = 0; i <= SOURCES; i++) {
            old[i] = room(floats_of(&t->shape[v]));
            memcpy(old[i], t->old[i][v], floats_of(&t->shape[v]) * sizeof **old);
        }
        nearest_of(t, v, old);
        for (int i = 0; i <= SOURCES; i++, out += floats_of(&t->shape[v])) {
            same(out, old[i], floats_of(&t->shape[v]), "gradient of features");
            free(old[i]);
        }
    }
    free(all);
}

static void nearest_bodies(void **state)
{
    static const int channels[] = { 1, 4, 16, 37, 64 };

    (void)state;
    for (int which = 0; which < 5; which++) {
        struct nearest_case t = { .nshards = SHARDS,
                                  .nwarped = which == 1 ? 1 : 2,
                                  .beta = (float)(which % 2),
                                  .weight = 1e-3f,
                                  .grad_scale = 0.5f,
                                  .frozen = which == 2 };

        for (int v = 0; v < SHARDS; v++) {
            t.shape[v] = tensor_f32(NULL, 1 + v % 2, 2 + v, 5 + 9 * v, channels[which]);
            t.shape[v].stride += 3 * (which % 2);
            for (int i = 0; i < 2 * SOURCES + 2; i++) {
                float *x = numbers(floats_of(&t.shape[v]), (uint64_t)(10 * v + i), -1.0f, 1.0f);

                *(i < SOURCES ? &t.warped[i][v] : i == SOURCES ? &t.target[v] : &t.old[i - SOURCES - 1][v]) = x;
            }
        }
        check_nearest(&t);
        for (int v = 0; v < SHARDS; v++) {
            free(t.target[v]);
            for (int i = 0; i <= SOURCES; i++) {
                free(t.old[i][v]);
                if (i < SOURCES)
                    free(t.warped[i][v]);
            }
        }
    }
}

static void features_golden(void **state)
{
    json_t *root = golden_open(), *t = member(root, "feature_metric");
    struct nearest_case c = { .nshards = 1, .nwarped = 2, .weight = 1.0f, .grad_scale = 1.0f };
    struct tensor shape;
    char *out;
    double mean;

    (void)state;
    c.target[0] = picture_in_json(member(t, "target"), &shape);
    c.shape[0] = shape;
    for (size_t i = 0; i < SOURCES; i++)
        c.warped[i][0] = picture_in_json(json_array_get(member(t, "sampled"), i), &shape);
    for (int i = 0; i <= SOURCES; i++)
        c.old[i][0] = c.target[0];
    out = malloc(nearest_bytes(&c));
    assert_non_null(out);
    same_on_all(run_nearest, &c, out, nearest_bytes(&c));
    memcpy(&mean, out, sizeof mean);
    near(mean, number_of(t, "mean"), 2e-6, "mean", 0);
    for (size_t i = 0; i <= SOURCES; i++) {
        json_t *of = i < SOURCES ? json_array_get(member(t, "grad_sampled"), i) : member(t, "grad_target");
        float *want = picture_in_json(of, &shape);

        close_to((const float *)(const void *)(out + SHARDS * sizeof(double)) + i * tensor_count(&shape), want, tensor_count(&shape), 1e-6,
                 1e-4, "gradient");
        free(want);
    }
    free(out), free(c.target[0]), free(c.warped[0][0]), free(c.warped[1][0]);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_bodies), cmocka_unit_test(noise_is),       cmocka_unit_test(automask_golden),
        cmocka_unit_test(no_numbers),   cmocka_unit_test(nearest_bodies), cmocka_unit_test(features_golden)
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

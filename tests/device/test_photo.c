/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_photo.c - photometric maps: the vectors of specs
 * featdepth section 12, and the scalar bodies on every device and in every shard. uses: proto worker/core cpu cuda */
#include "tests/device/photo_cases.h"

static struct ssim_window window_at(const struct tensor *s, const float *a, const float *b, int image, int y, int x, int k)
{
    float w[2][3][3];

    for (int i = 0; i < 9; i++) {
        int row = photo_mirror(y - 1 + i / 3, s->h), column = photo_mirror(x - 1 + i % 3, s->w);
        size_t at = (size_t)(((image * s->h + row) * s->w + column) * s->stride + k);

        w[0][i / 3][i % 3] = a[at];
        w[1][i / 3][i % 3] = b[at];
    }
    return ssim_window(&w[0][0][1], &w[0][1][1], &w[0][2][1], &w[1][0][1], &w[1][1][1], &w[1][2][1], 1);
}

/* The gradient of one number from the bodies: column by column of windows. */
static float slope_at(const struct map_case *t, int v, int image, int y, int x, int k)
{
    const struct tensor *s = &t->shape[v];
    size_t pixel = (size_t)((image * s->h + y) * s->w + x), at = pixel * (size_t)s->stride + (size_t)k;
    float sum[3] = { 0 };

    for (int dx = -1; dx < 2; dx++) {
        float column[3] = { 0 }, across = photo_times(x, x + dx, s->w);

        for (int dy = -1; dy < 2; dy++) {
            float times = photo_times(y, y + dy, s->h);
            struct ssim_window w;
            struct ssim_share share;

            if (across == 0.0f || times == 0.0f)
                continue;
            w = window_at(s, t->a[v], t->b[v], image, y + dy, x + dx, k);
            share = ssim_share(&w, t->dmap[v][(size_t)((image * s->h + y + dy) * s->w + x + dx) * (size_t)t->map_stride] *
                                       (t->ssim_weight / (float)s->c));
            column[0] = fmaf(times, share.a, column[0]);
            column[1] = fmaf(times, share.b, column[1]);
            column[2] = fmaf(times, share.c, column[2]);
        }
        for (int i = 0; i < 3 && across != 0.0f; i++)
            sum[i] = fmaf(across, column[i], sum[i]);
    }
    return photo_slope(sum[0], sum[1], sum[2], t->a[v][at], t->b[v][at],
                       t->dmap[v][pixel * (size_t)t->map_stride] * ((1.0f - t->ssim_weight) / (float)s->c));
}

static void check_bodies(const struct map_case *t)
{
    float *all = map_run(t), *out = all;

    for (int v = 0; v < t->nshards; v++) {
        const struct tensor *s = &t->shape[v];
        struct tensor of = map_of(t, v);
        float *map = room(floats_of(&of)), *da = room(floats_of(s));

        memcpy(da, t->old[v], floats_of(s) * sizeof *da);
        for (int i = 0; i < s->n * s->h * s->w; i++) {
            int x = i % s->w, y = i / s->w % s->h, image = i / s->w / s->h;
            float sum = 0;

            for (int k = 0; k < s->c; k++) {
                struct ssim_window w = window_at(s, t->a[v], t->b[v], image, y, x, k);
                size_t at = (size_t)(i * s->stride + k);
                float term = photo_value(t->ssim_weight, &w, t->a[v][at], t->b[v][at]);

                sum = k ? sum + term : term;
                da[at] = act_store(t->beta, &da[at], slope_at(t, v, image, y, x, k));
            }
            map[i * t->map_stride] = sum * (1.0f / (float)s->c);
        }
        same(out, map, floats_of(&of), "map");
        out += floats_of(&of);
        same(out, da, floats_of(s), "gradient");
        out += floats_of(s);
        free(map), free(da);
    }
    free(all);
}

static void bodies(void **state)
{
    static const int h[SHARDS] = { 2, 37, 3 }, w[SHARDS] = { 3, 2, 201 }, n[SHARDS] = { 3, 1, 2 };

    (void)state;
    for (int c = 1; c <= 5; c += 2)
        for (int gap = 0; gap < 3; gap += 2) {
            struct map_case t = { .nshards = SHARDS, .ssim_weight = 0.85f, .beta = gap ? 1.0f : 0.0f, .map_stride = 1 + gap };
            float *x[SHARDS][4];

            for (int v = 0; v < SHARDS; v++) {
                t.shape[v] = tensor_f32(NULL, n[v], h[v], w[v], c);
                t.shape[v].stride = c + gap;
                for (int i = 0; i < 4; i++)
                    x[v][i] = numbers(floats_of(&t.shape[v]) * 3, (uint64_t)(10 * v + i), i < 2 ? 0.0f : -1.0f, 1.0f);
                for (int i = 0; i < n[v] * h[v] * w[v] * (c + gap); i++) /* some are close: SSIM near 1 */
                    x[v][1][i] = i % 7 < 3 ? x[v][0][i] + 0.02f * x[v][1][i] : x[v][1][i];
                t.a[v] = x[v][0], t.b[v] = x[v][1], t.dmap[v] = x[v][2], t.old[v] = x[v][3];
            }
            check_bodies(&t);
            for (int v = 0; v < SHARDS; v++)
                for (int i = 0; i < 4; i++)
                    free(x[v][i]);
        }
}

/* Rows longer than a window, and more rows than a thread takes. */
static void large(void **state)
{
    struct map_case t = { .nshards = 1, .shape = { tensor_f32(NULL, 1, 70, 200, 3) }, .ssim_weight = 0.85f, .map_stride = 1 };
    size_t n = floats_of(&t.shape[0]);
    float *x[3];

    (void)state;
    for (int i = 0; i < 3; i++)
        x[i] = numbers(n, 50 + (uint64_t)i, 0.0f, 1.0f);
    t.a[0] = t.old[0] = x[0], t.b[0] = x[1], t.dmap[0] = x[2];
    check_bodies(&t);
    for (int i = 0; i < 3; i++)
        free(x[i]);
}

static void ssim_golden(void **state)
{
    json_t *root = golden_open(), *t = member(root, "ssim");
    struct tensor shape = tensor_f32(NULL, 2, 4, 5, 1); /* each channel as a picture */
    float *x = numbers_in_json(member(t, "x"), 40), *y = numbers_in_json(member(t, "y"), 40),
          *up = numbers_in_json(member(t, "upstream"), 40);
    float *want = numbers_in_json(member(t, "out"), 40), *gx = numbers_in_json(member(t, "grad_x"), 40),
          *gy = numbers_in_json(member(t, "grad_y"), 40);
    float *out = one_map(&shape, 1.0f, x, y, up), *back = one_map(&shape, 1.0f, y, x, up), plain[2][40], *flat;

    (void)state;
    close_to(out, want, 40, 2e-5, 0, "SSIM");
    close_to(out + 40, gx, 40, 1e-5, 1e-3, "gradient of x");
    close_to(back, want, 40, 2e-5, 0, "SSIM");
    close_to(back + 40, gy, 40, 1e-5, 1e-3, "gradient of y");
    for (int i = 0; i < 40; i++) {
        plain[0][i] = i < 20 ? 0.2f : 0.37f;
        plain[1][i] = i < 20 ? 0.8f : 0.37f;
    }
    flat = one_map(&shape, 1.0f, plain[0], plain[1], up);
    near((double)flat[7], number_of(member(t, "constant_pair"), "out"), 2e-6, "plain pictures", 7);
    near((double)flat[27], 0, 2e-6, "equal pictures", 27);
    free(x), free(y), free(up), free(want), free(gx), free(gy), free(out), free(back), free(flat);
    json_decref(root);
}

static void photometric_golden(void **state)
{
    json_t *root = golden_open(), *t = member(root, "photometric");
    struct tensor shape, of;
    float *pred = picture_in_json(member(t, "pred"), &shape), *target = picture_in_json(member(t, "target"), &shape);
    float *want = picture_in_json(member(t, "map_robust"), &of), *grad = picture_in_json(member(t, "grad_pred_of_mean"), &shape);
    size_t n = tensor_pixels(&shape);
    float *dmap = room(n), *out;

    (void)state;
    for (size_t i = 0; i < n; i++)
        dmap[i] = 1.0f / (float)n;
    out = one_map(&shape, 0.85f, pred, target, dmap);
    close_to(out, want, n, 2e-5, 0, "map");
    close_to(out + n, grad, tensor_count(&shape), 1e-5, 1e-3, "gradient");
    free(out);
    out = one_map(&shape, 0.85f, target, target, dmap);
    near((double)out[3], number_of(t, "perfect_match_value"), 1e-7, "equal pictures", 3);
    free(pred), free(target), free(want), free(grad), free(dmap), free(out);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(bodies), cmocka_unit_test(large), cmocka_unit_test(ssim_golden),
                                        cmocka_unit_test(photometric_golden) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_conv_bf16.c - uses: proto worker/core cpu
 * Convolutions in bf16 on the CPU. Outputs and gradients of inputs are, to the bit, sums of blocks in the order of
 * conv_tiles.h. All other results are compared with the plain definition. All ways to compute give equal bits. */
#include "tests/device/conv_cases.h"

/* The terms of a sum: numbers of a and b, until a block is full, or ends. */
struct chain {
    uint16_t a[BF16_BLOCK], b[BF16_BLOCK];
    int n;
    float sum;
};

static void end_block(struct chain *c)
{
    if (c->n == 0)
        return;
    for (; c->n < BF16_BLOCK; c->n++)
        c->a[c->n] = c->b[c->n] = 0;
    c->sum = bf16_dot(c->sum, c->a, c->b);
    c->n = 0;
}

static void product(struct chain *c, float a, float b)
{
    c->a[c->n] = bf16_bits(a);
    c->b[c->n] = bf16_bits(b);
    if (++c->n == BF16_BLOCK)
        end_block(c);
}

/* x[y][x] of an image, c channels; 0 outside. */
static float at(const struct tensor *t, const float *data, int image, int y, int x, int c)
{
    if (y < 0 || y >= t->h || x < 0 || x >= t->w)
        return 0.0f;
    return data[((size_t)(image * t->h + y) * (size_t)t->w + (size_t)x) * (size_t)t->stride + (size_t)c];
}

static float weight(const struct data *d, int k, int r, int s, int c)
{
    const struct conv_case *t = d->t;

    return d->w[((size_t)(k * t->size + r) * (size_t)t->size + (size_t)s) * (size_t)t->c + (size_t)c];
}

static float input_at(const struct data *d, const struct shard_data *s, int image, int y, int x, int c)
{
    if (y < 0 || y >= s->x.h || x < 0 || x >= s->x.w)
        return 0.0f;
    return input(d, s, (size_t)((image * s->x.h + y) * s->x.w + x), c);
}

static float output_of(const struct data *d, const struct shard_data *s, int image, int oy, int ox, int k)
{
    const struct conv_case *t = d->t;
    struct chain c = { .n = 0 };

    for (int r = 0; r < t->size; r++, end_block(&c))
        for (int q = 0; q < t->size; q++) {
            for (int i = 0; i < t->c; i++)
                product(&c, input_at(d, s, image, oy * t->stride + r - t->pad, ox * t->stride + q - t->pad, i), weight(d, k, r, q, i));
            if (t->c >= BF16_BLOCK)
                end_block(&c);
        }
    return c.sum;
}

/* Taps in the order of growing outputs; taps that meet no output of the stride are left out. */
static float gradient_of(const struct data *d, const struct shard_data *s, int image, int y, int x, int ch)
{
    const struct conv_case *t = d->t;
    struct chain c = { .n = 0 };

    for (int r = t->size - 1; r >= 0; r--) {
        if ((y + t->pad - r) % t->stride != 0)
            continue;
        for (int q = t->size - 1; q >= 0; q--) {
            int oy = y + t->pad - r, ox = x + t->pad - q;

            if (ox % t->stride != 0)
                continue;
            oy = oy < 0 ? -1 : oy / t->stride;
            ox = ox < 0 ? -1 : ox / t->stride;
            for (int k = 0; k < t->k; k++)
                product(&c, at(&s->y, s->y.data, image, oy, ox, k), weight(d, k, r, q, ch));
            if (t->k >= BF16_BLOCK)
                end_block(&c);
        }
        end_block(&c);
    }
    return c.sum;
}

enum { ONE_PART = 10 }; /* outputs that surely are */

/* The step between the checked pixels of a tensor: every n-th pixel is checked. */
static int step_of(size_t pixels)
{
    return pixels > 200 ? (int)(pixels / 97) : 1;
}

static void check_outputs(const struct data *d, const struct shard_data *s, const float *got)
{
    const struct tensor *y = &s->y;

    for (int p = 0; p < (int)tensor_pixels(y); p += step_of(tensor_pixels(y)))
        for (int k = 0; k < y->c; k++) {
            float want = stored(output_of(d, s, p / y->w / y->h, p / y->w % y->h, p % y->w, k) + d->bias[k], DTYPE_BF16);

            if (float_bits(got[(size_t)p * (size_t)y->stride + (size_t)k]) != float_bits(want)) {
                fault("y of pixel %d, channel %d is %a, not %a", p, k, (double)got[(size_t)p * (size_t)y->stride + (size_t)k],
                      (double)want);
                return;
            }
        }
}

static void check_gradients(const struct data *d, const struct shard_data *s, const float *got, const float *add)
{
    const struct tensor *x = &s->x;

    for (int p = 0; p < (int)tensor_pixels(x); p += step_of(tensor_pixels(x)))
        for (int k = 0; k < x->c; k++) {
            size_t i = (size_t)p * (size_t)x->stride + (size_t)k;
            float sum = gradient_of(d, s, p / x->w / x->h, p / x->w % x->h, p % x->w, k),
                  want = stored(add ? add[i] + sum : sum, DTYPE_BF16);

            if (float_bits(got[i]) != float_bits(want)) {
                fault("dx of pixel %d, channel %d is %a, not %a", p, k, (double)got[i], (double)want);
                return;
            }
        }
}

/* For outputs that are one part: pixel i is in the i-th sum of four in turns, over all rows. */
static void check_statistics(const struct tensor *y, const float *got, const double *stats)
{
    const int n = (int)tensor_pixels(y);

    for (int k = 0; k < y->c; k++) {
        float sum[4] = { 0 }, square[4] = { 0 };
        double mean, m2;

        for (int i = 0; i < n; i++) {
            float d = got[(size_t)i * (size_t)y->stride + (size_t)k] - got[k];

            sum[i % 4] += d;
            square[i % 4] = fmaf(d, d, square[i % 4]);
        }
        mean = (double)((sum[0] + sum[1]) + (sum[2] + sum[3]));
        m2 = (double)((square[0] + square[1]) + (square[2] + square[3])) - mean * mean / n;
        mean = (double)got[k] + mean / n;
        if (stats[1 + k] != mean || stats[1 + y->c + k] != m2) {
            fault("statistics of channel %d are %a and %a, not %a and %a", k, stats[1 + k], stats[1 + y->c + k], mean, m2);
            return;
        }
    }
}

static void check_bits(const struct data *d, const char *got)
{
    for (int v = 0; v < d->t->nshards; v++) {
        const struct shard_data *s = &d->s[v];
        const float *y = (const float *)(const void *)got, *dx = y + floats_of(&s->y);

        check_outputs(d, s, y);
        check_gradients(d, s, dx, NULL);
        check_gradients(d, s, dx + floats_of(&s->x), s->dx0);
        got += result_bytes(d, v);
        if (tensor_pixels(&s->y) <= ONE_PART)
            check_statistics(&s->y, y, (const double *)(const void *)got - (1 + 2 * d->t->k));
    }
}

/* Blocks that are full, that are not, and runs of taps shorter and longer than one; tall and narrow images, several
 * parts. */
static const struct conv_case more[] = {
    { PENDING, 32, 32, 3, 1, 1, TWO(1, 13, 13) },
    { 0, 31, 33, 3, 1, 1, ONE(1, 30, 7) },
    { PENDING | SLICE, 72, 31, 3, 2, 1, TWO(2, 14, 14) },
    { 0, 8, 32, 5, 1, 2, ONE(1, 9, 40) },
    { 0, 33, 8, 2, 2, 0, ONE(1, 8, 8) },
    { 0, 3, 16, 3, 1, 1, ONE(1, 30, 140) },
    { PENDING, 40, 16, 3, 1, 1, ONE(1, 6, 140) },
    { 0, 16, 16, 7, 1, 3, ONE(1, 9, 8) },
    { 0, 32, 24, 3, 1, 1, ONE(1, 2, 5) },
    { UNBIASED, 32, 32, 3, 1, 1, ONE(1, 2, 5) },
    { UNBIASED, 32, 64, 3, 1, 1, TWO(1, 13, 13) },
    { UNBIASED, 3, 16, 3, 1, 1, ONE(1, 30, 139) },
    { UNBIASED | SLICE, 32, 24, 3, 1, 1, ONE(1, 13, 13) },
    { 0, 20, 72, 3, 2, 1, ONE(1, 9, 9) },
    { UNBIASED, 16, 48, 3, 1, 1, ONE(1, 3, 3) },
    { UNBIASED | SLICE, 32, 32, 1, 1, 0, ONE(1, 2, 5) },
    { UNBIASED | SLICE, 32, 16, 1, 1, 0, ONE(1, 2, 5) },
    { UNBIASED, 32, 32, 3, 1, 1, ONE(1, 5, 2) },
    /* more phases than are packed at once */
    { 0, 16, 32, 3, 3, 1, ONE(1, 11, 14) },
    { PENDING, 16, 40, 2, 4, 0, ONE(1, 11, 14) },
};

static void check_one(const struct conv_case *t)
{
    struct data d;
    char *got, *alone;

    looking_at(devices.dev[0], "on all", t);
    make(t, DTYPE_BF16, &d);
    got = malloc(d.out_bytes);
    alone = malloc(d.out_bytes);
    same_on_all(run, &d, got, d.out_bytes);
    check_case(&d, got);
    check_bits(&d, got);
    d.one_by_one = true;
    same_on_all(run, &d, alone, d.out_bytes);
    assert_memory_equal(got, alone, d.out_bytes);
    free(got), free(alone);
    drop(&d);
}

static void definition(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_one(&cases[i]);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        check_one(&more[i]);
    no_faults();
}

/* Numbers with products near the smallest normal number, or beyond the largest. */
static void scale(float *x, size_t n, int from, int span)
{
    for (size_t i = 0; i < n; i++)
        x[i] = stored(ldexpf(x[i], from + (int)(i * 7 % (size_t)span)), DTYPE_BF16);
}

/* run() of one shard. The payload of a NaN in fp32 depends only on which of two is the first operand. */
static void run_to_one_nan(struct device *dev, const void *arg, void *ret)
{
    const struct data *d = arg;
    size_t stats = 2 * (size_t)d->t->k + 1, floats = (d->out_bytes - stats * sizeof(double)) / sizeof(float);
    float *f = ret;

    run(dev, arg, ret);
    for (size_t i = 0; i < floats; i++)
        f[i] = isnan(f[i]) ? bf16_value(0x7FFF) : f[i]; /* as they are stored */
    for (size_t i = 0; i < stats; i++) {
        double x;

        memcpy(&x, (char *)(f + floats) + i * sizeof x, sizeof x);
        x = isnan(x) ? NAN : x;
        memcpy((char *)(f + floats) + i * sizeof x, &x, sizeof x);
    }
}

static void far_ends(void **state)
{
    static const struct conv_case kinds[] = { { 0, 40, 24, 3, 1, 1, ONE(1, 9, 7) }, { 0, 8, 64, 3, 2, 1, ONE(1, 9, 9) } };
    static const struct {
        int x, w, span;
    } range[] = { { -66, -66, 7 }, { -70, -64, 20 }, { 62, 60, 6 }, { -120, 2, 5 } };

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t e = 0; e < sizeof range / sizeof *range; e++) {
            struct data d;
            char *got;

            looking_at(devices.dev[0], "far ends", &kinds[i]);
            make(&kinds[i], DTYPE_BF16, &d);
            scale(d.s[0].x.data, floats_of(&d.s[0].x), range[e].x, range[e].span);
            scale(d.s[0].y.data, floats_of(&d.s[0].y), range[e].x, range[e].span);
            scale(d.w, d.w_count, range[e].w, range[e].span);
            got = malloc(d.out_bytes);
            same_on_all(run_to_one_nan, &d, got, d.out_bytes);
            check_bits(&d, got);
            free(got);
            drop(&d);
        }
    no_faults();
}

static void large_results(void **state)
{
    (void)state;
    check_large_results(devices.dev[0]);
}

static void versions(void **state)
{
    (void)state;
    check_versions(devices.dev[0]);
}

static void many_uses(void **state)
{
    (void)state;
    check_many_uses(devices.dev[0]);
}

static int open_all(void **state)
{
    static const struct device_ops *(*const backend[])(void) = { cpu_backend_avx512, cpu_backend_avx2, cpu_backend_generic };

    (void)state;
    for (size_t b = 0; b < sizeof backend / sizeof *backend; b++)
        for (int threads = 1; threads <= 3 && (b == 0 || backend[b]() != backend[b - 1]()); threads++)
            open_device(backend[b](), &(struct device_options){ threads, threads == 3 ? "without its unit" : "auto", PRECISION_BF16 }, 0);
    return devices.n > 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(definition), cmocka_unit_test(far_ends), cmocka_unit_test(large_results),
                                        cmocka_unit_test(versions), cmocka_unit_test(many_uses) };

    return cmocka_run_group_tests(tests, open_all, close_devices);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/kernels/test_math.c - our exp, log, sigmoid ... against
 * the C library's double precision, and their edges. uses: proto worker/core */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "worker/core/philox.h"
#include "worker/kernels/math.h"

enum { TRIES = 200000 };

/* Distance of got from want in units of the last place of floats. */
static double ulps(float got, double want)
{
    float near = (float)want, up = nextafterf(fabsf(near), INFINITY);
    double unit = (double)up - (double)fabsf(near);

    return (double)got == want ? 0.0 : fabs((double)got - want) / unit;
}

static float draw(uint64_t i, float lo, float hi)
{
    struct philox_key key = { .seed = 5 };

    return lo + (hi - lo) * philox_uniform(&key, i);
}

static void check(const char *name, float (*ours)(float), double (*theirs)(double), float lo, float hi, double most)
{
    double worst = 0.0;
    float at = 0.0f;

    for (uint64_t i = 0; i < TRIES; i++) {
        float x = draw(i, lo, hi);
        double u = ulps(ours(x), theirs((double)x));

        if (!(u <= worst)) {
            worst = u;
            at = x;
        }
    }
    if (!(worst <= most))
        fail_msg("%s(%.9g) is off by %.2f ulp", name, (double)at, worst);
}

#define WRAP(name)                    \
    static float ours_##name(float x) \
    {                                 \
        return math_##name(x);        \
    }
WRAP(exp)
WRAP(log)
WRAP(log1p)
WRAP(sigmoid)
WRAP(tanh)
#undef WRAP

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static void accuracy(void **state)
{
    (void)state;
    check("exp", ours_exp, exp, -87.0f, 88.7f, 1.5);
    check("exp", ours_exp, exp, -103.5f, -87.0f, 1.5); /* denormal results */
    check("exp", ours_exp, exp, -0.01f, 0.01f, 1.0);
    check("log", ours_log, log, 0.5f, 2.0f, 0.6);
    check("log", ours_log, log, 1e-38f, 3e38f, 0.6);
    check("log", ours_log, log, 1e-45f, 1e-38f, 0.6);
    check("log1p", ours_log1p, log1p, -0.99f, 3.0f, 0.6);
    check("log1p", ours_log1p, log1p, -1e-6f, 1e-6f, 0.6);
    check("sigmoid", ours_sigmoid, sigmoid, -86.0f, 86.0f, 3.0);
    check("sigmoid", ours_sigmoid, sigmoid, -1.0f, 1.0f, 2.0);
    check("tanh", ours_tanh, tanh, -10.0f, 10.0f, 0.6);
    check("tanh", ours_tanh, tanh, -3e-4f, 3e-4f, 0.6);
}

static void doubles(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < TRIES; i++) {
        double x = (double)draw(i, -700.0f, 700.0f), y = exp(x);

        assert_true(fabs(math_exp64(x) - y) <= 1e-15 * y);
        assert_true(fabs(math_log64(y) - log(y)) <= 4e-16 * fmax(1.0, fabs(log(y))));
    }
    assert_true(math_exp64(0.0) == 1.0 && math_log64(1.0) == 0.0);
    assert_true(math_log64(4.9406564584124654e-324) > -744.45 && math_log64(4.9406564584124654e-324) < -744.43);
    assert_true(math_exp64(1000.0) == INFINITY && math_exp64(-1000.0) == 0.0);
}

static double power_error(double x, double y)
{
    double want = pow(x, y);

    return fabs(math_pow64(x, y) - want) / (nextafter(want, (double)INFINITY) - want);
}

/* The largest power of a burn-in, (t / burn_in)^power, in units of the last place; and the smallest results of all. */
static void powers(void **state)
{
    const double inf = (double)INFINITY;
    double worst = 0.0, far = 0.0;

    (void)state;
    for (uint64_t i = 0; i < TRIES; i++) {
        double x = (double)draw(2 * i, 1e-6f, i % 4 ? 1.0f : 0.01f), y = (double)draw(2 * i + 1, 0.1f, 10.0f), want = pow(x, y);

        worst = fmax(worst, power_error(x, y));
        far = fmax(far, power_error(x, -(y + 680) / log(x)));
        assert_true(fabs(math_pow64(1 / x, y) * want - 1) <= 1e-14);
    }
    assert_true(worst <= 4.0 && far <= 32.0);
    assert_true(math_pow64(1.0, 7.5) == 1.0 && math_pow64(0.0, 0.0) == 1.0 && math_pow64(0.0, 2.0) == 0.0 && math_pow64(3.0, 0.0) == 1.0);
    assert_true(math_pow64(1e300, 2.0) == inf && math_pow64(1e-300, 2.0) == 0.0 && math_pow64(0.0, -1.0) == inf);
    assert_true(fabs(math_pow64(1e-320, 0.5) / pow(1e-320, 0.5) - 1) <= 1e-15);
    assert_true(isnan(math_pow64(-1.0, 2.0)) && isnan(math_pow64((double)NAN, 2.0)) && isnan(math_pow64(2.0, inf)));
}

/* The bits of one computer; every other computer must compute the same bits. */
static void pinned(void **state)
{
    static const struct {
        double x;
        uint64_t exp, log;
    } d[] = { { 0.1, 0x3ff1aec7b35a00d4, 0xc0026bb1bbb55515 },
              { 1.0 / 3, 0x3ff6546db1ba2d13, 0xbff193ea7aad030b },
              { 3, 0x403415e5bf6fb106, 0x3ff193ea7aad030b },
              { 88.7, 0x47ef4705bbffae5c, 0x4011f0e7f7eaaee6 },
              { 700.25, 0x7f12fd8e4cbfa413, 0x401a34ac026e1799 } };
    static const struct {
        double x, y;
        uint64_t bits;
    } p[] = { { 0.001, 4, 0x3d719799812dea12 },     { 0.5, 4, 0x3fafffffffffffff },   { 0.999, 4, 0x3fefdf47f76e36e7 },
              { 1.0 / 3, 0.1, 0x3fecabb11372e638 }, { 1e-6, 10, 0x3379b604aaaca622 }, { 0.9, 2.5, 0x3fe89701ca9cf25e },
              { 7, -3.5, 0x3f520ddc19dda4df } };
    static const struct {
        float x;
        uint32_t exp, sigmoid, tanh, log, log1p;
    } f[] = { { 0.3f, 0x3facc82c, 0x3f130eaa, 0x3e9526ee, 0xbf9a1bc8, 0x3e86549c },
              { 0.7f, 0x4000e153, 0x3f2b0e5a, 0x3f1ab7d9, 0xbeb69e1a, 0x3f07d741 },
              { 12.25f, 0x484c1552, 0x3f7fffb0, 0x3f800000, 0x40205a89, 0x40256037 } };

    (void)state;
    for (size_t i = 0; i < sizeof d / sizeof *d; i++) {
        assert_int_equal(double_bits(math_exp64(d[i].x)), d[i].exp);
        assert_int_equal(double_bits(math_log64(d[i].x)), d[i].log);
    }
    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        assert_int_equal(double_bits(math_pow64(p[i].x, p[i].y)), p[i].bits);
    for (size_t i = 0; i < sizeof f / sizeof *f; i++) {
        assert_int_equal(float_bits(math_exp(f[i].x)), f[i].exp);
        assert_int_equal(float_bits(math_sigmoid(f[i].x)), f[i].sigmoid);
        assert_int_equal(float_bits(math_tanh(f[i].x)), f[i].tanh);
        assert_int_equal(float_bits(math_log(f[i].x)), f[i].log);
        assert_int_equal(float_bits(math_log1p(f[i].x)), f[i].log1p);
    }
}

static void edges(void **state)
{
    (void)state;
    assert_true(math_exp(0.0f) == 1.0f && math_exp(-INFINITY) == 0.0f && math_exp(INFINITY) == INFINITY && math_exp(88.8f) == INFINITY);
    assert_true(math_exp(-104.0f) == 0.0f && math_exp(-103.0f) > 0.0f);
    assert_true(math_log(1.0f) == 0.0f && math_log(0.0f) == -INFINITY && math_log(INFINITY) == INFINITY);
    assert_true(math_log1p(0.0f) == 0.0f && math_log1p(-1.0f) == -INFINITY && math_log1p(INFINITY) == INFINITY);
    assert_true(math_sigmoid(0.0f) == 0.5f && math_sigmoid(200.0f) == 1.0f && math_sigmoid(-200.0f) == 0.0f);
    assert_true(math_tanh(0.0f) == 0.0f && math_tanh(50.0f) == 1.0f && math_tanh(-INFINITY) == -1.0f);
    assert_true(isnan(math_exp(NAN)) && isnan(math_log(NAN)) && isnan(math_log(-1.0f)) && isnan(math_log1p(NAN)));
    assert_true(isnan(math_sigmoid(NAN)) && isnan(math_tanh(NAN)) && isnan(math_bce(NAN, 1.0f)));
}

static void cross_entropy(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < TRIES; i++) {
        float z = draw(2 * i, -90.0f, 90.0f), t = draw(2 * i + 1, 0.0f, 1.0f);
        double want = fmax((double)z, 0.0) - (double)z * (double)t + log1p(exp(-fabs((double)z)));

        assert_true(fabs((double)math_bce(z, t) - want) <= 3e-7 * fmax(1.0, want));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(accuracy),      cmocka_unit_test(doubles), cmocka_unit_test(edges),
                                        cmocka_unit_test(cross_entropy), cmocka_unit_test(powers),  cmocka_unit_test(pinned) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

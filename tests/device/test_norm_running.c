/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_norm_running.c - uses: proto worker/core cpu cuda
 * Running statistics of batch normalisation: compared with the definition, and the values prepared from them. */
#include "tests/device/devices.h"

#include <math.h>

enum { RUNNING_MOST = 70 };

struct running_case {
    int nstats, c, skip;
    bool sync;
    double stats[RUNNING_MOST][5];
    float mean[2], var[2];
};

/* Three layers: the case's layer between two others with channels that it must not touch. Its statistics begin in
 * mid-record. */
static void run_running(struct device *dev, const void *arg, void *ret)
{
    enum { BEFORE = 3, AFTER = 300, MIDDLE = 2 * BEFORE + 1, BEHIND = MIDDLE + 5, RECORD = BEHIND + 2 * AFTER + 1 };
    const struct running_case *t = arg;
    const double *stats[RUNNING_MOST];
    float ones[AFTER], *out = ret;
    struct param mean[3] = { { .count = BEFORE }, { .count = (size_t)t->c }, { .count = AFTER } }, var[3];
    struct running_item items[3];
    int32_t *skip = put(dev, &t->skip, sizeof(int32_t));
    struct err err;

    for (int k = 0; k < AFTER; k++)
        ones[k] = 1.0f;
    for (int i = 0; i < t->nstats; i++) {
        double record[RECORD];

        for (int j = 0; j < RECORD; j++)
            record[j] = 2.0;
        memcpy(record + MIDDLE, t->stats[i], sizeof t->stats[i]);
        stats[i] = put(dev, record, sizeof record);
    }
    for (int l = 0; l < 3; l++) {
        var[l] = mean[l];
        mean[l].data = put(dev, l == 1 ? t->mean : ones, l == 1 ? sizeof t->mean : mean[l].count * sizeof(float));
        var[l].data = put(dev, l == 1 ? t->var : ones, l == 1 ? sizeof t->var : mean[l].count * sizeof(float));
        items[l] = (struct running_item){ &mean[l], &var[l], l == 0 ? 0 : l == 1 ? MIDDLE : BEHIND, l == 1 && t->sync };
    }
    assert_int_equal(dev->on->norm->running(dev, items, 3, stats, t->nstats, 0.1f, skip, &err), 0);
    assert_true(mean[0].version == 1 && var[2].version == 1);
    get(dev, out, mean[1].data, sizeof t->mean);
    get(dev, out + 2, var[1].data, sizeof t->var);
    get(dev, ones, mean[2].data, sizeof ones); /* .9 * 1 + .1 * 2 */
    for (int k = 0; k < AFTER; k++)
        near((double)ones[k], t->skip ? 1 : 1.1, 1e-6, "layer behind", (size_t)k);
}

/* A shard of one pixel has no unbiased variance: its mean counts; the variance is that of the other shards, or
 * stays. */
static void running_of_one_pixel(void **state)
{
    struct running_case t = { .nstats = 2, .c = 2, .stats = { { 4, 4, 1, 38, 3 }, { 1, 2, -1, 0, 0 } }, .mean = { 0, 3 }, .var = { 1, 2 } };
    float out[4];

    (void)state;
    same_on_all(run_running, &t, out, sizeof(out));
    near((double)out[0], 0.9 * 0 + 0.1 * 3, 1e-6, "mean", 0);
    near((double)out[1], 0.9 * 3 + 0.1 * 0, 1e-6, "mean", 1);
    near((double)out[2], 0.9 * 1 + 0.1 * 38 / 3, 1e-6, "var", 0);
    near((double)out[3], 0.9 * 2 + 0.1 * 1, 1e-6, "var", 1);
    t.sync = true; /* five pixels as one batch */
    same_on_all(run_running, &t, out, sizeof(out));
    near((double)out[0], 0.1 * 18 / 5, 1e-6, "merged mean", 0);
    near((double)out[1], 0.9 * 3 + 0.1 * 3 / 5, 1e-6, "merged mean", 1);
    near((double)out[2], 0.9 * 1 + 0.1 * (38 + 4 * 4.0 / 5) / 4, 1e-6, "merged var", 0);
    near((double)out[3], 0.9 * 2 + 0.1 * (3 + 4 * 4.0 / 5) / 4, 1e-6, "merged var", 1);
    t.stats[0][0] = 1;
    t.stats[0][3] = t.stats[0][4] = 0;
    same_on_all(run_running, &t, out, sizeof(out)); /* two pixels of two shards */
    near((double)out[2], 0.9 * 1 + 0.1 * 2, 1e-6, "merged var", 0);
    t.sync = false;
    same_on_all(run_running, &t, out, sizeof(out));
    near((double)out[0], 0.1 * 3, 1e-6, "mean", 0);
    assert_true(out[2] == 1.0f && out[3] == 2.0f);
    t.sync = true;
    t.nstats = 1; /* one pixel in all */
    same_on_all(run_running, &t, out, sizeof(out));
    near((double)out[0], 0.1 * 4, 1e-6, "mean", 0);
    assert_true(out[2] == 1.0f && out[3] == 2.0f);
}

/* The update of channel k, as described in device.h. */
static void plain_running(const struct running_case *t, int k, double *ret_mean, double *ret_var)
{
    double pixels = 0, sum = 0, square = 0, means = 0, vars = 0;
    int nvars = 0;

    for (int v = 0; v < t->nstats; v++) {
        const double *s = t->stats[v];

        pixels += s[0];
        sum += s[0] * s[1 + k];
        square += s[3 + k] + s[0] * s[1 + k] * s[1 + k];
        means += s[1 + k];
        vars += s[0] > 1 ? s[3 + k] / (s[0] - 1) : 0;
        nvars += s[0] > 1;
    }
    *ret_mean = 0.9 * (double)t->mean[k] + 0.1 * (t->sync ? sum / pixels : means / t->nstats);
    *ret_var = 0.9 * (double)t->var[k] + 0.1 * (t->sync ? (square - sum * sum / pixels) / (pixels - 1) : vars / nvars);
}

/* The number of rows is that of a single read, fewer and more, with shards of one pixel at the end or everywhere. A
 * skipped step changes nothing. */
static void running_many(void **state)
{
    static const int counts[] = { 3, 4, 6, 7, 8, 9, 15, 16, RUNNING_MOST };
    struct running_case t = { .c = 2, .mean = { 0, 3 }, .var = { 1, 2 } };
    float out[4];

    (void)state;
    for (size_t i = 0; i < 4 * (sizeof counts / sizeof *counts); i++) {
        t.nstats = counts[i / 4];
        t.sync = i % 2;
        for (int v = 0; v < RUNNING_MOST; v++) {
            t.stats[v][0] = v == t.nstats - 1 || (i % 4 > 1 && v % 3 == 0) ? 1 : 5 + v;
            for (int j = 1; j < 5; j++)
                t.stats[v][j] = t.stats[v][0] > 1 || j < 3 ? 1.0 / (7 * v + j) + (j < 3 ? v % 2 : 0) : 0;
        }
        same_on_all(run_running, &t, out, sizeof(out));
        for (int k = 0; k < 2; k++) {
            double mean, var;

            plain_running(&t, k, &mean, &var);
            near((double)out[k], mean, 1e-6, "mean", (size_t)k);
            near((double)out[2 + k], var, 1e-6, "var", (size_t)k);
        }
    }
    t.skip = 1;
    same_on_all(run_running, &t, out, sizeof(out));
    assert_true(out[0] == 0.0f && out[1] == 3.0f && out[2] == 1.0f && out[3] == 2.0f);
}

/* invstd, scale, shift of three channels from running statistics. */
static void run_small(struct device *dev, const void *arg, void *ret)
{
    const float mean[3] = { 1, -2, 0.5f }, var[3] = { 4, 0, 1 }, gamma[3] = { 1, 2, -1 }, beta[3] = { 0, 1, 2 };
    float *out = put(dev, NULL, 9 * sizeof(float));
    struct err err;

    (void)arg;
    assert_int_equal(dev->on->norm->prepare_running(dev, out, out + 3, out + 6, put(dev, mean, sizeof(mean)), put(dev, var, sizeof(var)),
                                                    put(dev, gamma, sizeof(gamma)), put(dev, beta, sizeof(beta)), 1e-5f, 3, &err),
                     0);
    get(dev, ret, out, 9 * sizeof(float));
}

static void running_prepare(void **state)
{
    const double mean[3] = { 1, -2, 0.5 }, var[3] = { 4, 0, 1 }, gamma[3] = { 1, 2, -1 }, beta[3] = { 0, 1, 2 };
    float out[9] = { 0 };

    (void)state;
    same_on_all(run_small, NULL, out, sizeof(out));
    for (size_t k = 0; k < 3; k++) {
        double invstd = 1 / sqrt(var[k] + 1e-5);

        near((double)out[k], invstd, 1e-6, "invstd", k);
        near((double)out[3 + k], gamma[k] * invstd, 1e-6, "scale", k);
        near((double)out[6 + k], beta[k] - mean[k] * gamma[k] * invstd, 1e-6, "shift", k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(running_many),
        cmocka_unit_test(running_of_one_pixel),
        cmocka_unit_test(running_prepare),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

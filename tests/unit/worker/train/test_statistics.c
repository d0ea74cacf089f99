/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/train/test_statistics.c - uses: proto trainer cpu
 * Batch statistics of a step on their way to the running values: each use of each normalisation has a place of its own
 * in each shard's record, and running values are updated use by use. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/err.h"
#include "worker/comm/comm.h"
#include "worker/core/device.h"
#include "worker/layers/layers.h"
#include "worker/models/model.h"
#include "worker/train/statistics.h"

const struct device_ops *cpu_backend_generic(void);

enum { NORMS = 3, CHANNELS = 2, SHARDS = 2, FROZEN = 1, PIXELS = 5 };
static const int uses[NORMS] = { 2, 1, 3 };
static const float momentum = 0.25f;

/* Statistics that no other use, normalisation, shard or channel has. */
static double mean_of(int norm, int use, int shard, int c)
{
    return norm * 100 + use * 10 + shard + c * 0.25;
}

static double squares_of(int norm, int use, int shard, int c)
{
    return (PIXELS - 1) * (1 + mean_of(norm, use, shard, c));
}

static void record(struct statistics *s, int norm, int use, int shard)
{
    double *at = statistics_dest(s, norm, use, shard);

    at[0] = PIXELS;
    for (int c = 0; c < CHANNELS; c++) {
        at[1 + c] = mean_of(norm, use, shard, c);
        at[1 + CHANNELS + c] = squares_of(norm, use, shard, c);
    }
}

/* The plain definition, in the order of uses. */
static void expect(int norm, int c, double *ret_mean, double *ret_var)
{
    *ret_mean = 0;
    *ret_var = 1;
    for (int use = 0; use < uses[norm] && norm != FROZEN; use++) {
        double mean = 0, var = 0;

        for (int v = 0; v < SHARDS; v++) {
            mean += mean_of(norm, use, v, c) / SHARDS;
            var += squares_of(norm, use, v, c) / (PIXELS - 1) / SHARDS;
        }
        *ret_mean += (double)momentum * (mean - *ret_mean);
        *ret_var += (double)momentum * (var - *ret_var);
    }
}

/* Shared normalisations of several uses beside a frozen one. Each reads the statistics written for it, in any order of
 * writing. */
static void uses_are_kept_apart(void **state)
{
    const struct device_options one = { .threads = 1 };
    const struct comm_options alone = { .fd = -1, .nranks = 1, .timeout_ms = 60000 };
    float mean[NORMS][CHANNELS] = { { 0 } }, var[NORMS][CHANNELS] = { { 1, 1 }, { 1, 1 }, { 1, 1 } };
    struct param param[NORMS][2];
    struct norm norms[NORMS];
    struct model model = { .norms = norms, .nnorms = NORMS };
    struct statistics_options opt = { .model = &model, .shards = SHARDS, .waves = 1 };
    struct statistics *s;
    int32_t skip = 0;
    struct err err;

    (void)state;
    for (int i = 0; i < NORMS; i++) {
        param[i][0] = (struct param){ .name = "mean", .kind = PARAM_MEAN, .count = CHANNELS, .k = CHANNELS, .data = mean[i] };
        param[i][1] = (struct param){ .name = "var", .kind = PARAM_VAR, .count = CHANNELS, .k = CHANNELS, .data = var[i] };
        norms[i] = (struct norm){ .mean = &param[i][0], .var = &param[i][1], .index = i, .uses = uses[i], .frozen = i == FROZEN };
    }
    assert_int_equal(cpu_backend_generic()->open(0, &one, &opt.dev, &err), 0);
    assert_int_equal(comm_open_shm(&alone, &opt.link, &err), 0);
    if (statistics_open(&opt, &s, &err) < 0)
        fail_msg("%s", err.msg);
    for (int i = NORMS - 1; i >= 0; i--)
        for (int use = 0; use < uses[i] && i != FROZEN; use++)
            for (int v = 0; v < SHARDS; v++)
                record(s, i, use, v);
    assert_int_equal(statistics_gather(s, &err), 0);
    assert_int_equal(statistics_update(s, momentum, &skip, &err), 0);
    for (int i = 0; i < NORMS; i++)
        for (int c = 0; c < CHANNELS; c++) {
            double m, v;

            expect(i, c, &m, &v);
            if (fabs((double)mean[i][c] - m) > 1e-5 * fabs(m) || fabs((double)var[i][c] - v) > 1e-5 * fabs(v))
                fail_msg("normalisation %d, channel %d: %g and %g instead of %g and %g", i, c, (double)mean[i][c], (double)var[i][c], m, v);
        }
    statistics_close(s);
    comm_close(opt.link);
    opt.dev->ops->close(opt.dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(uses_are_kept_apart) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

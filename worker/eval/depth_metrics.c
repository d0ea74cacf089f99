#include "worker/eval/depth_metrics.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/eval/result.h"
#include "worker/kernels/math.h"

enum { HALF_BITS = 16, BUCKETS = 1 << HALF_BITS };

const char *const depth_score_name[DEPTH_SCORES] = { "abs_rel", "sq_rel", "rmse", "rmse_log", "a1", "a2", "a3" };

/* The compared pixels, in the order of the picture. */
struct pairs {
    int64_t n;
    float *truth, *prediction;
};

struct depth_window depth_crop_of(enum depth_crop crop, int w, int h)
{
    struct depth_window all = { 0, h, 0, w };

    switch (crop) {
    case DEPTH_CROP_NONE:
        return all;
    case DEPTH_CROP_GARG:
        return (struct depth_window){ (int)(0.40810811 * h), (int)(0.99189189 * h), (int)(0.03594771 * w), (int)(0.96405229 * w) };
    case DEPTH_CROP_EIGEN:
        return (struct depth_window){ (int)(0.3324324 * h), (int)(0.91351351 * h), (int)(0.0359477 * w), (int)(0.96405229 * w) };
    }
    return all;
}

/* ---- the median: bits of numbers >= 0 ascend with the numbers, so two counts, one of each half of the bits, find the
 * value at any place ---- */

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The bucket that holds the value at place *k. Then *k counts from the first value of the bucket. */
static uint32_t find_bucket(const int64_t *count, int64_t *k)
{
    uint32_t b = 0;

    while (*k >= count[b])
        *k -= count[b++];
    return b;
}

/* The value at place k in ascending order. */
static float at_place(const float *value, int64_t n, int64_t k, int64_t *count)
{
    uint32_t high, bits;
    float x;

    memset(count, 0, BUCKETS * sizeof *count);
    for (int64_t i = 0; i < n; i++)
        count[bits_of(value[i]) >> HALF_BITS]++;
    high = find_bucket(count, &k);
    memset(count, 0, BUCKETS * sizeof *count);
    for (int64_t i = 0; i < n; i++)
        if (bits_of(value[i]) >> HALF_BITS == high)
            count[bits_of(value[i]) & (BUCKETS - 1)]++;
    bits = high << HALF_BITS | find_bucket(count, &k);
    memcpy(&x, &bits, sizeof x);
    return x;
}

int depth_place(const float *value, int64_t n, int64_t k, double *ret, struct err *err)
{
    int64_t *count = malloc(BUCKETS * sizeof *count);

    if (!count)
        return err_set(err, -ENOMEM, "out of memory: an order of depths");
    *ret = (double)at_place(value, n, k, count);
    free(count);
    return 0;
}

int depth_median(const float *value, int64_t n, double *ret, struct err *err)
{
    int64_t *count = malloc(BUCKETS * sizeof *count);
    double upper;

    if (!count)
        return err_set(err, -ENOMEM, "out of memory: a median");
    upper = (double)at_place(value, n, n / 2, count);
    *ret = n % 2 ? upper : ((double)at_place(value, n, n / 2 - 1, count) + upper) / 2;
    free(count);
    return 0;
}

/* ---- the numbers ---- */

static int take_pixel(const struct depth_rule *rule, double truth, float prediction, struct pairs *p, struct err *err)
{
    if (!(truth > 0 && truth > rule->least && truth < rule->most))
        return 0;
    if (!(prediction > 0) || !isfinite(prediction))
        return err_set(err, ERR_NONFINITE, "a depth is %g: it must be a number above 0", (double)prediction);
    p->truth[p->n] = (float)truth;
    p->prediction[p->n++] = prediction;
    return 0;
}

static int take_pixels(const struct depth_rule *rule, const struct result_map *m, const float *truth, struct pairs *p, struct err *err)
{
    struct depth_window in = depth_crop_of(rule->crop, m->w, m->h);
    int rc = 0;

    for (int y = in.top; y < in.bottom; y++)
        for (int x = in.left; x < in.right && rc >= 0; x++) {
            size_t at = (size_t)y * (size_t)m->w + (size_t)x;

            rc = take_pixel(rule, (double)truth[at], m->value[at], p, err);
        }
    return rc;
}

static double clamped(double x, const struct depth_rule *rule)
{
    return x < rule->least ? rule->least : x > rule->most ? rule->most : x;
}

static void measure(const struct depth_rule *rule, const struct pairs *p, double factor, double *ret)
{
    static const double bound[] = { 1.25, 1.25 * 1.25, 1.25 * 1.25 * 1.25 };
    double sum[DEPTH_SCORES] = { 0 };

    for (int64_t i = 0; i < p->n; i++) {
        double g = (double)p->truth[i], x = clamped((double)p->prediction[i] * factor, rule), d = g - x, l = math_log64(g) - math_log64(x);
        double ratio = g / x > x / g ? g / x : x / g;

        sum[0] += fabs(d) / g;
        sum[1] += d * d / g;
        sum[2] += d * d;
        sum[3] += l * l;
        for (int k = 0; k < 3; k++)
            sum[4 + k] += ratio < bound[k];
    }
    for (int k = 0; k < DEPTH_SCORES; k++)
        ret[k] = sum[k] / (double)p->n;
    ret[2] = sqrt(ret[2]);
    ret[3] = sqrt(ret[3]);
}

static int score_pairs(const struct depth_rule *rule, const struct pairs *p, struct depth_score *ret, struct err *err)
{
    double truth, prediction;
    int rc = depth_median(p->truth, p->n, &truth, err);

    if (rc >= 0)
        rc = depth_median(p->prediction, p->n, &prediction, err);
    if (rc < 0)
        return rc;
    ret->pixels = p->n;
    ret->ratio = truth / prediction;
    measure(rule, p, isnan(rule->factor) ? ret->ratio : rule->factor, ret->value);
    return 0;
}

int depth_score(const struct depth_rule *rule, const struct result_map *prediction, const float *truth, struct depth_score *ret,
                struct err *err)
{
    size_t pixels = (size_t)prediction->w * (size_t)prediction->h;
    float *memory = malloc((2 * pixels + 1) * sizeof *memory);
    struct pairs p;
    int rc;

    if (!memory)
        return err_set(err, -ENOMEM, "out of memory: depth of %d x %d pixels", prediction->w, prediction->h);
    p = (struct pairs){ 0, memory, memory + pixels };
    *ret = (struct depth_score){ 0 };
    rc = take_pixels(rule, prediction, truth, &p, err);
    if (rc >= 0 && p.n > 0)
        rc = score_pairs(rule, &p, ret, err);
    free(memory);
    return rc;
}

double depth_saturated(const struct result_map *depth, double nearest)
{
    int64_t pixels = (int64_t)depth->w * depth->h, near = 0;

    for (int64_t i = 0; i < pixels; i++)
        near += (double)depth->value[i] <= 1.05 * nearest;
    return (double)near / (double)pixels;
}

#include "worker/eval/boxes/pr_curve.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <float.h>

static void count_hits(const uint8_t *flags, size_t n, size_t *ret_tp, size_t *ret_fp)
{
    *ret_tp = *ret_fp = 0;
    for (size_t i = 0; i < n; i++) {
        *ret_tp += flags[i] == PR_TP;
        *ret_fp += flags[i] == PR_FP;
    }
}

/* The tiny term in the denominator prevents 0/0. It is the same as in the COCO evaluation, so that all digits agree. */
static double precision(size_t tp, size_t fp)
{
    return (double)tp / ((double)(tp + fp) + DBL_EPSILON);
}

/* Walks from the end of the list, so that the running maximum is the non-increasing envelope. */
static double area_under(const uint8_t *flags, size_t n, size_t npos, size_t tp, size_t fp)
{
    double sum = 0, best = 0;

    for (size_t i = n; i-- > 0;) {
        double p = precision(tp, fp);

        if (flags[i] == PR_IGNORED)
            continue;
        if (p > best)
            best = p;
        if (flags[i] == PR_TP)
            sum += best / (double)npos;
        tp -= flags[i] == PR_TP;
        fp -= flags[i] == PR_FP;
    }
    return sum;
}

/* Mean of the envelope over the recalls k / (count - 1), each taken at the first detection that reaches it. Recalls are
 * compared with that slack: 1e-9 for eleven points. */
static double mean_at(const uint8_t *flags, size_t n, size_t npos, size_t tp, size_t fp, int count, double slack)
{
    double sum = 0, best = 0, step = 1.0 / (count - 1);
    int k = count - 1;

    for (size_t i = n; i-- > 0;) {
        double recall = (double)tp / (double)npos, p = precision(tp, fp);

        while (k >= 0 && (double)k * step > recall + slack) {
            sum += best;
            k--;
        }
        if (p > best)
            best = p;
        tp -= flags[i] == PR_TP;
        fp -= flags[i] == PR_FP;
    }
    return (sum + best * (k + 1)) / count;
}

double pr_average_precision(const uint8_t *flags, size_t n, size_t npos, enum pr_points points)
{
    size_t tp, fp;

    if (npos == 0)
        return 0;
    count_hits(flags, n, &tp, &fp);
    if (points == PR_ALL_POINTS)
        return area_under(flags, n, npos, tp, fp);
    return points == PR_11_POINTS ? mean_at(flags, n, npos, tp, fp, 11, 1e-9) : mean_at(flags, n, npos, tp, fp, 101, 0);
}

#include "worker/models/yolo/anchors.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"

enum { ROUNDS = 1000 }; /* a limit that is never reached: each round but the last moves a box */

static double iou(const double a[2], const double b[2])
{
    double both = (a[0] < b[0] ? a[0] : b[0]) * (a[1] < b[1] ? a[1] : b[1]);

    return both / (a[0] * a[1] + b[0] * b[1] - both);
}

/* The index of the best fitting anchor, the first among equals. */
static int nearest(const double box[2], const double (*anchor)[2], int k, double *ret_iou)
{
    int best = 0;

    *ret_iou = 0;
    for (int i = 0; i < k; i++) {
        double fit = iou(box, anchor[i]);

        if (fit > *ret_iou) {
            *ret_iou = fit;
            best = i;
        }
    }
    return best;
}

double anchors_mean_iou(const double (*box)[2], size_t n, const double (*anchor)[2], int k)
{
    double sum = 0, fit;

    for (size_t i = 0; i < n; i++) {
        nearest(box[i], anchor, k, &fit);
        sum += fit;
    }
    return n > 0 ? sum / (double)n : 0;
}

static int by_area(const void *a, const void *b)
{
    const double *x = a, *y = b, p = x[0] * x[1], q = y[0] * y[1];

    return p != q ? (p > q) - (p < q) : (x[0] > y[0]) - (x[0] < y[0]);
}

/* Starts with the means of k equal parts of the sorted boxes. */
static void start(const double (*box)[2], size_t n, int k, double (*ret)[2])
{
    memset(ret, 0, (size_t)k * sizeof *ret);
    for (int i = 0; i < k; i++) {
        size_t from = n * (size_t)i / (size_t)k, to = n * (size_t)(i + 1) / (size_t)k;

        for (size_t b = from; b < to; b++)
            for (int d = 0; d < 2; d++)
                ret[i][d] += box[b][d] / (double)(to - from);
    }
}

/* Sets each anchor to the mean of the boxes that fit it best. An anchor without boxes stays. Returns true if a box has
 * changed its anchor. */
static bool move(const double (*box)[2], size_t n, int k, int *of, double (*anchor)[2], double (*sum)[3])
{
    bool moved = false;
    double fit;

    memset(sum, 0, (size_t)k * sizeof *sum);
    for (size_t b = 0; b < n; b++) {
        int best = nearest(box[b], (const double(*)[2])anchor, k, &fit);

        moved |= best != of[b];
        of[b] = best;
        sum[best][0] += box[b][0];
        sum[best][1] += box[b][1];
        sum[best][2]++;
    }
    for (int i = 0; i < k; i++)
        for (int d = 0; d < 2 && sum[i][2] > 0; d++)
            anchor[i][d] = sum[i][d] / sum[i][2];
    return moved;
}

/* Moving to means can lower the mean IoU, so the best set of anchors is kept. */
static void rounds(const double (*box)[2], size_t n, int k, int *of, double (*anchor)[2], double (*sum)[3], double (*ret)[2])
{
    double best = -1;
    bool moved = true;

    for (size_t b = 0; b < n; b++)
        of[b] = -1;
    for (int r = 0; r < ROUNDS && moved; r++) {
        double mean = anchors_mean_iou(box, n, (const double(*)[2])anchor, k);

        if (mean > best) {
            best = mean;
            memcpy(ret, anchor, (size_t)k * sizeof *ret);
        }
        moved = move(box, n, k, of, anchor, sum);
    }
}

int anchors_fit(double (*box)[2], size_t n, int k, double (*ret)[2], struct err *err)
{
    double(*anchor)[2], (*sum)[3];
    int *of, rc = 0;

    if (n < (size_t)k)
        return err_set(err, ERR_DATA, "%zu boxes are too few for %d anchors", n, k);
    anchor = calloc((size_t)k, sizeof *anchor);
    sum = calloc((size_t)k, sizeof *sum);
    of = calloc(n, sizeof *of);
    if (anchor && sum && of) {
        qsort(box, n, sizeof *box, by_area);
        start((const double(*)[2])box, n, k, anchor);
        rounds((const double(*)[2])box, n, k, of, anchor, sum, ret);
        qsort(ret, (size_t)k, sizeof *ret, by_area);
    } else {
        rc = err_set(err, ERR_DEVICE, "out of memory");
    }
    free(anchor);
    free(sum);
    free(of);
    return rc;
}

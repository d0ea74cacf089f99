#include "worker/eval/detection.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>

#include "proto/err.h"

static int compare_double(double a, double b)
{
    return (a > b) - (a < b);
}

int detection_compare(const void *a, const void *b)
{
    const struct detection *p = a, *q = b;
    int order = 0;

    if (p->image != q->image)
        return p->image < q->image ? -1 : 1;
    if (p->cls != q->cls)
        return p->cls < q->cls ? -1 : 1;
    if (p->score != q->score)
        return p->score > q->score ? -1 : 1;
    if (p->slot != q->slot)
        return p->slot < q->slot ? -1 : 1;
    for (int i = 0; i < 4 && order == 0; i++)
        order = compare_double(p->box[i], q->box[i]);
    return order;
}

double box_overlap(const double det[4], const double truth[4], bool crowd)
{
    double left = det[0] > truth[0] ? det[0] : truth[0], top = det[1] > truth[1] ? det[1] : truth[1];
    double det_right = det[0] + det[2], truth_right = truth[0] + truth[2];
    double det_bottom = det[1] + det[3], truth_bottom = truth[1] + truth[3];
    double w = (det_right < truth_right ? det_right : truth_right) - left,
           h = (det_bottom < truth_bottom ? det_bottom : truth_bottom) - top;
    double area = det[2] * det[3], both;

    if (w <= 0 || h <= 0)
        return 0;
    both = w * h;
    return both / (crowd ? area : area + truth[2] * truth[3] - both);
}

static int record_check(const char *what, size_t i, int32_t image, int32_t cls, int nclasses, const double box[4], double number,
                        struct err *err)
{
    if (image < 0)
        return err_set(err, ERR_INPUT, "%s %zu: image %d", what, i, image);
    if (cls < 0 || cls >= nclasses)
        return err_set(err, ERR_INPUT, "%s %zu: class %d of %d", what, i, cls, nclasses);
    if (!isfinite(box[0]) || !isfinite(box[1]) || !isfinite(box[2]) || !isfinite(box[3]) || !isfinite(number))
        return err_set(err, ERR_INPUT, "%s %zu: a number is not finite", what, i);
    return 0;
}

int detections_check(const struct detection *dets, size_t n, int nclasses, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = record_check("detection", i, dets[i].image, dets[i].cls, nclasses, dets[i].box, dets[i].score, err);
    return rc;
}

int truths_check(const struct truth *truths, size_t n, int nclasses, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = record_check("truth", i, truths[i].image, truths[i].cls, nclasses, truths[i].box, truths[i].area, err);
    return rc;
}

#include "worker/modes/anchorfit.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/backend/devices.h"
#include "worker/core/device.h"
#include "worker/data/make/augment.h"
#include "worker/data/set/dataset.h"
#include "worker/modes/datacheck.h"
#include "worker/models/registry.h"
#include "worker/models/yolo/anchors.h"
#include "worker/models/yolo/darknet_net.h"
#include "worker/models/yolo/yolov3.h"

struct fitted {
    size_t nboxes;
    int n, own; /* number of fitted anchors; number in the network */
    double anchor[YOLO_MAX_ANCHORS][2], iou, own_iou;
};

/* Widths and heights of boxes on the canvas. The caller frees; NULL: out of memory. */
static double (*sizes(const struct dataset *d, struct canvas canvas, size_t *ret_n))[2]
{
    double(*size)[2] = calloc((size_t)d->offset[d->nimages] + 1, sizeof *size);

    *ret_n = 0;
    for (int i = 0; size && i < d->nimages; i++) {
        struct placement p = place_letterbox(d->images[i].w, d->images[i].h, canvas);

        for (int64_t b = d->offset[i]; b < d->offset[i + 1]; b++) {
            const struct dataset_box *box = &d->boxes[b];

            if (box->crowd || !(box->w > 0 && box->h > 0))
                continue;
            size[*ret_n][0] = box->w * p.w / d->images[i].w;
            size[(*ret_n)++][1] = box->h * p.h / d->images[i].h;
        }
    }
    return size;
}

/* The anchors of all heads. Each head holds the whole list. */
static int own_anchors(const struct darknet_net *net, double (*ret)[2])
{
    for (int i = 0; i < net->nlayers; i++) {
        const struct yolo_head *y = &net->layers[i].yolo;

        if (net->layers[i].type != DARKNET_YOLO)
            continue;
        for (int a = 0; a < y->ntotal; a++)
            for (int k = 0; k < 2; k++)
                ret[a][k] = (double)y->anchor[a][k];
        return y->ntotal;
    }
    return 0;
}

/* Rounds large sides to whole pixels and small ones to tenths. */
static double rounded(double side)
{
    return side >= 10 ? round(side) : fmax(round(side * 10) / 10, 0.1);
}

static int fit(const struct model *m, const struct dataset *d, int count, struct fitted *ret, struct err *err)
{
    double own[YOLO_MAX_ANCHORS][2], (*size)[2] = sizes(d, m->canvas, &ret->nboxes);
    int rc;

    if (!size)
        return err_set(err, ERR_DEVICE, "out of memory");
    ret->own = own_anchors(yolov3_net(m), own);
    ret->n = count > 0 ? count : ret->own;
    rc = anchors_fit(size, ret->nboxes, ret->n, ret->anchor, err);
    for (int i = 0; i < ret->n && rc >= 0; i++)
        for (int k = 0; k < 2; k++)
            ret->anchor[i][k] = rounded(ret->anchor[i][k]);
    if (rc >= 0) {
        ret->iou = anchors_mean_iou((const double(*)[2])size, ret->nboxes, (const double(*)[2])ret->anchor, ret->n);
        ret->own_iou = anchors_mean_iou((const double(*)[2])size, ret->nboxes, (const double(*)[2])own, ret->own);
    }
    free(size);
    return rc;
}

static void print_json(const struct fitted *f, FILE *out)
{
    json_t *list = json_array(), *all;

    for (int i = 0; i < f->n; i++)
        for (int k = 0; k < 2; k++)
            json_array_append_new(list, json_real(f->anchor[i][k]));
    all = json_pack("{s:I,s:o,s:f,s:f}", "boxes", (json_int_t)f->nboxes, "anchor_sizes", list, "mean_iou", f->iou, "own_mean_iou",
                    f->own_iou);
    json_dumpf(all, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fputc('\n', out);
    json_decref(all);
}

static void print(const struct fitted *f, struct canvas canvas, FILE *out)
{
    fprintf(out, "%zu boxes at %d x %d: mean IoU %.4f; of the network's own %d anchors %.4f\n", f->nboxes, canvas.w, canvas.h, f->iou,
            f->own, f->own_iou);
    fprintf(out, "\"anchor_sizes\": [");
    for (int i = 0; i < f->n; i++)
        fprintf(out, "%s%.9g,%.9g", i ? ", " : "", f->anchor[i][0], f->anchor[i][1]);
    fprintf(out, "]\n");
    if (f->n != f->own)
        fprintf(
            out,
            "the network has %d anchors: another number needs a .cfg with this number in mask, num and filters of its [yolo] sections\n",
            f->own);
}

int anchorfit_run(const struct model_registry *models, const struct jobspec *spec, int count, bool json, FILE *out, struct err *err)
{
    const struct device_options opt = { .isa = "auto" };
    struct fitted *f = calloc(1, sizeof *f);
    const struct device_ops *ops = NULL;
    struct device *dev = NULL;
    struct dataset *d = NULL;
    struct model *m = NULL;
    int rc = f ? 0 : err_set(err, ERR_DEVICE, "out of memory");

    if (rc >= 0 && strcmp(spec->family->name, "yolo") != 0)
        rc = err_set(err, ERR_UNSUPPORTED, "networks of the family %s have no anchors that follow from boxes", spec->family->name);
    if (rc >= 0 && count > YOLO_MAX_ANCHORS)
        rc = err_set(err, ERR_INPUT, "%d anchors: a network has at most %d", count, YOLO_MAX_ANCHORS);
    if (rc >= 0)
        rc = datacheck_list(models, spec, &d, stderr, err);
    if (rc >= 0)
        rc = device_backend("cpu", "auto", &ops, err);
    if (rc >= 0)
        rc = ops->open(0, &opt, &dev, err);
    if (rc >= 0)
        rc = model_open(models, spec, (struct model_classes){ d->nclasses, NULL, NULL }, dev, &m, err);
    if (rc >= 0)
        rc = fit(m, d, count, f, err);
    if (rc >= 0 && json)
        print_json(f, out);
    else if (rc >= 0)
        print(f, m->canvas, out);
    model_free(m);
    if (dev)
        dev->ops->close(dev);
    dataset_free(d);
    free(f);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/set.c - proposals, boxes moved by deltas, losses of a stage. */
#include "worker/kernels/setloss.h"

#include <errno.h>

#include "worker/cpu/cpu.h"

int cpu_set_start_fwd(struct device *dev, const struct set_head *head, float *const *box, struct tensor *q, const float *boxes,
                      const float *features, const struct rcnn_images *images, int nshards, struct err *err)
{
    (void)dev, (void)err;
    for (int v = 0; v < nshards; v++) {
        const struct set_first s = {
            .boxes = boxes, .features = features, .size = images[v].size, .box = box[v], .q = q[v], .proposals = head->proposals
        };

        for (size_t i = 0; i < (size_t)q[v].n * (size_t)(4 + q[v].c); i++)
            set_first_number(&s, i);
    }
    return 0;
}

int cpu_set_start_bwd(struct device *dev, const struct set_head *head, struct sums_dest dboxes, struct sums_dest dfeatures,
                      const float *const *dbox, const struct tensor *dq, const struct rcnn_images *images, int nshards, struct err *err)
{
    (void)dev, (void)err;
    for (int v = 0; v < nshards; v++) {
        const struct set_first s = { .size = images[v].size,
                                     .box = (float *)dbox[v],
                                     .de = dboxes.dst ? dboxes.dst[v] : NULL,
                                     .df = dfeatures.dst ? dfeatures.dst[v] : NULL,
                                     .q = dq[v],
                                     .de_beta = dboxes.beta,
                                     .df_beta = dfeatures.beta,
                                     .n = images[v].n,
                                     .proposals = head->proposals };

        for (size_t i = 0; i < (size_t)head->proposals * (size_t)(4 + dq[v].c); i++)
            set_first_back(&s, i);
    }
    return 0;
}

int cpu_set_decode(struct device *dev, const struct set_head *head, float *const *ret, const float *const *box, const struct tensor *deltas,
                   int nshards, struct err *err)
{
    (void)dev, (void)err;
    for (int v = 0; v < nshards; v++)
        for (size_t r = 0; r < (size_t)deltas[v].n; r++)
            set_decode(ret[v] + 4 * r, head, box[v] + 4 * r, set_row(&deltas[v], r));
    return 0;
}

/* ---- losses ---- */

struct loss_args {
    const struct set_head *head;
    struct set_view view;
    float grad_scale;
    double *rows; /* [R][SET_TERMS] */
};

static void loss_rows(void *arg, size_t from, size_t to)
{
    const struct loss_args *a = arg;

    for (size_t r = from; r < to; r++) {
        double lane[SUM_LANES] = { 0.0 }, *row = a->rows + r * SET_TERMS;

        for (int k = 0; k < a->head->classes; k++)
            lane[k % SUM_LANES] += set_class_loss(&a->view, a->head, r, k, a->grad_scale);
        row[SET_CLS] = sum_lanes(lane);
        set_box_loss(row, &a->view, a->head, r, a->grad_scale);
    }
}

/* Adds the rows of each image, `each` numbers apart, into its first row, and then the images. */
static void add_terms(double *ret, double *rows, int images, size_t each)
{
    for (int k = 0; k < SET_TERMS; k++) {
        for (size_t i = 0; i < (size_t)images; i++)
            rows[i * each + (size_t)k] = tree_sum(rows + i * each + k, SET_TERMS, (int)(each / SET_TERMS));
        ret[k] = tree_sum(rows + k, each, images);
    }
}

int cpu_set_loss(struct device *dev, const struct set_head *head, int stage, struct tensor *dlogits, struct tensor *ddeltas,
                 float *const *dbase, float grad_scale, double *const *terms, bool by_image, const struct tensor *logits,
                 const struct tensor *deltas, const float *const *base, const float *const *box, const struct set_match *match,
                 const struct rcnn_images *images, const struct rcnn_truth *truth, int nshards, struct err *err)
{
    struct loss_args a = { .head = head, .grad_scale = grad_scale };
    size_t each = (size_t)head->proposals * SET_TERMS;

    for (int v = 0; v < nshards; v++) {
        a.view = set_view(head, stage, &images[v], &truth[v], &match[v], &logits[v], box[v]);
        a.view.base = base[v];
        a.view.d = deltas[v];
        if (dlogits)
            a.view.dz = dlogits[v];
        if (ddeltas)
            a.view.dd = ddeltas[v];
        a.view.dbase = dbase ? dbase[v] : NULL;
        a.rows = cpu_scratch(dev, ((size_t)images[v].n * each + 1) * sizeof *a.rows, err);
        if (!a.rows)
            return -ENOMEM;
        threads_run(cpu_threads(dev), (size_t)logits[v].n, loss_rows, &a);
        for (int i = 0; by_image && i < images[v].n; i++)
            add_terms(*terms++, a.rows + (size_t)i * each, 1, each);
        if (!by_image)
            add_terms(*terms++, a.rows, images[v].n, each);
    }
    return 0;
}

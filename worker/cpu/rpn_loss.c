/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/rpn_loss.c - losses of the drawn anchors; all other gradients
 * are zero. */
#include <errno.h>
#include <string.h>

#include "worker/cpu/cpu.h"
#include "worker/cpu/work.h"
#include "worker/kernels/reduce.h"
#include "worker/kernels/rpn.h"

struct image_cost {
    double cls, box;
};

struct loss_args {
    const struct rpn_head *head;
    const struct rcnn_images *images;
    const struct rcnn_truth *truth;
    struct tensor *const *dlogits, *const *ddeltas;
    const struct tensor *const *logits, *const *deltas;
    const struct rpn_samples *samples;
    float grad_scale;
    int nshards;
    struct image_cost *cost; /* [images] */
    double *sums;            /* per thread: [2][batch] */
};

/* Zeroes rows of pixels of one tensor. */
static void zero_tensor(void *arg, size_t from, size_t to)
{
    const struct tensor *t = arg;
    float *x = t->data;

    if (t->stride == t->c) {
        memset(x + from * (size_t)t->c, 0, (to - from) * (size_t)t->c * sizeof *x);
        return;
    }
    for (size_t i = from; i < to; i++)
        memset(x + i * (size_t)t->stride, 0, (size_t)t->c * sizeof *x);
}

static int sum_counts(const struct rpn_samples *s, int n, int which)
{
    int sum = 0;

    for (int i = 0; i < n; i++)
        sum += s->count[2 * i + which];
    return sum;
}

/* The loss of sample i of an image, and its gradients. */
static struct rpn_cost cost_of(const struct loss_args *a, const struct rpn_grid *g, int v, int image, int anchor, int truth, float scale)
{
    int l = rpn_level_of(g, anchor), i = anchor - g->level[l].first;
    const struct tensor *z = &a->logits[l][v], *d = &a->deltas[l][v];
    size_t at = rpn_place(&g->level[l], g->nratios, image, i, z->stride, 1);
    float *dz = NULL, *dd = NULL;

    if (a->dlogits) {
        dz = (float *)a->dlogits[l][v].data + rpn_place(&g->level[l], g->nratios, image, i, a->dlogits[l][v].stride, 1);
        dd = (float *)a->ddeltas[l][v].data + rpn_place(&g->level[l], g->nratios, image, i, a->ddeltas[l][v].stride, 4);
    }
    return rpn_cost(dz, dd, ((const float *)z->data)[at],
                    (const float *)d->data + rpn_place(&g->level[l], g->nratios, image, i, d->stride, 4), rpn_anchor(a->head, g, l, i),
                    truth >= 0 ? a->truth[v].box + (size_t)truth * 4 : NULL, a->head->beta, scale);
}

static void image_loss(void *arg, size_t index, int thread)
{
    const struct loss_args *a = arg;
    int image, v = shard_of_image(a->images, index, &image), batch = a->head->batch;
    const struct rpn_samples *s = &a->samples[v];
    struct rpn_grid g = rpn_grid(a->head, a->images[v].canvas, a->logits, v);
    double norm = rpn_norm(a->head, sum_counts(s, a->images[v].n, 0), a->images[v].n), *cls = a->sums + (size_t)thread * 2 * (size_t)batch;
    int n = s->count[2 * image];

    for (int i = 0; i < n; i++) {
        size_t at = (size_t)image * (size_t)batch + (size_t)i;
        struct rpn_cost c = cost_of(a, &g, v, image, s->anchor[at], s->truth[at], loss_scale(a->grad_scale, norm));

        cls[i] = (double)c.cls;
        cls[batch + i] = (double)c.box;
    }
    a->cost[index].cls = sum_in_lanes(cls, 1, n);
    a->cost[index].box = sum_in_lanes(cls + batch, 1, n);
}

/* Adds the images of a shard in one chain. */
static void shard_terms(const struct loss_args *a, int v, const struct image_cost *cost, double *const *terms, bool by_image, int broken)
{
    const struct rpn_samples *s = &a->samples[v];
    int n = a->images[v].n, sampled = sum_counts(s, n, 0);
    struct image_cost sum = { 0.0, 0.0 };

    for (int i = 0; i < n; i++) {
        int drawn = s->count[2 * i];

        if (by_image)
            rpn_finish(terms[i], cost[i].cls, cost[i].box, drawn, s->count[2 * i + 1], rpn_norm(a->head, drawn, 1), broken);
        sum.cls += cost[i].cls;
        sum.box += cost[i].box;
    }
    if (!by_image)
        rpn_finish(terms[0], sum.cls, sum.box, sampled, sum_counts(s, n, 1), rpn_norm(a->head, sampled, n), broken);
}

int cpu_rpn_loss(struct device *dev, const struct rpn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,
                 struct tensor *const *dlogits, struct tensor *const *ddeltas, float grad_scale, double *const *terms, bool by_image,
                 const struct tensor *const *logits, const struct tensor *const *deltas, const struct rpn_samples *samples,
                 const int32_t *const *broken, int nshards, struct err *err)
{
    struct loss_args a = { head, images, truth, dlogits, ddeltas, logits, deltas, samples, grad_scale, nshards, NULL, NULL };
    size_t n = count_images(images, nshards), threads = (size_t)threads_count(cpu_threads(dev));

    a.cost = cpu_scratch(dev, n * sizeof *a.cost + threads * 2 * (size_t)head->batch * sizeof(double), err);
    if (!a.cost)
        return -ENOMEM;
    a.sums = (double *)(a.cost + n);
    for (int l = 0; l < head->nlevels && dlogits; l++)
        for (int v = 0; v < nshards; v++) {
            threads_run(cpu_threads(dev), tensor_pixels(&dlogits[l][v]), zero_tensor, &dlogits[l][v]);
            threads_run(cpu_threads(dev), tensor_pixels(&ddeltas[l][v]), zero_tensor, &ddeltas[l][v]);
        }
    threads_each(cpu_threads(dev), n, image_loss, &a);
    for (int v = 0; v < nshards; v++) {
        size_t first = first_image(images, v);

        shard_terms(&a, v, a.cost + first, terms + (by_image ? first : (size_t)v), by_image, broken && broken[v] && *broken[v] > 0);
    }
    return 0;
}

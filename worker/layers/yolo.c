/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/yolo.c - the loss of a YOLO head: terms and the gradient of
 * its logits in one pass. */
#include "worker/layers/layers.h"

#include <assert.h>

int layer_yolo_rows(const struct tape *t, const struct tensor *images)
{
    int n = 0;

    for (int s = 0; s < tape_shards(t); s++)
        n += tape_mode_of(t) == TAPE_TRAIN ? 1 : images[s].n;
    return n;
}

/* Treats each image as a shard, so that each has its own terms. */
static int loss_of_images(struct tape *t, const struct value *logits, const struct yolo_head *head, const struct canvas *net,
                          const struct box_list *truth, double *const *terms)
{
    struct device *dev = tape_device(t);
    int n = layer_yolo_rows(t, logits->x), at = 0;
    struct tensor *x = tape_host(t, (size_t)n * sizeof *x);
    struct box_list *of = tape_host(t, (size_t)n * sizeof *of);
    struct canvas *net_of = tape_host(t, (size_t)n * sizeof *net_of);

    for (int s = 0; s < tape_shards(t); s++)
        for (int i = 0; i < logits->x[s].n; i++, at++) {
            size_t elements = (size_t)i * (size_t)logits->x[s].h * (size_t)logits->x[s].w * (size_t)logits->x[s].stride;

            x[at] = logits->x[s];
            x[at].n = 1;
            x[at].data = (char *)logits->x[s].data + elements * dtype_bytes(logits->x[s].dtype);
            net_of[at] = net[s];
            of[at] = truth[s];
            of[at].offset += i;
        }
    return dev->on->yolo->loss(dev, head, net_of, NULL, 0, terms, x, of, n, tape_err(t));
}

int layer_yolo_loss(struct tape *t, struct value *logits, const struct yolo_head *head, const struct canvas *net, float grad_scale,
                    const struct box_list *truth, double *const *terms)
{
    struct device *dev = tape_device(t);
    struct err *err = tape_err(t);
    float beta;

    if (tape_failed(t))
        return tape_status(t, NULL);
    for (int s = 0; s < tape_shards(t); s++)
        assert(logits->x[s].c == head->nanchors * (5 + head->classes) && logits->x[s].n > 0 && !logits->act);
    if (tape_mode_of(t) == TAPE_EVAL)
        return tape_fail(t, loss_of_images(t, logits, head, net, truth, terms), err);
    if (logits->needs_grad && tape_fail(t, tape_grad(t, logits, &beta, err), err) < 0)
        return err->code;
    return tape_fail(t,
                     dev->on->yolo->loss(dev, head, net, logits->needs_grad ? logits->grad : NULL, grad_scale, terms, logits->x, truth,
                                         tape_shards(t), err),
                     err);
}

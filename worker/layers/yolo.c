/* worker/layers/yolo.c - the loss of a YOLO head: terms and the gradient of its logits in one pass. */
#include "worker/layers/layers.h"

#include <assert.h>

int layer_yolo_loss(struct tape *t, struct value *logits, const struct yolo_head *head, float grad_scale, const struct box_list *truth,
                    double *const *terms)
{
    struct device *dev = tape_device(t);
    struct err *err = tape_err(t);
    float beta;

    if (tape_failed(t))
        return tape_status(t, NULL);
    for (int s = 0; s < tape_shards(t); s++)
        assert(logits->x[s].c == head->nanchors * (5 + head->classes) && logits->x[s].n > 0 && !logits->act);
    if (logits->needs_grad && tape_fail(t, tape_grad(t, logits, &beta, err), err) < 0)
        return err->code;
    return tape_fail(
        t,
        dev->on->yolo->loss(dev, head, logits->needs_grad ? logits->grad : NULL, grad_scale, terms, logits->x, truth, tape_shards(t), err),
        err);
}

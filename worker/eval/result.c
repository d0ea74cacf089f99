#include "worker/eval/result.h"

#include "proto/err.h"

int result_boxes_check(const struct result *r, int nclasses, struct err *err)
{
    if (r->kind != RESULT_BOXES && r->kind != RESULT_MASKS)
        return err_set(err, ERR_INPUT, "a result without boxes");
    for (int i = 0; i < r->n; i++)
        if (r->boxes[i].image != r->image)
            return err_set(err, ERR_INPUT, "detection %d: image %d in a result of image %d", i, r->boxes[i].image, r->image);
    return detections_check(r->boxes, (size_t)r->n, nclasses, err);
}

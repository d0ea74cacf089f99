#include "worker/models/yolo/family.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/data/sample/boxes.h"
#include "worker/eval/boxes/coco_eval.h"
#include "worker/eval/boxes/voc_eval.h"
#include "worker/models/yolo/darknet_cfg.h"
#include "worker/models/yolo/darknet_write.h"
#include "worker/models/yolo/load.h"
#include "worker/models/yolo/presets.h"
#include "worker/models/yolo/yolov3.h"
#include "worker/ops/families.h"

/* Not possible in proto/job/jobspec_rules.c: the network and its strides are known only here. */
static int check_side(const struct darknet_net *net, const char *key, int64_t side, struct err *err)
{
    int grain = darknet_net_stride(net);

    if (side <= 0 || side % grain == 0)
        return 0;
    return err_field(err, ERR_INPUT, key, "%s: must be a multiple of %d for the strides of %s, is %lld", key, grain, net->name,
                     (long long)side);
}

static int set_size(const struct jobspec *spec, struct darknet_net *net, struct err *err)
{
    int64_t lo = spec->data_augment_size_min, hi = spec->data_augment_size_max, side;
    int rc = check_side(net, "model.size", spec->model_size.w, err);

    if (rc >= 0)
        rc = check_side(net, "model.size", spec->model_size.h, err);
    if (rc >= 0 && spec->model_size.w > 0)
        rc = darknet_net_set_size(net, (int)spec->model_size.w, (int)spec->model_size.h, err);
    if (rc < 0 || !spec->data_augment_multiscale)
        return rc;
    rc = check_side(net, "data.augment.size_min", lo, err);
    if (rc >= 0)
        rc = check_side(net, "data.augment.size_max", hi, err);
    if (rc < 0)
        return rc;
    side = net->width > net->height ? net->width : net->height;
    lo = lo > 0 ? lo : side;
    hi = hi > 0 ? hi : side;
    if (lo > hi || (hi - lo) % JOB_SIZE_GRAIN != 0)
        return err_field(err, ERR_INPUT, "data.augment.size_min", "data.augment.size_min: %lld does not lead to %lld in steps of %d",
                         (long long)lo, (long long)hi, JOB_SIZE_GRAIN);
    return 0;
}

static int set_anchors(const struct jobspec *spec, struct darknet_net *net, struct err *err)
{
    struct err why;

    if (spec->model_anchor_sizes.n == 0 || darknet_net_set_anchors(net, spec->model_anchor_sizes.v, spec->model_anchor_sizes.n, &why) >= 0)
        return 0;
    return err_field(err, ERR_INPUT, "model.anchor_sizes", "model.anchor_sizes: %s", why.msg);
}

static int open_net(const struct jobspec *spec, int classes, struct darknet_net **ret_net, struct err *err)
{
    struct darknet_net *net;
    int rc = spec->model_cfg ? darknet_cfg_read(spec->model_cfg, &net, err) : preset_net(spec->model_preset, &net, err);

    if (rc < 0)
        return rc;
    rc = classes == MODEL_OWN_CLASSES ? 0 : darknet_net_set_classes(net, classes, err);
    if (rc >= 0 && spec->model_width != 1)
        rc = darknet_net_set_width(net, spec->model_width, err);
    if (rc >= 0)
        rc = set_size(spec, net, err);
    if (rc >= 0)
        rc = set_anchors(spec, net, err);
    if (rc >= 0 && net->channels != 3)
        rc = err_set(err, ERR_UNSUPPORTED, "%s: pictures of %d channels; only RGB can be trained", net->name, net->channels);
    if (rc < 0) {
        darknet_net_free(net);
        return rc;
    }
    *ret_net = net;
    return 0;
}

static int yolo_open(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err)
{
    struct darknet_net *net;
    int rc = open_net(spec, classes, &net, err);

    return rc < 0 ? rc : yolov3_new(net, spec, dev, ret_model, err);
}

static const struct evaluator_ops *const evaluators[] = { &coco_boxes, &voc_boxes, NULL };

const struct model_family yolo_models = { .name = "yolo",
                                          .task = &task_boxes,
                                          .needs = NEEDS_conv | NEEDS_norm | NEEDS_map | NEEDS_pool | NEEDS_resample | NEEDS_reduce |
                                                   NEEDS_optim | NEEDS_yolo,
                                          .evaluators = evaluators,
                                          .open = yolo_open,
                                          .renames = yolo_renames,
                                          .layer = yolo_layer,
                                          .load = yolo_load,
                                          .write_files = darknet_write_pair };

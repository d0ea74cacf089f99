#include "worker/models/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/jobspec.h"
#include "worker/core/hash.h"
#include "worker/core/philox.h"
#include "worker/kernels/math.h"
#include "worker/models/yolo/darknet_cfg.h"
#include "worker/models/model_io.h"
#include "worker/models/yolo/presets.h"
#include "worker/models/yolo/yolov3.h"

void model_free(struct model *m)
{
    struct device *dev;

    if (!m)
        return;
    dev = m->dev;
    for (int i = 0; i < m->nparams; i++) {
        dev->ops->param_release(dev, m->params[i]);
        dev->ops->free(dev, m->params[i]->data);
        free(m->params[i]);
    }
    free(m->params);
    free(m->norms);
    m->ops->free(m);
}

/* What proto/jobspec_rules.c cannot say: only here the network and its strides are known. */
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

static int open_net(const struct jobspec *spec, int classes, struct darknet_net **ret_net, struct err *err)
{
    struct darknet_net *net;
    int rc = spec->model_cfg ? darknet_cfg_read(spec->model_cfg, &net, err) : preset_net(spec->model_preset, &net, err);

    if (rc < 0)
        return rc;
    rc = darknet_net_set_classes(net, classes, err);
    if (rc >= 0 && spec->model_width != 1)
        rc = darknet_net_set_width(net, spec->model_width, err);
    if (rc >= 0)
        rc = set_size(spec, net, err);
    if (rc >= 0 && net->channels != 3)
        rc = err_set(err, ERR_UNSUPPORTED, "%s: pictures of %d channels; only RGB can be trained", net->name, net->channels);
    if (rc < 0) {
        darknet_net_free(net);
        return rc;
    }
    *ret_net = net;
    return 0;
}

/* ---- initial weights: pure functions of (seed, name, element) ---- */

static void init_conv(const struct param *p, uint64_t seed, float *w)
{
    const uint64_t name = hash_name(p->name);
    const struct philox_key key = { seed, (uint32_t)name, philox_op("model.weights"), (uint16_t)(name >> 32), (uint16_t)(name >> 48) };
    double scale = sqrt(2.0 / ((double)p->r * p->s * p->c));

    for (size_t i = 0; i < p->count; i++)
        w[i] = (float)(philox_normal(&key, i) * scale);
}

/* Objectness of a new head starts at its prior, so that the first steps are not spent on the background. */
static void init_head_bias(const struct yolo_head *head, double prior, float *b)
{
    int per_anchor = head->classes + 5;

    for (int a = 0; a < head->nanchors && prior > 0; a++)
        b[a * per_anchor + 4] = (float)-math_log64((1 - prior) / prior);
}

static int init_param(struct model *m, struct param *p, const struct jobspec *spec, struct err *err)
{
    float *w = calloc(p->count, sizeof *w);
    const struct darknet_net *net = yolov3_net(m);
    int rc;

    if (!w)
        return err_set(err, ERR_DEVICE, "out of memory: %s", p->name);
    if (p->kind == PARAM_CONV)
        init_conv(p, (uint64_t)spec->train_seed, w);
    for (size_t i = 0; (p->kind == PARAM_SCALE || p->kind == PARAM_VAR) && i < p->count; i++)
        w[i] = 1;
    for (int i = 0; i + 1 < net->nlayers; i++)
        if (net->layers[i + 1].type == DARKNET_YOLO && p->kind == PARAM_BIAS && yolov3_conv(m, i)->bias == p)
            init_head_bias(&net->layers[i + 1].yolo, spec->model_obj_prior, w);
    rc = m->dev->ops->upload(m->dev, p->data, w, p->count * sizeof *w, err);
    free(w);
    return rc;
}

int model_open(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err)
{
    struct darknet_net *net;
    struct model *m;
    int rc = open_net(spec, classes, &net, err);

    if (rc >= 0)
        rc = yolov3_new(net, spec, dev, &m, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < m->nparams && rc >= 0; i++)
        rc = init_param(m, m->params[i], spec, err);
    if (rc >= 0 && spec->model_init)
        rc = model_load(m, spec->model_init, (int)spec->model_load_until, err);
    if (rc < 0) {
        model_free(m);
        return rc;
    }
    *ret_model = m;
    return 0;
}

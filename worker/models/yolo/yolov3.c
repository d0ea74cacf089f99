#include "worker/models/yolo/yolov3.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "proto/job/jobspec.h"
#include "worker/data/make/batch.h"
#include "worker/data/sample/boxes.h"
#include "worker/eval/boxes/nms.h"
#include "worker/kernels/math.h"
#include "worker/layers/layers.h"
#include "worker/models/yolo/darknet_net.h"
#include "worker/ops/families.h"

enum { CANDIDATES = 4096, MAX_LOCAL_SHARDS = JOB_MAX_SHARDS };

struct yolov3 {
    struct model base;
    struct darknet_net *net;
    struct yolov3_conv *conv;               /* [nlayers] */
    int *norm_of;                           /* [nlayers]: index of the layer's normalisation, or -1 */
    int *last_reader;                       /* [nlayers]: the last layer that reads its output */
    struct value **out;                     /* [nlayers]: outputs of the wave on the tape */
    struct tensor *logits;                  /* [nheads][MAX_LOCAL_SHARDS]: logits of the last forward */
    struct canvas net_of[MAX_LOCAL_SHARDS]; /* canvas of each shard in the last forward */
    struct yolo_head *heads;                /* [nheads] */
    struct param_group *groups;             /* [ngroups]: two for each learning rate factor of a layer */
    int ngroups;
    struct candidate *candidates;
    size_t room;     /* room of candidates */
    float conf, nms; /* lowest score; IoU of suppression within a class */
    int max_det;
    struct detection *dets;     /* [max_det], of the last result */
    int image, truth, cls, box; /* their array and list numbers in a batch */
};

/* Numerator and denominator of each stored term. -1: the number of images. */
static const struct {
    int num, den;
} term_source[] = {
    { YOLO_TOTAL, -1 },
    { YOLO_BOX, -1 },
    { YOLO_OBJ, -1 },
    { YOLO_NOOBJ, -1 },
    { YOLO_CLS, -1 },
    { YOLO_SUM_IOU, YOLO_POSITIVES },
    { YOLO_RECALL50, YOLO_POSITIVES },
    { YOLO_RECALL75, YOLO_POSITIVES },
};
static const struct loss_term yolo_terms[] = {
    { "total", TERM_RATIO }, { "box", TERM_RATIO }, { "obj", TERM_RATIO },      { "noobj", TERM_RATIO },
    { "cls", TERM_RATIO },   { "iou", TERM_RATIO }, { "recall50", TERM_RATIO }, { "recall75", TERM_RATIO },
};
enum { NTERMS = sizeof yolo_terms / sizeof *yolo_terms };

static struct yolov3 *self(const struct model *m)
{
    return (struct yolov3 *)m;
}

static void yolov3_free(struct model *m)
{
    struct yolov3 *y = self(m);

    darknet_net_free(y->net);
    free(y->conv);
    free(y->norm_of);
    free(y->last_reader);
    free(y->out);
    free(y->logits);
    free(y->heads);
    free(y->groups);
    free(y->candidates);
    free(y->dets);
    free(y);
}

/* ---- forward ---- */

static struct value *source(struct yolov3 *y, int layer, struct value *image)
{
    return layer < 0 ? image : y->out[layer];
}

/* x must have no other reader. */
static struct value *activate(struct tape *t, struct value *x, enum act_kind kind)
{
    struct value *v = layer_act(t, x, kind);

    if (v != x)
        tape_drop(t, x);
    return v;
}

static struct value *conv_forward(struct yolov3 *y, struct tape *t, int i, struct value *x)
{
    const struct darknet_layer *l = &y->net->layers[i];
    const struct yolov3_conv *p = &y->conv[i];
    const struct conv cv = { l->stride, l->pad };
    bool leaky = l->act == ACT_LEAKY || l->act == ACT_RELU;
    struct value *v;

    if (!l->bn)
        return activate(t, layer_conv(t, x, &cv, p->weight, p->bias), darknet_net_is_head_conv(y->net, i) ? ACT_LINEAR : l->act);
    v = layer_conv_norm(t, x, &cv, p->weight, &y->base.norms[y->norm_of[i]],
                        l->act == ACT_LEAKY  ? LEAKY_SLOPE
                        : l->act == ACT_RELU ? 0
                                             : 1);
    return leaky ? v : activate(t, v, l->act);
}

static struct value *route_forward(struct yolov3 *y, struct tape *t, const struct darknet_layer *l)
{
    struct value *part[DARKNET_MAX_SOURCES];

    for (int k = 0; k < l->nsources; k++)
        part[k] = y->out[l->source[k]];
    return l->nsources == 1 ? part[0] : layer_concat(t, part, l->nsources);
}

/* Adds the channels that both layers have. */
static struct value *shortcut_forward(struct yolov3 *y, struct tape *t, const struct darknet_layer *l, struct value *x)
{
    struct value *other = y->out[l->source[0]], *same = layer_channels(t, other, l->out.c);
    struct value *sum = layer_add(t, x, same);

    if (same != other)
        tape_drop(t, same);
    return activate(t, sum, l->act);
}

static struct value *layer_forward(struct yolov3 *y, struct tape *t, int i, struct value *image)
{
    const struct darknet_layer *l = &y->net->layers[i];
    struct value *x = source(y, i - 1, image);

    switch (l->type) {
    case DARKNET_CONV:
        return conv_forward(y, t, i, x);
    case DARKNET_SHORTCUT:
        return shortcut_forward(y, t, l, x);
    case DARKNET_ROUTE:
        return route_forward(y, t, l);
    case DARKNET_UPSAMPLE:
        return layer_upsample(t, x, l->stride);
    case DARKNET_MAXPOOL:
        return layer_maxpool(t, x, &(struct pooling){ l->size, l->stride, l->pad });
    case DARKNET_YOLO:
        return x;
    }
    return NULL;
}

/* Drops values that no later layer reads. A route with one source shares its source's value, which then stays until the
 * last use of both. */
static void drop_read(struct yolov3 *y, struct tape *t, int i)
{
    for (int k = 0; k <= i; k++) {
        bool shared = false;

        if (y->last_reader[k] > i || !y->out[k])
            continue;
        for (int j = 0; j <= i; j++)
            shared = shared || (j != k && y->out[j] == y->out[k]);
        if (!shared)
            tape_drop(t, y->out[k]);
        y->out[k] = NULL;
    }
}

static int network(struct yolov3 *y, struct tape *t, const struct tensor *images, struct err *err)
{
    struct value *image = tape_input(t, images);
    int head = 0;

    assert(tape_shards(t) <= MAX_LOCAL_SHARDS);
    for (int s = 0; s < tape_shards(t); s++)
        y->net_of[s] = (struct canvas){ images[s].h, images[s].w };
    for (int i = 0; i < y->net->nlayers && !tape_failed(t); i++) {
        y->out[i] = layer_forward(y, t, i, image);
        if (y->net->layers[i].type == DARKNET_YOLO && y->out[i]) {
            memcpy(y->logits + (size_t)head * MAX_LOCAL_SHARDS, y->out[i]->x, (size_t)tape_shards(t) * sizeof *y->logits);
            head++;
        }
        drop_read(y, t, i);
    }
    return tape_status(t, err);
}

/* ---- losses ---- */

static void yolov3_sum_terms(const struct model *m, const double *raw, int images, double *ret)
{
    memset(ret, 0, 2 * NTERMS * sizeof *ret);
    for (int h = 0; h < self(m)->net->nheads; h++, raw += YOLO_TERMS)
        for (int k = 0; k < NTERMS; k++) {
            ret[2 * k] += raw[term_source[k].num];
            if (term_source[k].den >= 0)
                ret[2 * k + 1] += raw[term_source[k].den];
            else
                ret[2 * k + 1] = images;
        }
}

/* In each row the terms of a head follow those of the head before. */
static int losses(struct yolov3 *y, struct tape *t, const struct batch *b, const struct model_want *want, struct err *err)
{
    float scale = tape_mode_of(t) == TAPE_TRAIN ? 1.0f / (float)want->images_of_step : 1;
    int nrows = layer_yolo_rows(t, y->logits), head = 0, rc = 0;
    double **terms = tape_host(t, (size_t)nrows * sizeof *terms);
    struct box_list truth[MAX_LOCAL_SHARDS];

    for (int s = 0; s < b->nshards; s++) {
        const struct shard_batch *shard = &b->shard[s];

        truth[s] = (struct box_list){ shard->offset[y->truth], shard->array[y->cls], shard->array[y->box], shard->rows[y->truth] };
    }
    for (int i = 0; i < y->net->nlayers && rc >= 0; i++) {
        if (y->net->layers[i].type != DARKNET_YOLO)
            continue;
        for (int r = 0; r < nrows; r++)
            terms[r] = want->raw[r] + (size_t)head * YOLO_TERMS;
        y->heads[head].class_weight = y->base.class_weight;
        rc = layer_yolo_loss(t, y->out[i], &y->heads[head++], y->net_of, scale, truth, terms);
    }
    return tape_status(t, err);
}

static int yolov3_forward(struct model *m, struct tape *t, const struct batch *b, const struct model_want *want, struct err *err)
{
    struct yolov3 *y = self(m);
    struct tensor images[MAX_LOCAL_SHARDS];
    int rc;

    for (int s = 0; s < b->nshards; s++)
        images[s] = batch_tensor(b->form, &b->shard[s], y->image);
    rc = network(y, t, images, err);
    return rc >= 0 && want->raw ? losses(y, t, b, want, err) : rc;
}

/* The layer that made the output of this layer. Heads, and routes with one source, hand on their input. */
static int origin(const struct yolov3 *y, int layer)
{
    while (layer >= 0) {
        const struct darknet_layer *l = &y->net->layers[layer];

        if (l->type == DARKNET_YOLO)
            layer--;
        else if (l->type == DARKNET_ROUTE && l->nsources == 1)
            layer = l->source[0];
        else
            break;
    }
    return layer;
}

/* Gradients come in reverse order. So a later layer that reads the input of convolution i has written its gradient
 * before. */
static bool has_later_reader(const struct yolov3 *y, int i)
{
    int value = origin(y, i - 1);

    for (int j = i + 1; j < y->net->nlayers; j++) {
        const struct darknet_layer *l = &y->net->layers[j];

        if (l->type != DARKNET_ROUTE && origin(y, j - 1) == value)
            return true;
        for (int k = 0; k < l->nsources && origin(y, j) == j; k++)
            if (origin(y, l->source[k]) == value)
                return true;
    }
    return false;
}

/* True if a convolution up to i trains. Layers before the first such one need no gradient. */
static bool any_trains(const struct yolov3 *y, int i)
{
    for (; i >= 0; i--)
        if (y->conv[i].weight && param_trainable(y->conv[i].weight))
            return true;
    return false;
}

/* The passes of convolution i. Pictures need no gradient. */
static enum conv_passes passes_of(const struct yolov3 *y, enum tape_mode mode, int i)
{
    if (mode == TAPE_EVAL || !any_trains(y, i))
        return CONV_FORWARD;
    if (i == 0)
        return CONV_WEIGHTS;
    return has_later_reader(y, i) ? CONV_DATA_ADD : CONV_DATA;
}

static int yolov3_plan(struct model *m, enum tape_mode mode, int n, int nshards, struct canvas canvas, struct err *err)
{
    const struct yolov3 *y = self(m);
    const struct plan_ops *plan = m->dev->on->plan;
    struct tensor x[MAX_LOCAL_SHARDS];
    int rc = 0;

    for (int i = 0; plan && i < y->net->nlayers && rc >= 0; i++) {
        const struct darknet_layer *l = &y->net->layers[i];

        if (l->type != DARKNET_CONV)
            continue;
        for (int s = 0; s < nshards; s++) {
            x[s] = tensor_f32(NULL, n, l->in.h * canvas.h / y->net->height, l->in.w * canvas.w / y->net->width, l->in.c);
            x[s].dtype = m->dev->dtype;
            if (origin(y, i - 1) >= 0) /* images are dense */
                x[s].stride = device_stride(m->dev, l->in.c);
        }
        rc = plan->conv(m->dev, x, &(struct conv){ l->stride, l->pad }, y->conv[i].weight, !l->bn, passes_of(y, mode, i), nshards, err);
    }
    return rc;
}

/* ---- detections ---- */

/* Decodes all candidates of an image. The buffer grows when it is too small. */
static int decode(struct yolov3 *y, int shard, int image, float conf, int *ret_count, struct err *err)
{
    int total = 0, slot = 0;

    for (int h = 0; h < y->net->nheads; h++) {
        const struct tensor *z = &y->logits[(size_t)h * MAX_LOCAL_SHARDS + (size_t)shard];
        int found, rc = y->base.dev->on->yolo->decode(y->base.dev, &y->heads[h], y->net_of[shard], z, image, conf, slot,
                                                      y->candidates + total, (int)y->room - total, &found, err);

        if (rc < 0)
            return rc;
        if ((size_t)total + (size_t)found > y->room) {
            if (!GROW(y->candidates, y->room, total + found))
                return err_set(err, ERR_DEVICE, "out of memory: %d detections of one image", total + found);
            h--;
            continue;
        }
        total += found;
        slot += z->h * z->w * y->heads[h].nanchors;
    }
    *ret_count = total;
    return 0;
}

static int yolov3_result(struct model *m, int shard, int image, const struct model_picture *picture, double least, struct result *ret,
                         struct err *err)
{
    struct yolov3 *y = self(m);
    int n = 0, rc = decode(y, shard, image, isnan(least) ? y->conf : (float)least, &n, err);

    if (rc < 0)
        return rc;
    n = (int)nms(y->candidates, (size_t)n, y->nms, y->max_det);
    for (int k = 0; k < n; k++) {
        const struct candidate *c = &y->candidates[k];
        const float corners[4] = { c->x1, c->y1, c->x2, c->y2 };

        y->dets[k] = (struct detection){ .image = picture->index, .cls = c->cls, .slot = c->slot, .score = (double)c->score };
        unplace_box(&picture->place, picture->w, picture->h, corners, y->dets[k].box);
    }
    *ret = (struct result){ .kind = RESULT_BOXES, .image = picture->index, .n = n, .boxes = y->dets };
    return 0;
}

static const struct model_ops yolov3_ops = { .name = "yolov3",
                                             .sum_terms = yolov3_sum_terms,
                                             .plan = yolov3_plan,
                                             .forward = yolov3_forward,
                                             .result = yolov3_result,
                                             .free = yolov3_free };

/* ---- building ---- */

/* The objectness of a new head starts at its prior, so that the first steps are not spent on the background. */
static struct param_start head_start(const struct yolo_head *head, double prior)
{
    if (prior <= 0)
        return (struct param_start){ .init = INIT_FILL };
    return (struct param_start){ .init = INIT_FILL, .value = -math_log64((1 - prior) / prior), .first = 4, .period = head->classes + 5 };
}

/* The two groups of a layer: weights of convolutions, and the rest behind them. Only the former decay: specs yolov3
 * section 6.1. */
static int groups_of(struct yolov3 *y, double learning_rate)
{
    const float lr = (float)learning_rate;
    int g = 0;

    while (g < y->ngroups && y->groups[g].lr != lr)
        g += 2;
    if (g < y->ngroups)
        return g;
    y->groups[g] = (struct param_group){ "weights", lr, 1 };
    y->groups[g + 1] = (struct param_group){ "rest", lr, 0 };
    y->ngroups += 2;
    return g;
}

/* Applies stopbackward like train.freeze: without a gradient, neither decay nor running statistics may change the
 * layer. */
static void freeze(struct yolov3 *y, int i)
{
    const struct yolov3_conv *p = &y->conv[i];
    struct param *all[] = { p->weight, p->bias, p->gamma, p->beta };

    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (all[k])
            all[k]->trainable = false;
    if (y->norm_of[i] < 0)
        return;
    y->base.norms[y->norm_of[i]].frozen = true;
    y->base.norms[y->norm_of[i]].sync = false;
}

/* The last layer with stopbackward, or -1. darknet's backward pass goes through the layers in order and ends before
 * it. */
static int last_stop(const struct darknet_net *net)
{
    int i = net->nlayers - 1;

    while (i >= 0 && !net->layers[i].stop_backward)
        i--;
    return i;
}

static struct param *add_param(struct yolov3 *y, enum param_kind kind, const char *name, int layer, int size, int c, struct err *err)
{
    const struct darknet_layer *l = &y->net->layers[layer];
    struct param *p = model_add_param(&y->base, name, kind, l->filters, size, size, c, err);

    if (p)
        p->group = groups_of(y, l->learning_rate) + (kind != PARAM_CONV);
    return p;
}

/* Names as in the reference implementation's state dict: conv_N.weight, batch_norm_N.*, conv_N.bias. */
static int add_conv(struct yolov3 *y, int i, const struct jobspec *spec, struct err *err)
{
    const struct darknet_layer *l = &y->net->layers[i];
    struct yolov3_conv *p = &y->conv[i];
    char name[64];
    int norm;

    snprintf(name, sizeof name, "module_list.%d.conv_%d.weight", i, i);
    p->weight = add_param(y, PARAM_CONV, name, i, l->size, l->in.c, err);
    if (!p->weight)
        return err->code;
    if (!l->bn) {
        snprintf(name, sizeof name, "module_list.%d.conv_%d.bias", i, i);
        p->bias = add_param(y, PARAM_BIAS, name, i, 1, 1, err);
        if (!p->bias)
            return err->code;
        if (i + 1 < y->net->nlayers && l[1].type == DARKNET_YOLO)
            p->bias->start = head_start(&l[1].yolo, spec->model_obj_prior);
        return 0;
    }
    snprintf(name, sizeof name, "module_list.%d.batch_norm_%d", i, i);
    norm = model_add_norm(&y->base, name, l->filters, spec, err);
    if (norm < 0)
        return norm;
    y->norm_of[i] = norm;
    p->gamma = y->base.norms[norm].gamma;
    p->beta = y->base.norms[norm].beta;
    p->mean = y->base.norms[norm].mean;
    p->var = y->base.norms[norm].var;
    p->gamma->group = p->beta->group = p->mean->group = p->var->group = p->weight->group + 1;
    return 0;
}

static int add_convs(struct yolov3 *y, const struct jobspec *spec, struct err *err)
{
    int stop = last_stop(y->net), rc = 0;

    for (int i = 0; i < y->net->nlayers && rc >= 0; i++) {
        y->norm_of[i] = -1;
        if (y->net->layers[i].type == DARKNET_CONV)
            rc = add_conv(y, i, spec, err);
        if (rc >= 0 && i <= stop && y->conv[i].weight)
            freeze(y, i);
    }
    return rc;
}

/* At least one layer must train. */
static int check_trains(const struct darknet_net *net, struct err *err)
{
    int stop = last_stop(net), i = net->nlayers - 1;

    if (net->nheads == 0)
        return err_set(err, ERR_INPUT, "%s: no [yolo] section, nothing to train", net->name);
    while (i > stop && net->layers[i].type != DARKNET_CONV)
        i--;
    if (i > stop)
        return 0;
    return err_set(err, ERR_INPUT, "%s:%d: layer %d: stopbackward=1: no convolution behind it is left to train", net->name,
                   net->layers[stop].line, stop);
}

static void find_last_readers(struct yolov3 *y)
{
    for (int i = 0; i < y->net->nlayers; i++) {
        const struct darknet_layer *l = &y->net->layers[i];

        y->last_reader[i] = i;
        if (l->type != DARKNET_ROUTE && i > 0)
            y->last_reader[i - 1] = i;
        for (int k = 0; k < l->nsources; k++)
            y->last_reader[l->source[k]] = i;
    }
    for (int i = 0; i < y->net->nlayers; i++) /* losses and detections read the heads */
        if (y->net->layers[i].type == DARKNET_YOLO)
            y->last_reader[i] = y->net->nlayers;
}

static void set_heads(struct yolov3 *y, const struct jobspec *spec)
{
    for (int i = 0, h = 0; i < y->net->nlayers; i++) {
        struct yolo_head *head = &y->heads[h];

        if (y->net->layers[i].type != DARKNET_YOLO)
            continue;
        *head = y->net->layers[i].yolo;
        if (!isnan(spec->model_ignore_thresh))
            head->ignore_thresh = (float)spec->model_ignore_thresh;
        if (!isnan(spec->model_assign_iou_thresh))
            head->assign_iou_thresh = (float)spec->model_assign_iou_thresh;
        head->box_gain = (float)spec->model_box_gain;
        head->obj_gain = (float)spec->model_obj_gain;
        head->noobj_gain = (float)spec->model_noobj_gain;
        head->cls_gain = (float)spec->model_cls_gain;
        h++;
    }
}

static int allocate(struct yolov3 *y, struct err *err)
{
    size_t n = (size_t)y->net->nlayers, heads = (size_t)y->net->nheads;

    y->conv = calloc(n, sizeof *y->conv);
    y->norm_of = calloc(n, sizeof *y->norm_of);
    y->last_reader = calloc(n, sizeof *y->last_reader);
    y->out = calloc(n, sizeof *y->out);
    y->logits = calloc(heads * MAX_LOCAL_SHARDS, sizeof *y->logits);
    y->heads = calloc(heads, sizeof *y->heads);
    y->groups = calloc(2 * n, sizeof *y->groups);
    y->room = CANDIDATES;
    y->candidates = calloc(CANDIDATES, sizeof *y->candidates);
    y->dets = calloc((size_t)y->max_det, sizeof *y->dets);
    if (!y->conv || !y->norm_of || !y->last_reader || !y->out || !y->logits || !y->heads || !y->groups || !y->candidates || !y->dets)
        return err_set(err, ERR_DEVICE, "out of memory");
    return 0;
}

int yolov3_new(struct darknet_net *net, const struct jobspec *spec, struct device *dev, struct model **ret_model, struct err *err)
{
    struct yolov3 *y = calloc(1, sizeof *y);
    int rc;

    if (!y) {
        darknet_net_free(net);
        return err_set(err, ERR_DEVICE, "out of memory");
    }
    y->base.ops = &yolov3_ops;
    y->base.dev = dev;
    y->image = batch_array_of(task_boxes.form, "image");
    y->truth = batch_list_of(task_boxes.form, "truth");
    y->cls = batch_array_of(task_boxes.form, "truth.class");
    y->box = batch_array_of(task_boxes.form, "truth.box");
    y->base.canvas = (struct canvas){ net->height, net->width };
    y->base.grain = darknet_net_stride(net);
    y->base.raw_terms = (size_t)net->nheads * YOLO_TERMS;
    y->net = net;
    y->conf = (float)spec->val_conf;
    y->nms = (float)spec->val_nms;
    y->max_det = (int)spec->val_max_det;
    y->base.terms = yolo_terms;
    y->base.nterms = NTERMS;
    y->base.notes = net->warnings;
    rc = check_trains(net, err);
    if (rc >= 0)
        rc = allocate(y, err);
    if (rc >= 0)
        rc = add_convs(y, spec, err);
    y->base.groups = y->groups;
    if (rc < 0) {
        model_free(&y->base);
        return rc;
    }
    find_last_readers(y);
    set_heads(y, spec);
    *ret_model = &y->base;
    return 0;
}

const struct darknet_net *yolov3_net(const struct model *m)
{
    return self(m)->net;
}

const struct yolov3_conv *yolov3_conv(const struct model *m, int layer)
{
    return &self(m)->conv[layer];
}

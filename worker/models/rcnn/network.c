#include "worker/models/rcnn/network.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/models/model.h"
#include "worker/models/rcnn/rcnn.h"

/* ---- building ---- */

struct build {
    struct rcnn_network *n;
    struct pyramid_build front;
    bool tv;
};

static struct net_conv head_conv(struct build *b, enum rcnn_place place, int i, int k, int size, int c)
{
    return pyramid_conv(&b->front, place, i, k, size, c);
}

/* A fully connected layer over `pixels` pixels of c channels. */
static struct net_conv linear(struct build *b, enum rcnn_place place, int i, int k, int pixels, int c)
{
    struct net_conv conv = head_conv(b, place, i, k, 1, pixels * c);

    if (conv.w) {
        conv.w->layout = LAYOUT_FLAT;
        conv.w->pixels = pixels;
    }
    return conv;
}

/* Initial weights and biases as in torch.nn.Linear. */
static void start_linear(struct net_conv *c, double inputs)
{
    pyramid_start(c->w, INIT_UNIFORM, 1 / sqrt(inputs));
    pyramid_start(c->bias, INIT_UNIFORM, 1 / sqrt(inputs));
}

static void add_rpn(struct build *b, int fpn)
{
    struct rcnn_network *n = b->n;

    n->rpn = head_conv(b, RCNN_RPN, 0, fpn, 3, fpn);
    n->objectness = head_conv(b, RCNN_OBJECTNESS, 0, RCNN_RATIOS, 1, fpn);
    n->deltas = head_conv(b, RCNN_DELTAS, 0, 4 * RCNN_RATIOS, 1, fpn);
    pyramid_start(n->rpn.w, INIT_NORMAL, 0.01);
    pyramid_start(n->objectness.w, INIT_NORMAL, 0.01);
    pyramid_start(n->deltas.w, INIT_NORMAL, 0.01);
}

static void add_box_head(struct build *b, int fpn, const struct rcnn_columns *columns)
{
    struct rcnn_network *n = b->n;
    int wide = (int)b->front.spec->model_head_channels, inputs = RCNN_BOX_POOL * RCNN_BOX_POOL * fpn;

    n->fc1 = linear(b, RCNN_FC, 0, wide, RCNN_BOX_POOL * RCNN_BOX_POOL, fpn);
    n->fc2 = linear(b, RCNN_FC, 1, wide, 1, wide);
    n->cls = linear(b, RCNN_CLASSES, 0, columns->cls, 1, wide);
    n->box = linear(b, RCNN_BOXES, 0, columns->box, 1, wide);
    if (b->tv) {
        start_linear(&n->fc1, inputs);
        start_linear(&n->fc2, wide);
        start_linear(&n->cls, wide);
        start_linear(&n->box, wide);
        return;
    }
    pyramid_start(n->fc1.w, INIT_UNIFORM, sqrt(3.0 / inputs));
    pyramid_start(n->fc2.w, INIT_UNIFORM, sqrt(3.0 / wide));
    pyramid_start(n->cls.w, INIT_NORMAL, 0.01);
    pyramid_start(n->box.w, INIT_NORMAL, 0.001);
}

static void add_deconv(struct build *b, int channels)
{
    struct net_conv *c = &b->n->deconv;
    const struct rcnn_part part = { RCNN_DECONV, 0, 0, 0 };

    *c = (struct net_conv){ .norm = -1, .cv = { 1, 0 } };
    c->w = pyramid_spelled(&b->front, &part, RCNN_WEIGHT, 4 * channels, 1, channels);
    c->bias = pyramid_spelled(&b->front, &part, RCNN_BIAS, channels, 1, 1);
    if (c->w)
        c->w->layout = LAYOUT_IOHW;
    pyramid_start(c->w, INIT_NORMAL, sqrt(2.0 / (4.0 * channels)));
}

static void add_mask_head(struct build *b, int fpn, const struct rcnn_columns *columns)
{
    struct rcnn_network *n = b->n;
    int wide = (int)b->front.spec->model_mask_channels;

    for (int i = 0; i < RCNN_MASK_CONVS; i++) {
        n->mask[i] = head_conv(b, RCNN_MASK_CONV, i, wide, 3, i == 0 ? fpn : wide);
        pyramid_start(n->mask[i].w, INIT_NORMAL, sqrt(2.0 / (9.0 * wide)));
    }
    add_deconv(b, wide);
    n->predictor = head_conv(b, RCNN_PREDICTOR, 0, columns->mask, 1, wide);
    pyramid_start(n->predictor.w, INIT_NORMAL, b->tv ? sqrt(2.0 / columns->mask) : 0.001);
    if (b->tv) {
        pyramid_start(n->deconv.bias, INIT_UNIFORM, 1 / sqrt(4.0 * wide));
        pyramid_start(n->predictor.bias, INIT_UNIFORM, 1 / sqrt(wide));
    }
}

/* The flavors differ in the decay of their groups. */
static void group(const struct rcnn_network *n)
{
    for (int i = 0; i < n->front.nnamed; i++) {
        const struct rcnn_named *a = &n->front.named[i];

        a->p->group = a->array == RCNN_WEIGHT ? RCNN_GROUP_WEIGHTS : a->array == RCNN_BIAS ? RCNN_GROUP_BIASES : RCNN_GROUP_NORMS;
    }
}

int rcnn_network_open(struct rcnn_network *n, struct model *m, const struct jobspec *spec, const struct rcnn_columns *columns,
                      struct err *err)
{
    bool tv = strcmp(spec->model_flavor, "tv") == 0;
    struct build b = { n, { .p = &n->front, .spec = spec, .spelling = tv ? RCNN_TV : RCNN_D2, .err = err }, tv };
    int fpn = (int)spec->model_fpn_channels, rc = pyramid_open(&b.front, m);

    if (rc < 0)
        return rc;
    n->masks = columns->mask > 0;
    n->mask_pool = (int)spec->model_mask_pool;
    add_rpn(&b, fpn);
    add_box_head(&b, fpn, columns);
    if (n->masks)
        add_mask_head(&b, fpn, columns);
    group(n);
    return b.front.rc;
}

void rcnn_network_close(struct rcnn_network *n)
{
    pyramid_close(&n->front);
}

/* ---- forward ---- */

void rcnn_pyramid(struct rcnn_network *n, struct tape *t, const struct tensor *images, const int32_t *const *size,
                  struct value *ret[RCNN_LEVELS])
{
    pyramid_forward(&n->front, t, images, size, ret);
    ret[RCNN_POOLED] = layer_maxpool(t, ret[RCNN_POOLED - 1], &(struct pooling){ 1, 2, 0 });
}

void rcnn_proposal_head(struct rcnn_network *n, struct tape *t, struct value *const p[RCNN_LEVELS], struct value *ret_logits[RCNN_LEVELS],
                        struct value *ret_deltas[RCNN_LEVELS])
{
    for (int i = 0; i < RCNN_LEVELS; i++) {
        struct value *x = net_relu(t, net_plain(t, p[i], &n->rpn));

        ret_logits[i] = net_f32(t, net_plain(t, x, &n->objectness));
        ret_deltas[i] = net_f32(t, net_plain(t, x, &n->deltas));
        tape_drop(t, x);
    }
}

void rcnn_box_head(struct rcnn_network *n, struct tape *t, struct value *pooled, struct value **ret_logits, struct value **ret_deltas)
{
    struct value *x = net_last_reader(t, pooled, layer_flat(t, pooled));

    x = net_last_reader(t, x, net_relu(t, net_plain(t, x, &n->fc1)));
    x = net_last_reader(t, x, net_relu(t, net_plain(t, x, &n->fc2)));
    *ret_logits = net_f32(t, net_plain(t, x, &n->cls));
    *ret_deltas = net_f32(t, net_plain(t, x, &n->box));
    tape_drop(t, x);
}

struct value *rcnn_mask_head(struct rcnn_network *n, struct tape *t, struct value *pooled)
{
    struct value *x = pooled;

    for (int i = 0; i < RCNN_MASK_CONVS; i++)
        x = net_last_reader(t, x, net_relu(t, net_plain(t, x, &n->mask[i])));
    x = net_last_reader(t, x, net_relu(t, layer_enlarge(t, x, n->deconv.w, n->deconv.bias)));
    return net_last_reader(t, x, net_f32(t, net_plain(t, x, &n->predictor)));
}

/* ---- the convolutions to come ---- */

static void visit_levels(struct net_visit *v, const struct rcnn_network *n, struct canvas canvas)
{
    int h = net_halved(net_halved(canvas.h)), w = net_halved(net_halved(canvas.w));

    for (int i = 0; i < RCNN_LEVELS; i++, h = net_halved(h), w = net_halved(w)) {
        if (i < RCNN_POOLED)
            pyramid_visit(&n->front, v, i, h, w);
        net_visit(v, &(struct net_use){ .conv = &n->rpn, .h = h, .w = w, .last = i == RCNN_POOLED });
        net_visit(v, &(struct net_use){ .conv = &n->objectness, .h = h, .w = w });
        net_visit(v, &(struct net_use){ .conv = &n->deltas, .h = h, .w = w, .last = true });
    }
}

static void visit_heads(struct net_visit *v, const struct rcnn_network *n)
{
    const struct net_conv *box[] = { &n->fc1, &n->fc2, &n->cls, &n->box };
    int side = n->mask_pool;

    for (int i = 0; i < 4; i++)
        net_visit(v, &(struct net_use){ .conv = box[i], .h = 1, .w = 1, .rows = true, .last = i != 2 });
    for (int i = 0; i < RCNN_MASK_CONVS && n->masks; i++)
        net_visit(v, &(struct net_use){ .conv = &n->mask[i], .h = side, .w = side, .rows = true, .mask = true, .last = true });
    if (!n->masks)
        return;
    net_visit(v, &(struct net_use){ .conv = &n->deconv, .h = side, .w = side, .rows = true, .mask = true, .enlarges = true, .last = true });
    net_visit(v, &(struct net_use){ .conv = &n->predictor, .h = 2 * side, .w = 2 * side, .rows = true, .mask = true, .last = true });
}

int rcnn_each_conv(const struct rcnn_network *n, struct canvas canvas, int (*fn)(void *arg, const struct net_use *use, struct err *err),
                   void *arg, struct err *err)
{
    struct net_visit v = { fn, arg, err, 0 };

    if (canvas.h > 0) {
        resnet_each_conv(&n->front.body, canvas, true, &v);
        visit_levels(&v, n, canvas);
    }
    visit_heads(&v, n);
    return v.rc;
}

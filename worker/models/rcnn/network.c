#include "worker/models/rcnn/network.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/models/model.h"
#include "worker/models/rcnn/rcnn.h"

/* ---- building ---- */

struct build {
    struct rcnn_network *n;
    const struct jobspec *spec;
    enum rcnn_spelling spelling;
    bool tv;
    bool frozen; /* added parameters do not train */
    int rc;
    struct err *err;
};

/* The depth 50 in "mask_rcnn_r50_fpn". */
static const struct resnet_depth *depth_of(const char *preset)
{
    const char *r = strstr(preset, "_r");
    int layers = 0;

    while (r && sscanf(r, "_r%d_", &layers) != 1)
        r = strstr(r + 1, "_r");
    return resnet_depth(layers);
}

static int note(struct build *b, struct param *p, const struct rcnn_part *part, enum rcnn_array array)
{
    struct rcnn_network *n = b->n;
    struct rcnn_named *more =
        n->nnamed & (n->nnamed - 1) ? n->named : realloc(n->named, (n->nnamed ? 2 * (size_t)n->nnamed : 1) * sizeof *more);

    if (!more)
        return err_set(b->err, ERR_DEVICE, "out of memory: %s", p->name);
    n->named = more;
    assert(p->index == n->nnamed);
    more[n->nnamed++] = (struct rcnn_named){ p, *part, array };
    return 0;
}

static struct param *add(struct build *b, const struct rcnn_part *part, enum rcnn_array array, int k, int size, int c)
{
    char name[96];
    struct param *p;

    if (b->rc < 0)
        return NULL;
    rcnn_spell(b->spelling, part, array, name, sizeof name);
    p = model_add_param(b->n->m, name, array == RCNN_WEIGHT ? PARAM_CONV : PARAM_BIAS, k, size, size, c, b->err);
    if (!p) {
        b->rc = b->err->code;
        return NULL;
    }
    b->rc = note(b, p, part, array);
    p->trainable = !b->frozen;
    p->group = array == RCNN_WEIGHT ? RCNN_GROUP_WEIGHTS : RCNN_GROUP_BIASES;
    return p;
}

static void start(struct param *p, enum param_init init, double value)
{
    if (p)
        p->start = (struct param_start){ .init = init, .value = value };
}

/* ---- the backbone ---- */

/* Normalisations of a frozen stage keep statistics, scale and shift; so do all that use running statistics. */
static void add_norm(struct build *b, struct net_conv *c, const struct rcnn_part *part, int k)
{
    char name[96];
    struct norm *norm;

    if (b->rc < 0)
        return;
    rcnn_spell_norm(b->spelling, part, name, sizeof name);
    c->norm = b->rc = model_add_norm(b->n->m, name, k, b->spec, b->err);
    if (b->rc < 0)
        return;
    norm = &b->n->m->norms[c->norm];
    norm->frozen = norm->frozen || b->frozen;
    norm->sync = norm->sync && !norm->frozen;
    norm->eps = (float)b->spec->model_bn_eps;
    for (int i = 0; i < 4 && b->rc >= 0; i++) {
        struct param *p = (struct param *[]){ norm->gamma, norm->beta, norm->mean, norm->var }[i];

        p->trainable = p->trainable && !norm->frozen;
        p->group = RCNN_GROUP_NORMS;
        b->rc = note(b, p, part, (enum rcnn_array)(RCNN_GAMMA + i));
    }
}

static int body_conv(void *arg, const struct resnet_part *at, int k, int size, int c, int stride, struct net_conv *ret, struct err *err)
{
    static const enum rcnn_place place[] = { [RESNET_STEM] = RCNN_STEM, [RESNET_BLOCK] = RCNN_BLOCK, [RESNET_SHORTCUT] = RCNN_SHORTCUT };
    struct build *b = arg;
    const struct rcnn_part part = { place[at->place], at->stage, at->block, at->i };

    (void)err; /* the build has its own */
    b->frozen = b->spec->model_freeze_at >= (at->place == RESNET_STEM ? 1 : at->stage + 2);
    *ret = (struct net_conv){ .norm = -1, .cv = { stride, size / 2 } };
    ret->w = add(b, &part, RCNN_WEIGHT, k, size, c);
    start(ret->w, INIT_NORMAL, sqrt(2.0 / ((double)k * size * size)));
    add_norm(b, ret, &part, k);
    b->frozen = false;
    return b->rc;
}

static void add_body(struct build *b, const struct resnet_depth *d)
{
    const struct resnet_options o = { .depth = d,
                                      .width = b->spec->model_width,
                                      .input = 3,
                                      .stages = RESNET_STAGES,
                                      .first_strides = strcmp(b->spec->model_backbone, "msra") == 0,
                                      .add = body_conv,
                                      .arg = b };

    b->rc = resnet_open(&b->n->body, b->n->m, &o, b->err);
}

/* ---- FPN and heads: convolutions with a bias, which starts at 0 ---- */

static struct net_conv head_conv(struct build *b, enum rcnn_place place, int i, int k, int size, int c)
{
    struct net_conv conv = { .norm = -1, .cv = { 1, size / 2 } };
    const struct rcnn_part part = { place, 0, 0, i };

    conv.w = add(b, &part, RCNN_WEIGHT, k, size, c);
    conv.bias = add(b, &part, RCNN_BIAS, k, 1, 1);
    return conv;
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
    start(c->w, INIT_UNIFORM, 1 / sqrt(inputs));
    start(c->bias, INIT_UNIFORM, 1 / sqrt(inputs));
}

static void add_pyramid(struct build *b, int fpn)
{
    const int *channels = b->n->body.channels + 1;

    for (int i = 0; i < RCNN_POOLED; i++) {
        b->n->lateral[i] = head_conv(b, RCNN_LATERAL, i, fpn, 1, channels[i]);
        start(b->n->lateral[i].w, INIT_UNIFORM, sqrt(3.0 / channels[i]));
        b->n->output[i] = head_conv(b, RCNN_OUTPUT, i, fpn, 3, fpn);
        start(b->n->output[i].w, INIT_UNIFORM, sqrt(3.0 / (9.0 * fpn)));
    }
}

static void add_rpn(struct build *b, int fpn)
{
    struct rcnn_network *n = b->n;

    n->rpn = head_conv(b, RCNN_RPN, 0, fpn, 3, fpn);
    n->objectness = head_conv(b, RCNN_OBJECTNESS, 0, RCNN_RATIOS, 1, fpn);
    n->deltas = head_conv(b, RCNN_DELTAS, 0, 4 * RCNN_RATIOS, 1, fpn);
    start(n->rpn.w, INIT_NORMAL, 0.01);
    start(n->objectness.w, INIT_NORMAL, 0.01);
    start(n->deltas.w, INIT_NORMAL, 0.01);
}

static void add_box_head(struct build *b, int fpn, const struct rcnn_columns *columns)
{
    struct rcnn_network *n = b->n;
    int wide = (int)b->spec->model_head_channels, inputs = RCNN_BOX_POOL * RCNN_BOX_POOL * fpn;

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
    start(n->fc1.w, INIT_UNIFORM, sqrt(3.0 / inputs));
    start(n->fc2.w, INIT_UNIFORM, sqrt(3.0 / wide));
    start(n->cls.w, INIT_NORMAL, 0.01);
    start(n->box.w, INIT_NORMAL, 0.001);
}

static void add_deconv(struct build *b, int channels)
{
    struct net_conv *c = &b->n->deconv;
    const struct rcnn_part part = { RCNN_DECONV, 0, 0, 0 };

    *c = (struct net_conv){ .norm = -1, .cv = { 1, 0 } };
    c->w = add(b, &part, RCNN_WEIGHT, 4 * channels, 1, channels);
    c->bias = add(b, &part, RCNN_BIAS, channels, 1, 1);
    if (c->w)
        c->w->layout = LAYOUT_IOHW;
    start(c->w, INIT_NORMAL, sqrt(2.0 / (4.0 * channels)));
}

static void add_mask_head(struct build *b, int fpn, const struct rcnn_columns *columns)
{
    struct rcnn_network *n = b->n;
    int wide = (int)b->spec->model_mask_channels;

    for (int i = 0; i < RCNN_MASK_CONVS; i++) {
        n->mask[i] = head_conv(b, RCNN_MASK_CONV, i, wide, 3, i == 0 ? fpn : wide);
        start(n->mask[i].w, INIT_NORMAL, sqrt(2.0 / (9.0 * wide)));
    }
    add_deconv(b, wide);
    n->predictor = head_conv(b, RCNN_PREDICTOR, 0, columns->mask, 1, wide);
    start(n->predictor.w, INIT_NORMAL, b->tv ? sqrt(2.0 / columns->mask) : 0.001);
    if (b->tv) {
        start(n->deconv.bias, INIT_UNIFORM, 1 / sqrt(4.0 * wide));
        start(n->predictor.bias, INIT_UNIFORM, 1 / sqrt(wide));
    }
}

/* Specs rcnn section 1.3. torchvision's numbers are for 0 .. 1; these are the same times 255. */
static const struct view_colours msra = { { 103.530f, 116.280f, 123.675f }, { 1, 1, 1 }, true };
static const struct view_colours torchvision = { { 123.675f, 116.280f, 103.530f }, { 58.395f, 57.120f, 57.375f }, false };

int rcnn_network_open(struct rcnn_network *n, struct model *m, const struct jobspec *spec, const struct rcnn_columns *columns,
                      struct err *err)
{
    const struct resnet_depth *d = depth_of(spec->model_preset);
    bool tv = strcmp(spec->model_flavor, "tv") == 0;
    struct build b = { .n = n, .spec = spec, .spelling = tv ? RCNN_TV : RCNN_D2, .tv = tv, .err = err };
    int fpn = (int)spec->model_fpn_channels;

    if (!d)
        return err_field(err, ERR_UNSUPPORTED, "model.preset", "model.preset: '%s' names no depth", spec->model_preset);
    if (device_stride(m->dev, fpn) != fpn) /* only for stored jobs: new ones must have a multiple that suits every device */
        return err_field(err, ERR_UNSUPPORTED, "model.fpn_channels", "model.fpn_channels: this device cannot cut regions from %d channels",
                         fpn);
    n->m = m;
    n->masks = columns->mask > 0;
    n->mask_pool = (int)spec->model_mask_pool;
    n->colours = strcmp(spec->model_backbone, "msra") == 0 ? msra : torchvision;
    add_body(&b, d);
    add_pyramid(&b, fpn);
    add_rpn(&b, fpn);
    add_box_head(&b, fpn, columns);
    if (n->masks)
        add_mask_head(&b, fpn, columns);
    return b.rc;
}

void rcnn_network_close(struct rcnn_network *n)
{
    free(n->named);
}

/* ---- forward ---- */

void rcnn_pyramid(struct rcnn_network *n, struct tape *t, const struct tensor *images, const int32_t *const *size,
                  struct value *ret[RCNN_LEVELS])
{
    struct value *pictures = layer_pictures(t, images, size, &n->colours, tape_device(t)->dtype), *c[RESNET_STAGES], *m, *above = NULL;
    struct value *stem = net_last_reader(t, pictures, resnet_stem(&n->body, t, pictures));

    resnet_stages(&n->body, t, stem, c);
    tape_drop(t, stem);
    for (int i = RCNN_POOLED - 1; i >= 0; i--, above = m) {
        m = net_last_reader(t, c[i], net_plain(t, c[i], &n->lateral[i]));
        if (above) {
            struct value *up = net_last_reader(t, above, layer_upsample(t, above, 2)), *lateral = m;

            m = net_last_reader(t, lateral, layer_add(t, lateral, up));
            tape_drop(t, up);
        }
        ret[i] = net_plain(t, m, &n->output[i]);
    }
    tape_drop(t, above);
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
        if (i < RCNN_POOLED) {
            net_visit(v, &(struct net_use){ .conv = &n->lateral[i], .h = h, .w = w, .last = true });
            net_visit(v, &(struct net_use){ .conv = &n->output[i], .h = h, .w = w, .last = i == 0 });
        }
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
        resnet_each_conv(&n->body, canvas, true, &v);
        visit_levels(&v, n, canvas);
    }
    visit_heads(&v, n);
    return v.rc;
}

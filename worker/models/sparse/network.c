#include "worker/models/sparse/network.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/kernels/math.h"
#include "worker/models/model.h"

enum { SPARSE_CELLS = SPARSE_POOL * SPARSE_POOL };

/* ---- building ---- */

struct build {
    struct sparse_network *n;
    struct pyramid_build front;
    int stage;
};

/* How the bias of a linear layer starts. */
enum bias { BIAS_NONE, BIAS_ZERO, BIAS_RANDOM /* as in torch.nn.Linear */ };

/* Adds an array of the build's stage. */
static struct param *add(struct build *b, enum rcnn_array array, const char *name, enum param_kind kind, int k, int c)
{
    const bool classes = strncmp(name, "class_logits", 12) == 0;
    const struct rcnn_part part = { (enum rcnn_place)(classes ? SPARSE_CLASSES : SPARSE_STAGE), b->stage, 0, 0 };
    char full[96];
    struct param *p;

    snprintf(full, sizeof full, "head.head_series.%d.%s", b->stage, name);
    p = pyramid_param(&b->front, &part, array, full, kind, k, 1, c);
    if (p && kind == PARAM_CONV)
        p->layout = LAYOUT_FLAT;
    return p;
}

/* Weights start as in Glorot and Bengio 2010. */
static struct net_conv linear(struct build *b, const char *name, int k, int c, enum bias bias)
{
    char dot = strstr(name, "in_proj") ? '_' : '.', full[64]; /* in_proj_weight */
    struct net_conv l = { .norm = -1, .cv = { 1, 0 } };

    snprintf(full, sizeof full, "%s%cweight", name, dot);
    l.w = add(b, RCNN_WEIGHT, full, PARAM_CONV, k, c);
    pyramid_start(l.w, INIT_UNIFORM, sqrt(6.0 / ((double)k + c)));
    if (bias == BIAS_NONE)
        return l;
    snprintf(full, sizeof full, "%s%cbias", name, dot);
    l.bias = add(b, RCNN_BIAS, full, PARAM_BIAS, k, 1);
    if (bias == BIAS_RANDOM)
        pyramid_start(l.bias, INIT_UNIFORM, 1 / sqrt(c));
    return l;
}

static struct sparse_norm norm(struct build *b, const char *name, int c)
{
    char gamma[64], beta[64];

    snprintf(gamma, sizeof gamma, "%s.weight", name);
    snprintf(beta, sizeof beta, "%s.bias", name);
    return (struct sparse_norm){ .gamma = add(b, RCNN_GAMMA, gamma, PARAM_SCALE, c, 1),
                                 .beta = add(b, RCNN_BETA, beta, PARAM_SHIFT, c, 1) };
}

static void tower(struct build *b, struct sparse_layer *layer, const char *name, int n)
{
    for (int i = 0; i < n; i++) {
        char linear_name[48], norm_name[48];

        snprintf(linear_name, sizeof linear_name, "%s.%d", name, 3 * i); /* linear, norm, ReLU */
        snprintf(norm_name, sizeof norm_name, "%s.%d", name, 3 * i + 1);
        layer[i].linear = linear(b, linear_name, b->n->channels, b->n->channels, BIAS_NONE);
        layer[i].norm = norm(b, norm_name, b->n->channels);
    }
}

static void add_stage(struct build *b, struct sparse_stage *s, int classes)
{
    const struct jobspec *spec = b->front.spec;
    int d = b->n->channels, e = b->n->inner, wide = (int)spec->model_ffn_channels;

    s->qkv = linear(b, "self_attn.in_proj", 3 * d, d, BIAS_ZERO);
    s->mix = linear(b, "self_attn.out_proj", d, d, BIAS_ZERO);
    s->dynamic = linear(b, "inst_interact.dynamic_layer", 2 * d * e, d, BIAS_RANDOM);
    s->inner[0] = norm(b, "inst_interact.norm1", e);
    s->inner[1] = norm(b, "inst_interact.norm2", d);
    s->flat = linear(b, "inst_interact.out_layer", d, SPARSE_CELLS * d, BIAS_RANDOM);
    s->inner[2] = norm(b, "inst_interact.norm3", d);
    s->wide = linear(b, "linear1", wide, d, BIAS_RANDOM);
    s->narrow = linear(b, "linear2", d, wide, BIAS_RANDOM);
    s->after[0] = norm(b, "norm1", d);
    s->after[1] = norm(b, "norm2", d);
    s->after[2] = norm(b, "norm3", d);
    tower(b, s->cls, "cls_module", b->n->ncls);
    tower(b, s->reg, "reg_module", b->n->nreg);
    s->logits = linear(b, "class_logits", classes, d, BIAS_ZERO);
    pyramid_start(s->logits.bias, INIT_FILL, -math_log64((1 - spec->model_cls_prior) / spec->model_cls_prior));
    s->deltas = linear(b, "bboxes_delta", 4, d, BIAS_RANDOM);
}

/* Boxes as parts of a picture, cx cy w h: the whole of it, or a quarter of each side on a grid. */
static int start_boxes(struct sparse_network *n, bool grid, struct err *err)
{
    int columns = (int)ceil(sqrt(n->proposals)), rows = (n->proposals + columns - 1) / columns;

    n->start = malloc((size_t)n->proposals * 4 * sizeof *n->start);
    if (!n->start)
        return err_set(err, ERR_DEVICE, "out of memory");
    for (int i = 0; i < n->proposals; i++) {
        float *box = n->start + 4 * i;

        box[0] = grid ? (float)((i % columns + 0.5) / columns) : 0.5f;
        box[1] = grid ? (float)((i / columns + 0.5) / rows) : 0.5f;
        box[2] = box[3] = grid ? 0.25f : 1.0f;
    }
    return 0;
}

static struct param *add_proposals(struct build *b, const char *name, int c)
{
    const struct rcnn_part part = { (enum rcnn_place)SPARSE_PROPOSALS, 0, 0, 0 };
    struct param *p = pyramid_param(&b->front, &part, RCNN_WEIGHT, name, PARAM_CONV, b->n->proposals, 1, c);

    pyramid_start(p, INIT_NORMAL, 1);
    if (p)
        p->layout = LAYOUT_FLAT;
    return p;
}

int sparse_network_open(struct sparse_network *n, struct model *m, const struct jobspec *spec, int classes, struct err *err)
{
    struct build b = { n, { .p = &n->front, .spec = spec, .spelling = RCNN_D2, .err = err }, 0 };
    int rc = pyramid_open(&b.front, m);

    n->proposals = (int)spec->model_proposals;
    n->channels = (int)spec->model_fpn_channels;
    n->inner = (int)spec->model_dynamic_channels;
    n->heads = (int)spec->model_heads;
    n->nstages = (int)spec->model_stages;
    n->ncls = (int)spec->model_cls_layers;
    n->nreg = (int)spec->model_reg_layers;
    if (rc >= 0)
        rc = start_boxes(n, strcmp(spec->model_proposal_init, "grid") == 0, err);
    if (rc < 0)
        return rc;
    n->boxes = add_proposals(&b, "init_proposal_boxes.weight", 4);
    if (n->boxes)
        n->boxes->start = (struct param_start){ .init = INIT_GIVEN, .given = n->start };
    n->features = add_proposals(&b, "init_proposal_features.weight", n->channels);
    for (b.stage = 0; b.stage < n->nstages; b.stage++)
        add_stage(&b, &n->stage[b.stage], classes);
    return b.front.rc;
}

void sparse_network_close(struct sparse_network *n)
{
    pyramid_close(&n->front);
    free(n->start);
}

/* ---- forward ---- */

/* Linear layers compute in the device's dtype. x is not dropped. */
static struct value *apply(struct tape *t, struct value *x, const struct net_conv *c)
{
    struct value *cast = layer_cast(t, x, tape_device(t)->dtype), *y = net_plain(t, cast, c);

    if (cast != x)
        tape_drop(t, cast);
    return y;
}

/* The normalised sum of x and q, in f32. Both are dropped. */
static struct value *join(struct tape *t, struct value *x, struct value *q, const struct sparse_norm *n)
{
    struct value *y = net_last_reader(t, x, layer_row_norm(t, x, q, n->gamma, n->beta, false, DTYPE_F32));

    tape_drop(t, q);
    return y;
}

/* ReLU of x, normalised. x is dropped. */
static struct value *bend(struct tape *t, struct value *x, const struct sparse_norm *n, enum dtype dtype)
{
    return net_last_reader(t, x, layer_row_norm(t, x, NULL, n->gamma, n->beta, true, dtype));
}

static struct value *attend(const struct sparse_network *n, const struct sparse_stage *s, struct tape *t, struct value *q)
{
    struct value *x = apply(t, q, &s->qkv);

    x = net_last_reader(t, x, layer_attention(t, x, n->heads, n->proposals));
    return join(t, net_last_reader(t, x, net_plain(t, x, &s->mix)), q, &s->after[0]);
}

/* Two products with weights that each proposal makes for itself. */
static struct value *interact(const struct sparse_network *n, const struct sparse_stage *s, struct tape *t, struct value *pooled,
                              struct value *q)
{
    enum dtype dtype = tape_device(t)->dtype;
    struct value *weights = apply(t, q, &s->dynamic), *x;

    x = net_last_reader(t, pooled, layer_row_mul(t, pooled, weights, 0, n->inner));
    x = bend(t, x, &s->inner[0], dtype);
    x = net_last_reader(t, x, layer_row_mul(t, x, weights, n->channels * n->inner, n->channels));
    tape_drop(t, weights);
    x = bend(t, x, &s->inner[1], dtype);
    x = net_last_reader(t, x, layer_flat(t, x));
    x = net_last_reader(t, x, net_plain(t, x, &s->flat));
    return join(t, bend(t, x, &s->inner[2], DTYPE_F32), q, &s->after[1]);
}

static struct value *feed(const struct sparse_stage *s, struct tape *t, struct value *q)
{
    struct value *x = net_relu(t, apply(t, q, &s->wide));

    return join(t, net_last_reader(t, x, net_plain(t, x, &s->narrow)), q, &s->after[2]);
}

static struct value *climb(struct tape *t, struct value *q, const struct sparse_layer *layer, int n, const struct net_conv *last)
{
    struct value *x = q, *y;

    for (int i = 0; i < n; i++) {
        y = bend(t, apply(t, x, &layer[i].linear), &layer[i].norm, tape_device(t)->dtype);
        if (x != q)
            tape_drop(t, x);
        x = y;
    }
    y = net_f32(t, apply(t, x, last));
    if (x != q)
        tape_drop(t, x);
    return y;
}

struct value *sparse_stage(const struct sparse_network *n, int stage, struct tape *t, struct value *pooled, struct value *q,
                           struct value **ret_logits, struct value **ret_deltas)
{
    const struct sparse_stage *s = &n->stage[stage];

    q = attend(n, s, t, q);
    q = interact(n, s, t, pooled, q);
    q = feed(s, t, q);
    if (ret_logits)
        *ret_logits = climb(t, q, s->cls, n->ncls, &s->logits);
    *ret_deltas = climb(t, q, s->reg, n->nreg, &s->deltas);
    return q;
}

/* ---- the convolutions to come ---- */

/* A linear layer over rows of proposals. last: see struct net_use; layers that read a cast have it to themselves. */
static void visit_rows(struct net_visit *v, const struct sparse_network *n, const struct net_conv *c, bool last)
{
    bool casts = n->front.m->dev->dtype != DTYPE_F32;

    net_visit(v, &(struct net_use){ .conv = c, .h = 1, .w = 1, .rows = true, .last = last || casts });
}

static void visit_tower(struct net_visit *v, const struct sparse_network *n, const struct sparse_layer *layer, int count,
                        const struct net_conv *last, bool first)
{
    for (int i = 0; i < count; i++)
        visit_rows(v, n, &layer[i].linear, i > 0 || first);
    visit_rows(v, n, last, count > 0 || first);
}

static void visit_stage(struct net_visit *v, const struct sparse_network *n, int stage)
{
    const struct sparse_stage *s = &n->stage[stage];

    visit_rows(v, n, &s->qkv, false);
    visit_rows(v, n, &s->mix, true);
    visit_rows(v, n, &s->dynamic, false);
    visit_rows(v, n, &s->flat, true);
    visit_rows(v, n, &s->wide, false);
    visit_rows(v, n, &s->narrow, true);
    visit_tower(v, n, s->cls, n->ncls, &s->logits, false);
    visit_tower(v, n, s->reg, n->nreg, &s->deltas, stage == n->nstages - 1);
}

int sparse_each_conv(const struct sparse_network *n, struct canvas canvas, int (*fn)(void *arg, const struct net_use *use, struct err *err),
                     void *arg, struct err *err)
{
    int h = net_halved(net_halved(canvas.h)), w = net_halved(net_halved(canvas.w));
    struct net_visit v = { fn, arg, err, 0 };

    if (canvas.h > 0)
        resnet_each_conv(&n->front.body, canvas, true, &v);
    for (int i = 0; i < PYRAMID_LEVELS && canvas.h > 0; i++, h = net_halved(h), w = net_halved(w))
        pyramid_visit(&n->front, &v, i, h, w);
    for (int i = 0; i < n->nstages; i++)
        visit_stage(&v, n, i);
    return v.rc;
}

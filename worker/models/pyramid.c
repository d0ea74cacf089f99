#include "worker/models/pyramid.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/models/model.h"

/* ---- parameters ---- */

static int note(struct pyramid_build *b, struct param *p, const struct rcnn_part *part, enum rcnn_array array)
{
    struct pyramid *n = b->p;
    struct rcnn_named *more =
        n->nnamed & (n->nnamed - 1) ? n->named : realloc(n->named, (n->nnamed ? 2 * (size_t)n->nnamed : 1) * sizeof *more);

    if (!more)
        return err_set(b->err, ERR_DEVICE, "out of memory: %s", p->name);
    n->named = more;
    assert(p->index == n->nnamed);
    more[n->nnamed++] = (struct rcnn_named){ p, *part, array };
    return 0;
}

struct param *pyramid_param(struct pyramid_build *b, const struct rcnn_part *part, enum rcnn_array array, const char *name,
                            enum param_kind kind, int k, int size, int c)
{
    struct param *p;

    if (b->rc < 0)
        return NULL;
    p = model_add_param(b->p->m, name, kind, k, size, size, c, b->err);
    if (!p) {
        b->rc = b->err->code;
        return NULL;
    }
    b->rc = note(b, p, part, array);
    p->trainable = !b->frozen;
    return p;
}

struct param *pyramid_spelled(struct pyramid_build *b, const struct rcnn_part *part, enum rcnn_array array, int k, int size, int c)
{
    char name[96];

    rcnn_spell(b->spelling, part, array, name, sizeof name);
    return pyramid_param(b, part, array, name, array == RCNN_WEIGHT ? PARAM_CONV : PARAM_BIAS, k, size, c);
}

void pyramid_start(struct param *p, enum param_init init, double value)
{
    if (p)
        p->start = (struct param_start){ .init = init, .value = value };
}

struct net_conv pyramid_conv(struct pyramid_build *b, enum rcnn_place place, int i, int k, int size, int c)
{
    struct net_conv conv = { .norm = -1, .cv = { 1, size / 2 } };
    const struct rcnn_part part = { place, 0, 0, i };

    conv.w = pyramid_spelled(b, &part, RCNN_WEIGHT, k, size, c);
    conv.bias = pyramid_spelled(b, &part, RCNN_BIAS, k, 1, 1);
    return conv;
}

/* ---- the body ---- */

/* The depth 50 in "mask_rcnn_r50_fpn". */
static const struct resnet_depth *depth_of(const char *preset)
{
    const char *r = strstr(preset, "_r");
    int layers = 0;

    while (r && sscanf(r, "_r%d_", &layers) != 1)
        r = strstr(r + 1, "_r");
    return resnet_depth(layers);
}

/* Normalisations of a frozen stage keep statistics, scale and shift; so do all that use running statistics. */
static void add_norm(struct pyramid_build *b, struct net_conv *c, const struct rcnn_part *part, int k)
{
    char name[96];
    struct norm *norm;

    if (b->rc < 0)
        return;
    rcnn_spell_norm(b->spelling, part, name, sizeof name);
    c->norm = b->rc = model_add_norm(b->p->m, name, k, b->spec, b->err);
    if (b->rc < 0)
        return;
    norm = &b->p->m->norms[c->norm];
    norm->frozen = norm->frozen || b->frozen;
    norm->sync = norm->sync && !norm->frozen;
    norm->eps = (float)b->spec->model_bn_eps;
    for (int i = 0; i < 4 && b->rc >= 0; i++) {
        struct param *p = (struct param *[]){ norm->gamma, norm->beta, norm->mean, norm->var }[i];

        p->trainable = p->trainable && !norm->frozen;
        b->rc = note(b, p, part, (enum rcnn_array)(RCNN_GAMMA + i));
    }
}

static int body_conv(void *arg, const struct resnet_part *at, int k, int size, int c, int stride, struct net_conv *ret, struct err *err)
{
    static const enum rcnn_place place[] = { [RESNET_STEM] = RCNN_STEM, [RESNET_BLOCK] = RCNN_BLOCK, [RESNET_SHORTCUT] = RCNN_SHORTCUT };
    struct pyramid_build *b = arg;
    const struct rcnn_part part = { place[at->place], at->stage, at->block, at->i };

    (void)err; /* the build has its own */
    b->frozen = b->spec->model_freeze_at >= (at->place == RESNET_STEM ? 1 : at->stage + 2);
    *ret = (struct net_conv){ .norm = -1, .cv = { stride, size / 2 } };
    ret->w = pyramid_spelled(b, &part, RCNN_WEIGHT, k, size, c);
    pyramid_start(ret->w, INIT_NORMAL, sqrt(2.0 / ((double)k * size * size)));
    add_norm(b, ret, &part, k);
    b->frozen = false;
    return b->rc;
}

/* ---- all of it ---- */

/* Specs rcnn section 1.3. torchvision's numbers are for 0 .. 1; these are the same times 255. */
static const struct view_colours msra = { { 103.530f, 116.280f, 123.675f }, { 1, 1, 1 }, true };
static const struct view_colours torchvision = { { 123.675f, 116.280f, 103.530f }, { 58.395f, 57.120f, 57.375f }, false };

int pyramid_open(struct pyramid_build *b, struct model *m)
{
    bool of_msra = strcmp(b->spec->model_backbone, "msra") == 0;
    const struct resnet_options o = { .depth = depth_of(b->spec->model_preset),
                                      .width = b->spec->model_width,
                                      .input = 3,
                                      .stages = RESNET_STAGES,
                                      .first_strides = of_msra,
                                      .add = body_conv,
                                      .arg = b };
    int fpn = (int)b->spec->model_fpn_channels;

    if (!o.depth)
        return err_field(b->err, ERR_UNSUPPORTED, "model.preset", "model.preset: '%s' names no depth", b->spec->model_preset);
    if (device_stride(m->dev, fpn) != fpn) /* only for stored jobs: new ones must have a multiple that suits every device */
        return err_field(b->err, ERR_UNSUPPORTED, "model.fpn_channels",
                         "model.fpn_channels: this device cannot cut regions from %d channels", fpn);
    b->p->m = m;
    b->p->colours = of_msra ? msra : torchvision;
    b->rc = resnet_open(&b->p->body, m, &o, b->err);
    for (int i = 0; i < PYRAMID_LEVELS; i++) {
        int channels = b->p->body.channels[1 + i];

        b->p->lateral[i] = pyramid_conv(b, RCNN_LATERAL, i, fpn, 1, channels);
        pyramid_start(b->p->lateral[i].w, INIT_UNIFORM, sqrt(3.0 / channels));
        b->p->output[i] = pyramid_conv(b, RCNN_OUTPUT, i, fpn, 3, fpn);
        pyramid_start(b->p->output[i].w, INIT_UNIFORM, sqrt(3.0 / (9.0 * fpn)));
    }
    return b->rc;
}

void pyramid_close(struct pyramid *p)
{
    free(p->named);
}

void pyramid_forward(const struct pyramid *p, struct tape *t, const struct tensor *images, const int32_t *const *size,
                     struct value *ret[PYRAMID_LEVELS])
{
    struct value *pictures = layer_pictures(t, images, size, &p->colours, tape_device(t)->dtype), *c[RESNET_STAGES], *m, *above = NULL;
    struct value *stem = net_last_reader(t, pictures, resnet_stem(&p->body, t, pictures));

    resnet_stages(&p->body, t, stem, c);
    tape_drop(t, stem);
    for (int i = PYRAMID_LEVELS - 1; i >= 0; i--, above = m) {
        m = net_last_reader(t, c[i], net_plain(t, c[i], &p->lateral[i]));
        if (above) {
            struct value *up = net_last_reader(t, above, layer_upsample(t, above, 2)), *lateral = m;

            m = net_last_reader(t, lateral, layer_add(t, lateral, up));
            tape_drop(t, up);
        }
        ret[i] = net_plain(t, m, &p->output[i]);
    }
    tape_drop(t, above);
}

void pyramid_visit(const struct pyramid *p, struct net_visit *v, int i, int h, int w)
{
    net_visit(v, &(struct net_use){ .conv = &p->lateral[i], .h = h, .w = w, .last = true });
    net_visit(v, &(struct net_use){ .conv = &p->output[i], .h = h, .w = w, .last = i == 0 });
}

/* Levels have their real numbers: number and logarithm are added in fp32, which rounds near a border. */
struct roi_align pyramid_align(int pool, int sampling, bool aligned)
{
    struct roi_align a = { .nlevels = PYRAMID_LEVELS,
                           .levels = aligned ? ROI_LEVELS_D2 : ROI_LEVELS_TV,
                           .first_level = 2,
                           .canonical_level = 4,
                           .canonical_side = 224,
                           .pool = pool,
                           .sampling = sampling,
                           .aligned = aligned };

    for (int i = 0; i < PYRAMID_LEVELS; i++)
        a.scale[i] = 1.0f / (float)(4 << i);
    return a;
}

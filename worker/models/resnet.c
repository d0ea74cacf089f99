#include "worker/models/resnet.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>

#include "proto/job/jobspec.h"
#include "worker/models/model.h"

enum { EXPANSION = 4 /* for bottlenecks */ };

static const struct resnet_depth depths[] = {
    { 18, { 2, 2, 2, 2 }, false },
    { 34, { 3, 4, 6, 3 }, false },
    { 50, { 3, 4, 6, 3 }, true },
    { 101, { 3, 4, 23, 3 }, true },
};

const struct resnet_depth *resnet_depth(int layers)
{
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
        if (depths[i].layers == layers)
            return &depths[i];
    return NULL;
}

int resnet_scaled(int channels, double width)
{
    int n = (int)floor(channels * width / RESNET_CHANNEL_GRAIN + 0.5) * RESNET_CHANNEL_GRAIN;

    return n > RESNET_CHANNEL_GRAIN ? n : RESNET_CHANNEL_GRAIN;
}

/* ---- building ---- */

struct build {
    struct resnet *r;
    const struct resnet_options *o;
    int in; /* channels that the next block reads */
    int rc;
    struct err *err;
};

static void add(struct build *b, struct net_conv *ret, struct resnet_part part, int k, int size, int c, int stride)
{
    if (b->rc >= 0)
        b->rc = b->o->add(b->o->arg, &part, k, size, c, stride, ret, b->err);
}

static void add_block(struct build *b, int stage, int block, int mid)
{
    struct resnet_block *x = &b->r->block[stage][block];
    bool bottleneck = b->o->depth->bottleneck;
    int out = bottleneck ? EXPANSION * mid : mid, stride = stage > 0 && block == 0 ? 2 : 1;
    bool second = bottleneck && !b->o->first_strides; /* the second convolution has the stride */

    x->nconvs = bottleneck ? 3 : 2;
    for (int i = 0; i < x->nconvs; i++)
        add(b, &x->conv[i], (struct resnet_part){ RESNET_BLOCK, stage, block, i }, i == x->nconvs - 1 ? out : mid,
            bottleneck && i != 1 ? 1 : 3, i == 0 ? b->in : mid, i == (second ? 1 : 0) ? stride : 1);
    if (b->in != out || stride != 1)
        add(b, &x->shortcut, (struct resnet_part){ RESNET_SHORTCUT, stage, block, 0 }, out, 1, b->in, stride);
    b->in = out;
}

int resnet_open(struct resnet *r, struct model *m, const struct resnet_options *o, struct err *err)
{
    struct build b = { r, o, resnet_scaled(RESNET_STEM_CHANNELS, o->width), 0, err };

    *r = (struct resnet){ .m = m, .nstages = o->stages };
    add(&b, &r->stem, (struct resnet_part){ RESNET_STEM, 0, 0, 0 }, b.in, 7, o->input, 2);
    r->channels[0] = b.in;
    for (int stage = 0; stage < o->stages; stage++) {
        r->nblocks[stage] = o->depth->blocks[stage];
        for (int i = 0; i < r->nblocks[stage]; i++)
            add_block(&b, stage, i, resnet_scaled(RESNET_STEM_CHANNELS << stage, o->width));
        r->channels[stage + 1] = b.in;
    }
    return b.rc;
}

/* ---- forward ---- */

/* A convolution and its normalisation, then a leaky activation, which stays pending (slope 1: no activation, 0:
 * ReLU). */
static struct value *net_normed(const struct model *m, struct tape *t, struct value *x, const struct net_conv *c, float slope)
{
    return tape_failed(t) ? NULL : layer_conv_norm(t, x, &c->cv, c->w, &m->norms[c->norm], slope);
}

struct value *net_plain(struct tape *t, struct value *x, const struct net_conv *c)
{
    return layer_conv(t, x, &c->cv, c->w, c->bias);
}

struct value *net_relu(struct tape *t, struct value *x)
{
    struct value *v = layer_act(t, x, ACT_RELU);

    if (v != x)
        tape_drop(t, x);
    return v;
}

struct value *net_last_reader(struct tape *t, struct value *x, struct value *y)
{
    tape_drop(t, x);
    return y;
}

struct value *net_f32(struct tape *t, struct value *x)
{
    struct value *v = layer_cast(t, x, DTYPE_F32);

    if (v != x)
        tape_drop(t, x);
    return v;
}

static struct value *block_forward(const struct resnet *r, struct tape *t, struct value *x, const struct resnet_block *b)
{
    struct value *y = x, *side = x, *sum;

    for (int i = 0; i < b->nconvs; i++) {
        struct value *next = net_normed(r->m, t, y, &b->conv[i], i == b->nconvs - 1 ? 1 : 0);

        if (y != x)
            tape_drop(t, y);
        y = next;
    }
    if (b->shortcut.w)
        side = net_normed(r->m, t, x, &b->shortcut, 1);
    sum = layer_add(t, y, side);
    tape_drop(t, y);
    if (side != x)
        tape_drop(t, side);
    return net_relu(t, sum);
}

struct value *resnet_stem(const struct resnet *r, struct tape *t, struct value *x)
{
    return net_normed(r->m, t, x, &r->stem, 0);
}

void resnet_stages(const struct resnet *r, struct tape *t, struct value *stem, struct value *ret[RESNET_STAGES])
{
    struct value *x = layer_maxpool(t, stem, &(struct pooling){ 3, 2, 2 });

    for (int stage = 0; stage < r->nstages; stage++) {
        for (int i = 0; i < r->nblocks[stage]; i++) {
            struct value *y = block_forward(r, t, x, &r->block[stage][i]);

            if (i > 0 || stage == 0) /* the input of a later stage belongs to the caller */
                tape_drop(t, x);
            x = y;
        }
        ret[stage] = x;
    }
}

/* ---- the convolutions to come ---- */

void net_visit(struct net_visit *v, const struct net_use *use)
{
    if (v->rc >= 0)
        v->rc = v->fn(v->arg, use, v->err);
}

/* Visits the convolutions of a block with an h x w input. Returns its stride. The input of the first convolution is
 * read again later, by the shortcut or the sum. */
static int visit_block(struct net_visit *v, const struct resnet_block *b, int h, int w)
{
    int stride = 1;

    for (int i = 0; i < b->nconvs; i++) {
        net_visit(v, &(struct net_use){
                         .conv = &b->conv[i], .h = stride == 2 ? net_halved(h) : h, .w = stride == 2 ? net_halved(w) : w, .last = i > 0 });
        stride *= b->conv[i].cv.stride;
    }
    return stride;
}

void resnet_each_conv(const struct resnet *r, struct canvas canvas, bool others, struct net_visit *v)
{
    int h = net_halved(net_halved(canvas.h)), w = net_halved(net_halved(canvas.w));

    net_visit(v, &(struct net_use){ .conv = &r->stem, .h = canvas.h, .w = canvas.w, .picture = true, .dense = r->stem.w->c == 3 });
    for (int stage = 0; stage < r->nstages; stage++)
        for (int i = 0; i < r->nblocks[stage]; i++) {
            const struct resnet_block *b = &r->block[stage][i];
            int stride = visit_block(v, b, h, w);

            if (b->shortcut.w) /* no other layer reads the input of the first stage */
                net_visit(v, &(struct net_use){ .conv = &b->shortcut, .h = h, .w = w, .last = stage == 0 || !others });
            h = stride == 2 ? net_halved(h) : h;
            w = stride == 2 ? net_halved(w) : w;
        }
}

static enum conv_passes passes_of(const struct net_use *use, enum tape_mode mode)
{
    if (mode == TAPE_EVAL || !param_trainable(use->conv->w))
        return CONV_FORWARD;
    if (use->picture)
        return CONV_WEIGHTS;
    return use->last ? CONV_DATA : CONV_DATA_ADD;
}

int net_plan(struct device *dev, const struct net_use *use, enum tape_mode mode, int images, int nshards, struct err *err)
{
    const struct net_conv *c = use->conv;
    struct tensor x[JOB_MAX_SHARDS];

    for (int s = 0; s < nshards; s++) {
        x[s] = tensor_f32(NULL, images, use->h, use->w, c->w->c);
        x[s].dtype = dev->dtype;
        if (!use->dense)
            x[s].stride = device_stride(dev, x[s].c);
    }
    return dev->on->plan->conv(dev, x, &c->cv, c->w, c->bias && !use->enlarges, passes_of(use, mode), nshards, err);
}

#include "worker/models/depth/network.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/models/model.h"
#include "worker/ops/families.h"

enum { DECODER_CHANNELS = 256, REDUCED_CHANNELS = 512, POSE_CHANNELS = 256, PAIR_CHANNELS = 6, POSE_NUMBERS = 6 };
enum { GROUP_WEIGHTS, GROUP_BIASES, GROUP_NORMS };

static const float crp_slope = 0.01f, pose_scale = 0.01f, dropped = 0.5f;

bool depth_sees_depth(const struct depth_network *n)
{
    return n->kind != JOB_DEPTH_AUTOENCODER;
}

bool depth_sees_features(const struct depth_network *n)
{
    return n->kind != JOB_DEPTH_BASELINE;
}

bool depth_rebuilds(const struct depth_network *n)
{
    return n->kind == JOB_DEPTH_AUTOENCODER || n->kind == JOB_DEPTH_JOINT;
}

/* ---- building ---- */

struct build {
    struct depth_network *n;
    const struct jobspec *spec;
    const char *part; /* prefix of names, like "depth.encoder." */
    bool frozen;      /* the ResNet's weights do not train */
    bool running;     /* the ResNet is normalised by running statistics */
    int uses;         /* uses of the ResNet in a step; `stem_uses` counts those of its stem */
    int stem_uses;
    int rc;
    struct err *err;
};

/* The depth 50 in "featdepth_joint_r50". */
static const struct resnet_depth *depth_of(const char *preset)
{
    const char *r = strrchr(preset, '_');
    int layers = 0;

    return r && sscanf(r, "_r%d", &layers) == 1 ? resnet_depth(layers) : NULL;
}

__attribute__((format(printf, 6, 7))) static struct param *add(struct build *b, enum param_kind kind, int k, int size, int c,
                                                               const char *fmt, ...)
{
    char name[96];
    size_t at = (size_t)snprintf(name, sizeof name, "%s", b->part);
    struct param *p;
    va_list ap;

    if (b->rc < 0)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(name + at, sizeof name - at, fmt, ap);
    va_end(ap);
    p = model_add_param(b->n->m, name, kind, k, size, size, c, b->err);
    if (!p)
        b->rc = b->err->code;
    else
        p->group = kind == PARAM_CONV ? GROUP_WEIGHTS : GROUP_BIASES;
    return p;
}

static void start(struct param *p, enum param_init init, double value)
{
    if (p)
        p->start = (struct param_start){ .init = init, .value = value };
}

/* Initial values as in torch.nn.Conv2d: weights and biases within 1 / sqrt(inputs of an output). */
static struct net_conv plain_conv(struct build *b, const char *name, int k, int size, int c, bool bias, bool mirrored)
{
    struct net_conv conv = { .norm = -1, .cv = { 1, mirrored ? 0 : size / 2 } };

    conv.w = add(b, PARAM_CONV, k, size, c, "%s.weight", name);
    start(conv.w, INIT_UNIFORM, 1 / sqrt((double)c * size * size));
    if (bias)
        conv.bias = add(b, PARAM_BIAS, k, 1, 1, "%s.bias", name);
    start(conv.bias, INIT_UNIFORM, 1 / sqrt((double)c * size * size));
    return conv;
}

/* A 3x3 convolution on mirrored pixels; fmt is a name with a level in it. */
static struct net_conv mirrored_conv(struct build *b, const char *fmt, int level, int k, int c)
{
    char name[48];

    snprintf(name, sizeof name, fmt, level); /* NOLINT: the formats are literals below */
    return plain_conv(b, name, k, 3, c, true, true);
}

/* ---- ResNets ---- */

static void add_norm(struct build *b, struct net_conv *c, const char *name, int k, bool stem)
{
    char full[96];
    struct norm *norm;

    if (b->rc < 0)
        return;
    snprintf(full, sizeof full, "%s%s", b->part, name);
    c->norm = b->rc = model_add_norm(b->n->m, full, k, b->spec, b->err);
    if (b->rc < 0)
        return;
    norm = &b->n->m->norms[c->norm];
    norm->frozen = norm->frozen || b->running;
    norm->sync = norm->sync && !norm->frozen;
    norm->uses = stem ? b->stem_uses : b->uses;
    norm->gamma->trainable = norm->beta->trainable = !norm->frozen && !b->frozen;
    for (int i = 0; i < 4; i++)
        (struct param *[]){ norm->gamma, norm->beta, norm->mean, norm->var }[i]->group = GROUP_NORMS;
}

static int body_conv(void *arg, const struct resnet_part *at, int k, int size, int c, int stride, struct net_conv *ret, struct err *err)
{
    struct build *b = arg;
    char conv[48], norm[48];

    (void)err; /* the build has its own */
    switch (at->place) {
    case RESNET_STEM:
        snprintf(conv, sizeof conv, "conv1");
        snprintf(norm, sizeof norm, "bn1");
        break;
    case RESNET_BLOCK:
        snprintf(conv, sizeof conv, "layer%d.%d.conv%d", at->stage + 1, at->block, at->i + 1);
        snprintf(norm, sizeof norm, "layer%d.%d.bn%d", at->stage + 1, at->block, at->i + 1);
        break;
    case RESNET_SHORTCUT:
        snprintf(conv, sizeof conv, "layer%d.%d.downsample.0", at->stage + 1, at->block);
        snprintf(norm, sizeof norm, "layer%d.%d.downsample.1", at->stage + 1, at->block);
        break;
    }
    *ret = (struct net_conv){ .norm = -1, .cv = { stride, size / 2 } };
    ret->w = add(b, PARAM_CONV, k, size, c, "%s.weight", conv);
    start(ret->w, INIT_NORMAL, sqrt(2.0 / ((double)k * size * size)));
    if (ret->w)
        ret->w->trainable = !b->frozen;
    add_norm(b, ret, norm, k, at->place == RESNET_STEM);
    return b->rc;
}

static void add_body(struct build *b, struct resnet *r, const char *part, const struct resnet_depth *d, int input, int stages)
{
    const struct resnet_options o = {
        .depth = d, .width = b->spec->model_width, .input = input, .stages = stages, .add = body_conv, .arg = b
    };

    b->part = part;
    if (b->rc >= 0)
        b->rc = resnet_open(r, b->n->m, &o, b->err);
}

/* ---- decoders ---- */

static int scaled(const struct build *b, int channels)
{
    return resnet_scaled(channels, b->spec->model_width);
}

/* Level 3 belongs to the last stage and is computed first; FeatDepth calls it 4. */
static void add_crp(struct build *b)
{
    const int *channels = b->n->encoder.channels + 1, wide = scaled(b, DECODER_CHANNELS);
    char name[48];

    b->part = "depth.decoder.";
    for (int i = DEPTH_SCALES - 1; i >= 0; i--) {
        struct crp_level *l = &b->n->crp[i];
        bool first = i == DEPTH_SCALES - 1;
        int reduced = first ? scaled(b, REDUCED_CHANNELS) : wide;

        snprintf(name, sizeof name, "reduce%d.conv", i + 1);
        l->reduce = plain_conv(b, name, reduced, 1, channels[i], false, false);
        l->iconv = mirrored_conv(b, "iconv%d.conv", i + 1, wide, first ? reduced : reduced + wide + 1);
        for (int k = 0; k < CRP_STAGES; k++) {
            snprintf(name, sizeof name, "crp%d.0.%d_pointwise.conv", i + 1, k + 1);
            l->crp[k] = plain_conv(b, name, wide, 1, wide, false, false);
        }
        l->merge = mirrored_conv(b, "merge%d.conv", i + 1, wide, wide);
        l->disp = mirrored_conv(b, "disp%d.0.conv", i + 1, 1, wide);
    }
}

static int up_channels(const struct build *b, int level)
{
    return scaled(b, 16 << level);
}

static void add_upconv(struct build *b)
{
    const int *channels = b->n->encoder.channels;

    b->part = "depth.decoder.";
    for (int i = UP_LEVELS - 1; i >= 0; i--) {
        struct up_level *l = &b->n->up[i];
        int k = up_channels(b, i), c = i == UP_LEVELS - 1 ? channels[DEPTH_FEATURES - 1] : up_channels(b, i + 1);

        l->upconv = mirrored_conv(b, "upconv%d.0.conv.conv", i, k, c);
        l->iconv = mirrored_conv(b, "upconv%d.1.conv.conv", i, k, k + (i > 0 ? channels[i - 1] : 0));
        if (i < DEPTH_SCALES)
            l->disp = mirrored_conv(b, "dispconv%d.conv", i, 1, k);
    }
}

/* Level 4 is computed first; FeatDepth calls it 5. */
static void add_rebuild(struct build *b)
{
    b->part = "extractor.decoder.";
    for (int i = UP_LEVELS - 1; i >= 0; i--) {
        struct up_level *l = &b->n->rebuild[i];
        int k = up_channels(b, i), c = i == UP_LEVELS - 1 ? b->n->features.channels[DEPTH_FEATURES - 1] : up_channels(b, i + 1);

        l->upconv = mirrored_conv(b, "upconv%d.conv.conv", i + 1, k, c);
        l->iconv = mirrored_conv(b, "iconv%d.conv.conv", i + 1, k, k);
        if (i < DEPTH_SCALES)
            l->disp = mirrored_conv(b, "disp%d.conv", i + 1, 3, k);
    }
}

static void add_pose(struct build *b)
{
    struct depth_network *n = b->n;
    int wide = scaled(b, POSE_CHANNELS);

    add_body(b, &n->pose, "pose.encoder.", resnet_depth((int)b->spec->model_pose_layers), PAIR_CHANNELS, RESNET_STAGES);
    b->part = "pose.decoder.";
    n->squeeze = plain_conv(b, "reduce", wide, 1, n->pose.channels[RESNET_STAGES], true, false);
    n->pose_conv[0] = plain_conv(b, "conv1", wide, 3, wide, true, false);
    n->pose_conv[1] = plain_conv(b, "conv2", wide, 3, wide, true, false);
    n->motion = plain_conv(b, "conv3", POSE_NUMBERS, 1, wide, true, false);
}

/* A frozen network of features has only the stages that are read. In other networks only the stem sees the sources. */
static void add_features(struct build *b, const struct resnet_depth *d, int frames)
{
    bool frozen = b->n->kind == JOB_DEPTH_FEATURES;

    b->frozen = frozen;
    b->running = frozen && strcmp(b->spec->model_extractor_bn, "running") == 0;
    b->stem_uses = frames;
    add_body(b, &b->n->features, "extractor.encoder.", d, 3, frozen ? 0 : RESNET_STAGES);
    if (!frozen)
        add_rebuild(b);
}

int depth_network_open(struct depth_network *n, struct model *m, const struct jobspec *spec, int motions, int frames, struct err *err)
{
    const struct resnet_depth *d = depth_of(spec->model_preset);
    struct build b = { .n = n, .spec = spec, .uses = 1, .stem_uses = 1, .err = err };

    if (!d)
        return err_field(err, ERR_UNSUPPORTED, "model.preset", "model.preset: '%s' names no depth", spec->model_preset);
    n->m = m;
    n->kind = job_preset_depth(spec->preset);
    n->upconv = strcmp(spec->model_decoder, "upconv") == 0;
    n->size = (struct canvas){ (int)spec->model_size.h, (int)spec->model_size.w };
    n->pose_size = (struct canvas){ (int)spec->model_pose_size.h, (int)spec->model_pose_size.w };
    if (depth_sees_depth(n)) {
        add_body(&b, &n->encoder, "depth.encoder.", d, 3, RESNET_STAGES);
        (n->upconv ? add_upconv : add_crp)(&b);
        b.uses = b.stem_uses = motions;
        if (motions > 0)
            add_pose(&b);
        b.uses = b.stem_uses = 1;
    }
    if (depth_sees_features(n))
        add_features(&b, d, frames);
    return b.rc;
}

/* ---- forward ---- */

/* A 3x3 convolution on the mirrored pixels of parts side by side, each enlarged by its factor first. */
static struct value *mirrored(struct tape *t, struct value *const *parts, const int *factor, int nparts, const struct net_conv *c)
{
    struct value *in = layer_mirror(t, parts, factor, nparts, 1);

    return net_last_reader(t, in, net_plain(t, in, c));
}

static struct value *mirrored_one(struct tape *t, struct value *x, int factor, const struct net_conv *c)
{
    return mirrored(t, &x, &factor, 1, c);
}

static struct value *squashed(struct tape *t, struct value *logits)
{
    struct value *x = net_f32(t, logits);

    return net_last_reader(t, x, layer_act(t, x, ACT_LOGISTIC));
}

static struct value *leaky(struct tape *t, struct value *raw)
{
    return net_last_reader(t, raw, layer_leaky(t, raw, crp_slope));
}

static struct value *elu(struct tape *t, struct value *raw)
{
    return net_last_reader(t, raw, layer_act(t, raw, ACT_ELU));
}

/* Chained residual pooling. Drops x. */
static struct value *crp_forward(struct tape *t, struct value *x, const struct crp_level *l)
{
    struct value *top = x, *sum = x;

    for (int k = 0; k < CRP_STAGES; k++) {
        struct value *pooled = layer_maxpool(t, top, &(struct pooling){ 5, 1, 4 }), *next, *more;

        if (top != x)
            tape_drop(t, top);
        next = net_last_reader(t, pooled, net_plain(t, pooled, &l->crp[k]));
        more = layer_add(t, sum, next);
        if (sum != x)
            tape_drop(t, sum);
        top = next;
        sum = more;
    }
    tape_drop(t, top);
    tape_drop(t, x);
    return sum;
}

/* Prepares a stage's features for the decoder. Drops f. */
static struct value *reduced(struct tape *t, struct value *f, const struct philox_key *keys, const struct crp_level *l)
{
    struct value *x = keys ? layer_dropout(t, f, dropped, keys) : f;

    if (x != f)
        tape_drop(t, f);
    return net_last_reader(t, x, net_plain(t, x, &l->reduce));
}

static void crp_disparities(const struct depth_network *n, struct tape *t, struct value *const f[RESNET_STAGES],
                            const struct philox_key *const *keys, struct value *ret[DEPTH_SCALES])
{
    struct device *dev = tape_device(t);
    struct value *x = NULL, *above = NULL; /* x has half the next level's sides; above is the disparity of the level above, for layers */

    for (int i = DEPTH_SCALES - 1; i >= 0; i--) {
        const struct crp_level *l = &n->crp[i];
        struct value *skip = reduced(t, f[i], keys && i >= DEPTH_SCALES - 2 ? keys[DEPTH_SCALES - 1 - i] : NULL, l), *y;

        y = x ? mirrored(t, (struct value *[]){ skip, x, above }, (int[]){ 1, 2, 1 }, 3, &l->iconv) : mirrored_one(t, skip, 1, &l->iconv);
        tape_drop(t, skip);
        tape_drop(t, x);
        if (i < DEPTH_SCALES - 1 && above != ret[i + 1])
            tape_drop(t, above);
        y = crp_forward(t, leaky(t, y), l);
        x = leaky(t, net_last_reader(t, y, mirrored_one(t, y, 1, &l->merge)));
        ret[i] = squashed(t, mirrored_one(t, x, 2, &l->disp));
        above = i > 0 ? layer_cast(t, ret[i], dev->dtype) : NULL;
    }
    tape_drop(t, x);
}

static void up_disparities(const struct depth_network *n, struct tape *t, struct value *const f[DEPTH_FEATURES],
                           struct value *ret[DEPTH_SCALES])
{
    struct value *x = f[DEPTH_FEATURES - 1];

    for (int i = UP_LEVELS - 1; i >= 0; i--) {
        const struct up_level *l = &n->up[i];
        struct value *y = elu(t, mirrored_one(t, x, 1, &l->upconv)), *skip = i > 0 ? f[i - 1] : NULL;

        tape_drop(t, x);
        x = elu(t, mirrored(t, (struct value *[]){ y, skip }, (int[]){ 2, 1 }, skip ? 2 : 1, &l->iconv));
        tape_drop(t, y);
        tape_drop(t, skip);
        if (i < DEPTH_SCALES)
            ret[i] = squashed(t, mirrored_one(t, x, 1, &l->disp));
    }
    tape_drop(t, x);
}

void depth_disparities(const struct depth_network *n, struct tape *t, struct value *pictures, const struct philox_key *const *keys,
                       struct value *ret[DEPTH_SCALES])
{
    struct value *f[DEPTH_FEATURES];

    f[0] = net_last_reader(t, pictures, resnet_stem(&n->encoder, t, pictures));
    resnet_stages(&n->encoder, t, f[0], f + 1);
    if (tape_failed(t))
        return;
    if (n->upconv) {
        up_disparities(n, t, f, ret);
        return;
    }
    tape_drop(t, f[0]);
    crp_disparities(n, t, f + 1, keys, ret);
}

struct value *depth_motion(const struct depth_network *n, struct tape *t, struct value *pair)
{
    struct value *f[RESNET_STAGES] = { NULL }, *x = net_last_reader(t, pair, resnet_stem(&n->pose, t, pair));

    resnet_stages(&n->pose, t, x, f);
    tape_drop(t, x);
    for (int i = 0; i < RESNET_STAGES - 1; i++)
        tape_drop(t, f[i]);
    x = f[RESNET_STAGES - 1];
    x = net_last_reader(t, x, net_relu(t, net_plain(t, x, &n->squeeze)));
    for (int i = 0; i < POSE_CONVS; i++)
        x = net_last_reader(t, x, net_relu(t, net_plain(t, x, &n->pose_conv[i])));
    x = net_f32(t, net_last_reader(t, x, net_plain(t, x, &n->motion)));
    return net_last_reader(t, x, layer_mean(t, x, pose_scale));
}

void depth_features(const struct depth_network *n, struct tape *t, struct value *pictures, int wanted, struct value *ret[DEPTH_FEATURES])
{
    assert(wanted == 1 || (wanted == DEPTH_FEATURES && n->features.nstages == RESNET_STAGES));
    ret[0] = net_last_reader(t, pictures, resnet_stem(&n->features, t, pictures));
    if (wanted > 1)
        resnet_stages(&n->features, t, ret[0], ret + 1);
}

void depth_rebuilt(const struct depth_network *n, struct tape *t, struct value *features, struct value *ret[DEPTH_SCALES])
{
    struct value *x = features;

    for (int i = UP_LEVELS - 1; i >= 0; i--) {
        const struct up_level *l = &n->rebuild[i];
        struct value *y = elu(t, mirrored_one(t, x, 1, &l->upconv));

        if (x != features)
            tape_drop(t, x);
        x = net_last_reader(t, y, elu(t, mirrored_one(t, y, 2, &l->iconv)));
        if (i < DEPTH_SCALES)
            ret[i] = squashed(t, mirrored_one(t, x, 1, &l->disp));
    }
    tape_drop(t, x);
}

/* ---- the convolutions to come ---- */

/* Visits a convolution with an input of its own, of h x w pixels with the mirrored ones. */
static void visit_own(struct net_visit *v, const struct net_conv *c, int h, int w)
{
    net_visit(v, &(struct net_use){ .conv = c, .h = h, .w = w, .last = true });
}

static void visit_crp(struct net_visit *v, const struct depth_network *n)
{
    for (int i = DEPTH_SCALES - 1; i >= 0; i--) {
        const struct crp_level *l = &n->crp[i];
        int h = n->size.h >> (i + 2), w = n->size.w >> (i + 2);

        visit_own(v, &l->reduce, h, w);
        visit_own(v, &l->iconv, h + 2, w + 2);
        for (int k = 0; k < CRP_STAGES; k++)
            visit_own(v, &l->crp[k], h, w);
        visit_own(v, &l->merge, h + 2, w + 2);
        visit_own(v, &l->disp, 2 * h + 2, 2 * w + 2);
    }
}

static void visit_up(struct net_visit *v, const struct depth_network *n, const struct up_level *level)
{
    for (int i = UP_LEVELS - 1; i >= 0; i--) {
        int h = n->size.h >> (i + 1), w = n->size.w >> (i + 1);

        visit_own(v, &level[i].upconv, h + 2, w + 2);
        visit_own(v, &level[i].iconv, 2 * h + 2, 2 * w + 2);
        if (level[i].disp.w)
            visit_own(v, &level[i].disp, 2 * h + 2, 2 * w + 2);
    }
}

static void visit_pose(struct net_visit *v, const struct depth_network *n)
{
    int h = n->pose_size.h >> RESNET_STAGES >> 1, w = n->pose_size.w >> RESNET_STAGES >> 1;

    resnet_each_conv(&n->pose, n->pose_size, false, v);
    visit_own(v, &n->squeeze, h, w);
    for (int i = 0; i < POSE_CONVS; i++)
        visit_own(v, &n->pose_conv[i], h, w);
    visit_own(v, &n->motion, h, w);
}

int depth_each_conv(const struct depth_network *n, int (*fn)(void *arg, const struct net_use *use, struct err *err), void *arg,
                    struct err *err)
{
    struct net_visit v = { fn, arg, err, 0 };

    if (depth_sees_depth(n)) {
        resnet_each_conv(&n->encoder, n->size, true, &v);
        if (n->upconv)
            visit_up(&v, n, n->up);
        else
            visit_crp(&v, n);
        if (n->pose.m)
            visit_pose(&v, n);
    }
    if (depth_sees_features(n))
        resnet_each_conv(&n->features, n->size, true, &v);
    if (depth_rebuilds(n))
        visit_up(&v, n, n->rebuild);
    return v.rc;
}

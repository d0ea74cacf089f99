#include "worker/models/depth/depth.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "proto/job/jobspec.h"
#include "worker/data/make/batch.h"
#include "worker/data/sample/frames.h"
#include "worker/layers/depth.h"
#include "worker/models/depth/network.h"
#include "worker/ops/families.h"

enum { MAX_LOCAL_SHARDS = JOB_MAX_SHARDS, TERMS_MOST = 1 + 3 * DEPTH_SCALES + 1 + DEPTH_FEATURES };

_Static_assert((int)RESULT_POSE == (int)POSE_OUT, "poses are told as the device makes them");

/* Places of the terms in a row of raw. Each kind of network writes only its own. */
enum {
    RAW_REC = 0,
    RAW_SM = RAW_REC + DEPTH_SCALES,
    RAW_FM = RAW_SM + DEPTH_SCALES,
    RAW_IMG = RAW_FM + 1,
    RAW_REG = RAW_IMG + DEPTH_SCALES,
    RAW_TERMS = RAW_REG + DEPTH_FEATURES
};
static const char *const raw_names[RAW_TERMS] = { "rec/0", "rec/1", "rec/2", "rec/3", "sm/0",  "sm/1",  "sm/2",  "sm/3",  "fm",
                                                  "img/0", "img/1", "img/2", "img/3", "reg/0", "reg/1", "reg/2", "reg/3", "reg/4" };

/* Settings of the losses: specs featdepth section 3. */
struct depth_settings {
    float ssim, perception, smoothness, dis, cvt;
    bool automask, normalise, progressive;
    enum automask_kind noise;
    struct warp warp;
};

struct depth {
    struct model base;
    struct depth_network net;
    struct depth_settings how;
    int nsources, source[FRAMES_MAX_SOURCES];
    struct loss_term terms[TERMS_MOST];
    int term_source[TERMS_MOST];
    /* kept by the last forward() with results, for result() */
    struct value *disp, *pose[FRAMES_MAX_SOURCES]; /* pose: NULL if views were not asked for */
    struct result_view views[FRAMES_MAX_SOURCES];
    float *map, *picture; /* of one image: in the network's size; in the picture's size */
    size_t map_room, picture_room;
};

static const struct param_group groups[] = { { "weights", 1, 1 }, { "biases", 1, 1 }, { "norms", 1, 1 } };

/* Specs featdepth section 1.1. First: for the networks of depth and motion. Second: for features and losses, 0 .. 1. */
static const struct view_colours seen_colours = { { 114.75f, 114.75f, 114.75f }, { 57.375f, 57.375f, 57.375f }, false };
static const struct view_colours plain_colours = { { 0, 0, 0 }, { 255, 255, 255 }, false };
static const float noise_sigma = 1e-5f;

static struct depth *self(const struct model *m)
{
    return (struct depth *)m;
}

static void depth_free(struct model *m)
{
    struct depth *d = self(m);

    free(d->map);
    free(d->picture);
    free(d);
}

/* ---- a batch, as layers read it ---- */

struct pass {
    struct depth *d;
    struct tape *t;
    const struct batch *b;
    const struct model_want *want;
    float scale; /* scale of gradients */
    int images;  /* in all shards */
    int nrows;   /* rows of want->raw */
    const float *camera[MAX_LOCAL_SHARDS];
};

/* The pictures of an array, with the number of a source in its name if that is not -1. */
static struct tensor *pictures(const struct pass *p, const char *name, int source)
{
    struct tensor *x = tape_host(p->t, (size_t)p->b->nshards * sizeof *x);
    char full[16];
    int array;

    snprintf(full, sizeof full, source < 0 ? "%s" : "%s%d", name, source); /* NOLINT: both formats are literals */
    array = batch_array_of(p->b->form, full);
    assert(array >= 0);
    for (int s = 0; s < p->b->nshards; s++)
        x[s] = batch_tensor(p->b->form, &p->b->shard[s], array);
    return x;
}

static struct value *seen(const struct pass *p, int source)
{
    return layer_pictures(p->t, pictures(p, "seen", source), NULL, &seen_colours, tape_device(p->t)->dtype);
}

static struct value *as_stored(const struct pass *p, int source, enum dtype dtype)
{
    struct tensor *x = source < 0 ? pictures(p, "picture", -1) : pictures(p, "source", source);

    return layer_pictures(p->t, x, NULL, &plain_colours, dtype);
}

/* A picture for the losses. */
static struct value *shown(const struct pass *p, int source)
{
    return as_stored(p, source, DTYPE_F32);
}

/* A picture for the network of features. */
static struct value *raw_picture(const struct pass *p, int source)
{
    return as_stored(p, source, tape_device(p->t)->dtype);
}

/* Random keys of every image, for one purpose. */
static struct philox_key *keys_of(const struct pass *p, const char *purpose)
{
    struct philox_key *k = tape_host(p->t, (size_t)p->images * sizeof *k);
    int at = 0;

    for (int s = 0; s < p->b->nshards; s++)
        for (int i = 0; i < p->b->shard[s].n; i++)
            k[at++] = model_key(p->b, purpose, s, i);
    return k;
}

static double **rows(const struct pass *p, int term)
{
    double **ret = tape_host(p->t, (size_t)p->nrows * sizeof *ret);

    for (int i = 0; i < p->nrows; i++)
        ret[i] = p->want->raw[i] + term;
    return ret;
}

static void drop(struct tape *t, struct value *const *v, int n)
{
    for (int i = 0; i < n; i++)
        tape_drop(t, v[i]);
}

/* ---- poses of the sources ---- */

/* A motion of 0, 0, 0 and the position of the other camera: [n, 1, 1, POSE_IN]. */
static struct value *stereo_vector(const struct pass *p)
{
    int array = batch_array_of(p->b->form, "stereo"), n = p->b->nshards;
    struct tensor *shape = tape_host(p->t, (size_t)n * sizeof *shape), *part = tape_host(p->t, (size_t)n * sizeof *part);
    struct operand *from = tape_host(p->t, (size_t)n * sizeof *from);
    struct device *dev = tape_device(p->t);
    struct value *v;
    int rc = 0;

    for (int s = 0; s < n; s++)
        shape[s] = tensor_f32(NULL, p->b->shard[s].n, 1, 1, POSE_IN);
    v = tape_dense(p->t, shape, "stereo");
    for (int pass = 0; pass < 2 && v && rc >= 0; pass++) {
        for (int s = 0; s < n; s++) {
            from[s].x = pass == 0 ? v->x[s] : batch_tensor(p->b->form, &p->b->shard[s], array);
            if (pass == 0)
                from[s].x.data = (void *)(uintptr_t)tape_constant(p->t, 0, p->b->shard[s].n * POSE_IN);
            part[s] = v->x[s];
            if (pass == 1) {
                part[s].data = (float *)v->x[s].data + POSE_IN / 2;
                part[s].c = 1;
            }
        }
        rc = tape_fail(p->t, dev->on->map->act_fwd(dev, ACT_LINEAR, part, from, n, tape_err(p->t)), tape_err(p->t));
    }
    return rc < 0 ? NULL : v;
}

/* Returns y, and drops x, from which y was made. */
static struct value *instead(const struct pass *p, struct value *x, struct value *y)
{
    if (y != x)
        tape_drop(p->t, x);
    return y;
}

/* Resizes pictures in f32. Pictures have no gradient, so on a device with bf16 this costs one more rounding and nothing
 * else. */
static struct value *sized(const struct pass *p, struct value *x)
{
    x = instead(p, x, layer_cast(p->t, x, DTYPE_F32));
    x = instead(p, x, layer_resize(p->t, x, p->d->net.pose_size.h, p->d->net.pose_size.w));
    return instead(p, x, layer_cast(p->t, x, tape_device(p->t)->dtype));
}

/* The earlier frame comes first: specs featdepth section 2.3. */
static struct value *motion_of(const struct pass *p, int i)
{
    bool before = p->d->source[i] < 0;
    struct value *two[2] = { sized(p, seen(p, before ? i : -1)), sized(p, seen(p, before ? -1 : i)) };
    struct value *pair = layer_concat(p->t, two, 2);

    drop(p->t, two, 2);
    return depth_motion(&p->d->net, p->t, pair);
}

/* Poses that result() reports are kept. */
static void find_poses(const struct pass *p, struct value *pose[FRAMES_MAX_SOURCES])
{
    for (int i = 0; i < p->d->nsources; i++) {
        bool stereo = p->d->source[i] == FRAMES_STEREO;
        struct value *v = stereo ? stereo_vector(p) : motion_of(p, i);

        pose[i] = net_last_reader(p->t, v, layer_pose(p->t, v, p->d->source[i] < 0));
        if (p->want->views)
            p->d->pose[i] = pose[i];
    }
}

static void drop_poses(const struct pass *p, struct value *const pose[FRAMES_MAX_SOURCES])
{
    if (!p->want->views)
        drop(p->t, pose, p->d->nsources);
}

/* ---- losses ---- */

/* Inputs of the losses besides disparities. */
struct scene {
    struct value *target, *source[FRAMES_MAX_SOURCES], *pose[FRAMES_MAX_SOURCES], *identity[FRAMES_MAX_SOURCES];
};

static void reprojection(const struct pass *p, const struct scene *scene, struct value *disp, int scale)
{
    const struct depth *d = p->d;
    const struct philox_key *key[FRAMES_MAX_SOURCES];
    struct automask_noise noise = { d->how.noise, noise_sigma, key };
    struct value *full = layer_resize(p->t, disp, d->net.size.h, d->net.size.w), *warped[FRAMES_MAX_SOURCES] = { NULL };
    char purpose[32];

    for (int i = 0; i < d->nsources; i++) {
        snprintf(purpose, sizeof purpose, "depth.automask%d.%d", scale, i);
        key[i] = keys_of(p, purpose);
        warped[i] = layer_warp(p->t, scene->source[i], full, scene->pose[i], p->camera, &d->how.warp);
    }
    if (full != disp)
        tape_drop(p->t, full);
    layer_reprojection(p->t, warped, d->nsources, scene->target, d->how.automask ? scene->identity : NULL,
                       d->how.noise == AUTOMASK_NONE ? NULL : &noise, d->how.ssim, 1.0f / DEPTH_SCALES, p->scale, rows(p, RAW_REC + scale));
    drop(p->t, warped, d->nsources);
}

static void smoothness(const struct pass *p, const struct scene *scene, struct value *disp, int scale)
{
    float weight = p->d->how.smoothness / (float)(DEPTH_SCALES << scale);

    layer_smoothness(p->t, disp, scene->target->x, &(struct smoothness){ 0.5f, weight, weight, p->d->how.normalise }, p->scale,
                     rows(p, RAW_SM + scale));
}

/* The feature as f32 without pending operations. The feature itself is not dropped. */
static struct value *as_map(struct tape *t, struct value *feature)
{
    struct value *x = layer_cast(t, feature, DTYPE_F32), *y = layer_plain(t, x);

    if (x != feature && y != x)
        tape_drop(t, x);
    return y;
}

/* Warps the first features of each source, at half the sides, to the target, and compares them there. */
static void feature_metric(const struct pass *p, const struct scene *scene, struct value *disp, struct value *target_feature)
{
    const struct depth *d = p->d;
    struct value *half = layer_resize(p->t, disp, d->net.size.h / 2, d->net.size.w / 2), *warped[FRAMES_MAX_SOURCES] = { NULL };
    struct value *target = as_map(p->t, target_feature);
    struct warp w = d->how.warp;

    w.camera_scale = 0.5f;
    for (int i = 0; i < d->nsources; i++) {
        struct value *f[DEPTH_FEATURES], *map;

        depth_features(&d->net, p->t, raw_picture(p, i), 1, f);
        map = as_map(p->t, f[0]);
        if (map != f[0])
            tape_drop(p->t, f[0]);
        warped[i] = net_last_reader(p->t, map, layer_warp(p->t, map, half, scene->pose[i], p->camera, &w));
    }
    layer_feature_metric(p->t, warped, d->nsources, target, d->how.perception, p->scale, rows(p, RAW_FM));
    drop(p->t, warped, d->nsources);
    if (half != disp)
        tape_drop(p->t, half);
    if (target != target_feature)
        tape_drop(p->t, target);
}

static void regularisation(const struct pass *p, struct value *target, struct value *const f[DEPTH_FEATURES])
{
    for (int i = 0; i < DEPTH_FEATURES; i++) {
        float over = (float)(DEPTH_FEATURES << i);
        struct value *x = as_map(p->t, f[i]);

        if (tape_failed(p->t))
            return;
        layer_smoothness(p->t, x, target->x, &(struct smoothness){ 1, -p->d->how.dis / over, p->d->how.cvt / over, false }, p->scale,
                         rows(p, RAW_REG + i));
        if (x != f[i])
            tape_drop(p->t, x);
    }
}

static void reconstruction(const struct pass *p, struct value *target, struct value *last_feature)
{
    const struct canvas size = p->d->net.size;
    struct value *made[DEPTH_SCALES] = { NULL }, *want = target;

    depth_rebuilt(&p->d->net, p->t, last_feature, made);
    for (int s = 0; s < DEPTH_SCALES; s++) {
        struct value *next = layer_resize(p->t, p->d->how.progressive ? want : target, size.h >> s, size.w >> s);

        if (want != target && want != next)
            tape_drop(p->t, want);
        want = next;
        layer_photometric_mean(p->t, made[s], want, p->d->how.ssim, 1.0f / DEPTH_SCALES, p->scale, rows(p, RAW_IMG + s));
        tape_drop(p->t, made[s]);
    }
    if (want != target)
        tape_drop(p->t, want);
}

static void find_scene(const struct pass *p, struct scene *s)
{
    const struct depth *d = p->d;

    find_poses(p, s->pose);
    for (int i = 0; i < d->nsources; i++) {
        s->source[i] = shown(p, i);
        s->identity[i] = d->how.automask ? layer_photometric_map(p->t, s->source[i], s->target, d->how.ssim) : NULL;
    }
}

/* disp is read by kinds with depth only. */
static void losses(const struct pass *p, struct value *const disp[DEPTH_SCALES])
{
    const struct depth *d = p->d;
    int wanted = depth_rebuilds(&d->net) ? DEPTH_FEATURES : 1;
    struct value *f[DEPTH_FEATURES] = { NULL };
    struct scene scene = { .target = shown(p, -1) };

    if (depth_sees_depth(&d->net))
        find_scene(p, &scene);
    if (tape_failed(p->t))
        return;
    for (int s = 0; s < DEPTH_SCALES && depth_sees_depth(&d->net); s++) {
        reprojection(p, &scene, disp[s], s);
        smoothness(p, &scene, disp[s], s);
    }
    if (depth_sees_features(&d->net)) {
        depth_features(&d->net, p->t, raw_picture(p, -1), wanted, f);
        if (depth_sees_depth(&d->net))
            feature_metric(p, &scene, disp[0], f[0]);
        if (depth_rebuilds(&d->net)) {
            regularisation(p, scene.target, f);
            reconstruction(p, scene.target, f[DEPTH_FEATURES - 1]);
        }
        drop(p->t, f, wanted);
    }
    drop(p->t, scene.source, d->nsources);
    drop_poses(p, scene.pose);
    drop(p->t, scene.identity, d->nsources);
    tape_drop(p->t, scene.target);
}

/* A row of raw already holds means: of a shard in training, of an image in validation. */
static void depth_sum_terms(const struct model *m, const double *raw, int images, double *ret)
{
    (void)images;
    ret[0] = 0;
    for (int k = 1; k < m->nterms; k++) {
        ret[2 * k] = raw[self(m)->term_source[k]];
        ret[2 * k + 1] = 1;
        ret[0] += ret[2 * k];
    }
    ret[1] = 1;
}

/* ---- forward ---- */

static int depth_forward(struct model *m, struct tape *t, const struct batch *b, const struct model_want *want, struct err *err)
{
    struct depth *d = self(m);
    bool train = tape_mode_of(t) == TAPE_TRAIN;
    struct pass p = { .d = d, .t = t, .b = b, .want = want, .scale = train ? 1.0f / (float)want->shards_of_step : 1 };
    struct value *disp[DEPTH_SCALES] = { NULL };
    int camera = batch_array_of(b->form, "camera");

    assert(b->nshards <= MAX_LOCAL_SHARDS);
    for (int s = 0; s < b->nshards; s++) {
        p.camera[s] = b->shard[s].array[camera];
        p.images += b->shard[s].n;
    }
    p.nrows = train ? b->nshards : p.images;
    if (depth_sees_depth(&d->net)) {
        const struct philox_key *keys[2] = { keys_of(&p, "depth.dropout4"), keys_of(&p, "depth.dropout3") };

        depth_disparities(&d->net, t, seen(&p, -1), keys, disp);
    }
    memset(d->pose, 0, sizeof d->pose);
    if (want->raw && !tape_failed(t))
        losses(&p, disp);
    else if (want->views && !tape_failed(t))
        find_poses(&p, d->pose);
    d->disp = want->results ? disp[0] : NULL;
    drop(t, disp + (want->results ? 1 : 0), want->results ? DEPTH_SCALES - 1 : DEPTH_SCALES);
    return tape_status(t, err);
}

/* ---- plans ---- */

struct planning {
    const struct depth *d;
    enum tape_mode mode;
    int n, nshards;
};

static int plan_conv(void *arg, const struct net_use *use, struct err *err)
{
    const struct planning *p = arg;

    return net_plan(p->d->base.dev, use, p->mode, p->n, p->nshards, err);
}

static int depth_plan(struct model *m, enum tape_mode mode, int n, int nshards, struct canvas canvas, struct err *err)
{
    struct planning p = { self(m), mode, n, nshards };

    if (!m->dev->on->plan || canvas.h == 0)
        return 0;
    return depth_each_conv(&p.d->net, plan_conv, &p, err);
}

/* ---- results ---- */

/* The two pixels of `in` nearest to pixel i of `out`, and the second one's weight. Pixels are areas: specs featdepth
 * section 3.8. */
static void place(int i, int in, int out, int *ret_first, int *ret_second, float *ret_part)
{
    float at = ((float)i + 0.5f) * ((float)in / (float)out) - 0.5f;

    at = at > 0 ? at : 0;
    *ret_first = (int)at < in - 1 ? (int)at : in - 1;
    *ret_second = *ret_first + 1 < in ? *ret_first + 1 : *ret_first;
    *ret_part = at - (float)*ret_first;
}

/* Resizes the disparity, then converts it to depth: section 2.4. Numbers of disp lie `stride` apart. */
static void to_depth(const struct depth *d, const float *disp, int h, int w, int stride, float *ret, const struct model_picture *picture)
{
    float near = 1 / d->how.warp.min_depth, far = 1 / d->how.warp.max_depth;

    for (int y = 0; y < picture->h; y++) {
        const float *upper, *lower;
        int y0, y1;
        float fy;

        place(y, h, picture->h, &y0, &y1, &fy);
        upper = disp + (size_t)y0 * (size_t)w * (size_t)stride;
        lower = disp + (size_t)y1 * (size_t)w * (size_t)stride;
        for (int x = 0; x < picture->w; x++) {
            int x0, x1;
            float fx, top, bottom;

            place(x, w, picture->w, &x0, &x1, &fx);
            top = upper[x0 * stride] + fx * (upper[x1 * stride] - upper[x0 * stride]);
            bottom = lower[x0 * stride] + fx * (lower[x1 * stride] - lower[x0 * stride]);
            ret[(size_t)y * (size_t)picture->w + (size_t)x] = 1 / (far + (near - far) * (top + fy * (bottom - top)));
        }
    }
}

/* The poses of an image's sources; no views if they were not asked for. */
static int find_views(struct depth *d, int shard, int image, struct result *ret, struct err *err)
{
    struct device *dev = d->base.dev;
    int rc = 0;

    for (int i = 0; i < d->nsources && d->pose[i] && rc >= 0; i++) {
        const struct tensor *x = &d->pose[i]->x[shard];

        rc = dev->ops->download(dev, d->views[i].pose, (const float *)x->data + (size_t)image * (size_t)x->stride, sizeof d->views[i].pose,
                                err);
        ret->nviews = i + 1;
    }
    ret->views = d->views;
    return rc;
}

static int depth_result(struct model *m, int shard, int image, const struct model_picture *picture, double least, struct result *ret,
                        struct err *err)
{
    struct depth *d = self(m);
    const struct tensor *x;
    size_t numbers, wanted = (size_t)picture->w * (size_t)picture->h;
    int rc;

    (void)least; /* depth has no confidence */
    x = &d->disp->x[shard];
    numbers = (size_t)x->h * (size_t)x->w * (size_t)x->stride;
    if (!GROW(d->map, d->map_room, numbers) || !GROW(d->picture, d->picture_room, wanted))
        return err_set(err, ERR_DEVICE, "out of memory: a map of depth");
    rc = m->dev->ops->download(m->dev, d->map, (const float *)x->data + (size_t)image * numbers, numbers * sizeof *d->map, err);
    if (rc < 0)
        return rc;
    to_depth(d, d->map, x->h, x->w, x->stride, d->picture, picture);
    *ret = (struct result){ .kind = RESULT_DEPTH, .image = picture->index, .depth = { picture->w, picture->h, d->picture } };
    return find_views(d, shard, image, ret, err);
}

static const struct model_ops depth_ops = {
    .name = "depth", .sum_terms = depth_sum_terms, .plan = depth_plan, .forward = depth_forward, .result = depth_result, .free = depth_free
};

/* This kind predicts no depth, so it has no result(). */
static const struct model_ops autoencoder_ops = {
    .name = "depth", .sum_terms = depth_sum_terms, .plan = depth_plan, .forward = depth_forward, .free = depth_free
};

/* ---- building ---- */

static bool chosen(const char *key, bool otherwise)
{
    return strcmp(key, "auto") == 0 ? otherwise : strcmp(key, "on") == 0;
}

static void set_settings(struct depth_settings *h, const struct jobspec *s)
{
    h->ssim = (float)s->model_ssim_weight;
    h->perception = (float)s->model_perception;
    h->smoothness = (float)s->model_smoothness;
    h->dis = (float)s->model_dis;
    h->cvt = (float)s->model_cvt;
    h->automask = chosen(s->model_automask, !s->data_stereo);
    h->normalise = chosen(s->model_disp_norm, !s->data_stereo);
    h->progressive = strcmp(s->model_target_pyramid, "progressive") == 0;
    h->noise = strcmp(s->model_automask_noise, "none") == 0     ? AUTOMASK_NONE
               : strcmp(s->model_automask_noise, "normal") == 0 ? AUTOMASK_NORMAL
                                                                : AUTOMASK_UNIFORM;
    h->warp = (struct warp){ (float)s->model_min_depth, (float)s->model_max_depth, s->model_align_corners, 1 };
}

static void add_terms(struct depth *d, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        d->term_source[d->base.nterms] = i;
        d->terms[d->base.nterms++] = (struct loss_term){ raw_names[i], TERM_MEAN };
    }
}

static void set_terms(struct depth *d)
{
    d->terms[d->base.nterms++] = (struct loss_term){ "total", TERM_MEAN };
    if (depth_sees_depth(&d->net))
        add_terms(d, RAW_REC, 2 * DEPTH_SCALES);
    if (depth_sees_depth(&d->net) && depth_sees_features(&d->net))
        add_terms(d, RAW_FM, 1);
    if (depth_rebuilds(&d->net))
        add_terms(d, RAW_IMG, DEPTH_SCALES + DEPTH_FEATURES);
    d->base.terms = d->terms;
    d->base.raw_terms = RAW_TERMS;
}

int depth_new(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err)
{
    struct depth *d = calloc(1, sizeof *d);
    int motions = 0, rc;

    (void)classes;
    if (!d)
        return err_set(err, ERR_DEVICE, "out of memory");
    d->base.ops = job_preset_depth(spec->preset) == JOB_DEPTH_AUTOENCODER ? &autoencoder_ops : &depth_ops;
    d->base.dev = dev;
    d->base.groups = groups;
    d->base.canvas = (struct canvas){ (int)spec->model_size.h, (int)spec->model_size.w };
    d->base.grain = JOB_SIZE_GRAIN;
    set_settings(&d->how, spec);
    d->nsources = frames_sources(spec, d->source);
    for (int i = 0; i < d->nsources; i++)
        motions += d->source[i] != FRAMES_STEREO;
    rc = depth_network_open(&d->net, &d->base, spec, motions, 1 + d->nsources, err);
    set_terms(d);
    if (rc < 0) {
        model_free(&d->base);
        return rc;
    }
    *ret_model = &d->base;
    return 0;
}

const struct depth_network *depth_network_of(const struct model *m)
{
    return &self(m)->net;
}

#include "worker/models/rcnn/rcnn.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/safetensors.h"
#include "worker/data/make/batch.h"
#include "worker/eval/masks/mask_paste.h"
#include "worker/kernels/math.h"
#include "worker/layers/rcnn.h"
#include "worker/models/objects.h"
#include "worker/models/rcnn/load.h"
#include "worker/models/rcnn/network.h"
#include "worker/models/rcnn/settings.h"
#include "worker/ops/families.h"

/* The terms in a row of raw, in a row. */
enum { RAW_RPN = 0, RAW_BOX = RAW_RPN + RPN_TERMS, RAW_MASK = RAW_BOX + RCNN_BOX_TERMS, RAW_TERMS = RAW_MASK + RCNN_MASK_TERMS };

/* Kept by the last forward() with results, for result(). */
struct found {
    struct tape *tape;
    struct value *level[RCNN_POOLED];
    struct value *logits, *deltas;
    const struct rpn_proposals *proposals;
    struct rcnn_images images[JOB_MAX_SHARDS];
};

struct rcnn {
    struct model base;
    struct rcnn_network net;
    struct rcnn_settings how;
    struct st_meta traits[3];
    char pool[8]; /* text of one trait */
    struct found found;
    struct candidate *candidates; /* [detection.max] */
    struct detection *dets;       /* [detection.max], of the last result */
    struct mask_paster *paster;   /* NULL: boxes only */
    float *maps, *map;            /* [detection.max][mask_side][mask_side][channels], from the mask head; the map of one object and class */
    struct objects_places places;
};

static const struct loss_term terms_of_boxes[] = {
    { "total", TERM_MEAN }, { "rpn_cls", TERM_MEAN }, { "rpn_box", TERM_MEAN }, { "cls", TERM_MEAN }, { "box", TERM_MEAN },
};
static const struct loss_term terms_of_masks[] = {
    { "total", TERM_MEAN }, { "rpn_cls", TERM_MEAN }, { "rpn_box", TERM_MEAN },
    { "cls", TERM_MEAN },   { "box", TERM_MEAN },     { "mask", TERM_MEAN },
};
static const int term_source[] = { -1, RAW_RPN + RPN_CLS, RAW_RPN + RPN_BOX, RAW_BOX + RCNN_CLS, RAW_BOX + RCNN_BOX, RAW_MASK + RCNN_MASK };

/* Groups of parameters; they differ in the decay of norms: specs rcnn section 7.2. */
static const struct param_group groups_d2[] = { { "weights", 1, 1 }, { "biases", 1, 1 }, { "norms", 1, 0 } };
static const struct param_group groups_tv[] = { { "weights", 1, 1 }, { "biases", 1, 1 }, { "norms", 1, 1 } };

static struct rcnn *self(const struct model *m)
{
    return (struct rcnn *)m;
}

static void rcnn_free(struct model *m)
{
    struct rcnn *r = self(m);

    rcnn_network_close(&r->net);
    mask_paster_free(r->paster);
    free(r->candidates);
    free(r->dets);
    free(r->maps);
    free(r->map);
    free(r);
}

/* ---- losses ---- */

/* Random keys of every image, for one purpose. */
static struct philox_key *keys(struct tape *t, const struct batch *b, int total, const char *purpose)
{
    struct philox_key *k = tape_host(t, (size_t)total * sizeof *k);
    int at = 0;

    for (int s = 0; s < b->nshards; s++)
        for (int i = 0; i < b->shard[s].n; i++)
            k[at++] = model_key(b, purpose, s, i);
    return k;
}

struct stage {
    struct rcnn *r;
    struct tape *t;
    const struct batch *b;
    const struct objects *in;
    const struct model_want *want;
    float scale; /* scale of gradients */
    int nrows;   /* rows of want->raw */
};

static double **terms(const struct stage *s, int first)
{
    double **rows = tape_host(s->t, (size_t)s->nrows * sizeof *rows);

    for (int i = 0; i < s->nrows; i++)
        rows[i] = s->want->raw[i] + first;
    return rows;
}

static struct philox_key *keys_of(const struct stage *s, const char *purpose)
{
    return keys(s->t, s->b, s->in->total, purpose);
}

static struct value *align(const struct stage *s, struct value *const *p, const struct roi_align *how, const struct roi_rows *rows)
{
    return tape_failed(s->t) ? NULL : layer_roi_align(s->t, p, how, rows);
}

static void box_losses(const struct stage *s, struct value *const *p, const struct rcnn_samples *samples)
{
    struct rcnn *r = s->r;
    struct value *logits, *deltas;
    struct roi_rows *rows;

    if (tape_failed(s->t))
        return;
    rows = tape_host(s->t, (size_t)tape_shards(s->t) * sizeof *rows);
    for (int v = 0; v < tape_shards(s->t); v++)
        rows[v] = rcnn_rows(&samples[v], s->in->images[v].n);
    rcnn_box_head(&r->net, s->t, align(s, p, &r->how.box_align, rows), &logits, &deltas);
    r->how.head.class_weight = r->base.class_weight;
    layer_rcnn_box_loss(s->t, logits, deltas, &r->how.head, s->in->images, s->in->truth, samples, s->scale, terms(s, RAW_BOX));
    tape_drop(s->t, logits);
    tape_drop(s->t, deltas);
}

static void mask_losses(const struct stage *s, struct value *const *p, const struct rcnn_samples *samples)
{
    struct rcnn *r = s->r;
    struct value *logits;
    struct roi_rows *rows;

    if (tape_failed(s->t))
        return;
    rows = tape_host(s->t, (size_t)tape_shards(s->t) * sizeof *rows);
    for (int v = 0; v < tape_shards(s->t); v++)
        rows[v] = rcnn_mask_rows(&samples[v], s->in->images[v].n);
    logits = rcnn_mask_head(&r->net, s->t, align(s, p, &r->how.mask_align, rows));
    layer_rcnn_mask_loss(s->t, logits, &r->how.head, s->in->images, s->in->outlines, samples, s->scale, terms(s, RAW_MASK));
    tape_drop(s->t, logits);
}

static void losses(const struct stage *s, struct value *const *p, struct value *const *logits, struct value *const *deltas,
                   const struct rpn_proposals *proposals)
{
    struct rcnn *r = s->r;
    const struct objects *in = s->in;
    const struct rpn_samples *anchors =
        layer_rpn_sample(s->t, logits, &r->how.rpn, in->images, in->truth, keys_of(s, "rpn.pos"), keys_of(s, "rpn.neg"));
    const struct rcnn_samples *samples;

    layer_rpn_loss(s->t, logits, deltas, &r->how.rpn, in->images, in->truth, anchors, proposals, s->scale, terms(s, RAW_RPN));
    samples = layer_rcnn_sample(s->t, &r->how.head, in->images, in->truth, proposals, keys_of(s, "rcnn.fg"), keys_of(s, "rcnn.bg"));
    box_losses(s, p, samples);
    if (r->net.masks)
        mask_losses(s, p, samples);
}

/* A row of raw already holds quotients: of a shard in training, of an image in validation. */
static void rcnn_sum_terms(const struct model *m, const double *raw, int images, double *ret)
{
    (void)images;
    ret[0] = 0;
    for (int k = 1; k < m->nterms; k++) {
        ret[2 * k] = raw[term_source[k]];
        ret[2 * k + 1] = 1;
        ret[0] += ret[2 * k];
    }
    ret[1] = 1;
}

/* ---- forward ---- */

/* Runs the box head over all proposals and keeps the values that result() needs. */
static void keep_results(const struct stage *s, struct value *const *p, const struct rpn_proposals *proposals)
{
    struct rcnn *r = s->r;
    struct found *f = &r->found;
    struct roi_rows *rows;

    if (tape_failed(s->t))
        return;
    rows = tape_host(s->t, (size_t)tape_shards(s->t) * sizeof *rows);
    for (int v = 0; v < tape_shards(s->t); v++)
        rows[v] = rpn_rows(&proposals[v], s->in->images[v].n);
    f->tape = s->t;
    f->proposals = proposals;
    memcpy(f->images, s->in->images, (size_t)tape_shards(s->t) * sizeof *f->images);
    memcpy(f->level, p, sizeof f->level);
    rcnn_box_head(&r->net, s->t, align(s, p, &r->how.box_align, rows), &f->logits, &f->deltas);
}

static void drop(struct tape *t, struct value *const *v, int n)
{
    for (int i = 0; i < n; i++)
        tape_drop(t, v[i]);
}

static int rcnn_forward(struct model *m, struct tape *t, const struct batch *b, const struct model_want *want, struct err *err)
{
    struct rcnn *r = self(m);
    bool train = tape_mode_of(t) == TAPE_TRAIN;
    struct value *p[RCNN_LEVELS], *logits[RCNN_LEVELS], *deltas[RCNN_LEVELS];
    const struct rpn_proposals *proposals;
    struct objects in;
    struct stage s = { .r = r, .t = t, .b = b, .in = &in, .want = want };

    objects_read(&r->places, b, want->raw, &in);
    s.scale = train ? 1.0f / (float)want->shards_of_step : 1;
    s.nrows = train ? b->nshards : in.total;
    rcnn_pyramid(&r->net, t, in.picture, in.size, p);
    rcnn_proposal_head(&r->net, t, p, logits, deltas);
    tape_drop(t, p[RCNN_POOLED]);
    proposals = layer_rpn_propose(t, logits, deltas, &r->how.rpn, train ? &r->how.train : &r->how.val, in.images);
    if (want->raw)
        losses(&s, p, logits, deltas, proposals);
    drop(t, logits, RCNN_LEVELS);
    drop(t, deltas, RCNN_LEVELS);
    if (want->results)
        keep_results(&s, p, proposals);
    if (!want->results || !r->net.masks)
        drop(t, p, RCNN_POOLED);
    return tape_status(t, err);
}

/* ---- plans ---- */

struct planning {
    const struct rcnn *r;
    enum tape_mode mode;
    int n, nshards;
};

/* The number of rows of a head: for losses, or for results in validation. */
static int rows_of(const struct planning *p, bool mask, bool results)
{
    const struct rcnn *r = p->r;

    if (results)
        return mask ? r->how.detection.max : p->n * r->how.val.post;
    return p->n * (mask ? r->how.head.max_masks : r->how.head.batch);
}

static int plan_conv(void *arg, const struct net_use *use, struct err *err)
{
    const struct planning *p = arg;
    struct device *dev = p->r->base.dev;
    int rc = net_plan(dev, use, p->mode, use->rows ? rows_of(p, use->mask, false) : p->n, p->nshards, err);

    if (rc >= 0 && use->rows && p->mode == TAPE_EVAL)
        rc = net_plan(dev, use, p->mode, rows_of(p, use->mask, true), p->nshards, err);
    return rc;
}

static int rcnn_plan(struct model *m, enum tape_mode mode, int n, int nshards, struct canvas canvas, struct err *err)
{
    struct planning p = { self(m), mode, n, nshards };

    return m->dev->on->plan ? rcnn_each_conv(&p.r->net, canvas, plan_conv, &p, err) : 0;
}

/* ---- results ---- */

/* The mask head's rows for n candidates of an image; boxes of the canvas, in device memory. There is always room for
 * the maximum, so that shapes do not depend on the number found. */
static int mask_rows(struct rcnn *r, int image, int n, struct roi_rows *ret, struct err *err)
{
    struct device *dev = r->base.dev;
    struct tape *t = r->found.tape;
    size_t cap = (size_t)r->how.detection.max, boxes = cap * 4 * sizeof(float), images = cap * sizeof(int32_t);
    float *box = tape_host(t, boxes);
    int32_t *of = tape_host(t, images + sizeof *of);
    char *mem = tape_device_mem(t, boxes + images + sizeof *of, "regions");
    int rc;

    if (!mem)
        return tape_status(t, err);
    for (int i = 0; i < n; i++) {
        const struct candidate *c = &r->candidates[i];

        memcpy(box + 4 * i, (float[4]){ c->x1, c->y1, c->x2, c->y2 }, 4 * sizeof *box);
        of[i] = image;
    }
    of[cap] = n;
    rc = dev->ops->upload(dev, mem, box, boxes, err);
    if (rc >= 0)
        rc = dev->ops->upload(dev, mem + boxes, of, images + sizeof *of, err);
    *ret = (struct roi_rows){ (const float *)(void *)mem, (const int32_t *)(void *)(mem + boxes),
                              (const int32_t *)(void *)(mem + boxes + images), (int)cap };
    return rc;
}

/* Fills r->maps with logits of n candidates of an image. Only that shard has rows. */
static int mask_maps(struct rcnn *r, int shard, int image, int n, int *ret_stride, struct err *err)
{
    struct tape *t = r->found.tape;
    const struct stage s = { .r = r, .t = t };
    struct device *dev = r->base.dev;
    struct roi_rows rows = { 0 };
    struct value *logits;
    const struct tensor *x;
    int rc = mask_rows(r, image, n, &rows, err);

    assert(tape_shards(t) == 1 && shard == 0);
    if (rc < 0)
        return rc;
    logits = rcnn_mask_head(&r->net, t, align(&s, r->found.level, &r->how.mask_align, &rows));
    rc = tape_status(t, err);
    if (rc < 0)
        return rc;
    x = &logits->x[0];
    *ret_stride = x->stride;
    rc = dev->ops->download(dev, r->maps, x->data, (size_t)(n * x->h * x->w) * (size_t)x->stride * sizeof *r->maps, err);
    tape_drop(t, logits);
    return rc;
}

static int paste(struct rcnn *r, int i, int stride, struct err *err)
{
    const int side = r->how.head.mask_side, cells = rcnn_mask_cells(&r->how.head);
    const struct detection *d = &r->dets[i];
    const float *logit = r->maps + (size_t)i * (size_t)cells * (size_t)stride + d->cls + (r->how.head.background_first ? 1 : 0);
    const double *b = d->box;
    const float box[4] = { (float)b[0], (float)b[1], (float)(b[0] + b[2]), (float)(b[1] + b[3]) };

    for (int k = 0; k < cells; k++)
        r->map[k] = math_sigmoid(logit[(size_t)k * (size_t)stride]);
    return mask_paste(r->paster, r->how.tv ? MASK_PASTE_RESIZE : MASK_PASTE_HALF_PIXEL, r->map, side, box, err);
}

static int masks(struct rcnn *r, int shard, int image, const struct model_picture *picture, struct result *ret, struct err *err)
{
    int stride = 0, pasted, rc = ret->n > 0 ? mask_maps(r, shard, image, ret->n, &stride, err) : 0;

    mask_paste_begin(r->paster, picture->w, picture->h);
    for (int i = 0; i < ret->n && rc >= 0; i++)
        rc = paste(r, i, stride, err);
    ret->kind = RESULT_MASKS;
    ret->masks = mask_paste_masks(r->paster, &pasted);
    return rc;
}

static int rcnn_result(struct model *m, int shard, int image, const struct model_picture *picture, double least, struct result *ret,
                       struct err *err)
{
    struct rcnn *r = self(m);
    const struct found *f = &r->found;
    const struct rcnn_images *images = &f->images[shard];
    struct rcnn_detection_options o = r->how.detection;
    int32_t size[2];
    int n = 0, rc;

    if (!isnan(least))
        o.score = (float)least;
    rc = rcnn_detect(m->dev, &r->how.head, &o, images, &f->logits->x[shard], &f->deltas->x[shard], &f->proposals[shard], image,
                     r->candidates, &n, err);
    if (rc >= 0)
        rc = m->dev->ops->download(m->dev, size, images->size + 2 * (size_t)image, sizeof size, err);
    if (rc < 0)
        return rc;
    *ret = (struct result){ .kind = RESULT_BOXES,
                            .image = picture->index,
                            .n = objects_found(r->candidates, r->dets, n, size, picture, !r->how.tv),
                            .boxes = r->dets };
    return r->paster ? masks(r, shard, image, picture, ret, err) : 0;
}

static const struct model_ops rcnn_ops = {
    .name = "rcnn", .sum_terms = rcnn_sum_terms, .plan = rcnn_plan, .forward = rcnn_forward, .result = rcnn_result, .free = rcnn_free
};

/* ---- building ---- */

static void set_traits(struct rcnn *r, const struct jobspec *s, bool masks)
{
    r->traits[0] = (struct st_meta){ RCNN_TRAIT_FLAVOR, r->how.tv ? "tv" : "d2" };
    r->traits[1] = (struct st_meta){ RCNN_TRAIT_BACKBONE, strcmp(s->model_backbone, "msra") == 0 ? "msra" : "torchvision" };
    r->base.traits = r->traits;
    r->base.ntraits = 2;
    if (!masks || s->model_mask_pool == RCNN_USUAL_POOL)
        return;
    snprintf(r->pool, sizeof r->pool, "%d", (int)s->model_mask_pool);
    r->traits[r->base.ntraits++] = (struct st_meta){ RCNN_TRAIT_POOL, r->pool };
}

static int allocate(struct rcnn *r, bool masks, struct err *err)
{
    size_t n = (size_t)r->how.detection.max, cells = (size_t)rcnn_mask_cells(&r->how.head);

    r->candidates = calloc(n, sizeof *r->candidates);
    r->dets = calloc(n, sizeof *r->dets);
    if (masks) {
        r->paster = mask_paster_new();
        r->maps = malloc(n * cells * (size_t)device_stride(r->base.dev, rcnn_mask_channels(&r->how.head)) * sizeof *r->maps);
        r->map = malloc(cells * sizeof *r->map);
    }
    if (!r->candidates || !r->dets || (masks && (!r->paster || !r->maps || !r->map)))
        return err_set(err, ERR_DEVICE, "out of memory");
    return 0;
}

int rcnn_new(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err)
{
    struct rcnn *r = calloc(1, sizeof *r);
    bool masks = job_preset_masks(spec->preset);
    int grain = (int)spec->model_size_divisible, side = ((int)spec->model_max_size + grain - 1) / grain * grain, rc;
    struct rcnn_columns columns;

    if (!r)
        return err_set(err, ERR_DEVICE, "out of memory");
    rcnn_settings_of(spec, classes, &r->how);
    r->base.ops = &rcnn_ops;
    r->base.dev = dev;
    r->base.groups = r->how.tv ? groups_tv : groups_d2;
    r->base.terms = masks ? terms_of_masks : terms_of_boxes;
    r->base.nterms = (int)(masks ? sizeof terms_of_masks / sizeof *terms_of_masks : sizeof terms_of_boxes / sizeof *terms_of_boxes);
    r->base.raw_terms = RAW_TERMS;
    r->base.canvas = (struct canvas){ side, side };
    set_traits(r, spec, masks);
    r->base.grain = grain;
    objects_places(&r->places);
    columns = (struct rcnn_columns){ classes + 1, rcnn_box_columns(&r->how.head), masks ? rcnn_mask_channels(&r->how.head) : 0 };
    rc = allocate(r, masks, err);
    if (rc >= 0)
        rc = rcnn_network_open(&r->net, &r->base, spec, &columns, err);
    if (rc < 0) {
        model_free(&r->base);
        return rc;
    }
    *ret_model = &r->base;
    return 0;
}

const struct rcnn_network *rcnn_network_of(const struct model *m)
{
    return &self(m)->net;
}

bool rcnn_background_first(const struct model *m)
{
    return self(m)->how.tv;
}

int rcnn_classes(const struct model *m)
{
    return self(m)->how.head.classes;
}

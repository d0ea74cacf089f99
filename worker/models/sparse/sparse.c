#include "worker/models/sparse/sparse.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/safetensors.h"
#include "worker/data/make/batch.h"
#include "worker/kernels/math.h"
#include "worker/models/objects.h"
#include "worker/models/sparse/load.h"
#include "worker/models/sparse/network.h"

/* Kept by the last forward() with results, for result(). */
struct found {
    struct value *logits;
    float *const *box;
};

struct sparse {
    struct model base;
    struct sparse_network net;
    struct set_head head;
    struct roi_align align;
    struct param_group groups[SPARSE_GROUPS];
    struct st_meta traits[MODEL_TRAITS];
    char heads[8], limit[32]; /* texts of traits */
    double clamp;
    struct objects_places places;
    struct objects in; /* of the last forward(): backward and result() read it, too */
    struct found found;
    float score;                  /* least score of a detection */
    int most;                     /* detections of a picture */
    struct candidate *candidates; /* [most] */
    struct detection *dets;       /* [most], of the last result */
    float *logits, *box;          /* of one picture */
};

/* cls, l1 and giou are sums over the stages. A job has the first terms_of() of these. */
enum { TERM_TOTAL, TERM_PARTS, TERM_LAST = TERM_PARTS + 3, TERM_STAGES = TERM_LAST + 3 };
static const struct loss_term terms[TERM_STAGES + SET_MAX_STAGES] = {
    { "total", TERM_RATIO },    { "cls", TERM_RATIO },      { "l1", TERM_RATIO },        { "giou", TERM_RATIO },
    { "last_cls", TERM_RATIO }, { "last_l1", TERM_RATIO },  { "last_giou", TERM_RATIO }, { "total_1", TERM_RATIO },
    { "total_2", TERM_RATIO },  { "total_3", TERM_RATIO },  { "total_4", TERM_RATIO },   { "total_5", TERM_RATIO },
    { "total_6", TERM_RATIO },  { "total_7", TERM_RATIO },  { "total_8", TERM_RATIO },   { "total_9", TERM_RATIO },
    { "total_10", TERM_RATIO }, { "total_11", TERM_RATIO }, { "total_12", TERM_RATIO },
};

static struct sparse *self(const struct model *m)
{
    return (struct sparse *)m;
}

static void sparse_free(struct model *m)
{
    struct sparse *s = self(m);

    sparse_network_close(&s->net);
    free(s->candidates);
    free(s->dets);
    free(s->logits);
    free(s->box);
    free(s);
}

/* ---- losses ---- */

/* The loss of a stage with broken predictions is NaN: the step then fails, and its error names the stage. */
static void sparse_sum_terms(const struct model *m, const double *raw, int images, double *ret)
{
    const struct set_head *h = &self(m)->head;
    const double gain[] = { (double)h->cls_gain, (double)h->l1_gain, (double)h->giou_gain };

    (void)images;
    memset(ret, 0, 2 * (size_t)m->nterms * sizeof *ret);
    for (int s = 0; s < h->stages; s++) {
        const double *row = raw + s * SET_TERMS;
        double *stage = ret + 2 * (TERM_STAGES + s);

        for (int k = 0; k < 3; k++) {
            double part = gain[k] * row[SET_CLS + k];

            ret[2 * (TERM_PARTS + k)] += part;
            ret[2 * (TERM_LAST + k)] = part;
            *stage += part;
        }
        if (row[SET_BROKEN] > 0)
            *stage = (double)NAN;
        ret[2 * TERM_TOTAL] += *stage;
    }
    for (int k = 0; k < m->nterms; k++)
        ret[2 * k + 1] = raw[SET_PAIRS];
}

static int64_t sparse_objects(const struct model *m, const struct batch_form *form, const struct shard_batch *b)
{
    const int32_t *offset = b->offset[batch_list_of(form, "truth")];
    int64_t n = 0;

    for (int i = 0; i < b->n; i++) {
        int truths = offset[i + 1] - offset[i], most = self(m)->head.proposals;

        n += truths < most ? truths : most;
    }
    return n;
}

static void sparse_explain(const struct model *m, const double *sums, char *ret, size_t size)
{
    for (int s = 0; s < self(m)->head.stages; s++)
        if (!isfinite(sums[2 * (TERM_STAGES + s)])) {
            snprintf(ret, size,
                     "stage %d: a predicted box is inside out or not finite; lower train.lr or train.clip_norm, or start from model.init",
                     s + 1);
            return;
        }
}

/* The values of a forward pass so far. */
struct flow {
    struct sparse *s;
    struct tape *t;
    const struct model_want *want;
    const struct set_start *start;
    struct value *logits[SET_MAX_STAGES], *deltas[SET_MAX_STAGES];
    float *const *box[1 + SET_MAX_STAGES]; /* of the proposals, and after each stage */
};

static int stage_losses(const struct flow *p, int stage, const struct set_match *match)
{
    const struct set_stage of = { .stage = stage,
                                  .logits = p->logits[stage],
                                  .deltas = p->deltas[stage],
                                  .base = p->box[stage],
                                  .box = p->box[stage + 1],
                                  .dbase = stage == 0 ? p->start->dbox : NULL };
    bool train = tape_mode_of(p->t) == TAPE_TRAIN;
    int nrows = train ? tape_shards(p->t) : p->s->in.total;
    double **rows = tape_host(p->t, (size_t)nrows * sizeof *rows);

    for (int i = 0; i < nrows; i++)
        rows[i] = p->want->raw[i] + stage * SET_TERMS;
    return layer_set_loss(p->t, &p->s->head, &of, match, p->s->in.images, p->s->in.truth, train ? 1.0f / (float)p->want->images_of_step : 1,
                          rows);
}

static void losses(const struct flow *p)
{
    const struct set_match *match = layer_set_match(p->t, &p->s->head, p->logits, p->box + 1, p->s->in.images, p->s->in.truth);

    for (int i = 0; i < p->s->head.stages && !tape_failed(p->t); i++)
        stage_losses(p, i, match);
}

/* ---- forward ---- */

/* Regions of the features of a stage's boxes. */
static struct value *pool(const struct flow *p, struct value *const *level, int stage)
{
    struct roi_rows *rows = tape_host(p->t, (size_t)tape_shards(p->t) * sizeof *rows);

    for (int v = 0; v < tape_shards(p->t); v++)
        rows[v] = (struct roi_rows){ p->box[stage][v], NULL, NULL, p->s->in.images[v].n * p->s->head.proposals };
    return layer_roi_align(p->t, level, &p->s->align, rows);
}

static void stages(struct flow *p, struct value *const *level)
{
    struct sparse *s = p->s;
    struct value *q = p->start->q;

    p->box[0] = p->start->box;
    for (int i = 0; i < s->head.stages && !tape_failed(p->t); i++) {
        bool scores = p->want->raw || i == s->head.stages - 1;
        struct value *pooled = pool(p, level, i);

        for (int k = 0; k < PYRAMID_LEVELS && i == s->head.stages - 1; k++)
            tape_drop(p->t, level[k]);
        q = sparse_stage(&s->net, i, p->t, pooled, q, scores ? &p->logits[i] : NULL, &p->deltas[i]);
        p->box[i + 1] = layer_set_decode(p->t, &s->head, p->box[i], p->deltas[i]);
    }
    tape_drop(p->t, q);
}

static int sparse_forward(struct model *m, struct tape *t, const struct batch *b, const struct model_want *want, struct err *err)
{
    struct sparse *s = self(m);
    struct flow p = { .s = s, .t = t, .want = want };
    struct value *level[PYRAMID_LEVELS];
    int last = s->head.stages - 1;

    objects_read(&s->places, b, want->raw, &s->in);
    s->head.class_weight = m->class_weight;
    pyramid_forward(&s->net.front, t, s->in.picture, s->in.size, level);
    p.start = layer_set_start(t, &s->head, s->net.boxes, s->net.features, s->in.images);
    if (tape_failed(t))
        return tape_status(t, err);
    stages(&p, level);
    if (want->raw && !tape_failed(t))
        losses(&p);
    if (want->results) {
        s->found.logits = p.logits[last];
        s->found.box = p.box[last + 1];
    }
    for (int i = 0; i <= last; i++) {
        tape_drop(t, p.deltas[i]);
        tape_drop(t, i == last && want->results ? NULL : p.logits[i]);
    }
    return tape_status(t, err);
}

/* ---- plans ---- */

struct planning {
    const struct sparse *s;
    enum tape_mode mode;
    int n, nshards;
};

static int plan_conv(void *arg, const struct net_use *use, struct err *err)
{
    const struct planning *p = arg;

    return net_plan(p->s->base.dev, use, p->mode, use->rows ? p->n * p->s->head.proposals : p->n, p->nshards, err);
}

static int sparse_plan(struct model *m, enum tape_mode mode, int n, int nshards, struct canvas canvas, struct err *err)
{
    struct planning p = { self(m), mode, n, nshards };

    return m->dev->on->plan ? sparse_each_conv(&p.s->net, canvas, plan_conv, &p, err) : 0;
}

/* ---- results ---- */

static bool better(const struct candidate *a, const struct candidate *b)
{
    return a->score != b->score ? a->score > b->score : a->slot < b->slot;
}

int sparse_best(const float *logits, int stride, const float *box, int proposals, int classes, int most, struct candidate *ret)
{
    int n = 0;

    for (int i = 0; i < proposals * classes; i++) {
        const float *b = box + 4 * (i / classes);
        struct candidate c = { b[0], b[1], b[2], b[3], math_sigmoid(logits[i / classes * stride + i % classes]), i % classes, i };
        int at;

        if (isnan(c.score) || (n == most && !better(&c, &ret[n - 1])))
            continue;
        n += n < most;
        for (at = n - 1; at > 0 && better(&c, &ret[at - 1]); at--)
            ret[at] = ret[at - 1];
        ret[at] = c;
    }
    return n;
}

static int sparse_result(struct model *m, int shard, int image, const struct model_picture *picture, double least, struct result *ret,
                         struct err *err)
{
    struct sparse *s = self(m);
    const struct tensor *x = &s->found.logits->x[shard];
    const size_t rows = (size_t)s->head.proposals, from = (size_t)image * rows;
    const float score = isnan(least) ? s->score : (float)least;
    struct device *dev = m->dev;
    int32_t size[2];
    int n = 0, rc;

    rc = dev->ops->download(dev, s->logits, (const float *)x->data + from * (size_t)x->stride, rows * (size_t)x->stride * sizeof(float),
                            err);
    if (rc >= 0)
        rc = dev->ops->download(dev, s->box, s->found.box[shard] + from * 4, rows * 4 * sizeof(float), err);
    if (rc >= 0)
        rc = dev->ops->download(dev, size, s->in.images[shard].size + 2 * (size_t)image, sizeof size, err);
    if (rc < 0)
        return rc;
    rc = sparse_best(s->logits, x->stride, s->box, s->head.proposals, s->head.classes, s->most, s->candidates);
    while (n < rc && s->candidates[n].score >= score)
        n++;
    *ret = (struct result){
        .kind = RESULT_BOXES, .image = picture->index, .n = objects_found(s->candidates, s->dets, n, size, picture, true), .boxes = s->dets
    };
    return 0;
}

static const struct model_ops sparse_ops = { .name = "sparse",
                                             .sum_terms = sparse_sum_terms,
                                             .objects = sparse_objects,
                                             .explain = sparse_explain,
                                             .plan = sparse_plan,
                                             .forward = sparse_forward,
                                             .result = sparse_result,
                                             .free = sparse_free };

/* ---- building ---- */

static void settings(struct sparse *s, const struct jobspec *spec, int classes)
{
    s->head = (struct set_head){ .classes = classes,
                                 .proposals = (int)spec->model_proposals,
                                 .stages = (int)spec->model_stages,
                                 .clamp = (float)spec->model_delta_clamp,
                                 .floor = spec->model_delta_floor,
                                 .alpha = (float)spec->model_focal_alpha,
                                 .gamma = (float)spec->model_focal_gamma,
                                 .cls_gain = (float)spec->model_cls_gain,
                                 .l1_gain = (float)spec->model_l1_gain,
                                 .giou_gain = (float)spec->model_giou_gain };
    s->align = pyramid_align(SPARSE_POOL, 2, true);
    s->groups[SPARSE_GROUP_REST] = (struct param_group){ "head", 1, 1 };
    s->groups[SPARSE_GROUP_BODY] = (struct param_group){ "backbone", (float)spec->train_backbone_lr, 1 };
    s->score = (float)spec->val_conf;
    s->most = (int)spec->val_max_det;
    s->clamp = spec->model_delta_clamp;
    objects_places(&s->places);
}

static void add_trait(struct sparse *s, const char *key, const char *value)
{
    s->traits[s->base.ntraits++] = (struct st_meta){ key, value };
}

static void set_traits(struct sparse *s, const struct jobspec *spec)
{
    s->base.traits = s->traits;
    add_trait(s, RCNN_TRAIT_BACKBONE, strcmp(spec->model_backbone, "msra") == 0 ? "msra" : "torchvision");
    snprintf(s->heads, sizeof s->heads, "%d", (int)spec->model_heads);
    add_trait(s, SPARSE_TRAIT_HEADS, s->heads);
    if (spec->model_delta_clamp != SPARSE_USUAL_CLAMP) {
        snprintf(s->limit, sizeof s->limit, "%.17g", spec->model_delta_clamp);
        add_trait(s, SPARSE_TRAIT_CLAMP, s->limit);
    }
    if (spec->model_delta_floor)
        add_trait(s, SPARSE_TRAIT_FLOOR, "true");
}

static int allocate(struct sparse *s, struct err *err)
{
    size_t most = (size_t)s->most, rows = (size_t)s->head.proposals;

    s->candidates = calloc(most, sizeof *s->candidates);
    s->dets = calloc(most, sizeof *s->dets);
    s->logits = calloc(rows * (size_t)device_stride(s->base.dev, s->head.classes), sizeof *s->logits);
    s->box = calloc(rows * 4, sizeof *s->box);
    return s->candidates && s->dets && s->logits && s->box ? 0 : err_set(err, ERR_DEVICE, "out of memory");
}

int sparse_new(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err)
{
    struct sparse *s = calloc(1, sizeof *s);
    int grain = (int)spec->model_size_divisible, side = ((int)spec->model_max_size + grain - 1) / grain * grain, rc;

    if (!s)
        return err_set(err, ERR_DEVICE, "out of memory");
    settings(s, spec, classes);
    s->base.ops = &sparse_ops;
    s->base.dev = dev;
    s->base.groups = s->groups;
    s->base.terms = terms;
    s->base.nterms = TERM_STAGES + s->head.stages;
    s->base.raw_terms = (size_t)s->head.stages * SET_TERMS;
    s->base.canvas = (struct canvas){ side, side };
    s->base.grain = grain;
    set_traits(s, spec);
    rc = allocate(s, err);
    if (rc >= 0)
        rc = sparse_network_open(&s->net, &s->base, spec, classes, err);
    if (rc < 0) {
        model_free(&s->base);
        return rc;
    }
    for (int i = 0; i < s->net.front.nnamed; i++) {
        const struct rcnn_named *a = &s->net.front.named[i];

        a->p->group = a->part.place <= RCNN_OUTPUT ? SPARSE_GROUP_BODY : SPARSE_GROUP_REST;
    }
    *ret_model = &s->base;
    return 0;
}

const struct sparse_network *sparse_network_of(const struct model *m)
{
    return &self(m)->net;
}

int sparse_classes(const struct model *m)
{
    return self(m)->head.classes;
}

double sparse_clamp(const struct model *m, bool *ret_floor)
{
    *ret_floor = self(m)->head.floor;
    return self(m)->clamp;
}

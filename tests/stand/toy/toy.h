/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/toy/toy.h - a family of models outside the product, in one
 * file: two pictures of different size a sample, in shards of different size too; two encoders that share a
 * normalisation; a frozen part; a head without a gradient; whole numbers, a list that is shorter than its room, and
 * draws in the loss; depth as result, scored by a measure of its own. It computes its loss on the host, so its device
 * is the CPU. */
#pragma once
#include <stdlib.h>
#include <string.h>

#include "proto/job/jobspec.h"
#include "worker/data/make/pictures.h"
#include "worker/data/sample/task.h"
#include "worker/eval/evaluator.h"
#include "worker/layers/layers.h"
#include "worker/models/registry.h"

enum { CHANNELS = 8, ROOM = 4, SIDE = 16 }; /* of features; of picks; of the right picture */
enum { LEFT, RIGHT, MARK };                 /* arrays of a sample */
static const struct batch_form toy_form = { 3,
                                            1,
                                            { { "left", DTYPE_F32, BATCH_IMAGES, true, 3 },
                                              { "right", DTYPE_F32, BATCH_IMAGES, false, SIDE *SIDE * 3 },
                                              { "mark", DTYPE_I32, 0, false, 1 } },
                                            { { "marks", BATCH_IMAGES } } };
struct toy_task {
    struct task base;
    const struct dataset *d;
    struct pictures *pictures;
};

static struct canvas toy_canvas(const struct task *t, int64_t step, const struct draw *draw, int n)
{
    (void)t, (void)n;
    return step == 0 ? (struct canvas){ 32, 32 } : !draw ? (struct canvas){ 0, 0 } : (struct canvas){ 32, draw->sample % 2 ? 32 : 64 };
}

static int toy_make(struct task *base, struct hand *hand, int64_t step, struct draw draw, struct canvas left, const struct sample *ret,
                    struct err *err)
{
    const struct toy_task *t = (const struct toy_task *)base;
    const struct dataset_image *im = &t->d->images[draw.sample];
    const struct canvas right = { SIDE, SIDE };
    const struct placement p = place_letterbox(im->w, im->h, left), q = place_letterbox(im->w, im->h, right);
    const uint8_t *rgb;
    float *scratch;
    int rc = pictures_get(t->pictures, hand->decoder, draw.sample, &rgb, err);

    (void)step;
    scratch = rc < 0 ? NULL : hand_memory(hand, (render_scratch(im->w, left) + render_scratch(im->w, right)) * sizeof *scratch, err);
    if (!scratch)
        return err->code;
    render(&p, rgb, im->w, im->h, ret->array[LEFT], scratch);
    render(&q, rgb, im->w, im->h, ret->array[RIGHT], scratch);
    *ret->length[0] = (int32_t)(t->d->offset[draw.sample + 1] - t->d->offset[draw.sample]);
    for (int k = 0; k < *ret->length[0]; k++)
        ((int32_t *)ret->array[MARK])[k] = t->d->boxes[t->d->offset[draw.sample] + k].cls;
    return 0;
}

static void toy_task_free(struct task *t)
{
    pictures_free(((struct toy_task *)t)->pictures);
    free(t);
}

static int toy_task_open(const struct dataset *d, const struct task_options *opt, struct task **ret_task, struct err *err)
{
    static const struct task_ops ops = { toy_canvas, toy_make, toy_task_free };
    struct toy_task *t = calloc(1, sizeof *t);
    struct pictures *pictures = pictures_new(d, opt->cache_bytes);

    if (!t || !pictures)
        return err_set(err, ERR_DEVICE, "out of memory: samples");
    t->base = (struct task){ .ops = &ops, .form = &toy_form, .samples = d->nimages, .source = d->source, .largest = { 32, 64 } };
    t->base.seed = (uint64_t)opt->spec->train_seed;
    t->base.room[0] = d->max_boxes;
    t->d = d;
    t->pictures = pictures;
    *ret_task = &t->base;
    return 0;
}

static const struct task_kind toy_pairs = { "pairs", &toy_form, toy_task_open, NULL };

enum { FROZEN, OF_LEFT, OF_RIGHT, OF_LEFT_HEAD, OF_RIGHT_HEAD, OF_DEPTH, CONVS, BODY = 0, HEADS };
static const struct param_group toy_groups[] = { { "body", 1, 1 }, { "heads", 2, 0 } };
static const struct loss_term toy_terms[] = { { "total", TERM_RATIO }, { "class", TERM_RATIO }, { "count", TERM_MEAN } };
enum { PICKS = MARK, RAW }; /* a row of raw: the squares of the left and the right head, and their number */

struct toy {
    struct model base;
    struct param *w[CONVS];
    struct tensor depth[JOB_MAX_SHARDS]; /* of the last forward */
};

/* At pixels that are drawn, one for each mark of an image, the left head should be the mark's class, and the right head
 * the number of marks. The pixels are a list with room for ROOM, counted from 1, followed by their number; rows beyond
 * these are zero, and all are read. Gradients are written at once. */
static void toy_loss(struct tape *t, const struct batch *b, const struct model_want *want, struct value *const head[2])
{
    bool train = tape_mode_of(t) == TAPE_TRAIN;
    struct tensor shape[JOB_MAX_SHARDS];
    struct value *picks;
    float seed = train ? 1 / (float)want->images_of_step : 0, beta;

    for (int s = 0; s < b->nshards; s++)
        shape[s] = (struct tensor){ .n = b->shard[s].n, .h = 1, .w = 1, .c = ROOM + 1, .dtype = DTYPE_I32 };
    picks = tape_value(t, shape, false, "picks");
    for (int h = 0; h < 2 && train && !tape_failed(t); h++)
        if (tape_fail(t, tape_grad(t, head[h], &beta, tape_err(t)), tape_err(t)) >= 0)
            for (int s = 0; s < b->nshards; s++)
                memset(head[h]->grad[s].data, 0, tensor_count(&head[h]->grad[s]) * sizeof(float));
    for (int s = 0, row = 0; s < b->nshards && !tape_failed(t); s++)
        for (int i = 0; i < b->shard[s].n; i++) {
            const int32_t *first = b->shard[s].offset[0] + i, *mark = (const int32_t *)b->shard[s].array[MARK] + first[0];
            int32_t *at = (int32_t *)picks->x[s].data + i * (ROOM + 1), *n = at + ROOM;
            const struct philox_key key = model_key(b, "toy.pick", s, i);
            double *raw = want->raw[train ? s : row++];

            if (i == 0 || !train)
                memset(raw, 0, RAW * sizeof *raw);
            *n = first[1] - first[0] < ROOM ? first[1] - first[0] : ROOM;
            for (int k = 0; k < ROOM; k++)
                at[k] = k < *n ? 1 + (int32_t)philox_below(&key, (uint64_t)k, (uint32_t)(head[0]->x[s].h * head[0]->x[s].w)) : 0;
            for (int k = 0; k < 2 * ROOM; k++)
                if (at[k % ROOM] > 0) {
                    int h = k / ROOM, pixels = head[h]->x[s].h * head[h]->x[s].w, pixel = i * pixels + (at[k % ROOM] - 1) % pixels;
                    double e = (double)((const float *)head[h]->x[s].data)[pixel] - (h ? *n : mark[k]);

                    raw[LEFT + h] += e * e;
                    raw[PICKS] += h;
                    if (train)
                        ((float *)head[h]->grad[s].data)[pixel] += 2 * (float)e * seed;
                }
        }
}

static int toy_forward(struct model *base, struct tape *t, const struct batch *b, const struct model_want *want, struct err *err)
{
    static const struct conv same = { 1, 1 }, half = { 2, 1 }, point = { 1, 0 };
    struct toy *m = (struct toy *)base;
    struct tensor left[JOB_MAX_SHARDS], right[JOB_MAX_SHARDS];
    struct value *x, *f, *depth, *head[2];

    for (int s = 0; s < b->nshards; s++) {
        left[s] = batch_tensor(b->form, &b->shard[s], LEFT);
        right[s] = tensor_f32(b->shard[s].array[RIGHT], b->shard[s].n, SIDE, SIDE, 3);
    }
    x = layer_act(t, layer_conv(t, tape_input(t, left), &half, m->w[FROZEN], NULL), ACT_RELU);
    f = layer_conv_norm(t, x, &same, m->w[OF_LEFT], m->base.norms, 0.1f);
    tape_drop(t, x);
    head[0] = layer_conv(t, f, &point, m->w[OF_LEFT_HEAD], NULL);
    depth = layer_conv(t, layer_detach(t, f), &point, m->w[OF_DEPTH], NULL);
    f = layer_conv_norm(t, tape_input(t, right), &half, m->w[OF_RIGHT], m->base.norms, 0.1f);
    head[1] = layer_conv(t, f, &point, m->w[OF_RIGHT_HEAD], NULL);
    if (!tape_failed(t))
        memcpy(m->depth, depth->x, (size_t)b->nshards * sizeof *m->depth);
    if (!tape_failed(t) && want->raw)
        toy_loss(t, b, want, head);
    return tape_status(t, err);
}

static void toy_sum_terms(const struct model *m, const double *raw, int images, double *ret)
{
    (void)m;
    memcpy(ret, (double[]){ raw[LEFT] + raw[RIGHT], images, raw[LEFT], raw[PICKS], raw[RIGHT], images }, 6 * sizeof *ret);
}

static int toy_result(struct model *m, int shard, int image, const struct model_picture *picture, double least, struct result *ret,
                      struct err *err)
{
    const struct tensor *d = &((const struct toy *)m)->depth[shard];

    (void)least, (void)err;
    *ret = (struct result){ .kind = RESULT_DEPTH, .image = picture->index };
    ret->depth = (struct result_map){ d->w, d->h, (const float *)d->data + (size_t)image * (size_t)(d->h * d->w) };
    return 0;
}

static int toy_open(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err)
{
    static const struct model_ops ops = { .name = "toy", .forward = toy_forward, .sum_terms = toy_sum_terms, .result = toy_result };
    static const char *const name[CONVS] = { "frozen", "left", "right", "class", "count", "depth" };
    struct toy *m = calloc(1, sizeof *m);

    (void)classes;
    if (!m)
        return err_set(err, ERR_DEVICE, "out of memory");
    m->base = (struct model){ &ops,        .dev = dev,       .groups = toy_groups, .terms = toy_terms,
                              .nterms = 3, .raw_terms = RAW, .canvas = { 32, 32 }, .grain = 2 };
    for (int i = 0; i < CONVS && (i == 0 || m->w[i - 1]); i++) {
        int k = i < OF_LEFT_HEAD ? CHANNELS : 1, size = i < OF_LEFT_HEAD ? 3 : 1, c = i == FROZEN || i == OF_RIGHT ? 3 : CHANNELS;

        m->w[i] = model_add_param(&m->base, name[i], PARAM_CONV, k, size, size, c, err);
        if (m->w[i] && i >= OF_LEFT_HEAD)
            m->w[i]->group = HEADS;
    }
    if (!m->w[CONVS - 1] || model_add_norm(&m->base, "norm", CHANNELS, spec, err) < 0) {
        model_free(&m->base);
        return err->code;
    }
    m->w[FROZEN]->trainable = false;
    m->base.norms[0].uses = 2;
    *ret_model = &m->base;
    return 0;
}

/* Its score: the mean of all depths. An image belongs to a single rank: on the others it counts 0. */
struct toy_eval {
    struct evaluator base;
    int n;
    double mean[];
};

static int toy_eval_add(struct evaluator *base, const struct result *r, struct err *err)
{
    double *mean = &((struct toy_eval *)base)->mean[r->image];

    if (r->kind != RESULT_DEPTH)
        return err_set(err, ERR_INPUT, "no depth");
    for (int k = 0; k < r->depth.w * r->depth.h; k++)
        *mean += (double)r->depth.value[k] / (r->depth.w * r->depth.h);
    return 0;
}

static const void *toy_eval_pack(const struct evaluator *base, size_t *ret_bytes)
{
    *ret_bytes = (size_t)((const struct toy_eval *)base)->n * sizeof(double);
    return ((const struct toy_eval *)base)->mean;
}

static int toy_eval_score(const struct evaluator *base, void *records, size_t bytes, struct metrics *ret, struct err *err)
{
    size_t n = (size_t)((const struct toy_eval *)base)->n;
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t rank = 0; rank < bytes / sizeof sum / n; rank++)
            sum += ((const double *)records)[rank * n + i];
    return metrics_add(ret, "mean_depth", sum / (double)n, err);
}

static int toy_eval_open(const struct eval_split *split, struct evaluator **ret, struct err *err)
{
    static const struct evaluator_ops ops = { "depth", NULL, toy_eval_add, toy_eval_pack, toy_eval_score, NULL };
    struct toy_eval *e = calloc(1, sizeof *e + (size_t)split->nimages * sizeof e->mean[0]);

    if (!e)
        return err_set(err, ERR_DEVICE, "out of memory");
    *e = (struct toy_eval){ { &ops }, split->nimages };
    *ret = &e->base;
    return 0;
}

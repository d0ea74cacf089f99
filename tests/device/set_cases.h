/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/set_cases.h - stages of boxes and logits with their truth,
 * decoded, matched and with losses on every device. */
#pragma once
#include "tests/device/rcnn_cases.h"

enum {
    SET_SHARDS = 3,
    SET_IMAGES = 3,
    SET_ALL = SET_SHARDS * SET_IMAGES,
    SET_P = 40,
    SET_R = SET_IMAGES * SET_P,
    SET_K = 20,
    SET_S = 2,
    SET_TRUTH = 150
};

/* Numbers are dense; the base boxes of a stage are the boxes of the one before. */
struct set_case {
    struct set_head head; /* class_weight: host, or NULL */
    bool validate;        /* no gradients, terms of each image */
    int nshards, n[SET_SHARDS];
    int32_t size[SET_SHARDS][SET_IMAGES][2], offset[SET_SHARDS][SET_IMAGES + 1], cls[SET_SHARDS][SET_TRUTH];
    float truth[SET_SHARDS][SET_TRUTH][4], base[SET_SHARDS][SET_R * 4], z[SET_S][SET_SHARDS][SET_R * SET_K],
        d[SET_S][SET_SHARDS][SET_R * 4];
    float grad_scale, weight[SET_K];
};

struct set_result {
    int32_t match[SET_SHARDS][SET_S * SET_R], broken[SET_SHARDS][SET_S * SET_IMAGES]; /* [stages][..] as they lie */
    double terms[SET_S][SET_ALL][SET_TERMS];
    float box[SET_S][SET_SHARDS][SET_R * 4], dz[SET_S][SET_SHARDS][SET_R * SET_K], dd[SET_S][SET_SHARDS][SET_R * 4],
        dbase[SET_S][SET_SHARDS][SET_R * 4];
};

static inline int set_rows(const struct set_case *c, int v)
{
    return c->n[v] * c->head.proposals;
}

/* The case's numbers on a device. */
struct set_there {
    struct set_head head;
    struct rcnn_images images[SET_SHARDS];
    struct rcnn_truth truth[SET_SHARDS];
    struct set_match match[SET_SHARDS];
    struct tensor z[SET_S][SET_SHARDS], d[SET_S][SET_SHARDS], dz[SET_SHARDS], dd[SET_SHARDS];
    float *box[SET_S + 1][SET_SHARDS], *dbase[SET_SHARDS];
    const struct tensor *logits[SET_S];
    const float *const *boxes[SET_S];
};

static void put_set(struct device *dev, const struct set_case *c, struct set_there *t)
{
    t->head = c->head;
    if (c->head.class_weight)
        t->head.class_weight = put(dev, c->weight, sizeof c->weight);
    for (int v = 0; v < c->nshards; v++) {
        int r = set_rows(c, v);

        t->images[v] = (struct rcnn_images){ c->n[v], { 512, 512 }, put(dev, c->size[v], sizeof c->size[v]) };
        t->truth[v] = (struct rcnn_truth){ put(dev, c->offset[v], sizeof c->offset[v]), put(dev, c->cls[v], sizeof c->cls[v]),
                                           put(dev, c->truth[v], sizeof c->truth[v]), c->offset[v][c->n[v]] };
        t->match[v] =
            (struct set_match){ put(dev, NULL, sizeof(int32_t) * SET_S * SET_R), put(dev, NULL, sizeof(int32_t) * SET_S * SET_IMAGES) };
        t->box[0][v] = put(dev, c->base[v], sizeof c->base[v]);
        t->dbase[v] = put(dev, NULL, sizeof c->base[v]);
        for (int s = 0; s < c->head.stages; s++) {
            t->z[s][v] = tensor_f32(NULL, r, 1, 1, c->head.classes);
            t->d[s][v] = tensor_f32(NULL, r, 1, 1, 4);
            put_tensor(dev, &t->z[s][v], c->z[s][v], 1);
            put_tensor(dev, &t->d[s][v], c->d[s][v], 3);
            t->box[s + 1][v] = put(dev, NULL, sizeof c->base[v]);
            t->logits[s] = t->z[s];
            t->boxes[s] = (const float *const *)t->box[s + 1];
        }
    }
}

/* The losses of stage s, each number of gradients written over 7s. */
static void set_losses(struct device *dev, const struct set_case *c, struct set_there *t, int s, struct set_result *ret)
{
    int n = c->nshards, rows = 0;
    double *terms[SET_ALL];

    for (int i = 0; i < SET_ALL; i++)
        terms[i] = put(dev, NULL, SET_TERMS * sizeof(double));
    for (int v = 0; v < n; v++) {
        t->dz[v] = t->z[s][v];
        t->dd[v] = t->d[s][v];
        put_tensor(dev, &t->dz[v], NULL, 2);
        put_tensor(dev, &t->dd[v], NULL, 1);
        rows += c->validate ? c->n[v] : 1;
    }
    CALL(dev->on->set->loss(dev, &t->head, s, c->validate ? NULL : t->dz, c->validate ? NULL : t->dd, c->validate ? NULL : t->dbase,
                            c->grad_scale, terms, c->validate, t->z[s], t->d[s], (const float *const *)t->box[s],
                            (const float *const *)t->box[s + 1], t->match, t->images, t->truth, n, err));
    for (int i = 0; i < rows; i++)
        get(dev, ret->terms[s][i], terms[i], SET_TERMS * sizeof(double));
    for (int v = 0; v < n && !c->validate; v++) {
        get_tensor(dev, ret->dz[s][v], &t->dz[v]);
        get_tensor(dev, ret->dd[s][v], &t->dd[v]);
        get(dev, ret->dbase[s][v], t->dbase[v], (size_t)set_rows(c, v) * 4 * sizeof(float));
    }
}

static void run_set(struct device *dev, const void *arg, void *out)
{
    const struct set_case *c = arg;
    struct set_result *ret = out;
    struct set_there t;

    memset(ret, 0, sizeof *ret);
    put_set(dev, c, &t);
    for (int s = 0; s < c->head.stages; s++)
        CALL(dev->on->set->decode(dev, &t.head, t.box[s + 1], (const float *const *)t.box[s], t.d[s], c->nshards, err));
    CALL(dev->on->set->match(dev, &t.head, t.match, t.logits, t.boxes, t.images, t.truth, c->nshards, err));
    for (int s = 0; s < c->head.stages; s++)
        set_losses(dev, c, &t, s, ret);
    for (int v = 0; v < c->nshards; v++) {
        get(dev, ret->match[v], t.match[v].truth, (size_t)(c->head.stages * set_rows(c, v)) * sizeof(int32_t));
        get(dev, ret->broken[v], t.match[v].broken, (size_t)(c->head.stages * c->n[v]) * sizeof(int32_t));
        for (int s = 0; s < c->head.stages; s++)
            get(dev, ret->box[s][v], t.box[s + 1][v], (size_t)set_rows(c, v) * 4 * sizeof(float));
    }
}

/* On all devices, with the same bits. Caller frees. */
static struct set_result *set_run(const struct set_case *c)
{
    struct set_result *ret = malloc(sizeof *ret);

    assert_non_null(ret);
    same_on_all(run_set, c, ret, sizeof *ret);
    return ret;
}

/* counts: truths of each image, shard after shard. Numbers are whole multiples of `step` where it is not 0. */
__attribute__((unused)) static struct set_case *set_case_new(int proposals, int classes, const int *n, const int *counts, int nshards,
                                                             float step)
{
    struct set_case *c = calloc(1, sizeof *c);

    assert_non_null(c);
    c->head = (struct set_head){ classes, proposals, SET_S, 8.740336742730447f, false, 0.25f, 2.0f, 2.0f, 5.0f, 2.0f, NULL };
    c->nshards = nshards;
    c->grad_scale = 0.5f;
    for (int v = 0; v < nshards; v++) {
        float *x = numbers(SET_TRUTH * 4 + SET_R * 4, 40 + (uint64_t)v, 0.0f, 200.0f);

        c->n[v] = n[v];
        for (int i = 0; i < n[v]; i++) {
            c->size[v][i][0] = step > 0 ? 256 : 300 + 20 * i;
            c->size[v][i][1] = step > 0 ? 512 : 280 - 9 * i;
            c->offset[v][i + 1] = c->offset[v][i] + *counts++;
        }
        for (int i = 0; i < SET_TRUTH + SET_R; i++) {
            float *b = i < SET_TRUTH ? c->truth[v][i] : c->base[v] + (i - SET_TRUTH) * 4;

            for (int k = 0; k < 4; k++)
                b[k] = step > 0 ? step * (float)(int)(x[4 * i + k] / step) : x[4 * i + k];
            for (int k = 0; k < 2; k++)
                b[k + 2] += b[k] + 4.0f;
            if (i < SET_TRUTH)
                c->cls[v][i] = i % classes;
        }
        free(x);
        for (int s = 0; s < SET_S; s++) {
            float *z = numbers(SET_R * SET_K, 50 + (uint64_t)(10 * s + v), -3.0f, 3.0f),
                  *d = numbers(SET_R * 4, 90 + (uint64_t)(10 * s + v), -0.4f, 0.4f);

            memcpy(c->z[s][v], z, sizeof c->z[s][v]);
            if (step == 0)
                memcpy(c->d[s][v], d, sizeof c->d[s][v]);
            free(z);
            free(d);
        }
    }
    return c;
}

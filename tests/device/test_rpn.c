/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_rpn.c - uses: proto worker/core worker/layers cpu cuda
 * Anchors, labels, draws, losses and proposals: the same on every device, and compared with a slow reference in double
 * loops. */
#include "tests/device/rcnn_cases.h"

#include <math.h>

#include "worker/kernels/rpn.h"

enum { BATCH = 4096, CAP = 800 };

struct outcome {
    int32_t anchor[CASE_SHARDS][CASE_IMAGES][BATCH], truth[CASE_SHARDS][CASE_IMAGES][BATCH], count[CASE_SHARDS][CASE_IMAGES][2];
    double terms[CASE_ALL][RPN_TERMS], by_image[CASE_ALL][RPN_TERMS];
    float box[CASE_SHARDS][CAP][4], score[CASE_SHARDS][CAP];
    int32_t image[CASE_SHARDS][CAP], offset[CASE_SHARDS][CASE_IMAGES + 1], broken[CASE_SHARDS];
    float dz[CASE_LEVELS][CASE_SHARDS][4000], dd[CASE_LEVELS][CASE_SHARDS][16000];
};

static void put_samples(struct device *dev, const struct rcnn_case *c, struct rpn_samples *s)
{
    for (int v = 0; v < c->nshards; v++) {
        size_t rows = (size_t)c->n[v] * (size_t)c->rpn.batch;

        s[v] = (struct rpn_samples){ put(dev, NULL, rows * 4), put(dev, NULL, rows * 4), put(dev, NULL, (size_t)c->n[v] * 8) };
    }
}

static void run_loss(struct device *dev, const struct rcnn_case *c, const struct rcnn_there *t, const struct rpn_samples *samples,
                     const struct rpn_proposals *proposals, struct outcome *r)
{
    struct tensor dz[CASE_LEVELS][CASE_SHARDS], dd[CASE_LEVELS][CASE_SHARDS], *pz[CASE_LEVELS], *pd[CASE_LEVELS];
    const int32_t *broken[CASE_SHARDS];
    double *terms[CASE_ALL], *by_image[CASE_ALL];

    for (int l = 0; l < CASE_LEVELS; l++) {
        for (int v = 0; v < c->nshards; v++) {
            dz[l][v] = case_tensor(c, l, v, 1);
            dd[l][v] = case_tensor(c, l, v, 4);
            put_tensor(dev, &dz[l][v], NULL, 1);
            put_tensor(dev, &dd[l][v], NULL, 2);
        }
        pz[l] = dz[l];
        pd[l] = dd[l];
    }
    for (int v = 0; v < c->nshards; v++)
        broken[v] = proposals[v].broken;
    for (int i = 0; i < case_images(c); i++) {
        terms[i] = put(dev, NULL, RPN_TERMS * sizeof(double));
        by_image[i] = put(dev, NULL, RPN_TERMS * sizeof(double));
    }
    CALL(dev->on->rpn->loss(dev, &c->rpn, t->images, t->truth, pz, pd, 0.25f, terms, false, t->z, t->d, samples, broken, c->nshards, err));
    CALL(dev->on->rpn->loss(dev, &c->rpn, t->images, t->truth, NULL, NULL, 0, by_image, true, t->z, t->d, samples, NULL, c->nshards, err));
    for (int v = 0; v < c->nshards; v++)
        get(dev, r->terms[v], terms[v], sizeof r->terms[v]);
    for (int i = 0; i < case_images(c); i++)
        get(dev, r->by_image[i], by_image[i], sizeof r->by_image[i]);
    for (int l = 0; l < CASE_LEVELS; l++)
        for (int v = 0; v < c->nshards; v++) {
            get_tensor(dev, r->dz[l][v], &dz[l][v]);
            get_tensor(dev, r->dd[l][v], &dd[l][v]);
        }
}

static void run(struct device *dev, const void *arg, void *ret)
{
    const struct rcnn_case *c = arg;
    struct outcome *r = ret;
    struct rpn_proposals proposals[CASE_SHARDS];
    struct rpn_samples samples[CASE_SHARDS];
    struct rcnn_there *t = calloc(1, sizeof *t);

    memset(r, 0, sizeof *r);
    put_case(dev, c, t);
    put_samples(dev, c, samples);
    for (int v = 0; v < c->nshards; v++)
        put_proposals(dev, &proposals[v], c->n[v], c->n[v] * c->sel.post);
    CALL(dev->on->rpn->sample(dev, &c->rpn, t->images, t->truth, t->z, c->key[0], c->key[1], samples, c->nshards, err));
    CALL(dev->on->rpn->propose(dev, &c->rpn, &c->sel, t->images, t->z, t->d, proposals, c->nshards, err));
    for (int v = 0; v < c->nshards; v++) {
        for (int i = 0; i < c->n[v]; i++) {
            get(dev, r->anchor[v][i], samples[v].anchor + i * c->rpn.batch, (size_t)c->rpn.batch * 4);
            get(dev, r->truth[v][i], samples[v].truth + i * c->rpn.batch, (size_t)c->rpn.batch * 4);
            get(dev, r->count[v][i], samples[v].count + 2 * i, 8);
        }
        assert_true(proposals[v].cap <= CAP);
        get(dev, r->box[v], proposals[v].box, (size_t)proposals[v].cap * 16);
        get(dev, r->score[v], proposals[v].score, (size_t)proposals[v].cap * 4);
        get(dev, r->image[v], proposals[v].image, (size_t)proposals[v].cap * 4);
        get(dev, r->offset[v], proposals[v].offset, ((size_t)c->n[v] + 1) * 4);
        get(dev, &r->broken[v], proposals[v].broken, 4);
    }
    run_loss(dev, c, t, samples, proposals, r);
    free(t);
}

static struct outcome *outcome_of(const struct rcnn_case *c)
{
    struct outcome *r = malloc(sizeof *r);

    assert_non_null(r);
    same_on_all(run, c, r, sizeof *r);
    return r;
}

/* ---- the reference: all pairs, sorted lists ---- */

static struct rpn_grid grid_of(const struct rcnn_case *c, int v)
{
    struct tensor shape[CASE_LEVELS][CASE_SHARDS];
    const struct tensor *p[CASE_LEVELS];

    for (int l = 0; l < CASE_LEVELS; l++) {
        shape[l][v] = case_tensor(c, l, v, 1);
        p[l] = shape[l];
    }
    return rpn_grid(&c->rpn, c->canvas[v], p, v);
}

static struct box anchor_of(const struct rcnn_case *c, const struct rpn_grid *g, int anchor)
{
    int l = rpn_level_of(g, anchor);

    return rpn_anchor(&c->rpn, g, l, anchor - g->level[l].first);
}

static float plain_iou(struct box g, struct box a)
{
    float w = fminf(g.x2, a.x2) - fmaxf(g.x1, a.x1), h = fminf(g.y2, a.y2) - fmaxf(g.y1, a.y1), inter = fmaxf(w, 0) * fmaxf(h, 0);

    return inter > 0 ? inter / ((g.x2 - g.x1) * (g.y2 - g.y1) + (a.x2 - a.x1) * (a.y2 - a.y1) - inter) : 0;
}

/* label and matched box of every anchor of an image */
static void plain_labels(const struct rcnn_case *c, int v, int image, int *label, int *arg)
{
    struct rpn_grid g = grid_of(c, v);
    int first = c->offset[v][image], count = c->offset[v][image + 1] - first;
    float *iou = calloc((size_t)g.anchors * (size_t)(count + 1), sizeof *iou);

    for (int a = 0; a < g.anchors; a++) {
        float best = 0;

        arg[a] = 0;
        for (int t = 0; t < count; t++) {
            float x = iou[a * count + t] = plain_iou(box_at(c->truth[v][first + t]), anchor_of(c, &g, a));

            if (x > best) {
                best = x;
                arg[a] = t;
            }
        }
        label[a] = best >= c->rpn.pos_iou ? 1 : best < c->rpn.neg_iou ? 0 : -1;
    }
    for (int t = 0; t < count && c->rpn.low_quality; t++) {
        float top = 0;

        for (int a = 0; a < g.anchors; a++)
            top = fmaxf(top, iou[a * count + t]);
        for (int a = 0; a < g.anchors; a++)
            if (top > 0 && iou[a * count + t] == top)
                label[a] = 1;
    }
    free(iou);
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static int plain_draw(const struct philox_key *key, const int *label, int n, int wanted, int want, uint64_t *ret)
{
    int count = 0;

    for (int i = 0; i < n; i++)
        if (label[i] == wanted)
            ret[count++] = (uint64_t)philox_word(key, (uint64_t)i) << 32 | (uint64_t)i;
    qsort(ret, (size_t)count, sizeof *ret, ascending);
    count = count < want ? count : want;
    for (int i = 0; i < count; i++)
        ret[i] = (uint32_t)ret[i];
    qsort(ret, (size_t)count, sizeof *ret, ascending);
    return count;
}

static void check_samples(const struct rcnn_case *c, const struct outcome *r)
{
    int *label = malloc(100000 * sizeof *label), *arg = malloc(100000 * sizeof *arg), at = 0;
    uint64_t *want = malloc(100000 * sizeof *want);

    for (int v = 0; v < c->nshards; v++)
        for (int i = 0; i < c->n[v]; i++, at++) {
            int n = case_anchors(c, v), pos, neg;

            plain_labels(c, v, i, label, arg);
            pos = plain_draw(&c->key[0][at], label, n, 1, c->rpn.max_positive, want);
            neg = plain_draw(&c->key[1][at], label, n, 0, c->rpn.batch - pos, want + pos);
            assert_int_equal(r->count[v][i][0], pos + neg);
            assert_int_equal(r->count[v][i][1], pos);
            for (int k = 0; k < pos + neg; k++) {
                assert_int_equal(r->anchor[v][i][k], (int)want[k]);
                assert_int_equal(r->truth[v][i][k], k < pos ? c->offset[v][i] + arg[want[k]] : -1);
            }
            if (c->offset[v][i] == c->offset[v][i + 1])
                assert_int_equal(pos, 0);
        }
    free(label);
    free(arg);
    free(want);
}

/* Values in double, straight from the formulas. */
static void check_loss(const struct rcnn_case *c, const struct outcome *r)
{
    int at = 0;

    for (int v = 0; v < c->nshards; v++) {
        struct rpn_grid g = grid_of(c, v);
        double cls[CASE_IMAGES] = { 0 }, box[CASE_IMAGES] = { 0 }, all_cls = 0, all_box = 0, norm;
        int drawn = 0;

        for (int i = 0; i < c->n[v]; i++)
            drawn += r->count[v][i][0];
        norm = c->rpn.count_sampled ? drawn : (double)c->rpn.batch * c->n[v];
        for (int i = 0; i < c->n[v]; i++)
            for (int k = 0; k < r->count[v][i][0]; k++) {
                int a = r->anchor[v][i][k], l = rpn_level_of(&g, a), pixel = i * g.level[l].h * g.level[l].w * 3 + a - g.level[l].first;
                double z = c->logits[l][v][pixel], y = k < r->count[v][i][1], slope = (1 / (1 + exp(-z)) - y) / norm * 0.25;

                cls[i] += fmax(z, 0) - z * y + log1p(exp(-fabs(z)));
                near(r->dz[l][v][pixel], slope, 1e-6, "dz", (size_t)pixel);
                for (int k4 = 0; k4 < 4 && y > 0; k4++) {
                    struct box s = anchor_of(c, &g, a);
                    const float *t = c->truth[v][r->truth[v][i][k]];
                    double w = (double)s.x2 - s.x1, h = (double)s.y2 - s.y1, want, e, b = c->rpn.beta;

                    want = k4 == 0   ? ((t[0] + t[2]) / 2.0 - (s.x1 + s.x2) / 2.0) / w
                           : k4 == 1 ? ((t[1] + t[3]) / 2.0 - (s.y1 + s.y2) / 2.0) / h
                           : k4 == 2 ? log(((double)t[2] - t[0]) / w)
                                     : log(((double)t[3] - t[1]) / h);
                    e = c->deltas[l][v][pixel * 4 + k4] - want;
                    box[i] += fabs(e) < b ? e * e / 2 / b : fabs(e) - b / 2;
                    near(r->dd[l][v][pixel * 4 + k4], (fabs(e) < b ? e / b : copysign(1, e)) / norm * 0.25, 1e-6, "dd", (size_t)pixel);
                }
            }
        for (int i = 0; i < c->n[v]; i++, at++) {
            double own = c->rpn.count_sampled ? r->count[v][i][0] : c->rpn.batch;

            near(r->by_image[at][RPN_CLS], own > 0 ? cls[i] / own : 0, 1e-5, "cls of an image", (size_t)i);
            near(r->by_image[at][RPN_BOX], own > 0 ? box[i] / own : 0, 1e-5, "box of an image", (size_t)i);
            assert_true(r->by_image[at][RPN_POSITIVE] == r->count[v][i][1]);
            all_cls += cls[i];
            all_box += box[i];
        }
        near(r->terms[v][RPN_CLS], norm > 0 ? all_cls / norm : 0, 1e-5, "cls", (size_t)v);
        if (r->broken[v] == 0)
            near(r->terms[v][RPN_BOX], norm > 0 ? all_box / norm : 0, 1e-5, "box", (size_t)v);
        assert_true(r->terms[v][RPN_SAMPLED] == drawn);
    }
}

/* Only the drawn anchors have a gradient. */
static void check_zeros(const struct rcnn_case *c, const struct outcome *r)
{
    for (int v = 0; v < c->nshards; v++) {
        int logits = 0, deltas = 0, drawn = 0, positive = 0;

        for (int l = 0; l < CASE_LEVELS; l++) {
            struct tensor z = case_tensor(c, l, v, 1);

            for (size_t i = 0; i < tensor_count(&z); i++) {
                logits += r->dz[l][v][i] != 0;
                for (size_t k = 0; k < 4; k++)
                    deltas += r->dd[l][v][4 * i + k] != 0;
            }
        }
        for (int i = 0; i < c->n[v]; i++) {
            drawn += r->count[v][i][0];
            positive += r->count[v][i][1];
        }
        assert_int_equal(logits, drawn);
        assert_int_equal(deltas, 4 * positive);
    }
}

struct plain_box {
    struct box b;
    float logit, score;
    int order, kept;
};

static int by_logit(const void *pa, const void *pb)
{
    const struct plain_box *a = pa, *b = pb;

    if (a->logit != b->logit && !(isnan(a->logit) && isnan(b->logit)))
        return isnan(a->logit) ? 1 : isnan(b->logit) ? -1 : a->logit > b->logit ? -1 : 1;
    return a->order - b->order;
}

static int by_score(const void *pa, const void *pb)
{
    const struct plain_box *a = pa, *b = pb;

    return a->score != b->score ? (a->score > b->score ? -1 : 1) : a->order - b->order;
}

/* The best of one level that are not suppressed. Returns their number; they are in order, with their place among the
 * level's best. */
static int plain_level(const struct rcnn_case *c, const struct rpn_grid *g, int v, int image, int l, struct plain_box *ret)
{
    int n = g->level[l].h * g->level[l].w * 3, best = n < c->sel.pre ? n : c->sel.pre, kept = 0;
    struct plain_box *all = malloc((size_t)n * sizeof *all);
    float h = (float)c->size[v][image][0], w = (float)c->size[v][image][1];

    for (int i = 0; i < n; i++)
        all[i] = (struct plain_box){ .logit = c->logits[l][v][image * n + i], .order = i };
    qsort(all, (size_t)n, sizeof *all, by_logit);
    for (int i = 0; i < best; i++) {
        const float ones[4] = { 1, 1, 1, 1 };
        struct plain_box *p = &all[i];
        float side;

        p->b = delta_decode(rpn_anchor(&c->rpn, g, l, p->order), c->deltas[l][v] + (image * n + p->order) * 4, ones);
        p->order = l * c->sel.pre + i;
        p->score = c->sel.sigmoid ? math_sigmoid(p->logit) : p->logit;
        p->kept = isfinite(p->logit) && isfinite(p->b.x1) && isfinite(p->b.y1) && isfinite(p->b.x2) && isfinite(p->b.y2);
        p->b = (struct box){ fminf(fmaxf(p->b.x1, 0), w), fminf(fmaxf(p->b.y1, 0), h), fminf(fmaxf(p->b.x2, 0), w),
                             fminf(fmaxf(p->b.y2, 0), h) };
        side = fminf(p->b.x2 - p->b.x1, p->b.y2 - p->b.y1);
        p->kept = p->kept && (c->sel.keep_min ? side >= c->sel.min_side : side > c->sel.min_side);
        for (int j = 0; j < i && p->kept; j++)
            if (all[j].kept && plain_iou(all[j].b, p->b) > c->sel.nms)
                p->kept = 0;
        if (p->kept)
            ret[kept++] = *p;
    }
    free(all);
    return kept;
}

static void check_proposals(const struct rcnn_case *c, const struct outcome *r)
{
    struct plain_box *want = malloc(4000 * sizeof *want);

    for (int v = 0; v < c->nshards; v++) {
        struct rpn_grid g = grid_of(c, v);
        int at = 0, cap = c->n[v] * c->sel.post;

        for (int i = 0; i < c->n[v]; i++) {
            int n = 0;

            for (int l = 0; l < CASE_LEVELS; l++)
                n += plain_level(c, &g, v, i, l, want + n);
            qsort(want, (size_t)n, sizeof *want, by_score);
            n = n < c->sel.post ? n : c->sel.post;
            assert_int_equal(r->offset[v][i], at);
            for (int k = 0; k < n; k++, at++) {
                assert_memory_equal(r->box[v][at], &want[k].b, 16);
                assert_true(r->score[v][at] == want[k].score);
                assert_int_equal(r->image[v][at], i);
            }
        }
        assert_int_equal(r->offset[v][c->n[v]], at);
        for (; at < cap; at++)
            assert_true(r->score[v][at] == 0 && r->box[v][at][2] == 0 && r->image[v][at] == 0);
    }
    free(want);
}

static void check_all(struct rcnn_case *c)
{
    struct outcome *r = outcome_of(c);

    check_samples(c, r);
    check_loss(c, r);
    check_zeros(c, r);
    check_proposals(c, r);
    free(r);
    case_free(c);
}

static void flavors(void **state)
{
    (void)state;
    check_all(case_new(false, 3, 6, 11));
    check_all(case_new(true, 3, 6, 12));
}

static void no_truth_and_much_of_it(void **state)
{
    struct rcnn_case *c = case_new(false, 2, 0, 21);

    (void)state;
    check_all(c);
    c = case_new(false, 1, 500, 22);
    check_all(c);
}

/* Everything is drawn: the labels of all anchors show. */
static void all_labels(void **state)
{
    struct rcnn_case *c = case_new(true, 1, 8, 31);

    (void)state;
    c->rpn.batch = c->rpn.max_positive = BATCH;
    check_all(c);
}

static void equal_scores(void **state)
{
    struct rcnn_case *c = case_new(false, 2, 3, 41);

    (void)state;
    for (int v = 0; v < 2; v++)
        for (int l = 0; l < CASE_LEVELS; l++) {
            struct tensor z = case_tensor(c, l, v, 1);

            for (size_t i = 0; i < tensor_count(&z); i++)
                c->logits[l][v][i] = v == 0 ? (i % 2 ? 0.0f : -0.0f) : (float)(i % 3);
        }
    check_all(c);
}

/* Boxes outside their images, boxes of one pixel, equal boxes: labels still equal the comparison of all pairs. */
static void odd_truth(void **state)
{
    const float odd[6][4] = { { -500, -500, -400, -400 }, { 3, 3, 3, 9 },   { 10, 10, 11, 11 },
                              { 0, 0, 96, 64 },           { 0, 0, 96, 64 }, { 90, 60, 400, 300 } };
    struct rcnn_case *c = case_new(false, 1, 6, 51);

    (void)state;
    memcpy(c->truth[0], odd, sizeof odd);
    check_all(c);
}

/* Numbers that are not finite: proposals without them, and a loss that says so. */
static void wild_numbers(void **state)
{
    struct rcnn_case *c = case_new(false, 2, 3, 61);
    struct outcome *r;

    (void)state;
    c->sel.pre = 40; /* each that is wrongly chosen shows */
    for (size_t i = 0; i < 200; i++)
        c->deltas[0][1][4 * i + i % 4] = i % 2 ? NAN : 1e38f;
    for (size_t i = 0; i < 9; i++)
        c->logits[1][1][i * 5] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
    r = outcome_of(c);
    check_samples(c, r);
    check_proposals(c, r);
    assert_int_equal(r->broken[0], 0);
    assert_true(r->broken[1] >= 9);
    assert_true(isfinite(r->terms[0][RPN_BOX]));
    assert_true(isnan(r->terms[1][RPN_BOX]));
    free(r);
    case_free(c);
}

/* An image gets the same results in a shard of its own. */
static void shards_do_not_matter(void **state)
{
    struct rcnn_case *many = case_new(true, 3, 5, 71), *one = case_new(true, 1, 0, 71);
    struct outcome *a = outcome_of(many), *b;

    (void)state;
    assert_int_equal(many->n[1], 3);
    one->n[0] = 1;
    one->canvas[0] = many->canvas[1];
    memcpy(one->size[0][0], many->size[1][1], sizeof one->size[0][0]);
    one->offset[0][1] = many->offset[1][2] - many->offset[1][1];
    memcpy(one->truth[0], many->truth[1] + many->offset[1][1], sizeof one->truth[0] - (size_t)many->offset[1][1] * 16);
    for (int k = 0; k < 4; k++)
        one->key[k][0] = many->key[k][many->n[0] + 1];
    for (int l = 0; l < CASE_LEVELS; l++) {
        struct tensor z = case_tensor(one, l, 0, 1);
        size_t n = tensor_count(&z);

        free(one->logits[l][0]);
        free(one->deltas[l][0]);
        one->logits[l][0] = malloc(n * 4);
        one->deltas[l][0] = malloc(n * 16);
        memcpy(one->logits[l][0], many->logits[l][1] + n, n * 4);
        memcpy(one->deltas[l][0], many->deltas[l][1] + 4 * n, n * 16);
    }
    b = outcome_of(one);
    assert_memory_equal(a->anchor[1][1], b->anchor[0][0], (size_t)a->count[1][1][0] * 4);
    assert_int_equal(a->offset[1][2] - a->offset[1][1], b->offset[0][1]);
    assert_memory_equal(a->box[1][a->offset[1][1]], b->box[0][0], (size_t)b->offset[0][1] * 16);
    assert_memory_equal(a->by_image[many->n[0] + 1], b->by_image[0], sizeof b->by_image[0]);
    free(a);
    free(b);
    case_free(many);
    case_free(one);
}

/* ---- vectors: specs rcnn sections 3.1, 13.2 ---- */

static void anchors(void **state)
{
    const double ratio[3] = { 0.5, 1, 2 };
    const float side[5] = { 32, 64, 128, 256, 512 };
    const float exact[5][2] = { { 22.627417f, 11.313708f },
                                { 45.254834f, 22.627417f },
                                { 90.509668f, 45.254834f },
                                { 181.019336f, 90.509668f },
                                { 362.038672f, 181.019336f } };
    const float rounded[5][2] = { { 23, 11 }, { 45, 23 }, { 91, 45 }, { 181, 91 }, { 362, 181 } };
    struct rpn_head d2 = { .nlevels = 5, .nratios = 3 }, tv = d2;

    (void)state;
    rpn_set_anchors(&d2, side, ratio, false);
    rpn_set_anchors(&tv, side, ratio, true);
    for (int l = 0; l < 5; l++)
        for (int r = 0; r < 3; r++)
            for (int k = 0; k < 4; k++) {
                float sign = k < 2 ? -1.0f : 1.0f;
                int axis = r == 2 ? 1 - k % 2 : k % 2;

                near(d2.cell[l][r][k], sign * (r == 1 ? side[l] / 2 : exact[l][axis]), 1e-7, "anchor", (size_t)l);
                assert_true(tv.cell[l][r][k] == sign * (r == 1 ? side[l] / 2 : rounded[l][axis]));
            }
}

static void inferred_strides(void **state)
{
    struct rpn_head head = { .nlevels = 1, .nratios = 1, .infer_stride = true, .stride = { 64 } };
    struct tensor t = tensor_f32(NULL, 1, 13, 19, 1);
    const struct tensor *shape[1] = { &t };
    struct rpn_grid g = rpn_grid(&head, (struct canvas){ 800, 1216 }, shape, 0);

    (void)state;
    assert_true(g.level[0].step_y == 61 && g.level[0].step_x == 64);
    head.infer_stride = false;
    g = rpn_grid(&head, (struct canvas){ 800, 1216 }, shape, 0);
    assert_true(g.level[0].step_y == 64 && g.level[0].step_x == 64);
}

static void box_coding(void **state)
{
    const float ones[4] = { 1, 1, 1, 1 }, head[4] = { 10, 10, 5, 5 }, d[4] = { 0.5f, -0.25f, 0.2f, 10 };
    struct box s = { 10, 20, 50, 80 }, t = { 12, 18, 60, 90 }, b;
    float e[4];

    (void)state;
    delta_encode(e, s, t, ones);
    near(e[0], 0.15, 1e-6, "dx", 0);
    near(e[1], 0.066667, 1e-6, "dy", 0);
    near(e[2], 0.182322, 1e-6, "dw", 0);
    near(e[3], 0.182322, 1e-6, "dh", 0);
    b = delta_decode(s, d, ones);
    near(b.x1, 25.5719, 1e-5, "x1", 0);
    near(b.y1, -1840, 1e-6, "y1", 0);
    near(b.x2, 74.4281, 1e-5, "x2", 0);
    near(b.y2, 1910, 1e-6, "y2", 0);
    b = delta_decode(s, d, head);
    near(b.x1, 11.1838, 1e-5, "x1", 1);
    near(b.y1, -173.1717, 1e-5, "y1", 1);
    near(b.x2, 52.8162, 1e-5, "x2", 1);
    near(b.y2, 270.1717, 1e-5, "y2", 1);
    near(smooth_l1(0.05f, 1.0f / 9), 0.01125, 1e-6, "smooth", 0);
    near(smooth_l1(1, 1.0f / 9), 0.944444, 1e-6, "smooth", 1);
    assert_true(smooth_l1(-2, 0) == 2 && smooth_l1_slope(-2, 0) == -1 && smooth_l1_slope(0, 0) == 0);
}

/* Keys consist of the whole philox_word() and the number; better scores have smaller keys. */
static void keys(void **state)
{
    const float falling[] = { INFINITY, 3e38f, 1, 1e-40f, 0, -1e-40f, -1, -INFINITY, NAN };
    struct philox_key key = { .seed = 3, .op = 7, .shard = 1, .substream = 2, .step = 5 };

    (void)state;
    for (uint32_t i = 0; i < 9; i++)
        assert_true(select_draw(&key, 1000 * i + i) == ((uint64_t)philox_word(&key, 1000 * i + i) << 32 | (1000 * i + i)));
    for (uint32_t i = 1; i < 9; i++)
        assert_true(select_by_score(falling[i - 1], 100) < select_by_score(falling[i], 0));
    assert_true(select_by_score(0.0f, 5) == select_by_score(-0.0f, 5) && select_by_score(-NAN, 1) == select_by_score(NAN, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(anchors),
        cmocka_unit_test(inferred_strides),
        cmocka_unit_test(box_coding),
        cmocka_unit_test(keys),
        cmocka_unit_test(flavors),
        cmocka_unit_test(no_truth_and_much_of_it),
        cmocka_unit_test(all_labels),
        cmocka_unit_test(equal_scores),
        cmocka_unit_test(odd_truth),
        cmocka_unit_test(wild_numbers),
        cmocka_unit_test(shards_do_not_matter),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

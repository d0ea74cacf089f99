/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_rcnn.c - uses: proto worker/core worker/layers cpu cuda
 * Regions of a second stage: draws, losses, masks and decoded boxes, the same on every device, and compared with a slow
 * reference. */
#include "tests/device/rcnn_cases.h"

#include <math.h>

#include "worker/kernels/rcnn.h"

enum { POST = 60, ROWS = CASE_IMAGES * 1400, MASKS = 64, FOUND = 4000, POINTS = 20000, GAP = 1 };

/* A case, and the data between its images and the second stage. */
struct second {
    struct rcnn_case *c;
    float box[CASE_SHARDS][CASE_IMAGES * POST][4];
    int32_t image[CASE_SHARDS][CASE_IMAGES * POST], offset[CASE_SHARDS][CASE_IMAGES + 1];
    float *logits[CASE_SHARDS], *deltas[CASE_SHARDS], *masks[CASE_SHARDS]; /* for as many rows as there is room for */
    int32_t polygon[CASE_SHARDS][CASE_TRUTH + 1], point[CASE_SHARDS][2 * CASE_TRUTH + 1], run[CASE_SHARDS][CASE_TRUTH + 1];
    double xy[CASE_SHARDS][POINTS][2];
    int32_t length[CASE_SHARDS][POINTS];
    bool runs;
    float score;
    const float *class_weight; /* [classes], NULL: no weights */
};

struct outcome {
    float box[CASE_SHARDS][ROWS][4], mask_box[CASE_SHARDS][MASKS][4];
    int32_t image[CASE_SHARDS][ROWS], label[CASE_SHARDS][ROWS], truth[CASE_SHARDS][ROWS], offset[CASE_SHARDS][CASE_IMAGES + 1];
    int32_t mask_image[CASE_SHARDS][MASKS], mask_label[CASE_SHARDS][MASKS], mask_truth[CASE_SHARDS][MASKS],
        mask_offset[CASE_SHARDS][CASE_IMAGES + 1];
    double terms[CASE_SHARDS][RCNN_BOX_TERMS], by_image[CASE_ALL][RCNN_BOX_TERMS];
    double mask_terms[CASE_SHARDS][RCNN_MASK_TERMS], mask_by_image[CASE_ALL][RCNN_MASK_TERMS];
    float dz[CASE_SHARDS][ROWS][8], dd[CASE_SHARDS][ROWS][32];
    float target[CASE_SHARDS][MASKS * RCNN_MAX_MASK_CELLS]; /* one behind the other */
    uint64_t mask_hash;
    struct candidate found[CASE_ALL][FOUND];
    int nfound[CASE_ALL];
};

static int box_room(const struct rcnn_case *c, int v)
{
    return c->n[v] * (c->rcnn.batch > POST ? c->rcnn.batch : POST);
}

/* Proposals: some near boxes, others anywhere. */
static void draw_proposals(struct second *s, int v, uint64_t seed)
{
    const struct rcnn_case *c = s->c;
    float *x = numbers(CASE_IMAGES * POST * 4, seed, -1, 1);
    int at = 0;

    for (int i = 0; i < c->n[v]; i++) {
        int first = c->offset[v][i], count = c->offset[v][i + 1] - first, n = POST - 3 * i;

        s->offset[v][i] = at;
        for (int k = 0; k < n; k++, at++) {
            const float far[4] = { 5, 5, 30, 30 }, *near_to = count > 0 && k % 2 ? c->truth[v][first + k % count] : far;
            float size = count > 0 && k % 2 ? 0.15f : 1.0f, w = near_to[2] - near_to[0], h = near_to[3] - near_to[1];

            s->box[v][at][0] = near_to[0] + size * w * x[4 * at];
            s->box[v][at][1] = near_to[1] + size * h * x[4 * at + 1];
            s->box[v][at][2] = fmaxf(near_to[2] + size * w * x[4 * at + 2], s->box[v][at][0] + 1);
            s->box[v][at][3] = fmaxf(near_to[3] + size * h * x[4 * at + 3], s->box[v][at][1] + 1);
            s->image[v][at] = i;
        }
        s->offset[v][i + 1] = at;
    }
    free(x);
}

/* Two polygons for a box, a triangle and a ragged one; or runs: every other column of it. */
static void draw_outlines(struct second *s, int v)
{
    const struct rcnn_case *c = s->c;
    int points = 0, polygons = 0, runs = 0;

    for (int i = 0; i < c->n[v]; i++)
        for (int t = c->offset[v][i]; t < c->offset[v][i + 1]; t++) {
            const float *b = c->truth[v][t];
            const double w = (double)b[2] - b[0], h = (double)b[3] - b[1];
            const double shape[8][2] = { { 0, 0 }, { .5, .2 }, { 0, 1 }, { .4, .3 }, { 1, .1 }, { .8, .5 }, { 1, 1 }, { .3, .9 } };
            const int height = c->size[v][i][0];
            const int x0 = (int)b[0], x1 = (int)b[2], y0 = (int)b[1], y1 = (int)b[3];

            s->polygon[v][t] = polygons;
            s->run[v][t] = runs;
            if (s->runs && t % 2 == 0) {
                int32_t at = 0;

                for (int x = x0; x < x1; x += 2, runs += 2) {
                    s->length[v][runs] = x * height + y0 - at;
                    s->length[v][runs + 1] = y1 - y0 + (x % 3 == 0 ? height - (y1 - y0) : 0);
                    at = x * height + y0 + s->length[v][runs + 1];
                }
                continue;
            }
            for (int k = 0; k < 8; k++, points++) {
                if (k == 0 || k == 3)
                    s->point[v][polygons++] = points;
                s->xy[v][points][0] = b[0] + w * shape[k][0];
                s->xy[v][points][1] = b[1] + h * shape[k][1];
            }
            assert_true(points < POINTS - 8 && runs < POINTS - 2000);
        }
    s->point[v][polygons] = points;
    for (int t = c->offset[v][c->n[v]]; t <= CASE_TRUTH; t++) {
        s->polygon[v][t] = polygons;
        s->run[v][t] = runs;
    }
}

static struct second *second_of_side(int side, bool tv, int nshards, int boxes, uint64_t seed, bool runs)
{
    struct second *s = calloc(1, sizeof *s);

    assert_non_null(s);
    s->c = case_new(tv, nshards, boxes, seed);
    s->c->rcnn.mask_side = side;
    s->runs = runs;
    s->score = 0.2f;
    for (int v = 0; v < nshards; v++) {
        size_t rows = (size_t)box_room(s->c, v);

        draw_proposals(s, v, seed + 300 + (uint64_t)v);
        draw_outlines(s, v);
        s->logits[v] = numbers(rows * 6, seed + 400 + (uint64_t)v, -3, 3);
        s->deltas[v] = numbers(rows * 24, seed + 500 + (uint64_t)v, -2, 2);
        s->masks[v] =
            numbers((size_t)(s->c->n[v] * s->c->rcnn.max_masks * rcnn_mask_cells(&s->c->rcnn) * 6), seed + 600 + (uint64_t)v, -2, 2);
    }
    return s;
}

static struct second *second_new(bool tv, int nshards, int boxes, uint64_t seed, bool runs)
{
    return second_of_side(28, tv, nshards, boxes, seed, runs);
}

static void second_free(struct second *s)
{
    for (int v = 0; v < CASE_SHARDS; v++) {
        free(s->logits[v]);
        free(s->deltas[v]);
        free(s->masks[v]);
    }
    case_free(s->c);
    free(s);
}

static void put_samples(struct device *dev, const struct rcnn_case *c, int v, struct rcnn_samples *s)
{
    int cap = c->n[v] * c->rcnn.batch, masks = c->n[v] * c->rcnn.max_masks;
    size_t n = (size_t)cap * 4, m = (size_t)masks * 4, o = ((size_t)c->n[v] + 1) * 4;

    assert_true(cap <= ROWS && masks <= MASKS);
    *s = (struct rcnn_samples){ cap,
                                masks,
                                put(dev, NULL, 4 * n),
                                put(dev, NULL, n),
                                put(dev, NULL, n),
                                put(dev, NULL, n),
                                put(dev, NULL, o),
                                put(dev, NULL, 4 * m),
                                put(dev, NULL, m),
                                put(dev, NULL, m),
                                put(dev, NULL, m),
                                put(dev, NULL, o) };
}

static void get_samples(struct device *dev, const struct rcnn_case *c, int v, const struct rcnn_samples *s, struct outcome *r)
{
    size_t n = (size_t)s->cap * 4, m = (size_t)s->mask_cap * 4, o = ((size_t)c->n[v] + 1) * 4;

    get(dev, r->box[v], s->box, 4 * n);
    get(dev, r->image[v], s->image, n);
    get(dev, r->label[v], s->label, n);
    get(dev, r->truth[v], s->truth, n);
    get(dev, r->offset[v], s->offset, o);
    get(dev, r->mask_box[v], s->mask_box, 4 * m);
    get(dev, r->mask_image[v], s->mask_image, m);
    get(dev, r->mask_label[v], s->mask_label, m);
    get(dev, r->mask_truth[v], s->mask_truth, m);
    get(dev, r->mask_offset[v], s->mask_offset, o);
}

/* Shared by the calls below. */
struct there {
    struct rcnn_there t;
    struct rpn_proposals proposals[CASE_SHARDS];
    struct rcnn_samples samples[CASE_SHARDS];
    double *terms[CASE_ALL], *by_image[CASE_ALL];
};

static void put_terms(struct device *dev, const struct rcnn_case *c, struct there *t, size_t n)
{
    for (int i = 0; i < case_images(c); i++) {
        t->terms[i] = put(dev, NULL, n * sizeof(double));
        t->by_image[i] = put(dev, NULL, n * sizeof(double));
    }
}

static void run_boxes(struct device *dev, const struct second *s, struct there *t, struct outcome *r)
{
    const struct rcnn_case *c = s->c;
    struct tensor z[CASE_SHARDS], d[CASE_SHARDS], dz[CASE_SHARDS], dd[CASE_SHARDS];
    struct rcnn_head head = c->rcnn;

    if (s->class_weight)
        head.class_weight = put(dev, s->class_weight, (size_t)head.classes * sizeof *s->class_weight);
    put_terms(dev, c, t, RCNN_BOX_TERMS);
    for (int v = 0; v < c->nshards; v++) {
        int cap = t->samples[v].cap;

        z[v] = dz[v] = tensor_f32(NULL, cap, 1, 1, c->rcnn.classes + 1);
        d[v] = dd[v] = tensor_f32(NULL, cap, 1, 1, rcnn_box_columns(&c->rcnn));
        put_tensor(dev, &z[v], s->logits[v], GAP);
        put_tensor(dev, &d[v], s->deltas[v], 0);
        put_tensor(dev, &dz[v], NULL, GAP);
        put_tensor(dev, &dd[v], NULL, GAP);
    }
    CALL(dev->on->rcnn->box_loss(dev, &head, t->t.images, t->t.truth, dz, dd, 0.5f, t->terms, false, z, d, t->samples, c->nshards, err));
    CALL(dev->on->rcnn->box_loss(dev, &head, t->t.images, t->t.truth, NULL, NULL, 0, t->by_image, true, z, d, t->samples, c->nshards, err));
    for (int v = 0; v < c->nshards; v++) {
        get(dev, r->terms[v], t->terms[v], sizeof r->terms[v]);
        get_tensor(dev, &r->dz[v][0][0], &dz[v]);
        get_tensor(dev, &r->dd[v][0][0], &dd[v]);
    }
    for (int i = 0; i < case_images(c); i++)
        get(dev, r->by_image[i], t->by_image[i], sizeof r->by_image[i]);
}

static void run_masks(struct device *dev, const struct second *s, struct there *t, struct outcome *r)
{
    const struct rcnn_case *c = s->c;
    struct rcnn_outlines outlines[CASE_SHARDS];
    struct tensor z[CASE_SHARDS], dz[CASE_SHARDS];
    float *target[CASE_SHARDS];
    size_t cells = (size_t)rcnn_mask_cells(&c->rcnn);

    put_terms(dev, c, t, RCNN_MASK_TERMS);
    for (int v = 0; v < c->nshards; v++) {
        int cap = t->samples[v].mask_cap;

        outlines[v] = (struct rcnn_outlines){ put(dev, s->polygon[v], sizeof s->polygon[v]), put(dev, s->point[v], sizeof s->point[v]),
                                              put(dev, s->xy[v], sizeof s->xy[v]), s->runs ? put(dev, s->run[v], sizeof s->run[v]) : NULL,
                                              s->runs ? put(dev, s->length[v], sizeof s->length[v]) : NULL };
        z[v] = dz[v] = tensor_f32(NULL, cap, c->rcnn.mask_side, c->rcnn.mask_side, rcnn_mask_channels(&c->rcnn));
        put_tensor(dev, &z[v], s->masks[v], 0);
        put_tensor(dev, &dz[v], NULL, GAP);
        target[v] = put(dev, NULL, (size_t)cap * cells * 4);
    }
    CALL(dev->on->rcnn->mask_targets(dev, &c->rcnn, t->t.images, outlines, target, t->samples, c->nshards, err));
    CALL(dev->on->rcnn->mask_loss(dev, &c->rcnn, t->t.images, dz, 0.5f, t->terms, false, z, (const float *const *)target, t->samples,
                                  c->nshards, err));
    CALL(dev->on->rcnn->mask_loss(dev, &c->rcnn, t->t.images, NULL, 0, t->by_image, true, z, (const float *const *)target, t->samples,
                                  c->nshards, err));
    for (int v = 0; v < c->nshards; v++) {
        size_t n = tensor_count(&dz[v]);
        float *grad = malloc(n * sizeof *grad + 1);

        get(dev, r->mask_terms[v], t->terms[v], sizeof r->mask_terms[v]);
        get(dev, r->target[v], target[v], (size_t)t->samples[v].mask_cap * cells * 4);
        get_tensor(dev, grad, &dz[v]);
        for (size_t i = 0; i < n; i++) {
            size_t pixel = i / (size_t)dz[v].c, row = pixel / cells, channel = i % (size_t)dz[v].c;
            int count = r->mask_offset[v][c->n[v]];
            double want = 0;

            r->mask_hash = r->mask_hash * 1099511628211u + float_bits(grad[i]);
            if ((int)row < count && (int)channel == r->mask_label[v][row] + c->rcnn.background_first)
                want = (1 / (1 + exp(-(double)s->masks[v][i])) - (double)r->target[v][pixel]) / (count * (double)cells) * 0.5;
            near(grad[i] * 1e4, want * 1e4, 1e-5, "slope of a mask", i);
        }
        free(grad);
    }
    for (int i = 0; i < case_images(c); i++)
        get(dev, r->mask_by_image[i], t->by_image[i], sizeof r->mask_by_image[i]);
}

/* Decodes the heads' outputs as if they were those of all proposals. */
static void run_decode(struct device *dev, const struct second *s, struct there *t, struct outcome *r)
{
    const struct rcnn_case *c = s->c;

    for (int v = 0, at = 0; v < c->nshards; v++) {
        struct tensor z = tensor_f32(NULL, c->n[v] * POST, 1, 1, c->rcnn.classes + 1), d = z;

        d.c = rcnn_box_columns(&c->rcnn);
        put_tensor(dev, &z, s->logits[v], GAP);
        put_tensor(dev, &d, s->deltas[v], 0);
        for (int i = 0; i < c->n[v]; i++, at++) {
            int few;

            CALL(dev->on->rcnn->decode(dev, &c->rcnn, &t->t.images[v], &z, &d, &t->proposals[v], i, s->score, 0.01f, r->found[at], FOUND,
                                       &r->nfound[at], err));
            assert_true(r->nfound[at] <= FOUND);
            CALL(dev->on->rcnn->decode(dev, &c->rcnn, &t->t.images[v], &z, &d, &t->proposals[v], i, s->score, 0.01f, r->found[at], 5, &few,
                                       err));
            assert_int_equal(few, r->nfound[at]);
        }
    }
}

static void run(struct device *dev, const void *arg, void *ret)
{
    const struct second *s = arg;
    const struct rcnn_case *c = s->c;
    struct there *t = calloc(1, sizeof *t);
    struct outcome *r = ret;

    memset(r, 0, sizeof *r);
    put_case(dev, c, &t->t);
    for (int v = 0; v < c->nshards; v++) {
        t->proposals[v] =
            (struct rpn_proposals){ put(dev, s->box[v], sizeof s->box[v]),       NULL, put(dev, s->image[v], sizeof s->image[v]),
                                    put(dev, s->offset[v], sizeof s->offset[v]), NULL, c->n[v] * POST };
        put_samples(dev, c, v, &t->samples[v]);
    }
    CALL(dev->on->rcnn->sample(dev, &c->rcnn, t->t.images, t->t.truth, t->proposals, c->key[2], c->key[3], t->samples, c->nshards, err));
    for (int v = 0; v < c->nshards; v++)
        get_samples(dev, c, v, &t->samples[v], r);
    run_boxes(dev, s, t, r);
    run_masks(dev, s, t, r);
    run_decode(dev, s, t, r);
    free(t);
}

static struct outcome *outcome_of(const struct second *s)
{
    struct outcome *r = malloc(sizeof *r);

    assert_non_null(r);
    same_on_all(run, s, r, sizeof *r);
    return r;
}

/* ---- the reference ---- */

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static float plain_iou(const float *g, const float *a)
{
    float w = fminf(g[2], a[2]) - fmaxf(g[0], a[0]), h = fminf(g[3], a[3]) - fmaxf(g[1], a[1]), inter = fmaxf(w, 0) * fmaxf(h, 0);

    return inter > 0 ? inter / ((g[2] - g[0]) * (g[3] - g[1]) + (a[2] - a[0]) * (a[3] - a[1]) - inter) : 0;
}

/* The keys of an image's candidates that are foreground or not, ascending. */
static int keys_of(const struct philox_key *key, const int *foreground, int n, int wanted, uint64_t *ret)
{
    int count = 0;

    for (int i = 0; i < n; i++)
        if (foreground[i] == wanted)
            ret[count++] = (uint64_t)philox_word(key, (uint64_t)i) << 32 | (uint64_t)i;
    qsort(ret, (size_t)count, sizeof *ret, ascending);
    return count;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static void check_image(const struct second *s, const struct outcome *r, int v, int i, int at)
{
    const struct rcnn_case *c = s->c;
    int nprop = s->offset[v][i + 1] - s->offset[v][i], ntruth = c->offset[v][i + 1] - c->offset[v][i];
    int n = nprop + (c->rcnn.append_truth ? ntruth : 0), foreground[2000], arg[2000], choice[2000] = { 0 }, nf, nb, row, mask;
    uint64_t key[2000];

    for (int k = 0; k < n; k++) {
        const float *box = k < nprop ? s->box[v][s->offset[v][i] + k] : c->truth[v][c->offset[v][i] + k - nprop];
        float best = -1;

        for (int t = 0; t < ntruth; t++)
            if (plain_iou(c->truth[v][c->offset[v][i] + t], box) > best) {
                best = plain_iou(c->truth[v][c->offset[v][i] + t], box);
                arg[k] = t;
            }
        foreground[k] =
            best >= c->rcnn.fg_iou && c->cls[v][c->offset[v][i] + arg[k]] >= 0 && c->cls[v][c->offset[v][i] + arg[k]] < c->rcnn.classes;
    }
    nf = smaller(keys_of(&c->key[2][at], foreground, n, 1, key), c->rcnn.max_foreground);
    for (int k = 0; k < nf; k++)
        choice[(uint32_t)key[k]] = k < c->rcnn.max_masks ? 3 : 2;
    nb = smaller(keys_of(&c->key[3][at], foreground, n, 0, key), c->rcnn.batch - nf);
    for (int k = 0; k < nb; k++)
        choice[(uint32_t)key[k]] = 1;
    row = r->offset[v][i];
    mask = r->mask_offset[v][i];
    for (int k = 0; k < n; k++) {
        const float *box = k < nprop ? s->box[v][s->offset[v][i] + k] : c->truth[v][c->offset[v][i] + k - nprop];
        int truth = choice[k] > 1 ? c->offset[v][i] + arg[k] : -1;

        if (choice[k] == 0)
            continue;
        assert_memory_equal(r->box[v][row], box, 16);
        assert_int_equal(r->image[v][row], i);
        assert_int_equal(r->truth[v][row], truth);
        assert_int_equal(r->label[v][row++], truth < 0 ? c->rcnn.classes : c->cls[v][truth]);
        if (choice[k] < 3)
            continue;
        assert_memory_equal(r->mask_box[v][mask], box, 16);
        assert_int_equal(r->mask_image[v][mask], i);
        assert_int_equal(r->mask_truth[v][mask], truth);
        assert_int_equal(r->mask_label[v][mask++], c->cls[v][truth]);
    }
    assert_int_equal(row, r->offset[v][i + 1]);
    assert_int_equal(mask, r->mask_offset[v][i + 1]);
}

static void check_samples(const struct second *s, const struct outcome *r)
{
    for (int v = 0, at = 0; v < s->c->nshards; v++) {
        int n = s->c->n[v], cap = n * s->c->rcnn.batch;

        assert_int_equal(r->offset[v][0], 0);
        assert_int_equal(r->mask_offset[v][0], 0);
        for (int i = 0; i < n; i++)
            check_image(s, r, v, i, at++);
        for (int row = r->offset[v][n]; row < cap; row++)
            assert_true(r->box[v][row][2] == 0 && r->label[v][row] == 0);
    }
}

/* Cost of a row in double; slopes[0 ..]: of the logits, then of the deltas. */
static void plain_row(const struct second *s, const struct outcome *r, int v, int row, double *ret_cls, double *ret_box, double *slopes)
{
    const struct rcnn_head *h = &s->c->rcnn;
    int classes = h->classes + 1, columns = rcnn_box_columns(h), label = r->label[v][row], first = h->background_first;
    int column = !first ? label : label == h->classes ? 0 : label + 1;
    const float *z = s->logits[v] + row * classes, *d = s->deltas[v] + row * columns, *b = r->box[v][row];
    double sum = 0, weight = s->class_weight && label < h->classes ? s->class_weight[label] : 1;

    for (int k = 0; k < classes; k++)
        sum += exp(z[k]);
    for (int k = 0; k < classes + columns; k++)
        slopes[k] = k < classes ? weight * (exp(z[k]) / sum - (k == column)) : 0;
    *ret_cls = weight * (log(sum) - z[column]);
    *ret_box = 0;
    if (label == h->classes)
        return;
    for (int k = 0; k < 4; k++) {
        const float *t = s->c->truth[v][r->truth[v][row]];
        double lo = b[k % 2], side = (double)b[k % 2 + 2] - lo, tlo = t[k % 2], tside = (double)t[k % 2 + 2] - tlo, beta = h->beta, e;
        int at = h->agnostic ? k : 4 * column + k;

        e = d[at] - h->weights[k] * (k < 2 ? (tlo + tside / 2 - lo - side / 2) / side : log(tside / side));
        *ret_box += fabs(e) < beta ? e * e / 2 / beta : fabs(e) - beta / 2;
        slopes[classes + at] = fabs(e) < beta ? e / beta : copysign(1, e);
    }
}

static void check_boxes(const struct second *s, const struct outcome *r)
{
    const struct rcnn_case *c = s->c;
    int classes = c->rcnn.classes + 1, columns = rcnn_box_columns(&c->rcnn), at = 0;

    for (int v = 0; v < c->nshards; v++) {
        const float *dz = &r->dz[v][0][0], *dd = &r->dd[v][0][0];
        int count = r->offset[v][c->n[v]], cap = c->n[v] * c->rcnn.batch;
        double all_cls = 0, all_box = 0, slopes[64];

        for (int i = 0; i < c->n[v]; i++, at++) {
            int from = r->offset[v][i], n = r->offset[v][i + 1] - from;
            double sum_cls = 0, sum_box = 0, cls, box;

            for (int row = from; row < from + n; row++) {
                plain_row(s, r, v, row, &cls, &box, slopes);
                sum_cls += cls;
                sum_box += box;
                for (int k = 0; k < classes; k++)
                    near(dz[row * classes + k], slopes[k] / count * 0.5, 1e-6, "dz", (size_t)row);
                for (int k = 0; k < columns; k++)
                    near(dd[row * columns + k], slopes[classes + k] / count * 0.5, 1e-6, "dd", (size_t)row);
            }
            near(r->by_image[at][RCNN_CLS], n ? sum_cls / n : 0, 1e-5, "cls of an image", (size_t)i);
            near(r->by_image[at][RCNN_BOX], n ? sum_box / n : 0, 1e-5, "box of an image", (size_t)i);
            assert_true(r->by_image[at][RCNN_ROWS] == n);
            all_cls += sum_cls;
            all_box += sum_box;
        }
        near(r->terms[v][RCNN_CLS], count ? all_cls / count : 0, 1e-5, "cls", (size_t)v);
        near(r->terms[v][RCNN_BOX], count ? all_box / count : 0, 1e-5, "box", (size_t)v);
        for (int k = count * classes; k < cap * classes; k++)
            assert_true(dz[k] == 0);
        for (int k = count * columns; k < cap * columns; k++)
            assert_true(dd[k] == 0);
    }
}

static void check_masks(const struct second *s, const struct outcome *r)
{
    const struct rcnn_case *c = s->c;
    int at = 0, cells = rcnn_mask_cells(&c->rcnn);

    for (int v = 0; v < c->nshards; v++) {
        int count = r->mask_offset[v][c->n[v]], channels = rcnn_mask_channels(&c->rcnn);
        double all = 0;

        for (int i = 0; i < c->n[v]; i++, at++) {
            int from = r->mask_offset[v][i], n = r->mask_offset[v][i + 1] - from;
            double sum = 0;

            for (int row = from; row < from + n; row++)
                for (int k = 0; k < cells; k++) {
                    double t = r->target[v][row * cells + k];
                    double z = s->masks[v][(row * cells + k) * channels + r->mask_label[v][row] + c->rcnn.background_first];

                    assert_true(t >= 0 && t <= 1.0001);
                    sum += fmax(z, 0) - z * t + log1p(exp(-fabs(z)));
                }
            near(r->mask_by_image[at][RCNN_MASK], n ? sum / n / cells : 0, 1e-5, "mask of an image", (size_t)i);
            assert_true(r->mask_by_image[at][RCNN_MASK_ROWS] == n);
            all += sum;
        }
        near(r->mask_terms[v][RCNN_MASK], count ? all / count / cells : 0, 1e-5, "mask", (size_t)v);
    }
}

static void check_found(const struct second *s, const struct outcome *r)
{
    const struct rcnn_head *h = &s->c->rcnn;
    int classes = h->classes + 1, columns = rcnn_box_columns(h);

    for (int v = 0, at = 0; v < s->c->nshards; v++)
        for (int i = 0; i < s->c->n[v]; i++, at++) {
            int n = 0;

            for (int row = s->offset[v][i]; row < s->offset[v][i + 1]; row++)
                for (int k = 0; k < h->classes; k++) {
                    const float *z = s->logits[v] + row * classes, *d;
                    const struct candidate *f = &r->found[at][n];
                    float height = (float)s->c->size[v][i][0], width = (float)s->c->size[v][i][1];
                    struct box b;
                    double sum = 0, p;

                    for (int j = 0; j < classes; j++)
                        sum += exp(z[j]);
                    p = exp(z[k + h->background_first]) / sum;
                    d = s->deltas[v] + row * columns + (h->agnostic ? 0 : 4 * (k + h->background_first));
                    b = delta_decode(box_at(s->box[v][row]), d, h->weights);
                    b = (struct box){ fminf(fmaxf(b.x1, 0), width), fminf(fmaxf(b.y1, 0), height), fminf(fmaxf(b.x2, 0), width),
                                      fminf(fmaxf(b.y2, 0), height) };
                    if (p <= (double)s->score || b.x2 - b.x1 < 0.01f || b.y2 - b.y1 < 0.01f)
                        continue;
                    assert_true(n < r->nfound[at]);
                    assert_memory_equal(f, &b, 16);
                    near(f->score, p, 1e-5, "score", (size_t)n);
                    assert_int_equal(f->cls, k);
                    assert_int_equal(f->slot, row * h->classes + k);
                    n++;
                }
            assert_int_equal(n, r->nfound[at]);
        }
}

static void check_all(struct second *s)
{
    struct outcome *r = outcome_of(s);

    check_samples(s, r);
    check_boxes(s, r);
    check_masks(s, r);
    check_found(s, r);
    free(r);
    second_free(s);
}

static void flavors(void **state)
{
    (void)state;
    check_all(second_new(false, 3, 6, 11, false));
    check_all(second_new(true, 3, 6, 12, false));
}

/* Each row's cross-entropy counts by the weight of its class, the background's by 1; the divisor of the sum stays the
 * number of rows. That is torch's cross_entropy(weight=[classes and 1], reduction="sum") / rows. */
static void class_weights(void **state)
{
    static const float weight[] = { 0.5f, 3, 1, 0.01f, 20 };

    (void)state;
    for (int tv = 0; tv < 2; tv++) {
        struct second *s = second_new(tv, 3, 6, 81 + (uint64_t)tv, false);

        s->class_weight = weight;
        check_all(s);
    }
}

static void bitmaps_and_agnostic(void **state)
{
    struct second *s = second_new(false, 2, 6, 21, true);

    (void)state;
    s->c->rcnn.agnostic = true;
    check_all(s);
    check_all(second_new(true, 2, 6, 22, true));
}

/* Masks of few cells, and of more than a word's bits. */
static void other_sides(void **state)
{
    static const int sides[] = { 8, 56, RCNN_MAX_MASK_SIDE };

    (void)state;
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        for (int tv = 0; tv < 2; tv++) {
            check_all(second_of_side(sides[i], tv, 2, 4, 61 + i, false));
            if (sides[i] == 56)
                check_all(second_of_side(sides[i], tv, 2, 4, 71, true));
        }
}

static void few_and_many(void **state)
{
    struct second *s = second_new(false, 2, 0, 31, false); /* no truth: all background */

    (void)state;
    check_all(s);
    s = second_new(false, 1, 500, 32, false);
    s->c->rcnn.batch = 100;
    s->c->rcnn.max_foreground = 60;
    s->c->rcnn.max_masks = 20;
    free(s->logits[0]);
    free(s->deltas[0]);
    free(s->masks[0]);
    s->logits[0] = numbers(600 * 6, 1, -3, 3);
    s->deltas[0] = numbers(600 * 24, 2, -2, 2);
    s->masks[0] = numbers((size_t)(2 * 20 * rcnn_mask_cells(&s->c->rcnn) * 6), 3, -2, 2);
    check_all(s);
    s = second_new(false, 2, 4, 33, false); /* no proposals at all, nor truth among them */
    s->c->rcnn.append_truth = false;
    s->c->rcnn.max_masks = 0;
    memset(s->offset, 0, sizeof s->offset);
    check_all(s);
}

/* Objects of an unknown class: they are never drawn as foreground, and no head has a column for them. */
static void classes_that_are_none(void **state)
{
    static const int32_t odd[] = { -1, 5, 0, INT32_MAX, 2, INT32_MIN };

    (void)state;
    for (int tv = 0; tv < 2; tv++) {
        struct second *s = second_new(tv, 3, 6, 51, false);

        for (int v = 0; v < s->c->nshards; v++)
            for (int t = 0; t < s->c->offset[v][CASE_IMAGES]; t++)
                s->c->cls[v][t] = odd[t % 6];
        check_all(s);
    }
}

/* With a proposal more than there is room for, other rows are drawn, but their number is the same. In reverse order
 * they are the same boxes. */
static void order_of_proposals(void **state)
{
    struct second *s = second_new(false, 1, 5, 41, false);
    struct outcome *a, *b;

    (void)state;
    s->c->rcnn.batch = 96;
    s->c->rcnn.max_foreground = 96; /* all */
    s->c->rcnn.max_masks = 0;
    free(s->logits[0]);
    free(s->deltas[0]);
    s->logits[0] = numbers(400 * 6, 1, -3, 3);
    s->deltas[0] = numbers(400 * 24, 2, -2, 2);
    a = outcome_of(s);
    for (int i = 0; i < s->offset[0][1] / 2; i++)
        for (int k = 0; k < 4; k++) {
            float x = s->box[0][i][k];

            s->box[0][i][k] = s->box[0][s->offset[0][1] - 1 - i][k];
            s->box[0][s->offset[0][1] - 1 - i][k] = x;
        }
    b = outcome_of(s);
    for (int i = 0; i < s->offset[0][1]; i++) {
        assert_memory_equal(a->box[0][i], b->box[0][s->offset[0][1] - 1 - i], 16);
        assert_int_equal(a->truth[0][i], b->truth[0][s->offset[0][1] - 1 - i]);
    }
    free(a);
    free(b);
    second_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flavors),
        cmocka_unit_test(class_weights),
        cmocka_unit_test(bitmaps_and_agnostic),
        cmocka_unit_test(other_sides),
        cmocka_unit_test(few_and_many),
        cmocka_unit_test(classes_that_are_none),
        cmocka_unit_test(order_of_proposals),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

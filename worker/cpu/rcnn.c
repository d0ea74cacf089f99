/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/rcnn.c - regions for training, losses of the box head,
 * detections. */
#include "worker/kernels/rcnn.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "worker/cpu/cpu.h"
#include "worker/cpu/overlap.h"
#include "worker/cpu/select.h"
#include "worker/cpu/work.h"
#include "worker/kernels/rpn.h"

/* ---- drawing regions ---- */

struct sample_args {
    const struct rcnn_head *head;
    const struct rcnn_images *images;
    const struct rcnn_truth *truth;
    const struct rpn_proposals *proposals;
    const struct philox_key *foreground, *background;
    size_t most;         /* candidates of an image */
    int32_t *arg;        /* [images][most] the box that a candidate overlaps most */
    uint8_t *choice;     /* [images][most] enum rcnn_choice */
    int32_t (*count)[2]; /* [images] chosen regions, and those with masks */
    float *boxes;        /* per thread */
    uint64_t *keys;      /* per thread: [2][most] */
};

/* The candidates of an image: its proposals, then its true boxes. */
struct candidates {
    const float *proposal, *truth;
    const int32_t *cls; /* classes of truth */
    int nproposals, ntruth, n;
};

static struct candidates candidates_of(const struct rcnn_head *head, const struct rpn_proposals *p, const struct rcnn_truth *t, int image)
{
    struct candidates c = { .nproposals = p->offset[image + 1] - p->offset[image], .ntruth = t->offset[image + 1] - t->offset[image] };

    c.proposal = p->box + (size_t)p->offset[image] * 4;
    c.truth = t->box + (size_t)t->offset[image] * 4;
    c.cls = t->cls + t->offset[image];
    c.n = c.nproposals + (head->append_truth ? c.ntruth : 0);
    return c;
}

static const float *candidate_box(const struct candidates *c, int i)
{
    return i < c->nproposals ? c->proposal + (size_t)i * 4 : c->truth + (size_t)(i - c->nproposals) * 4;
}

/* Best overlap of each candidate, and its box. */
struct matches {
    const float *best;
    const int32_t *arg;
};

static bool is_foreground(const struct rcnn_head *head, const struct candidates *c, const struct matches *m, int i)
{
    return c->ntruth > 0 && rcnn_foreground(head, m->best[i], c->cls[m->arg[i]]);
}

/* Draws `want` candidates that are, or are not, foreground. The first nmasks become RCNN_MASKED. Returns the number
 * drawn. */
static int draw(const struct sample_args *a, const struct candidates *c, const struct matches *m, bool foreground,
                const struct philox_key *key, int want, int nmasks, uint8_t *choice, uint64_t *keys)
{
    size_t n = 0;

    for (int i = 0; i < c->n; i++)
        if (is_foreground(a->head, c, m, i) == foreground)
            keys[n++] = select_draw(key, (uint32_t)i);
    n = select_smallest(keys, n, (size_t)want);
    if (nmasks < (int)n)
        select_sort(keys, keys + a->most, n);
    for (size_t i = 0; i < n; i++)
        choice[select_index(keys[i])] = !foreground ? RCNN_BACKGROUND : (int)i < nmasks ? RCNN_MASKED : RCNN_CHOSEN;
    return (int)n;
}

static void sample_image(void *arg, size_t index, int thread)
{
    const struct sample_args *a = arg;
    int image, v = shard_of_image(a->images, index, &image), batch = a->head->batch, foreground, want;
    struct candidates c = candidates_of(a->head, &a->proposals[v], &a->truth[v], image);
    struct overlap_boxes b = overlap_boxes(a->boxes + (size_t)thread * a->most * (OVERLAP_FLOATS + 1), a->most);
    float *best = b.area + a->most;
    int32_t *matched = a->arg + index * a->most;
    uint8_t *choice = a->choice + index * a->most;
    uint64_t *keys = a->keys + (size_t)thread * 2 * a->most;
    const struct matches m = { best, matched };

    for (int i = 0; i < c.n; i++) {
        overlap_set(&b, (size_t)i, box_at(candidate_box(&c, i)));
        best[i] = 0.0f;
        matched[i] = 0;
        choice[i] = RCNN_LEFT;
    }
    for (int t = 0; t < c.ntruth; t++)
        overlap_match(&b, 0, (size_t)c.n, box_at(c.truth + (size_t)t * 4), t, best, matched);
    want = a->head->max_foreground < batch ? a->head->max_foreground : batch;
    foreground = draw(a, &c, &m, true, &a->foreground[index], want, a->head->max_masks, choice, keys);
    a->count[index][0] = foreground + draw(a, &c, &m, false, &a->background[index], batch - foreground, 0, choice, keys);
    a->count[index][1] = foreground < a->head->max_masks ? foreground : a->head->max_masks;
}

static void write_row(const struct sample_args *a, struct rcnn_samples *s, int v, int image, const float *box, int choice, int32_t truth,
                      int at, int mask_at)
{
    bool foreground = choice != RCNN_BACKGROUND;
    int32_t row = foreground ? a->truth[v].offset[image] + truth : -1, label = foreground ? a->truth[v].cls[row] : a->head->classes;

    memcpy(s->box + (size_t)at * 4, box, 4 * sizeof *box);
    s->image[at] = image;
    s->label[at] = label;
    s->truth[at] = row;
    if (choice != RCNN_MASKED)
        return;
    memcpy(s->mask_box + (size_t)mask_at * 4, box, 4 * sizeof *box);
    s->mask_image[mask_at] = image;
    s->mask_label[mask_at] = label;
    s->mask_truth[mask_at] = row;
}

static void zero_rows(float *box, int32_t *image, int32_t *label, int32_t *truth, int from, int cap)
{
    size_t n = (size_t)(cap - from);

    memset(box + (size_t)from * 4, 0, n * 4 * sizeof *box);
    memset(image + from, 0, n * sizeof *image);
    memset(label + from, 0, n * sizeof *label);
    memset(truth + from, 0, n * sizeof *truth);
}

static void write_shard(const struct sample_args *a, int v, struct rcnn_samples *s)
{
    size_t first = first_image(a->images, v);
    int n = a->images[v].n, at = 0, mask_at = 0;

    s->offset[0] = s->mask_offset[0] = 0;
    for (int image = 0; image < n; image++) {
        size_t index = first + (size_t)image;
        struct candidates c = candidates_of(a->head, &a->proposals[v], &a->truth[v], image);

        for (int i = 0; i < c.n; i++) {
            int choice = a->choice[index * a->most + (size_t)i];

            if (choice == RCNN_LEFT)
                continue;
            write_row(a, s, v, image, candidate_box(&c, i), choice, a->arg[index * a->most + (size_t)i], at++, mask_at);
            mask_at += choice == RCNN_MASKED;
        }
        s->offset[image + 1] = at;
        s->mask_offset[image + 1] = mask_at;
    }
    zero_rows(s->box, s->image, s->label, s->truth, at, s->cap);
    zero_rows(s->mask_box, s->mask_image, s->mask_label, s->mask_truth, mask_at, s->mask_cap);
}

static void layout(struct carve *c, struct sample_args *a, size_t images, size_t threads)
{
    a->arg = carve(c, images * a->most * sizeof *a->arg);
    a->choice = carve(c, images * a->most * sizeof *a->choice);
    a->count = carve(c, images * sizeof *a->count);
    a->boxes = carve(c, threads * a->most * (OVERLAP_FLOATS + 1) * sizeof *a->boxes);
    a->keys = carve(c, threads * 2 * a->most * sizeof *a->keys);
}

int cpu_rcnn_sample(struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,
                    const struct rpn_proposals *proposals, const struct philox_key *foreground, const struct philox_key *background,
                    struct rcnn_samples *ret, int nshards, struct err *err)
{
    struct sample_args a = { head, images, truth, proposals, foreground, background, 1, NULL, NULL, NULL, NULL, NULL };
    size_t n = count_images(images, nshards), threads = (size_t)threads_count(cpu_threads(dev));
    struct carve c = { NULL, 0 };

    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < images[v].n; i++) {
            int all = candidates_of(head, &proposals[v], &truth[v], i).n;

            a.most = (size_t)all > a.most ? (size_t)all : a.most;
        }
    layout(&c, &a, n, threads);
    c.base = cpu_scratch(dev, c.used, err);
    if (!c.base)
        return -ENOMEM;
    c.used = 0;
    layout(&c, &a, n, threads);
    threads_each(cpu_threads(dev), n, sample_image, &a);
    for (int v = 0; v < nshards; v++)
        write_shard(&a, v, &ret[v]);
    return 0;
}

/* ---- the box head ---- */

struct box_loss_args {
    const struct rcnn_head *head;
    const struct rcnn_images *images;
    const struct rcnn_truth *truth;
    struct tensor *dlogits, *ddeltas;
    const struct tensor *logits, *deltas;
    const struct rcnn_samples *samples;
    float grad_scale;
    double *rows; /* [rows of all shards][RCNN_BOX_TERMS] */
    int v;
    size_t first; /* row of this shard's first region */
};

static float *row_of(const struct tensor *t, size_t row)
{
    return (float *)t->data + row * (size_t)t->stride;
}

static void box_rows(void *arg, size_t from, size_t to)
{
    const struct box_loss_args *a = arg;
    const struct rcnn_samples *s = &a->samples[a->v];
    int n = a->images[a->v].n;
    size_t count = (size_t)s->offset[n];
    float scale = loss_scale(a->grad_scale, (double)count);

    for (size_t r = from; r < to; r++) {
        float *dz = a->dlogits ? row_of(&a->dlogits[a->v], r) : NULL, *dd = a->ddeltas ? row_of(&a->ddeltas[a->v], r) : NULL;
        double *row = a->rows + (a->first + r) * RCNN_BOX_TERMS;
        struct rcnn_cost c;

        if (dd)
            memset(dd, 0, (size_t)a->ddeltas[a->v].c * sizeof *dd);
        if (r >= count) {
            if (dz)
                memset(dz, 0, (size_t)a->dlogits[a->v].c * sizeof *dz);
            continue;
        }
        c = rcnn_class_cost(dz, row_of(&a->logits[a->v], r), a->head, s->label[r], scale);
        if (s->truth[r] >= 0)
            c.box = rcnn_box_cost(dd, row_of(&a->deltas[a->v], r), a->head, s->label[r], s->box + r * 4,
                                  a->truth[a->v].box + (size_t)s->truth[r] * 4, scale);
        row[RCNN_CLS] = (double)c.cls;
        row[RCNN_BOX] = (double)c.box;
        row[RCNN_FOREGROUND] = s->truth[r] >= 0;
        row[RCNN_RIGHT] = c.right;
        row[RCNN_ROWS] = 1.0;
    }
}

static void finish_box(double *terms, const double *rows, int n)
{
    double sums[RCNN_BOX_TERMS];

    for (int i = 0; i < RCNN_BOX_TERMS; i++)
        sums[i] = sum_in_lanes(rows + i, RCNN_BOX_TERMS, n);
    rcnn_box_finish(terms, sums, n);
}

int cpu_rcnn_box_loss(struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,
                      struct tensor *dlogits, struct tensor *ddeltas, float grad_scale, double *const *terms, bool by_image,
                      const struct tensor *logits, const struct tensor *deltas, const struct rcnn_samples *samples, int nshards,
                      struct err *err)
{
    struct box_loss_args a = { head, images, truth, dlogits, ddeltas, logits, deltas, samples, grad_scale, NULL, 0, 0 };
    size_t rows = 0;

    for (int v = 0; v < nshards; v++)
        rows += (size_t)samples[v].cap;
    a.rows = cpu_scratch(dev, (rows + 1) * RCNN_BOX_TERMS * sizeof *a.rows, err);
    if (!a.rows)
        return -ENOMEM;
    for (int v = 0; v < nshards; a.first += (size_t)samples[v++].cap) {
        const int32_t *offset = samples[v].offset;
        size_t first = first_image(images, v);

        a.v = v;
        threads_run(cpu_threads(dev), (size_t)samples[v].cap, box_rows, &a);
        for (int i = 0; by_image && i < images[v].n; i++)
            finish_box(terms[first + (size_t)i], a.rows + (a.first + (size_t)offset[i]) * RCNN_BOX_TERMS, offset[i + 1] - offset[i]);
        if (!by_image)
            finish_box(terms[v], a.rows + a.first * RCNN_BOX_TERMS, offset[images[v].n]);
    }
    return 0;
}

/* ---- detections ---- */

int cpu_rcnn_decode(struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, const struct tensor *logits,
                    const struct tensor *deltas, const struct rpn_proposals *proposals, int image, float score, float min_side,
                    struct candidate *ret, int cap, int *ret_count, struct err *err)
{
    float h = (float)images->size[2 * image], w = (float)images->size[2 * image + 1];
    int found = 0, top;

    (void)dev, (void)err;
    assert(image >= 0 && image < images->n && logits->c == head->classes + 1 && deltas->c == rcnn_box_columns(head));
    for (int r = proposals->offset[image]; r < proposals->offset[image + 1]; r++) {
        const float *z = row_of(logits, (size_t)r);
        const float *d = row_of(deltas, (size_t)r), *box = proposals->box + (size_t)r * 4;
        float m = softmax_max(z, logits->c, &top), sum = softmax_sum(z, logits->c, m);
        int before = found;

        for (int c = 0; c < head->classes; c++) {
            struct candidate one;

            if (!rcnn_candidate(&one, head, z, m, sum, d, box, c, score, min_side, h, w))
                continue;
            if (found == before && !rcnn_row_finite(head, d, box))
                break;
            one.slot = r * head->classes + c;
            if (found < cap)
                ret[found] = one;
            found++;
        }
    }
    *ret_count = found;
    return 0;
}

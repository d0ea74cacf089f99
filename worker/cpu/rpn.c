/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/rpn.c - labels anchors and draws samples. Matching runs by rows
 * of a level's grid, since a box overlaps few of them; drawing runs by image. */
#include "worker/kernels/rpn.h"

#include <errno.h>
#include <string.h>

#include "worker/cpu/cpu.h"
#include "worker/cpu/overlap.h"
#include "worker/cpu/select.h"
#include "worker/cpu/work.h"

/* ---- drawing anchors ---- */

struct sample_shard {
    struct rpn_grid grid;
    const struct rcnn_truth *truth;
    int rows; /* of the grids of all levels */
    float *best;
    int32_t *arg, *low; /* [n][anchors]; low: the anchor is a box's best */
    float *peak;        /* [images][rows][boxes of the image]: largest overlap of a row's anchors; image i begins at offset[i] * rows */
    float *top;         /* [truth rows] the largest overlap of any anchor */
};

struct sample_args {
    const struct rpn_head *head;
    const struct rcnn_images *images;
    const struct rcnn_truth *truth;
    struct sample_shard *shard;
    const struct philox_key *positive, *negative;
    struct rpn_samples *ret;
    float *row;     /* per thread: the boxes of a row */
    uint64_t *keys; /* per slot: [most anchors + batch] */
    size_t row_floats, most;
    struct slots slots; /* one image each */
};

/* Row number `row` of the grids of one image. */
struct row_of_image {
    int image, level, y, row, first; /* first: the number of its first anchor */
    size_t n;
};

static int find_row(const struct sample_args *a, size_t index, struct row_of_image *ret)
{
    int v = 0, row;

    for (; index >= (size_t)a->images[v].n * (size_t)a->shard[v].rows; v++)
        index -= (size_t)a->images[v].n * (size_t)a->shard[v].rows;
    ret->image = (int)(index / (size_t)a->shard[v].rows);
    row = ret->row = (int)(index % (size_t)a->shard[v].rows);
    for (ret->level = 0; row >= a->shard[v].grid.level[ret->level].h; ret->level++)
        row -= a->shard[v].grid.level[ret->level].h;
    ret->y = row;
    ret->n = (size_t)(a->shard[v].grid.level[ret->level].w * a->shard[v].grid.nratios);
    ret->first = a->shard[v].grid.level[ret->level].first + row * (int)ret->n;
    return v;
}

/* Computes the row's anchors. Returns the hull of the anchors of all ratios at a grid point. */
static struct box fill_row(const struct sample_args *a, const struct rpn_grid *g, const struct row_of_image *r,
                           const struct overlap_boxes *b)
{
    const struct rpn_level *l = &g->level[r->level];
    struct box hull = box_at(a->head->cell[r->level][0]);
    size_t i = 0;

    for (int k = 0; k < g->nratios; k++) {
        const float *cell = a->head->cell[r->level][k];

        hull.x1 = box_min(hull.x1, cell[0]);
        hull.y1 = box_min(hull.y1, cell[1]);
        hull.x2 = box_max(hull.x2, cell[2]);
        hull.y2 = box_max(hull.y2, cell[3]);
    }
    for (int x = 0; x < l->w; x++)
        for (int k = 0; k < g->nratios; k++, i++)
            overlap_set(b, i, rpn_anchor_at(a->head->cell[r->level][k], l->step_x, l->step_y, x, r->y));
    return hull;
}

static int clamp_column(float x, int w)
{
    return x > 0.0f ? x < (float)w ? (int)x : w : 0;
}

/* Only anchors [from, to) of the row can overlap the box. One column on each side is left for rounding. */
static void meets(const struct rpn_grid *g, const struct row_of_image *r, struct box hull, struct box t, size_t *ret_from, size_t *ret_to)
{
    const struct rpn_level *l = &g->level[r->level];
    float y = (float)r->y * l->step_y;
    int from = clamp_column((t.x1 - hull.x2) / l->step_x - 1.0f, l->w), to = clamp_column((t.x2 - hull.x1) / l->step_x + 2.0f, l->w);

    if (!(t.y1 < y + hull.y2 + 1.0f && t.y2 > y + hull.y1 - 1.0f && t.x2 > t.x1))
        from = to = 0;
    *ret_from = (size_t)(from * g->nratios);
    *ret_to = (size_t)((to > from ? to : from) * g->nratios);
}

static float *row_peaks(const struct sample_shard *s, const struct row_of_image *r, int first, int count)
{
    return s->peak + (size_t)first * (size_t)s->rows + (size_t)r->row * (size_t)count;
}

static void match_row(void *arg, size_t index, int thread)
{
    const struct sample_args *a = arg;
    struct row_of_image r;
    const struct sample_shard *s = &a->shard[find_row(a, index, &r)];
    struct overlap_boxes b = overlap_boxes(a->row + (size_t)thread * a->row_floats, r.n);
    size_t at = (size_t)r.image * (size_t)s->grid.anchors + (size_t)r.first;
    int first = s->truth->offset[r.image], count = s->truth->offset[r.image + 1] - first;
    float *peak = row_peaks(s, &r, first, count);
    struct box hull = fill_row(a, &s->grid, &r, &b);

    memset(s->best + at, 0, r.n * sizeof *s->best);
    memset(s->arg + at, 0, r.n * sizeof *s->arg);
    for (int t = 0; t < count; t++) {
        struct box truth = box_at(s->truth->box + (size_t)(first + t) * 4);
        size_t from, to;

        meets(&s->grid, &r, hull, truth, &from, &to);
        peak[t] = overlap_match(&b, from, to, truth, t, s->best + at, s->arg + at);
    }
}

/* Marks the anchors of the row that overlap a box as much as the best anchor does. */
static void mark_row(void *arg, size_t index, int thread)
{
    const struct sample_args *a = arg;
    struct row_of_image r;
    const struct sample_shard *s = &a->shard[find_row(a, index, &r)];
    struct overlap_boxes b = overlap_boxes(a->row + (size_t)thread * a->row_floats, r.n);
    size_t at = (size_t)r.image * (size_t)s->grid.anchors + (size_t)r.first, from, to;
    int first = s->truth->offset[r.image], count = s->truth->offset[r.image + 1] - first;
    const float *peak = row_peaks(s, &r, first, count);
    struct box hull = { 0.0f, 0.0f, 0.0f, 0.0f };
    bool filled = false;

    memset(s->low + at, 0, r.n * sizeof *s->low);
    for (int t = 0; t < count && a->head->low_quality; t++) {
        struct box truth = box_at(s->truth->box + (size_t)(first + t) * 4);

        if (!(s->top[first + t] > 0.0f && peak[t] == s->top[first + t]))
            continue;
        if (!filled)
            hull = fill_row(a, &s->grid, &r, &b);
        filled = true;
        meets(&s->grid, &r, hull, truth, &from, &to);
        overlap_equal(&b, from, to, truth, peak[t], s->low + at);
    }
}

static void find_tops(const struct sample_shard *s, int n)
{
    for (int i = 0; i < n; i++) {
        int first = s->truth->offset[i], count = s->truth->offset[i + 1] - first;
        const float *peak = s->peak + (size_t)first * (size_t)s->rows;

        for (int t = 0; t < count; t++)
            s->top[first + t] = 0.0f;
        for (int row = 0; row < s->rows; row++)
            for (int t = 0; t < count; t++)
                s->top[first + t] = box_max(s->top[first + t], peak[(size_t)row * (size_t)count + (size_t)t]);
    }
}

/* Draws the `want` candidates with label `label` that have the smallest random numbers, by ascending index. Returns
 * their number. */
static int draw(const struct sample_args *a, const struct sample_shard *s, size_t at, int label, const struct philox_key *key, int want,
                int32_t *ret, uint64_t *keys)
{
    size_t n = 0;
    uint64_t *tmp = keys + a->most;

    for (int i = 0; i < s->grid.anchors; i += 4) {
        uint32_t word[4];
        bool drawn = false;

        for (int k = 0; k < 4 && i + k < s->grid.anchors; k++) {
            if (rpn_label(a->head, s->best[at + (size_t)(i + k)], s->low[at + (size_t)(i + k)]) != label)
                continue;
            if (!drawn)
                philox_block_of(key, (uint64_t)i / 4, word);
            drawn = true;
            keys[n++] = select_by_draw(word[k], (uint32_t)(i + k));
        }
    }
    n = select_smallest(keys, n, (size_t)want);
    for (size_t i = 0; i < n; i++)
        keys[i] = select_index(keys[i]);
    select_sort(keys, tmp, n);
    for (size_t i = 0; i < n; i++)
        ret[i] = (int32_t)keys[i];
    return (int)n;
}

static void sample_image(void *arg, size_t index, int thread)
{
    const struct sample_args *a = arg;
    int image, v = shard_of_image(a->images, index, &image), batch = a->head->batch, positive, drawn;
    const struct sample_shard *s = &a->shard[v];
    size_t at = (size_t)image * (size_t)s->grid.anchors;
    int32_t *anchor = a->ret[v].anchor + (size_t)image * (size_t)batch, *truth = a->ret[v].truth + (size_t)image * (size_t)batch;
    uint64_t *keys = a->keys + slot_of(a->slots, index, thread) * (a->most + (size_t)batch);

    positive = draw(a, s, at, 1, &a->positive[index], a->head->max_positive < batch ? a->head->max_positive : batch, anchor, keys);
    drawn = positive + draw(a, s, at, 0, &a->negative[index], batch - positive, anchor + positive, keys);
    for (int i = 0; i < batch; i++)
        truth[i] = i < positive ? s->truth->offset[image] + s->arg[at + (size_t)anchor[i]] : -1;
    for (int i = drawn; i < batch; i++)
        anchor[i] = 0;
    a->ret[v].count[2 * image] = drawn;
    a->ret[v].count[2 * image + 1] = positive;
}

/* Counts the anchors and the rows of all grids. */
static void measure(const struct sample_args *a, const struct tensor *const *shape, int nshards, size_t *ret_rows)
{
    *ret_rows = 0;
    for (int v = 0; v < nshards; v++) {
        struct sample_shard *s = &a->shard[v];

        s->grid = rpn_grid(a->head, a->images[v].canvas, shape, v);
        s->rows = 0;
        for (int l = 0; l < s->grid.nlevels; l++)
            s->rows += s->grid.level[l].h;
        *ret_rows += (size_t)a->images[v].n * (size_t)s->rows;
    }
}

static void layout(struct carve *c, struct sample_args *a, const struct tensor *const *shape, int nshards, size_t threads)
{
    a->most = a->row_floats = 0;
    a->shard = carve(c, (size_t)nshards * sizeof *a->shard);
    for (int v = 0; v < nshards; v++) {
        struct sample_shard measured = { .rows = 0 }, *s = a->shard ? &a->shard[v] : &measured;
        size_t anchors = 0, rows = 0, all;

        for (int l = 0; l < a->head->nlevels; l++) {
            size_t row = (size_t)shape[l][v].w * (size_t)a->head->nratios;

            anchors += (size_t)shape[l][v].h * row;
            rows += (size_t)shape[l][v].h;
            a->row_floats = row * OVERLAP_FLOATS > a->row_floats ? row * OVERLAP_FLOATS : a->row_floats;
        }
        a->most = anchors > a->most ? anchors : a->most;
        all = (size_t)a->images[v].n * anchors;
        s->best = carve(c, all * sizeof(float));
        s->arg = carve(c, all * sizeof(int32_t));
        s->low = carve(c, all * sizeof(int32_t));
        s->peak = carve(c, (size_t)a->truth[v].rows * rows * sizeof(float));
        s->top = carve(c, (size_t)a->truth[v].rows * sizeof(float));
        s->truth = &a->truth[v];
    }
    a->row = carve(c, threads * a->row_floats * sizeof(float));
    a->keys = carve(c, a->slots.n * (a->most + (size_t)a->head->batch) * sizeof(uint64_t));
}

int cpu_rpn_sample(struct device *dev, const struct rpn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,
                   const struct tensor *const *shape, const struct philox_key *positive, const struct philox_key *negative,
                   struct rpn_samples *ret, int nshards, struct err *err)
{
    struct sample_args a = { .head = head, .images = images, .truth = truth, .positive = positive, .negative = negative, .ret = ret };
    struct threads *threads = cpu_threads(dev);
    struct carve c = { NULL, 0 };
    size_t rows;

    a.slots = slots_for(count_images(images, nshards), (size_t)threads_count(threads));
    layout(&c, &a, shape, nshards, (size_t)threads_count(threads));
    c.base = cpu_scratch(dev, c.used, err);
    if (!c.base)
        return -ENOMEM;
    c.used = 0;
    layout(&c, &a, shape, nshards, (size_t)threads_count(threads));
    measure(&a, shape, nshards, &rows);
    threads_each(threads, rows, match_row, &a);
    for (int v = 0; v < nshards; v++)
        find_tops(&a.shard[v], images[v].n);
    threads_each(threads, rows, mark_row, &a);
    threads_each(threads, count_images(images, nshards), sample_image, &a);
    return 0;
}

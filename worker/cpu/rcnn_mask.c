/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/rcnn_mask.c - targets and losses of masks. A row is the unit of
 * work. */
#include <errno.h>
#include <string.h>

#include "worker/cpu/cpu.h"
#include "worker/cpu/work.h"
#include "worker/kernels/mask_bits.h"
#include "worker/kernels/rpn.h"

/* ---- targets ---- */

struct target_args {
    const struct rcnn_head *head;
    const struct rcnn_images *images;
    const struct rcnn_outlines *outlines;
    float *const *target;
    const struct rcnn_samples *samples;
    int nshards;
    char *memory; /* per thread: a bitmap's */
    size_t bytes;
};

/* Draws polygons [from, to) on the cells of a box. */
static void draw_outlines(float *target, int side, const struct rcnn_outlines *o, int from, int to, struct box box)
{
    uint64_t all[RCNN_MAX_MASK_SIDE] = { 0 };
    struct mask_frame f = mask_frame(box, side);

    for (int p = from; p < to; p++) {
        uint64_t one[RCNN_MAX_MASK_SIDE] = { 0 };
        int n = o->point[p + 1] - o->point[p];

        for (int i = 0; i < n; i++) {
            struct polygon_edge e = mask_edge(&f, o->xy + (size_t)o->point[p] * 2, n, i);
            int first, last;

            polygon_columns(&e, side, &first, &last);
            for (int c = first; c <= last; c++)
                one[c] ^= mask_turned(&f, &e, c);
        }
        for (int c = 0; c < side; c++)
            all[c] |= one[c];
    }
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            target[y * side + x] = all[x] >> y & 1u ? 1.0f : 0.0f;
}

static void bits_of_polygons(const struct mask_window *w, const struct rcnn_outlines *o, int from, int to)
{
    for (int p = from; p < to; p++) {
        const double *xy = o->xy + (size_t)o->point[p] * 2;
        int n = o->point[p + 1] - o->point[p];

        memset(w->turn, 0, mask_window_words(w) * sizeof *w->turn);
        for (int i = 0; i < n; i++) {
            struct polygon_edge e = polygon_edge(xy + (size_t)i * 2, xy + (size_t)(i + 1 < n ? i + 1 : 0) * 2);
            int first, last;

            polygon_columns(&e, w->x_end, &first, &last);
            for (int c = first > w->x ? first : w->x; c <= last; c++) {
                int row = polygon_row(&e, c, w->height);

                if (row < w->height)
                    w->turn[mask_word(w, c, row)] ^= 1u << row % 32;
            }
        }
        for (int c = w->x; c < w->x_end; c++)
            mask_fill_column(w, c);
    }
}

static void bits_of_runs(const struct mask_window *w, const struct rcnn_outlines *o, int from, int to)
{
    int64_t at = 0;

    for (int r = from; r < to; r++) {
        int64_t end = at + o->length[r];

        if ((r - from) % 2 == 1)
            mask_fill_run(w, at, end);
        at = end;
    }
}

static void sample_bitmap(const struct target_args *a, float *target, int v, int image, int truth, struct box box, char *memory)
{
    const struct rcnn_outlines *o = &a->outlines[v];
    const int32_t *size = a->images[v].size + (size_t)image * 2;
    bool runs = o->run && o->run[truth + 1] > o->run[truth];
    struct mask_window w = mask_window(memory, a->head->mask_side, a->head->masks == RCNN_MASKS_OF_OUTLINES, box, size[0], size[1]);

    for (int p = 0; p < w.roi.pool; p++)
        mask_window_band(&w, p);
    mask_window_columns(&w);
    memset(w.bits, 0, mask_window_words(&w) * sizeof *w.bits);
    if (runs)
        bits_of_runs(&w, o, o->run[truth], o->run[truth + 1]);
    else if (o->polygon)
        bits_of_polygons(&w, o, o->polygon[truth], o->polygon[truth + 1]);
    for (int p = 0; p < w.roi.pool; p++)
        for (int c = w.x; c < w.x_end; c++)
            mask_window_sum(&w, p, c);
    for (int i = 0; i < rcnn_mask_cells(a->head); i++)
        target[i] = mask_window_value(&w, i);
}

static void target_row(void *arg, size_t index, int thread)
{
    const struct target_args *a = arg;
    const struct rcnn_samples *s;
    const struct rcnn_outlines *o;
    struct box box;
    float *target;
    int v = 0, truth;

    for (; index >= (size_t)a->samples[v].mask_offset[a->images[v].n]; v++)
        index -= (size_t)a->samples[v].mask_offset[a->images[v].n];
    s = &a->samples[v];
    o = &a->outlines[v];
    truth = s->mask_truth[index];
    box = box_at(s->mask_box + index * 4);
    target = a->target[v] + index * (size_t)rcnn_mask_cells(a->head);
    if (a->head->masks == RCNN_MASKS_OF_OUTLINES && !(o->run && o->run[truth + 1] > o->run[truth]))
        draw_outlines(target, a->head->mask_side, o, o->polygon ? o->polygon[truth] : 0, o->polygon ? o->polygon[truth + 1] : 0, box);
    else
        sample_bitmap(a, target, v, s->mask_image[index], truth, box, a->memory + (size_t)thread * a->bytes);
}

int cpu_rcnn_mask_targets(struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images,
                          const struct rcnn_outlines *outlines, float *const *target, const struct rcnn_samples *samples, int nshards,
                          struct err *err)
{
    struct target_args a = { head, images, outlines, target, samples, nshards, NULL, 0 };
    size_t rows = 0, threads = (size_t)threads_count(cpu_threads(dev));

    for (int v = 0; v < nshards; v++) {
        size_t bytes = mask_window_bytes(images[v].canvas, head->mask_side);

        a.bytes = bytes > a.bytes ? bytes : a.bytes;
        rows += (size_t)samples[v].mask_offset[images[v].n];
    }
    a.memory = cpu_scratch(dev, threads * a.bytes, err);
    if (!a.memory)
        return -ENOMEM;
    threads_each(cpu_threads(dev), rows, target_row, &a);
    return 0;
}

/* ---- loss ---- */

struct loss_args {
    const struct rcnn_head *head;
    const struct rcnn_images *images;
    struct tensor *dlogits;
    const struct tensor *logits;
    const float *const *target;
    const struct rcnn_samples *samples;
    float grad_scale;
    double *rows; /* sums of this shard's rows */
    int v;
};

static void zero_pixels(const struct tensor *t, size_t from, size_t count)
{
    float *x = (float *)t->data + from * (size_t)t->stride;

    if (t->stride == t->c) {
        memset(x, 0, count * (size_t)t->c * sizeof *x);
        return;
    }
    for (size_t i = 0; i < count; i++)
        memset(x + i * (size_t)t->stride, 0, (size_t)t->c * sizeof *x);
}

static void loss_row(void *arg, size_t r, int thread)
{
    const struct loss_args *a = arg;
    const struct rcnn_samples *s = &a->samples[a->v];
    const struct tensor *z = &a->logits[a->v], *dz = a->dlogits ? &a->dlogits[a->v] : NULL;
    int count = s->mask_offset[a->images[a->v].n], column = s->mask_label[r] + (a->head->background_first ? 1 : 0);
    size_t cells = (size_t)rcnn_mask_cells(a->head);
    float scale = loss_scale(a->grad_scale, (double)count * (double)cells);
    double cost[RCNN_MAX_MASK_CELLS];

    (void)thread;
    if (dz)
        zero_pixels(dz, r * cells, cells);
    if (r >= (size_t)count)
        return;
    for (size_t i = 0; i < cells; i++) {
        size_t pixel = r * cells + i;
        float *grad = dz ? (float *)dz->data + pixel * (size_t)dz->stride + column : NULL;

        cost[i] =
            (double)mask_cost(grad, ((const float *)z->data)[pixel * (size_t)z->stride + (size_t)column], a->target[a->v][pixel], scale);
    }
    a->rows[r] = sum_in_lanes(cost, 1, (int)cells);
}

int cpu_rcnn_mask_loss(struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, struct tensor *dlogits,
                       float grad_scale, double *const *terms, bool by_image, const struct tensor *logits, const float *const *target,
                       const struct rcnn_samples *samples, int nshards, struct err *err)
{
    struct loss_args a = { head, images, dlogits, logits, target, samples, grad_scale, NULL, 0 };
    int most = 1;

    for (int v = 0; v < nshards; v++)
        most = samples[v].mask_cap > most ? samples[v].mask_cap : most;
    a.rows = cpu_scratch(dev, (size_t)most * sizeof *a.rows, err);
    if (!a.rows)
        return -ENOMEM;
    for (int v = 0; v < nshards; v++) {
        const int32_t *offset = samples[v].mask_offset;
        size_t first = first_image(images, v);

        a.v = v;
        threads_each(cpu_threads(dev), (size_t)samples[v].mask_cap, loss_row, &a);
        for (int i = 0; by_image && i < images[v].n; i++)
            rcnn_mask_finish(terms[first + (size_t)i], sum_in_lanes(a.rows + offset[i], 1, offset[i + 1] - offset[i]),
                             offset[i + 1] - offset[i], rcnn_mask_cells(head));
        if (!by_image)
            rcnn_mask_finish(terms[v], sum_in_lanes(a.rows, 1, offset[images[v].n]), offset[images[v].n], rcnn_mask_cells(head));
    }
    return 0;
}

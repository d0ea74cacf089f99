/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/made_up.h - a shard of the task "instances" with artificial
 * pictures: noise with rectangular objects. The peers draw the same (made_up.py). */
#pragma once
#include "tests/bench/bench.h"
#include "tests/bench/device_memory.h"
#include "worker/data/sample/instances.h"

enum { MADE_UP_OBJECTS = 7 }; /* of a picture: COCO's have about as many */

/* Object k of all pictures: x1, y1, x2, y2, whole pixels; a side has a sixteenth of the height at least, half of the
 * picture's at most. Returns its class. */
static inline int made_up_object(int k, struct canvas c, int classes, int ret_box[4])
{
    uint32_t at = 5 * (uint32_t)k;
    int least = c.h / 16, w = least + (int)(bench_uniform(at) * (c.w / 2 - least + 1)),
        h = least + (int)(bench_uniform(at + 1) * (c.h / 2 - least + 1));

    ret_box[0] = (int)(bench_uniform(at + 2) * (c.w - w + 1));
    ret_box[1] = (int)(bench_uniform(at + 3) * (c.h - h + 1));
    ret_box[2] = ret_box[0] + w;
    ret_box[3] = ret_box[1] + h;
    return (int)(bench_uniform(at + 4) * classes);
}

/* The rectangle as run lengths down the columns of a picture h high and w wide; ret: NULL counts only. Returns how
 * many. */
static inline int made_up_runs(const int box[4], struct canvas c, int32_t *ret)
{
    int n = 0, high = box[3] - box[1], end = (c.w - box[2]) * c.h + c.h - box[3];

    for (int x = box[0]; x < box[2]; x++, n += 2)
        if (ret) {
            ret[n] = x == box[0] ? x * c.h + box[1] : c.h - high;
            ret[n + 1] = high;
        }
    if (end > 0 && ret)
        ret[n] = end;
    return n + (end > 0);
}

/* The objects of a shard before they go to the device. */
struct made_up {
    int n;
    int32_t *cls, *each, *polygon, *point, *run, *none, *length; /* [n]; truth's offsets, then of each object's, [n + 1]; run lengths */
    float (*box)[4];
    double (*xy)[4][2];
};

static inline void made_up_fill(struct made_up *m, int first, int images, struct canvas c, int classes)
{
    int runs = 0;

    m->n = images * MADE_UP_OBJECTS;
    m->cls = calloc((size_t)m->n, sizeof *m->cls);
    m->each = calloc((size_t)images + 1, sizeof *m->each);
    m->polygon = calloc((size_t)m->n + 1, sizeof *m->polygon);
    m->point = calloc((size_t)m->n + 1, sizeof *m->point);
    m->run = calloc((size_t)m->n + 1, sizeof *m->run);
    m->none = calloc((size_t)m->n + 1, sizeof *m->none);
    m->length = calloc((size_t)m->n * ((size_t)c.w + 1), sizeof *m->length);
    m->box = calloc((size_t)m->n, sizeof *m->box);
    m->xy = calloc((size_t)m->n, sizeof *m->xy);
    for (int i = 0; i <= images; i++)
        m->each[i] = i * MADE_UP_OBJECTS;
    for (int k = 0; k < m->n; k++) {
        int box[4];

        m->cls[k] = made_up_object(first * MADE_UP_OBJECTS + k, c, classes, box);
        for (int i = 0; i < 4; i++) {
            m->box[k][i] = (float)box[i];
            m->xy[k][i][0] = box[i == 1 || i == 2 ? 2 : 0];
            m->xy[k][i][1] = box[i >= 2 ? 3 : 1];
        }
        runs += made_up_runs(box, c, m->length + runs);
        m->run[k + 1] = runs;
        m->polygon[k + 1] = k + 1;
        m->point[k + 1] = 4 * (k + 1);
    }
}

static inline void made_up_free(struct made_up *m)
{
    void *all[] = { m->cls, m->each, m->polygon, m->point, m->run, m->none, m->length, m->box, m->xy };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static inline void *made_up_pictures(struct device *dev, int first, int images, struct canvas c)
{
    size_t each = (size_t)c.h * (size_t)c.w * 3, bytes = (size_t)images * each;
    uint8_t *host = malloc(bytes);
    void *mem;

    for (size_t i = 0; i < bytes; i++)
        host[i] = (uint8_t)(bench_noise((uint32_t)((size_t)first * each + i)) >> 24);
    mem = bench_device_memory(dev, host, bytes);
    free(host);
    return mem;
}

/* Images first, first + 1, ... of that canvas, each as large as it. Masks are runs, or else polygons. Its memory is the
 * device's, for good. */
static inline struct shard_batch made_up_instances(struct device *dev, int shard, int first, int images, struct canvas c, int classes,
                                                   bool runs)
{
    const struct batch_form *f = task_instances.form;
    struct shard_batch s = { .shard = shard, .n = images, .canvas = c };
    int32_t *size = calloc(2 * (size_t)images, sizeof *size), *index = calloc((size_t)images, sizeof *index);
    struct made_up m;
    size_t offsets;

    made_up_fill(&m, first, images, c, classes);
    offsets = ((size_t)m.n + 1) * sizeof *m.run;
    for (int i = 0; i < images; i++) {
        size[2 * i] = c.h;
        size[2 * i + 1] = c.w;
        index[i] = first + i;
    }
    s.index = index;
    s.array[batch_array_of(f, "image")] = made_up_pictures(dev, first, images, c);
    s.array[batch_array_of(f, "size")] = bench_device_memory(dev, size, 2 * (size_t)images * sizeof *size);
    s.array[batch_array_of(f, "truth.class")] = bench_device_memory(dev, m.cls, (size_t)m.n * sizeof *m.cls);
    s.array[batch_array_of(f, "truth.box")] = bench_device_memory(dev, m.box, (size_t)m.n * sizeof *m.box);
    s.array[batch_array_of(f, "run.length")] = bench_device_memory(dev, m.length, ((size_t)m.run[m.n] + 1) * sizeof *m.length);
    s.array[batch_array_of(f, "point.xy")] = bench_device_memory(dev, m.xy, (size_t)m.n * sizeof *m.xy);
    s.offset[batch_list_of(f, "truth")] = bench_device_memory(dev, m.each, ((size_t)images + 1) * sizeof *m.each);
    s.offset[batch_list_of(f, "run")] = bench_device_memory(dev, runs ? m.run : m.none, offsets);
    s.offset[batch_list_of(f, "polygon")] = bench_device_memory(dev, runs ? m.none : m.polygon, offsets);
    s.offset[batch_list_of(f, "point")] = bench_device_memory(dev, m.point, offsets);
    s.rows[batch_list_of(f, "truth")] = m.n;
    s.rows[batch_list_of(f, "run")] = runs ? m.run[m.n] : 0;
    s.rows[batch_list_of(f, "polygon")] = runs ? 0 : m.n;
    s.rows[batch_list_of(f, "point")] = runs ? 0 : 4 * m.n;
    free(size);
    made_up_free(&m);
    return s;
}

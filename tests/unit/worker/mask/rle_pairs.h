/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/mask/rle_pairs.h - masks read from text, their area, and
 * the overlap of two masks, run by run: worker/eval/boxes/coco_masks.c computes the same in its own way. */
#pragma once
#include "proto/err.h"
#include "worker/mask/rle.h"

/* The compressed form: text[len], no terminator needed. */
static inline int rle_from_text(struct rle *m, int64_t h, int64_t w, const char *text, size_t len, struct err *err)
{
    const char *end = text + len;
    int rc = rle_begin(m, h, w, err);

    while (rc == 0 && text < end) {
        int64_t v;

        if (!rle_text_number(&text, end, &v))
            return err_set(err, ERR_DATA, "the run string is malformed");
        rc = rle_add(m, m->n > 2 ? v + m->run[m->n - 2] : v, err);
    }
    return rc < 0 ? rc : rle_end(m, err);
}

/* Pixels. */
static inline int64_t rle_area(const struct rle *m)
{
    int64_t area = 0;

    for (size_t i = 1; i < m->n; i += 2)
        area += m->run[i];
    return area;
}

/* Reads runs; where a mask ends there are 0 without end. */
struct rle_reader {
    const struct rle *m;
    size_t next;
    int32_t left; /* of the run it is in */
    bool set;
};

static inline void rle_settle(struct rle_reader *r)
{
    while (r->left == 0 && r->next < r->m->n) {
        r->left = r->m->run[r->next];
        r->set = r->next++ % 2;
    }
}

static inline struct rle_reader rle_reader_begin(const struct rle *m)
{
    struct rle_reader r = { .m = m };

    rle_settle(&r);
    return r;
}

/* The number of pixels over which both stay unchanged. */
static inline int32_t rle_stretch(const struct rle_reader *a, const struct rle_reader *b)
{
    return a->left < b->left ? a->left : b->left;
}

static inline void rle_forward(struct rle_reader *r, int32_t by)
{
    r->left -= by;
    rle_settle(r);
}

/* Pixels of both; 0 where sizes differ. */
static inline int64_t rle_common(const struct rle *a, const struct rle *b)
{
    struct rle_reader p = rle_reader_begin(a), q = rle_reader_begin(b);
    int64_t common = 0;
    int32_t len;

    if (a->h != b->h || a->w != b->w)
        return 0;
    while ((len = rle_stretch(&p, &q)) > 0) {
        if (p.set && q.set)
            common += len;
        rle_forward(&p, len);
        rle_forward(&q, len);
    }
    return common;
}

/* Intersection over union; with `crowd`, over the detection alone; 0 where they do not meet, -1 where sizes differ. */
static inline double rle_overlap(const struct rle *det, const struct rle *truth, bool crowd)
{
    int64_t common = rle_common(det, truth), all = rle_area(det);

    if (det->h != truth->h || det->w != truth->w)
        return -1;
    if (!crowd)
        all += rle_area(truth) - common;
    return common > 0 ? (double)common / (double)all : 0;
}

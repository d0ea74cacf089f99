/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv_forms.c - see conv_forms.h. */
#include "worker/cpu/conv_forms.h"

#include "worker/core/simd.h"
#include "worker/cpu/gemm.h"

static size_t panel_count(int outputs)
{
    return (size_t)(outputs + GEMM_NP - 1) / GEMM_NP;
}

/* ---- phases ---- */

static struct phase_axis phase_axis(int phase, int size, int pad, int stride, int length)
{
    struct phase_axis a = { .count = (length - phase + stride - 1) / stride };
    int top = phase + pad, r = size - 1 - ((size - 1 - top) % stride + stride) % stride; /* the largest tap with (top - r) % stride == 0 */

    if (r < 0)
        return a;
    a.last = r;
    a.taps = r / stride + 1;
    a.off = (top - r) / stride;
    return a;
}

void phase_axes(const struct conv_call *q, int phase, struct phase_axis *ret_y, struct phase_axis *ret_x)
{
    *ret_y = phase_axis(phase / q->stride, q->w->r, q->pad, q->stride, q->y->h);
    *ret_x = phase_axis(phase % q->stride, q->w->s, q->pad, q->stride, q->y->w);
}

struct rows phase_taps(const struct conv_call *q, const struct phase_axis *y, const struct phase_axis *x)
{
    return (struct rows){ .taps_y = x->taps ? y->taps : 0, .taps_x = y->taps ? x->taps : 0, .stride = 1, .c = q->w->k, .k = q->w->c };
}

size_t phase_floats(const struct conv_call *q, const struct rows *taps)
{
    struct tiles t = tiles_of(taps);

    if (q->y->dtype == DTYPE_BF16)
        return tiles_weights(&t, taps->k);
    return panel_count(taps->k) * GEMM_NP * (size_t)(taps->taps_y * taps->taps_x) * (size_t)taps->c;
}

static size_t back_floats(const struct conv_call *q)
{
    size_t floats = 0;

    for (int phase = 0; phase < q->stride * q->stride; phase++) {
        struct phase_axis y, x;
        struct rows taps;

        phase_axes(q, phase, &y, &x);
        taps = phase_taps(q, &y, &x);
        floats += phase_floats(q, &taps);
    }
    return floats;
}

/* ---- in fp32 ---- */

struct pack {
    const struct param *w;
    float *dst;
    int stride, taps_y, taps_x, r0, s0; /* back: tap (t, u) of this phase is w's (r0 - t * stride, s0 - u * stride) */
};

static void pack_fwd(void *arg, size_t panel, int thread)
{
    const struct pack *a = arg;
    int first = (int)panel * GEMM_NP, depth = a->w->r * a->w->s * a->w->c, outs = a->w->k - first;
    float *dst = a->dst + panel * (size_t)depth * GEMM_NP;

    (void)thread;
    for (int d = 0; d < depth; d += VW)
        for (int k = 0; k < GEMM_NP; k += VW) {
            vec t[VW];

            for (int i = 0; i < VW; i++)
                t[i] = k + i < outs ? vload_n(a->w->data + (long)(first + k + i) * depth + d, vlanes(depth, d)) : vset1(0.0f);
            vtranspose(t);
            for (int i = 0; i < vlanes(depth, d); i++)
                vstore(dst + (long)(d + i) * GEMM_NP + k, t[i]);
        }
}

static void pack_back(void *arg, size_t panel, int thread)
{
    const struct pack *a = arg;
    const struct param *w = a->w;
    int first = (int)panel * GEMM_NP;
    float *dst = a->dst + panel * (size_t)(a->taps_y * a->taps_x) * (size_t)w->k * GEMM_NP;

    (void)thread;
    for (int t = 0; t < a->taps_y; t++)
        for (int u = 0; u < a->taps_x; u++)
            for (int k = 0; k < w->k; k++, dst += GEMM_NP) {
                const float *from = w->data + (((long)k * w->r + a->r0 - t * a->stride) * w->s + a->s0 - u * a->stride) * w->c + first;

                for (int v = 0; v < GEMM_NP; v += VW)
                    vstore(dst + v, first + v < w->c ? vload_n(from + v, vlanes(w->c, first + v)) : vset1(0.0f));
            }
}

/* ---- in bf16 ---- */

struct pack_tiles {
    struct rows taps; /* of a phase; t points here */
    struct tiles t;
    struct tiles_numbers numbers;
    int outputs;
    uint16_t *all;
};

static void pack_tiles_unit(void *arg, size_t unit, int thread)
{
    const struct pack_tiles *a = arg;

    (void)thread;
    tiles_pack_weights(&a->t, (int)unit, a->outputs, &a->numbers, a->all, false);
}

static void pack_tiles(const struct conv_call *q, struct pack_tiles *a)
{
    threads_each(cpu_threads(q->dev), (size_t)tiles_weight_units(&a->t, a->outputs, &a->numbers), pack_tiles_unit, a);
}

static struct tiles_numbers fwd_numbers(const struct param *w)
{
    const long row = (long)w->s * w->c;

    return (struct tiles_numbers){ w->data, row, w->c, 1, row * w->r };
}

static struct tiles_numbers back_numbers(const struct param *w, int stride, int r0, int s0)
{
    const long row = (long)w->s * w->c;

    return (struct tiles_numbers){ w->data + r0 * row + (long)s0 * w->c, -stride * row, -(long)stride * w->c, row * w->r, 1 };
}

/* Fills in *ret for packing a phase. It must already be in its final place, since t points into it. */
static void phase_tiles(const struct conv_call *q, int phase, float *dst, struct pack_tiles *ret)
{
    struct phase_axis y, x;

    phase_axes(q, phase, &y, &x);
    *ret = (struct pack_tiles){ .taps = phase_taps(q, &y, &x), .outputs = q->w->c, .all = (uint16_t *)(void *)dst };
    ret->numbers = back_numbers(q->w, q->stride, y.last, x.last);
    ret->t = tiles_of(&ret->taps);
}

enum { PHASES = 4 }; /* phases of stride 2; for larger strides backward-data packs by itself */

/* Forms for forward and, for `phases` phases, backward. Backward has a block for each panel of 32 outputs. */
struct both {
    struct pack_tiles fwd, back[PHASES];
    int phases;
};

static void both_unit(void *arg, size_t panel, int thread)
{
    const struct both *a = arg;

    (void)thread;
    tiles_pack_weights(&a->fwd.t, (int)panel, a->fwd.outputs, &a->fwd.numbers, a->fwd.all, false);
    for (int i = 0; i < a->phases; i++)
        tiles_pack_weights(&a->back[i].t, (int)panel, a->back[i].outputs, &a->back[i].numbers, a->back[i].all, true);
    if (a->phases > 0)
        vstream_end();
}

static struct form_key back_key(const struct conv_call *q)
{
    return (struct form_key){ q->y->dtype == DTYPE_BF16 ? FORM_TILES_BACK : FORM_ROWS_BACK, q->stride, q->pad };
}

/* Reads the weights once for both directions. If backward-data has asked for its form before, that is written past the
 * caches: it is read only after the forward passes of all other layers. */
static void pack_both(const struct conv_call *q, const struct tiles *t, float *dst)
{
    struct both a = { .fwd = { .t = *t, .numbers = fwd_numbers(q->w), .outputs = q->w->k, .all = (uint16_t *)(void *)dst } };
    const struct form_key key = back_key(q);
    float *back = NULL;

    if (q->w->k >= TILE_BLOCK && q->stride * q->stride <= PHASES) /* blocks for backward are of 32 outputs */
        back = cpu_form_due(q->w, &key, back_floats(q));
    for (; back && a.phases < q->stride * q->stride; a.phases++) {
        phase_tiles(q, a.phases, back, &a.back[a.phases]);
        back += phase_floats(q, &a.back[a.phases].taps);
    }
    threads_each(cpu_threads(q->dev), panel_count(q->w->k), both_unit, &a);
}

/* ---- forms ---- */

const float *form_fwd(const struct conv_call *q, const struct tiles *t, struct err *err)
{
    const struct param *w = q->w;
    const struct form_key key = { t ? FORM_TILES_FWD : FORM_ROWS_FWD, 0, 0 };
    bool stale;
    struct pack pack = { .w = w };

    pack.dst = cpu_form(q->w, &key, t ? tiles_weights(t, w->k) : panel_count(w->k) * GEMM_NP * (size_t)(w->r * w->s * w->c), &stale, err);
    if (pack.dst && stale && t)
        pack_both(q, t, pack.dst);
    else if (pack.dst && stale)
        threads_each(cpu_threads(q->dev), panel_count(w->k), pack_fwd, &pack);
    return pack.dst;
}

static void pack_phase(const struct conv_call *q, int phase, float *dst)
{
    struct phase_axis y, x;
    struct pack pack = { .w = q->w, .dst = dst, .stride = q->stride };

    phase_axes(q, phase, &y, &x);
    pack.taps_y = y.taps;
    pack.taps_x = x.taps;
    pack.r0 = y.last;
    pack.s0 = x.last;
    threads_each(cpu_threads(q->dev), panel_count(q->w->c), pack_back, &pack);
}

const float *form_back(const struct conv_call *q, struct err *err)
{
    const struct form_key key = back_key(q);
    bool stale;
    float *all = cpu_form(q->w, &key, back_floats(q), &stale, err), *dst = all;

    for (int phase = 0; all && stale && phase < q->stride * q->stride; phase++) {
        struct pack_tiles a;

        phase_tiles(q, phase, dst, &a);
        if (a.taps.taps_y > 0 && key.kind == FORM_TILES_BACK)
            pack_tiles(q, &a);
        else if (a.taps.taps_y > 0)
            pack_phase(q, phase, dst);
        dst += phase_floats(q, &a.taps);
    }
    return all;
}

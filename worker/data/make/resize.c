/* SPDX-License-Identifier: Apache-2.0 */ /* Pictures to other sizes. Each row of the result needs a few rows of the
 * picture, already resized to the new width. A ring keeps these, so memory is a few rows for any size. Inner loops are
 * compiled for AVX2 and for any processor, with the same bits: they use integers, or floats that are neither contracted
 * nor reassociated. The pragma is needed: -O2 leaves these loops scalar. */
#pragma GCC optimize("O3")
#include "worker/data/make/resize.h"
#include "worker/kernels/math.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif
#include <math.h>
#include <string.h>

#define INNER static inline __attribute__((always_inline))

enum { BITS = 22, SLACK = 64 };

/* ---- sizes ---- */

static int at_least_one(double v, int longest)
{
    return v < 1 ? 1 : v > longest ? longest : (int)v;
}

static struct canvas target_d2(int h, int w, int shorter, int longest)
{
    double c = (double)shorter / (h < w ? h : w), nh = h < w ? shorter : c * h, nw = h < w ? c * w : shorter, most = nh > nw ? nh : nw;

    if (most > longest) {
        double less = (double)longest / most;

        nh *= less;
        nw *= less;
    }
    return (struct canvas){ at_least_one(nh + 0.5, longest), at_least_one(nw + 0.5, longest) };
}

/* A product slightly below `shorter` is cut to one less, as in the reference. */
static struct canvas target_tv(int h, int w, int shorter, int longest)
{
    double a = (double)shorter / (h < w ? h : w), b = (double)longest / (h < w ? w : h), c = a < b ? a : b;

    return (struct canvas){ at_least_one(floor(h * c), longest), at_least_one(floor(w * c), longest) };
}

struct canvas resize_target(enum resize_rule rule, int h, int w, int shorter, int longest)
{
    return (rule == RESIZE_TV ? target_tv : target_d2)(h, w, shorter, longest);
}

/* ---- masks ---- */

static int nearest(enum resize_rule rule, int u, int from, int to)
{
    float f;
    int i;

    if (rule == RESIZE_D2)
        return (int)((2 * (int64_t)u + 1) * from / (2 * (int64_t)to));
    f = (float)u * ((float)from / (float)to);
    i = (int)f;
    return i < from - 1 ? i : from - 1;
}

int resize_nearest_row(const struct resizing *z, int u)
{
    return nearest(z->rule, u, z->h, z->to.h);
}

int resize_nearest_column(const struct resizing *z, int t)
{
    if (!z->flip)
        return nearest(z->rule, t, z->w, z->to.w);
    if (z->rule == RESIZE_TV)
        return z->w - 1 - nearest(z->rule, t, z->w, z->to.w);
    return nearest(z->rule, z->to.w - 1 - t, z->w, z->to.w);
}

/* ---- fixed point: an axis ---- */

/* For each place of the result: its first source pixel, the number of pixels, and their weights. */
struct axis {
    int taps; /* room for weights of each place */
    int32_t *first, *count, *weight;
};

/* A smoothing filter. reach: to either side, in pixels of the result if the picture shrinks. */
struct filter {
    int reach;
    double (*at)(double x);
};

static double triangle(double x)
{
    double a = x < 0 ? -x : x;

    return a < 1 ? 1 - a : 0;
}

/* sin(pi * x) */
static double sine(double x)
{
    double u = x / 2 - 0.25;

    return math_cos_turns64(u - floor(u));
}

/* sinc(x) sinc(x / 3) */
static double lanczos3(double x)
{
    static const double pi_squared = 9.869604401089358;

    if (x == 0)
        return 1;
    return x > -3 && x < 3 ? 3 * sine(x) * sine(x / 3) / (pi_squared * x * x) : 0;
}

static const struct filter *filter_of(enum resize_rule rule)
{
    static const struct filter two_sides = { 1, triangle }, lobes = { 3, lanczos3 };

    return rule == RESIZE_LANCZOS ? &lobes : &two_sides;
}

static int taps_of(const struct filter *f, int from, int to)
{
    double step = (double)from / to;

    return (int)ceil(f->reach * (step < 1 ? 1 : step)) * 2 + 1;
}

static size_t axis_words(const struct filter *f, int from, int to)
{
    return (size_t)to * ((size_t)taps_of(f, from, to) + 2);
}

static int32_t *axis_lay_out(struct axis *a, const struct filter *f, int from, int to, int32_t *memory)
{
    a->taps = taps_of(f, from, to);
    a->first = memory;
    a->count = a->first + to;
    a->weight = a->count + to;
    return a->weight + (size_t)to * (size_t)a->taps;
}

static int32_t fixed(double weight)
{
    return (int32_t)((weight < 0 ? -0.5 : 0.5) + weight * (1 << BITS));
}

static void axis_place(struct axis *a, const struct filter *f, int from, int to, int t)
{
    double step = (double)from / to, wide = step < 1 ? 1 : step, reach = f->reach * wide, narrow = 1 / wide, c = (t + 0.5) * step, sum = 0;
    int lo = (int)(c - reach + 0.5), hi = (int)(c + reach + 0.5);
    int32_t *k = a->weight + (size_t)t * (size_t)a->taps;

    lo = lo < 0 ? 0 : lo;
    hi = hi > from ? from : hi;
    a->first[t] = lo;
    a->count[t] = hi - lo;
    for (int i = lo; i < hi; i++)
        sum += f->at((i - c + 0.5) * narrow);
    for (int i = lo; i < hi; i++)
        k[i - lo] = fixed(f->at((i - c + 0.5) * narrow) / sum);
}

static void axis_fill(struct axis *a, const struct filter *f, int from, int to)
{
    for (int t = 0; t < to; t++)
        axis_place(a, f, from, to, t);
}

/* ---- fixed point: a picture ---- */

struct work {
    struct axis across, down;
    uint8_t *ring; /* [rows] of `row` bytes: rows of the picture in the new width */
    int rows;
    size_t row;
    int have; /* rows of the picture put into the ring so far */
};

static size_t row_bytes(const struct resizing *z)
{
    return ((size_t)z->to.w * 3 + SLACK - 1) / SLACK * SLACK;
}

static size_t padded_words(size_t words)
{
    return (words * sizeof(int32_t) + SLACK - 1) / SLACK * SLACK;
}

static size_t tables_bytes(const struct resizing *z)
{
    const struct filter *f = filter_of(z->rule);

    return padded_words(axis_words(f, z->w, z->to.w) + axis_words(f, z->h, z->to.h));
}

static void lay_out(struct work *k, const struct resizing *z, void *scratch)
{
    const struct filter *f = filter_of(z->rule);
    int32_t *rest = axis_lay_out(&k->across, f, z->w, z->to.w, scratch);

    axis_lay_out(&k->down, f, z->h, z->to.h, rest);
    k->rows = k->down.taps;
    k->row = row_bytes(z);
    k->ring = (uint8_t *)scratch + tables_bytes(z);
    k->have = 0;
    axis_fill(&k->across, f, z->w, z->to.w);
    axis_fill(&k->down, f, z->h, z->to.h);
}

INNER uint8_t to_byte(int32_t sum)
{
    int32_t v = sum >> BITS;

    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

INNER void widen_pixel(const struct axis *a, const uint8_t *row, int t, uint8_t *out)
{
    const int32_t *k = a->weight + (size_t)t * (size_t)a->taps;
    const uint8_t *p = row + (size_t)a->first[t] * 3;
    int32_t r = 1 << (BITS - 1), g = r, b = r;

    for (int i = 0; i < a->count[t]; i++, p += 3) {
        r += k[i] * p[0];
        g += k[i] * p[1];
        b += k[i] * p[2];
    }
    out[0] = to_byte(r);
    out[1] = to_byte(g);
    out[2] = to_byte(b);
}

static void widen_row_any(const struct axis *a, const struct resizing *z, const uint8_t *row, uint8_t *out)
{
    for (int t = 0; t < z->to.w; t++)
        widen_pixel(a, row, t, out + (size_t)(z->flip ? z->to.w - 1 - t : t) * 3);
}

#ifdef __x86_64__
/* Computes three colours at once, and reads one byte of the next pixel, which must exist. */
__attribute__((target("avx2"))) static inline void widen_pixel_avx2(const struct axis *a, const uint8_t *row, int t, uint8_t *out)
{
    const int32_t *k = a->weight + (size_t)t * (size_t)a->taps;
    const uint8_t *p = row + (size_t)a->first[t] * 3;
    __m128i sum = _mm_set1_epi32(1 << (BITS - 1));
    uint32_t pixel;

    for (int i = 0; i < a->count[t]; i++, p += 3) {
        memcpy(&pixel, p, sizeof pixel);
        sum = _mm_add_epi32(sum, _mm_mullo_epi32(_mm_cvtepu8_epi32(_mm_cvtsi32_si128((int)pixel)), _mm_set1_epi32(k[i])));
    }
    sum = _mm_srai_epi32(sum, BITS);
    sum = _mm_packus_epi16(_mm_packus_epi32(sum, sum), sum);
    pixel = (uint32_t)_mm_cvtsi128_si32(sum);
    memcpy(out, &pixel, 3);
}

__attribute__((target("avx2"))) static void widen_row_avx2(const struct axis *a, const struct resizing *z, const uint8_t *row, uint8_t *out)
{
    int t = 0;

    for (; t < z->to.w && a->first[t] + a->count[t] < z->w; t++)
        widen_pixel_avx2(a, row, t, out + (size_t)(z->flip ? z->to.w - 1 - t : t) * 3);
    for (; t < z->to.w; t++)
        widen_pixel(a, row, t, out + (size_t)(z->flip ? z->to.w - 1 - t : t) * 3);
}
#endif

typedef void widen_fn(const struct axis *a, const struct resizing *z, const uint8_t *row, uint8_t *out);

enum { BLOCK = 64 };

/* Bytes from .. from + n - 1 of row u. n is BLOCK except at the end of a row, so that the sums stay in registers. */
INNER void sum_rows(const struct work *k, int u, size_t from, size_t n, uint8_t *out)
{
    const int32_t *weight = k->down.weight + (size_t)u * (size_t)k->down.taps;
    int32_t sum[BLOCK];

    for (size_t j = 0; j < n; j++)
        sum[j] = 1 << (BITS - 1);
    for (int i = 0; i < k->down.count[u]; i++) {
        const uint8_t *p = k->ring + (size_t)((k->down.first[u] + i) % k->rows) * k->row + from;

        for (size_t j = 0; j < n; j++)
            sum[j] += weight[i] * p[j];
    }
    for (size_t j = 0; j < n; j++)
        out[from + j] = to_byte(sum[j]);
}

INNER void make_row(struct work *k, widen_fn *widen, const struct resizing *z, const uint8_t *rgb, int u, uint8_t *out)
{
    size_t bytes = (size_t)z->to.w * 3, from = 0;

    for (; k->have < k->down.first[u] + k->down.count[u]; k->have++)
        widen(&k->across, z, rgb + (size_t)k->have * (size_t)z->w * 3, k->ring + (size_t)(k->have % k->rows) * k->row);
    for (; from + BLOCK <= bytes; from += BLOCK)
        sum_rows(k, u, from, BLOCK, out);
    sum_rows(k, u, from, bytes - from, out);
}

/* ---- four neighbours in float32 ---- */

struct pair {
    int32_t a, b; /* the two neighbours */
    float of_b;   /* weight of the second */
};

static void pairs_fill(struct pair *p, int from, int to, bool flip, int apart)
{
    float step = (float)from / (float)to;

    for (int t = 0; t < to; t++) {
        float f = step * ((float)t + 0.5f) - 0.5f;
        int a = (int)(f < 0 ? 0 : f), b;

        a = a < from - 1 ? a : from - 1;
        b = a < from - 1 ? a + 1 : a;
        p[t].of_b = f < 0 ? 0 : f - (float)a;
        p[t].a = (flip ? from - 1 - a : a) * apart;
        p[t].b = (flip ? from - 1 - b : b) * apart;
    }
}

static uint8_t nearest_byte(float v)
{
    return (uint8_t)(v + 0.5f);
}

INNER void blend_row(const struct pair *across, const struct pair *down, const struct resizing *z, const uint8_t *rgb, uint8_t *out)
{
    const uint8_t *above = rgb + (size_t)down->a * (size_t)z->w * 3, *below = rgb + (size_t)down->b * (size_t)z->w * 3;
    float v1 = down->of_b, v0 = 1 - v1;

    for (int t = 0; t < z->to.w; t++) {
        const struct pair *p = &across[t];
        float u1 = p->of_b, u0 = 1 - u1;

        for (int c = 0; c < 3; c++) {
            float top = (float)above[p->a + c] * u0 + (float)above[p->b + c] * u1;
            float bottom = (float)below[p->a + c] * u0 + (float)below[p->b + c] * u1;

            out[t * 3 + c] = nearest_byte(top * v0 + bottom * v1);
        }
    }
}

INNER void blend(const struct resizing *z, const uint8_t *rgb, uint8_t *out, size_t pitch, void *scratch)
{
    struct pair *across = scratch, *down = across + z->to.w;

    pairs_fill(across, z->w, z->to.w, z->flip, 3);
    pairs_fill(down, z->h, z->to.h, false, 1);
    for (int u = 0; u < z->to.h; u++)
        blend_row(across, &down[u], z, rgb, out + (size_t)u * pitch);
}

/* ---- both ---- */

size_t resize_scratch(const struct resizing *z)
{
    if (z->rule == RESIZE_TV)
        return ((size_t)z->to.w + (size_t)z->to.h) * sizeof(struct pair);
    return tables_bytes(z) + (size_t)taps_of(filter_of(z->rule), z->h, z->to.h) * row_bytes(z);
}

INNER void resize_with(widen_fn *widen, const struct resizing *z, const uint8_t *rgb, uint8_t *out, size_t pitch, void *scratch)
{
    struct work k;

    if (z->rule == RESIZE_TV) {
        blend(z, rgb, out, pitch, scratch);
        return;
    }
    lay_out(&k, z, scratch);
    for (int u = 0; u < z->to.h; u++)
        make_row(&k, widen, z, rgb, u, out + (size_t)u * pitch);
}

void resize_any(const struct resizing *z, const uint8_t *rgb, uint8_t *out, size_t pitch, void *scratch)
{
    resize_with(widen_row_any, z, rgb, out, pitch, scratch);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void resize_avx2(const struct resizing *z, const uint8_t *rgb, uint8_t *out, size_t pitch,
                                                        void *scratch)
{
    resize_with(widen_row_avx2, z, rgb, out, pitch, scratch);
}
#define HAVE_AVX2 __builtin_cpu_supports("avx2")
#else
#define resize_avx2 resize_any
#define HAVE_AVX2   0
#endif

void resize(const struct resizing *z, const uint8_t *rgb, uint8_t *out, size_t pitch, void *scratch)
{
    (HAVE_AVX2 ? resize_avx2 : resize_any)(z, rgb, out, pitch, scratch);
}

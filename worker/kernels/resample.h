/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/resample.h - values at another resolution: nearest-neighbour
 * upsampling by a whole factor, out(y, x) = in(y / factor, x / factor); pixels mirrored around; bilinear. */
#pragma once
#include "worker/kernels/act.h"
#include "worker/ops/resample.h"

/* Sum of the factor^2 outputs of input (y, x), one chain in row-major order. dy points to the channel in output pixel
 * (0, 0) of the image. */
KERNEL_FN float upsample_grad(const float *dy, int stride, int ow, int factor, int y, int x)
{
    float sum = 0.0f;

    for (int i = 0; i < factor; i++)
        for (int j = 0; j < factor; j++)
            sum += dy[((size_t)(y * factor + i) * (size_t)ow + (size_t)(x * factor + j)) * (size_t)stride];
    return sum;
}

/* ---- mirrored ---- */

/* Along one axis of n pixels: the pixel that output i reads. */
KERNEL_FN int mirror_source(const struct mirror *m, int n, int i)
{
    int last = n * m->factor - 1, at = i - m->pad;

    at = at < 0 ? -at : at;
    at = at > last ? 2 * last - at : at;
    return at / m->factor;
}

enum { MIRROR_MOST = 3 * MIRROR_MAX_FACTOR };

/* The outputs that read pixel i, ascending; returns how many. */
KERNEL_FN int mirror_readers(const struct mirror *m, int n, int i, int ret[MIRROR_MOST])
{
    int first = i * m->factor, end = first + m->factor, last = n * m->factor - 1, count = 0;

    for (int r = end - 1; r >= first; r--)
        if (r >= 1 && r <= m->pad)
            ret[count++] = m->pad - r;
    for (int r = first; r < end; r++)
        ret[count++] = m->pad + r;
    for (int r = end - 1; r >= first; r--)
        if (r < last && r >= last - m->pad)
            ret[count++] = m->pad + 2 * last - r;
    return count;
}

/* ---- bilinear ---- */

/* Between pixels lo and hi, hi's share being f. */
struct between {
    int lo, hi;
    float f;
};

/* Whole numbers give the place of output i of `out` among `in` pixels, the same everywhere. */
KERNEL_FN struct between between_of(int in, int out, int i)
{
    int64_t at = (int64_t)(2 * i + 1) * in - out, unit = 2 * (int64_t)out;
    struct between b;

    at = at < 0 ? 0 : at;
    b.lo = (int)(at / unit);
    b.f = (float)(at % unit) / (float)unit;
    b.hi = b.lo + 1 < in ? b.lo + 1 : b.lo;
    return b;
}

KERNEL_FN float between_mix(float lo, float hi, float f)
{
    return fmaf(f, hi - lo, lo);
}

/* The share of pixel j in output i, which lies at b. */
KERNEL_FN float between_share(const struct between *b, int j)
{
    return (b->lo == j ? 1.0f - b->f : 0.0f) + (b->hi == j ? b->f : 0.0f);
}

/* Outputs [from, to) that may read pixel j. */
struct between_readers {
    int from, to;
};

KERNEL_FN struct between_readers between_readers(int in, int out, int j)
{
    /* 2 i + 1 lies within a pixel of it: (2 j - 1) out / in .. (2 j + 3) out / in */
    int64_t from = j > 0 ? ((int64_t)(2 * j - 1) * out / in - 1) / 2 : 0,
            to = j + 1 < in ? ((int64_t)(2 * j + 3) * out / in + 1) / 2 + 1 : out;
    struct between_readers r;

    r.from = from < 0 ? 0 : (int)from;
    r.to = to > out ? out : (int)to;
    return r;
}

/* Gradient of pixel (y, x): the outputs that read it, one chain in row-major order. dy points to the channel in output
 * (0, 0) of the image, oh x ow. */
KERNEL_FN float bilinear_grad(const float *dy, int stride, int h, int w, int oh, int ow, int y, int x)
{
    struct between_readers ry = between_readers(h, oh, y), rx = between_readers(w, ow, x);
    float sum = 0.0f;

    for (int i = ry.from; i < ry.to; i++) {
        struct between by = between_of(h, oh, i);
        float fy = between_share(&by, y);

        if (fy == 0.0f)
            continue;
        for (int j = rx.from; j < rx.to; j++) {
            struct between bx = between_of(w, ow, j);
            float fx = between_share(&bx, x);

            if (fx != 0.0f)
                sum = fmaf(fy * fx, dy[((size_t)i * (size_t)ow + (size_t)j) * (size_t)stride], sum);
        }
    }
    return sum;
}

/* ---- means ---- */

/* factor * sum / pixels; on the way back sum is the gradient. */
KERNEL_FN float mean_of(double sum, size_t pixels, float factor)
{
    return (float)(sum * (double)factor / (double)pixels);
}

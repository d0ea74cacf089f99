/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/norm.h - batch normalisation of one channel. Biased variance
 * normalises, the unbiased one goes into the running value, eps stands inside the root. Source: Ioffe and Szegedy 2015,
 * arXiv:1502.03167; specs yolov3 section 6.5. */
#pragma once
#include "worker/kernels/act.h"
#include "worker/kernels/moments.h"

struct norm_channel {
    float mean, invstd, scale, shift;
};

/* y = fma(x, scale, shift) normalises: scale = gamma * invstd, shift = beta - mean * scale, formed in double. */
KERNEL_FN struct norm_channel norm_channel(double mean, double var, float gamma, float beta, float eps)
{
    struct norm_channel n;

    n.mean = (float)mean;
    n.invstd = (float)(1.0 / sqrt(var + (double)eps));
    n.scale = gamma * n.invstd;
    n.shift = (float)((double)beta - mean * (double)n.scale);
    return n;
}

/* Gradient of the normalised value from that of the activated one. */
KERNEL_FN float norm_dy(float da, float x, float scale, float shift, float slope)
{
    return fmaf(x, scale, shift) > 0.0f ? da : slope * da;
}

KERNEL_FN float norm_xhat(float x, float mean, float invstd)
{
    return (x - mean) * invstd;
}

/* dx = scale * (dy - mean of dy - xhat * mean of dy xhat), the means over all pixels of the group. */
KERNEL_FN float norm_dx(float dy, float xhat, float scale, float mean_dy, float mean_dyxhat)
{
    return scale * fmaf(-xhat, mean_dyxhat, dy - mean_dy);
}

/* Pixels of a slab of the backward sums: each slab is one fp32 chain per channel, slabs add pairwise in double. Depends
 * on the number of channels alone, so results depend on neither batch nor threads. 16384 numbers: two such arrays fit a
 * second-level cache. */
KERNEL_FN int norm_slab_pixels(int c)
{
    int p = 16384 / c;

    return p < 16 ? 16 : p > 512 ? 512 : p;
}

/* One channel's sums over the pixels [from, to) of a slab: sum dy and sum dy * xhat. x and da point to the channel of
 * pixel 0. */
KERNEL_FN void norm_slab(float ret[2], const float *x, int x_stride, const float *da, int da_stride, int from, int to, float scale,
                         float shift, float slope, float mean, float invstd)
{
    float s0 = 0.0f, s1 = 0.0f;

    for (int i = from; i < to; i++) {
        float v = x[(size_t)i * (size_t)x_stride];
        float dy = norm_dy(da[(size_t)i * (size_t)da_stride], v, scale, shift, slope);

        s0 += dy;
        s1 = fmaf(dy, norm_xhat(v, mean, invstd), s1);
    }
    ret[0] = s0;
    ret[1] = s1;
}

/* A single pixel has no unbiased variance and gives 0, so that a sum over shards may include it. */
KERNEL_FN double norm_unbiased(double m2, double count)
{
    return count > 1.0 ? m2 / (count - 1.0) : 0.0;
}

/* running = (1 - momentum) * running + momentum * value */
KERNEL_FN float norm_running_value(float running, double value, float momentum)
{
    return (float)((1.0 - (double)momentum) * (double)running + (double)momentum * value);
}

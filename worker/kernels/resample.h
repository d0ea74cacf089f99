/* worker/kernels/resample.h - nearest-neighbour upsampling by a whole factor: out(y, x) = in(y / factor, x / factor). */
#pragma once
#include "worker/kernels/act.h"

/* Sum of the factor^2 outputs of input (y, x), one chain in row-major order. dy points to the channel in output pixel (0, 0) of the image. */
KERNEL_FN float upsample_grad(const float *dy, int stride, int ow, int factor, int y, int x)
{
    float sum = 0.0f;

    for (int i = 0; i < factor; i++)
        for (int j = 0; j < factor; j++)
            sum += dy[((size_t)(y * factor + i) * (size_t)ow + (size_t)(x * factor + j)) * (size_t)stride];
    return sum;
}

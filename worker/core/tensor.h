/* worker/core/tensor.h - a view of numbers in device memory: n images of h x w pixels with c channels (NHWC).
 * A tensor owns nothing; whoever allocated the memory (arena, parameter set, loader) frees it. */
#pragma once
#include <stddef.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_I32, DTYPE_U8 };

/* Element (i, y, x, k) stands at data[((i * h + y) * w + x) * stride + k]. stride >= c; larger where the tensor is a
 * slice of channels of a wider one (concat), or a value whose pixels have a gap at their end (device_stride()). Images
 * and rows are always dense in pixels. */
struct tensor {
    void *data;
    int n, h, w, c;
    int stride;
    enum dtype dtype;
};

static inline size_t tensor_pixels(const struct tensor *t)
{
    return (size_t)t->n * (size_t)t->h * (size_t)t->w;
}

/* Number of elements that belong to the view (not counting the gaps of a slice). */
static inline size_t tensor_count(const struct tensor *t)
{
    return tensor_pixels(t) * (size_t)t->c;
}

static inline size_t dtype_bytes(enum dtype d)
{
    return d == DTYPE_U8 ? 1 : d == DTYPE_BF16 ? 2 : 4;
}

static inline struct tensor tensor_f32(float *data, int n, int h, int w, int c)
{
    return (struct tensor){ data, n, h, w, c, c, DTYPE_F32 };
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/tensor.h - a view of numbers in device memory: n images of h x w pixels with c channels (NHWC).
 * A tensor owns nothing; whoever allocated the memory (arena, parameter set, loader) frees it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_I32, DTYPE_U8, DTYPE_F64 };

/* Element (i, y, x, k) stands at data[((i * h + y) * w + x) * stride + k]. stride >= c; larger where the tensor is a
 * slice of channels of a wider one (concat), or a value whose pixels have a gap at their end (device_stride()). Images
 * and rows are always dense in pixels.
 *
 * Where only the data decides how many images there are (regions of interest), n is room and *rows, in device memory, says how many of them are in
 * use. What lies beyond counts as +0 in every sum: an operation may skip it, as the CPU does, or compute it, and then whoever makes a gradient has
 * written 0 there. Layers hand `rows` on from what they read; numbers beyond it are nobody's to read. */
struct tensor {
    void *data;
    int n, h, w, c;
    int stride;
    enum dtype dtype;
    const int32_t *rows; /* NULL: all images are in use */
};

static inline size_t tensor_pixels(const struct tensor *t)
{
    return (size_t)t->n * (size_t)t->h * (size_t)t->w;
}

/* The images in use of a tensor whose memory the host can read. */
static inline int tensor_rows(const struct tensor *t)
{
    return !t->rows || *t->rows > t->n ? t->n : *t->rows < 0 ? 0 : *t->rows;
}

/* Number of elements that belong to the view (not counting the gaps of a slice). */
static inline size_t tensor_count(const struct tensor *t)
{
    return tensor_pixels(t) * (size_t)t->c;
}

static inline size_t dtype_bytes(enum dtype d)
{
    return d == DTYPE_U8 ? 1 : d == DTYPE_BF16 ? 2 : d == DTYPE_F64 ? 8 : 4;
}

static inline struct tensor tensor_f32(float *data, int n, int h, int w, int c)
{
    return (struct tensor){ .data = data, .n = n, .h = h, .w = w, .c = c, .stride = c, .dtype = DTYPE_F32 };
}

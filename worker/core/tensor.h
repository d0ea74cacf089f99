/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/tensor.h - a view of numbers in device memory: n images of h x
 * w pixels with c channels (NHWC). A tensor owns nothing; the owner of the memory (arena, parameter set, loader) frees
 * it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_I32, DTYPE_U8, DTYPE_F64 };

/* Element (i, y, x, k) stands at data[((i * h + y) * w + x) * stride + k]. stride >= c. It is larger if the tensor is a
 * slice of channels of a wider one (concat), or a value with a gap at the end of its pixels (device_stride()). Images
 * and rows are always dense in pixels.
 *
 * If only the data decides the number of images (regions of interest), n is the capacity and *rows, in device memory,
 * is the number in use. Images beyond it count as +0 in every sum. An operation may skip them, as the CPU does, or
 * compute them; then the producer of a gradient has written 0 there. Layers pass `rows` on from their input; numbers
 * beyond it must not be read. */
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

/* The images in use; the host must be able to read the tensor's memory. */
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

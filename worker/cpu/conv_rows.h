/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv_rows.h - convolutions of any size and stride as GEMM on
 * rows: input rows are copied once, padded and activated, into a buffer where the window of an output is R runs of S *
 * C consecutive floats; no window is ever gathered. Windows of a single pixel are read in place, if nothing is pending
 * on them. */
#pragma once
#include <stdbool.h>

#include "worker/cpu/gemm.h"
#include "worker/ops/conv.h"

struct conv_call;

/* A convolution, or one phase of a backward-data convolution with stride. Tap (r, s) of output (i, j) reads input (i *
 * stride + r + off_y, j * stride + s + off_x). If windows are single neighbouring pixels, an image is one row. */
struct rows {
    int images, per; /* all images, images of a shard */
    int joined;      /* so many images of a single pixel may be taken as one row; divides per */
    int oh, ow, ih, iw;
    int taps_y, taps_x, stride, off_y, off_x;
    int c, k;                   /* channels in and out */
    int pitch;                  /* floats of a pixel in the buffer */
    int band_rows, bands, segs; /* an image is cut in bands of rows, a band in segments of columns */
    /* output (i, j) stands at row i * out_step + out_y, ... of rows out_w pixels wide */
    int out_step, out_y, out_x, out_w;
    int out_h;
    bool over_positions; /* sums run over positions: for weight gradients */
};

/* A piece of the outputs: rows [y, y + h), columns [x, x + w) of an image. */
struct rows_part {
    int image, y, x, h, w;
};

/* The windows of a call, from inputs like x to outputs like y, not cut yet. */
struct rows rows_of(const struct conv_call *q, const struct tensor *x, const struct tensor *y);
/* Sets pitch and the cut, a function of the shape and of the number format (half: bf16). */
void rows_cut(struct rows *g, bool half);
static inline int rows_parts(const struct rows *g) /* of one image */
{
    return g->bands * g->segs;
}
/* Columns of the widest part. */
static inline int rows_widest(const struct rows *g)
{
    return (g->ow + g->segs - 1) / g->segs;
}
struct rows_part rows_part(const struct rows *g, int index);
/* Floats of the buffer of one part, and of one row of it. */
size_t rows_buffer(const struct rows *g);
long rows_width(const struct rows *g, const struct rows_part *p);
/* Place of a part's inputs: tap (r, 0) of output (i, j) at at + i * row + j * pixel + r * rows_width(). */
struct rows_input {
    const float *at;
    long row, pixel;
};
/* Inputs of part p: in place if an output reads one pixel with nothing pending, else a copy in buf. */
struct rows_input rows_input(const struct rows *g, const struct rows_part *p, const struct operand *x, float *buf);

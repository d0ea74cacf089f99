/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv_forms.h - weights packed for conv_rows_conv.c.
 * Backward-data is one convolution of the output gradients for each phase (y mod stride, x mod stride) of the inputs.
 * This file gives the kernel's taps in each phase, and their weights. */
#pragma once
#include "worker/cpu/conv.h"
#include "worker/cpu/conv_rows.h"
#include "worker/cpu/conv_tiles.h"

/* An axis of a phase. */
struct phase_axis {
    int taps, last; /* of the kernel: last, last - stride, ... are this phase's taps, in the order of growing outputs */
    int off, count; /* output of the first tap for the first input of the phase; inputs of the phase */
};

/* The axes of a phase in a backward-data call, or in a forward call, which has the same taps but no inputs to count. A
 * phase's number is py * stride + px. */
void phase_axes(const struct conv_call *q, int phase, struct phase_axis *ret_y, struct phase_axis *ret_x);
/* The taps of a phase, as a convolution with stride 1. */
struct rows phase_taps(const struct conv_call *q, const struct phase_axis *y, const struct phase_axis *x);
/* Number of floats of its packed weights. */
size_t phase_floats(const struct conv_call *q, const struct rows *taps);

/* The weights of all outputs, kept with the parameter and packed once a version: [k / 32][taps_y][taps_x * c][32] or,
 * in bf16, as tiles_pack_weights() packs them for t. form_back(): all phases, one after the other. NULL: out of memory,
 * *err tells it. */
const float *form_fwd(const struct conv_call *q, const struct tiles *t, struct err *err);
const float *form_back(const struct conv_call *q, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/candidate.h - the result of box decoders, before suppression. */
#pragma once
#include <stdint.h>

/* A box in pixels of the network input, corner form. */
struct candidate {
    float x1, y1, x2, y2;
    float score; /* YOLO: objectness * class probability */
    int32_t cls;
    /* where it was decoded; unique within its class (YOLO: head by head, then anchor, row, column): breaks ties */
    int32_t slot;
};

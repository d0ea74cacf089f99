/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/candidate.h - what decoders of boxes leave, before suppression. */
#pragma once
#include <stdint.h>

/* One box in pixels of the network input, corner form. */
struct candidate {
    float x1, y1, x2, y2;
    float score; /* YOLO: objectness * class probability */
    int32_t cls;
    int32_t slot; /* where it was decoded, a number of its own with its class (YOLO: head by head, then anchor, row, column): breaks ties */
};

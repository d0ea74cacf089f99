/* SPDX-License-Identifier: Apache-2.0 */ /* worker/mask/rle_writer.h - run lengths of set pixels, given piece by piece.
 * For the files of rle.h. */
#pragma once
#include "worker/mask/rle.h"

struct rle_writer {
    struct rle *m;
    int32_t from, to; /* the last piece, which may grow */
    int32_t written;  /* runs are written up to here */
    bool failed;
};

/* The old contents of m are gone; its size is asserted. */
void rle_write_begin(struct rle_writer *o, struct rle *m, int h, int w);
/* Pixels from .. to - 1 (column * h + row) are set. Pieces must come in the order of their beginnings; they may touch
 * and overlap. */
void rle_write(struct rle_writer *o, int32_t from, int32_t to);
/* -ENOMEM if memory ran out at any time. */
int rle_write_end(struct rle_writer *o, struct err *err);

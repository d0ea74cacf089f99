/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv_tiles.h - convolutions in bf16: the same parts of the
 * outputs as in conv_rows.h, with inputs packed for tile.h.
 *
 * Positions are the pixels of a part's rows of outputs, row after row. Each row has so many more positions at its end
 * that no output's window sees the next row. A panel holds inputs by position, zeros outside of the image, one panel
 * for each (row mod stride, column mod stride). A tap is therefore a shift of positions. With fewer than 32 channels, a
 * position of a panel has the inputs of a whole row of taps, and a tap is a row of them; weight gradients of whole
 * sixteens of channels do not use this. Such a panel has its rows of inputs unchanged: beyond its own inputs a position
 * reads its neighbours', times zeros. A number that is not finite therefore also makes the outputs left of its own NaN.
 *
 * The bits depend, besides kernels/bf16.h, on the order of sums: over rows of taps, taps, blocks of 32 numbers of a
 * position, the last padded with zeros; for weight gradients over the parts of a slab and blocks of 32 positions of a
 * part. All of this is a function of the shape. */
#pragma once
#include "worker/cpu/conv.h"
#include "worker/cpu/conv_rows.h"
#include "worker/cpu/tile.h"

struct tiles {
    const struct rows *g; /* cut; outlives this */
    int depth, blocks;    /* numbers of a position, blocks of 32 of them */
    int run;              /* inputs side by side that a position holds: 1, or a row of taps */
    int taps_y, taps_x;   /* as in the panels */
    int phases_y, phases_x;
};

/* A part's panels. */
struct tiles_part {
    struct rows_part p;
    int pitch;     /* positions of a row */
    int positions; /* from the first output to the last one */
    long pixels;   /* of a panel */
};

/* Rows of a part, at most g->band_rows: so many that its positions fill blocks of 32 best, and few rows of inputs are
 * packed twice. */
int tiles_band_rows(const struct rows *g);
struct tiles tiles_of(const struct rows *g);
struct tiles_part tiles_part(const struct tiles *t, const struct rows_part *p);
static inline int tiles_taps(const struct tiles *t)
{
    return t->taps_y * t->taps_x;
}
/* Numbers from a position of a panel to the next one. */
static inline int tiles_step(const struct tiles *t)
{
    return t->run > 1 ? t->g->stride * t->g->c : TILE_BLOCK;
}
/* Pixels of a panel, at most. */
long tiles_pixels(const struct tiles *t);
/* Numbers of the panels of a part. */
long tiles_numbers(const struct tiles *t, const struct tiles_part *p);
/* The same for the largest part. */
size_t tiles_panels(const struct tiles *t);
/* Numbers that 32 more pixels take in all of its panels. */
size_t tiles_more(const struct tiles *t);
/* Positions that a part may have, whole blocks. */
int tiles_positions(const struct tiles *t);

/* The part's inputs by position: [blocks][panel][pixels][32], or, if a position is a row of taps,
 * [panel][pixels][tiles_step()]. */
void tiles_pack(const struct tiles *t, const struct tiles_part *p, const struct operand *x, uint16_t *panels);
/* Numbers from a block of a position's numbers to the next one. */
long tiles_block(const struct tiles *t, const struct tiles_part *p);
/* tap[i]: offset of tap i of the part's first position from the panels' beginning. */
void tiles_shifts(const struct tiles *t, const struct tiles_part *p, long *tap);

/* Blocks of 32 positions. */
static inline int tiles_blocks(const struct tiles_part *p)
{
    return (p->positions + TILE_BLOCK - 1) / TILE_BLOCK;
}

/* For weight gradients: blocks of tile.h, positions by inputs: [panel][16 inputs of depth][2][pairs of
 * positions][16][2], first pairs that begin at an even position, then pairs that begin at an odd one. lines: room for
 * tiles_pairs_lines() numbers. */
void tiles_pack_pairs(const struct tiles *t, const struct tiles_part *p, const struct operand *x, uint16_t *lines, uint16_t *pairs);
size_t tiles_pairs(const struct tiles *t); /* numbers of one part, at most */
size_t tiles_pairs_lines(const struct tiles *t);
/* 16 inputs of a panel are so many numbers. */
static inline long tiles_pairs_half(const struct tiles_part *p)
{
    return 2 * (p->pixels / 2 + 1) * 2 * 16;
}
static inline int tiles_halves(const struct tiles *t)
{
    return (t->depth + 15) / 16;
}
/* Like tiles_shifts(). */
void tiles_pairs_shifts(const struct tiles *t, const struct tiles_part *p, long *tap);

/* Output gradients of a part: the address of its first pixel, numbers to the next pixel and to the one below. */
struct tiles_gradients {
    const uint16_t *at;
    long pixel, row;
};
/* `cols` of them as rows, in whole tiles: [columns / 32][tiles_positions() / 32][32][32 positions], zeros at positions
 * that are no outputs. */
void tiles_pack_gradients(const struct tiles *t, const struct tiles_part *p, const struct tiles_gradients *dy, int cols, uint16_t *to);

/* Floats of the packed weights of a convolution with `outputs` outputs. */
size_t tiles_weights(const struct tiles *t, int outputs);
/* The number of row r and column s of the taps, channel c, output k stands at at[r * row + s * column + c * channel + k
 * * output]. Channels are next to each other, then columns are g->c apart, or outputs are. */
struct tiles_numbers {
    const float *at;
    long row, column, channel, output;
};
/* Number of units to share out: panels of 32 outputs or blocks of a tap, whichever allows reading in order. */
int tiles_weight_units(const struct tiles *t, int outputs, const struct tiles_numbers *w);
/* Packs one of these units to its places among all: [outputs / 32][taps][blocks]. stream: past the caches; the caller
 * must then end the stream. */
void tiles_pack_weights(const struct tiles *t, int unit, int outputs, const struct tiles_numbers *w, uint16_t *all, bool stream);

/* worker/cpu/conv_tiles.h - convolutions in bf16: the same parts of the outputs as in conv_rows.h, whose inputs are packed for tile.h.
 *
 * Positions are the pixels of a part's rows of outputs, row after row, each with so many more at its end that the window of no output sees the next row. A
 * panel holds inputs by position, zeros outside of the image, one panel for each (row mod stride, column mod stride): so a tap is a shift of positions.
 * Where there are fewer than 32 channels, a position of a panel has the inputs of a whole row of taps, and a tap is a row of them.
 *
 * What decides about bits, besides kernels/bf16.h: sums go over rows of taps, taps, blocks of 32 numbers of a position, the last padded with zeros; of weight
 * gradients over the parts of a slab and blocks of 32 positions of a part. All of it is a function of the shape. */
#pragma once
#include "worker/cpu/conv.h"
#include "worker/cpu/conv_rows.h"

struct tiles {
    const struct rows *g; /* cut; outlives this */
    int depth, blocks;    /* numbers of a position, blocks of 32 of them */
    int run;              /* inputs side by side that a position holds: 1, or a row of taps */
    int taps_y, taps_x;   /* as panels have them */
    int phases_y, phases_x;
};

/* A part's panels. */
struct tiles_part {
    struct rows_part p;
    int pitch;     /* positions of a row */
    int positions; /* from the first output to the last one */
    long pixels;   /* of a panel */
};

struct tiles tiles_of(const struct rows *g);
struct tiles_part tiles_part(const struct tiles *t, const struct rows_part *p);
static inline int tiles_taps(const struct tiles *t)
{
    return t->taps_y * t->taps_x;
}
/* Numbers of all panels of one part; positions that it may have, whole blocks. */
size_t tiles_panels(const struct tiles *t);
int tiles_positions(const struct tiles *t);

/* The part's inputs by position: [blocks][panel][pixels][32], or turned, [panel][depth, whole tiles][pixels]. */
void tiles_pack(const struct tiles *t, const struct tiles_part *p, const struct operand *x, bool turned, uint16_t *panels);
/* tap[i]: how far from the panels' beginning tap i of the part's first position stands. */
void tiles_shifts(const struct tiles *t, const struct tiles_part *p, bool turned, long *tap);
/* Rows of turned panels. */
static inline int tiles_depth_rows(const struct tiles *t)
{
    return round_up(t->depth, 16);
}

/* Output gradients of a part, columns [k, k + cols): [cols / 32][positions / 32] blocks of tile.h, zeros at what is no output. */
void tiles_pack_gradients(const struct tiles *t, const struct tiles_part *p, const struct tensor *dy, int k, int cols, uint16_t *to);

/* Floats of the packed weights of a convolution with `outputs` outputs. */
size_t tiles_weights(const struct tiles *t, int outputs);
/* Weights of panel [first, first + 32) of the outputs; number(arg, row of taps, column of taps, channel, output) says them. */
typedef float tiles_number(const void *arg, int tap_y, int tap_x, int c, int k);
void tiles_pack_weights(const struct tiles *t, int first, int outputs, tiles_number *number, const void *arg, uint16_t *to);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/mask/rle.h - masks as run lengths in COCO's form: the bitmap of a
 * picture is read column by column; runs of 0 and of 1 alternate, and the first is of 0 and may be empty. Pure. Source:
 * specs rcnn sections 8.2 and 8.3. (It stands below data/ and eval/, which both use it.) */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum {
    RLE_MAX_SIDE = 16384, /* pixels */
    RLE_TEXT_MOST = 6,    /* most characters of a run in the compressed form */
};

/* All zero: no runs, no size. May be filled again and again; its memory grows. */
struct rle {
    int h, w;     /* of the picture */
    int32_t *run; /* [n]; their sum is h * w */
    size_t n, room;
    int32_t left; /* pixels without a run yet, between rle_begin() and rle_end() */
};

/* Some pixels of a picture: the w x h of them at (x, y), which may lie outside in part. Rows from the top, each begins
 * a byte, bit 7 is the leftmost pixel. Bits behind a row's end are ignored. */
struct rle_crop {
    int x, y, w, h;
    const uint8_t *bits; /* [h][(w + 7) / 8] */
};

void rle_free(struct rle *m);

/* Fills m run by run; its old contents are gone. ERR_DATA with the flaw ("a run is negative"): sizes outside 1 ..
 * RLE_MAX_SIDE, runs below 0 or beyond the picture, and at the end runs that do not fill it; -ENOMEM. */
int rle_begin(struct rle *m, int64_t h, int64_t w, struct err *err);
int rle_add(struct rle *m, int64_t run, struct err *err);
int rle_end(struct rle *m, struct err *err);

/* Reads one number of the compressed form from *at on and moves *at behind it; from the fourth on numbers are
 * differences to the run two before. False: malformed, a character outside '0' .. 'o' or a number that ends or grows
 * past 32 bits in the middle. */
bool rle_text_number(const char **at, const char *end, int64_t *ret);
/* Writes m->n * RLE_TEXT_MOST characters at most, no terminator. Returns their number. */
size_t rle_to_text(const struct rle *m, char *ret);

/* The union of `parts` polygons; polygon k has points xy[first[k]] .. xy[first[k + 1] - 1], pixels of a picture h x w.
 * Sizes are asserted. A polygon's inside is by the even-odd rule; coordinates may be any number. -ENOMEM. */
int rle_from_polygons(struct rle *m, int h, int w, const double (*xy)[2], const int64_t *first, int parts, struct err *err);
/* x, y, width, height: a box in place of a mask, like in COCO's tools. -ENOMEM. */
int rle_from_box(struct rle *m, int h, int w, const double box[4], struct err *err);
/* The part of a crop inside a picture h x w. -ENOMEM. */
int rle_from_crop(struct rle *m, int h, int w, const struct rle_crop *crop, struct err *err);
/* The other way: the crop (x, y, w, h) into bits [h][(w + 7) / 8]; 0 outside of the picture and behind a row's end. */
void rle_to_crop(const struct rle *m, int x, int y, int w, int h, uint8_t *bits);

/* x, y, width, height of the set pixels; all 0 for an empty mask. */
void rle_bounds(const struct rle *m, int ret_box[4]);

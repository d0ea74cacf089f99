/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/terms.h - the rows that are summed into the terms of a loss: the rows
 * of a shard, or of each of its images. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct terms_of {
    const int32_t *from, *to; /* device memory: rows[*from] .. rows[*to - 1] */
    const double *rows;
    double *terms;
};

/* Fills one item a shard, or one an image; returns their number. offset: [images + 1] of the rows; a shard's rows begin
 * at offset[0], which is 0. */
static inline int fill_terms(struct terms_of *item, const int32_t *offset, int images, const double *rows, double *const *terms,
                             bool by_image)
{
    int n = by_image ? images : 1;

    for (int i = 0; i < n; i++) {
        item[i].from = offset + i;
        item[i].to = offset + (by_image ? i + 1 : images);
        item[i].rows = rows;
        item[i].terms = terms[i];
    }
    return n;
}

#include "worker/data/read/likeness.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "worker/data/image/image.h"

enum { COLUMNS = 9, ROWS = 8, LEAST_DIFFERENCE = 4, LEAST_CELLS = 20 };

/* Mean of all channels of a part of the picture, over at most 4 of its lines. That is precise enough for a likeness,
 * and fast: a check reads every picture. */
static int level(const struct image *img, int column, int row)
{
    const int x0 = (int)((int64_t)img->w * column / COLUMNS), x1 = (int)((int64_t)img->w * (column + 1) / COLUMNS);
    const int y0 = (int)((int64_t)img->h * row / ROWS), y1 = (int)((int64_t)img->h * (row + 1) / ROWS);
    const int step = (y1 - y0 + 3) / 4;
    int64_t sum = 0, n = 0;

    for (int y = y0; y < y1; y += step)
        for (int x = x0; x < x1; x++) {
            const uint8_t *p = img->rgb + 3 * ((int64_t)y * img->w + x);

            sum += p[0] + p[1] + p[2];
            n += 3;
        }
    return n > 0 ? (int)(sum / n) : 0;
}

uint64_t likeness_of(const struct image *img)
{
    uint64_t bits = 0;
    int uneven = 0;

    if (img->w < COLUMNS || img->h < ROWS)
        return 0;
    for (int row = 0; row < ROWS; row++)
        for (int column = 0, left = level(img, 0, row), right; column + 1 < COLUMNS; column++, left = right) {
            right = level(img, column + 1, row);
            bits = bits << 1 | (left < right);
            uneven += right - left >= LEAST_DIFFERENCE || left - right >= LEAST_DIFFERENCE;
        }
    return uneven >= LEAST_CELLS ? bits : 0;
}

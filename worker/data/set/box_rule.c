#include "worker/data/set/box_rule.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stddef.h>

const char *box_flaw(const struct dataset_image *im, struct dataset_box *box, bool *ret_clipped)
{
    double x1 = fmax(box->x, 0), y1 = fmax(box->y, 0), x2 = fmin(box->x + box->w, im->w), y2 = fmin(box->y + box->h, im->h);

    if (box->w < 0 || box->h < 0)
        return "box has a negative size";
    if (box->w == 0 || box->h == 0)
        return "box has no area";
    if (x2 <= x1 || y2 <= y1)
        return "box lies outside its image";
    *ret_clipped = x1 > box->x || y1 > box->y || x2 < box->x + box->w || y2 < box->y + box->h;
    if (*ret_clipped) {
        box->x = x1;
        box->y = y1;
        box->w = x2 - x1;
        box->h = y2 - y1;
    }
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/rows.h - rows of losses in the store's form. */
#pragma once
#include <stdint.h>

struct control;
struct err;
struct model;
struct report;
struct window;

struct rows {
    struct report *report;
    const struct model *model;     /* the model of the loss terms */
    const struct control *control; /* for the tiers of steps */
    int64_t batch, images;         /* of a step; of an epoch, 0: not known, and then epochs are not known either */
};

/* Rank 0: the sums of w as the losses of `split` after `step`. images_per_s: 0 if it is not known. */
int rows_report(const struct rows *r, const char *split, int64_t step, const struct window *w, double images_per_s, struct err *err);

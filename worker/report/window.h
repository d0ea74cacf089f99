/* SPDX-License-Identifier: Apache-2.0 */ /* worker/report/window.h - sums of loss terms: over the shards of a step,
 * over the steps of a log window, over validation shards. It never holds a mean of means: numerators and denominators
 * are added, and the reader of the store takes the quotient. Pure. */
#pragma once
#include <stdint.h>

#include "worker/models/model.h"

enum { WINDOW_MAX_TERMS = 32 };

struct window {
    int nterms;
    int64_t images;                   /* number of images behind the sums */
    double sum[2 * WINDOW_MAX_TERMS]; /* numerator and denominator of each term */
};

void window_reset(struct window *w, int nterms);
/* Makes one shard's record ([2 * nterms]) ready to be added: a TERM_MEAN term becomes its quotient, over 1. */
void window_record(const struct loss_term *terms, int nterms, double *record);
/* Sums over n records in tree order. */
void window_sum(int nterms, const double *const *records, int n, double *ret_sums);
void window_add(struct window *w, const double *sums, int64_t images);
/* A denominator of 0 counts as 1, unless the numerator is 0 too: then nothing was counted, and it stays 0. */
double window_denominator(const struct window *w, int term);
/* Numerator / denominator, NAN if nothing was counted. */
double window_value(const struct window *w, int term);
/* First term of a record that is not finite; term 0 (the total) only if all others are finite; -1: all are. */
int window_nonfinite(const double *record, int nterms);

#include "worker/report/window.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <math.h>
#include <string.h>

#include "worker/core/tree.h"

void window_reset(struct window *w, int nterms)
{
    assert(nterms <= WINDOW_MAX_TERMS);
    memset(w, 0, sizeof *w);
    w->nterms = nterms;
}

void window_record(const struct loss_term *terms, int nterms, double *record)
{
    for (int k = 0; k < nterms; k++) {
        double *r = record + 2 * k;

        if (terms[k].aggregate == TERM_RATIO)
            continue;
        r[0] = r[1] != 0 || !isfinite(r[0]) ? r[0] / r[1] : 0; /* infinities and NaNs are kept */
        r[1] = 1;
    }
}

void window_sum(int nterms, const double *const *records, int n, double *ret_sums)
{
    tree_sum_rows(ret_sums, records, n, 2 * (size_t)nterms);
}

void window_add(struct window *w, const double *sums, int64_t images)
{
    for (int i = 0; i < 2 * w->nterms; i++)
        w->sum[i] += sums[i];
    w->images += images;
}

double window_denominator(const struct window *w, int term)
{
    double den = w->sum[2 * term + 1];

    return den == 0 && w->sum[2 * term] != 0 ? 1 : den;
}

double window_value(const struct window *w, int term)
{
    double den = window_denominator(w, term);

    return den != 0 ? w->sum[2 * term] / den : NAN;
}

int window_nonfinite(const double *record, int nterms)
{
    for (int i = 1; i <= nterms; i++) {
        int k = i % nterms; /* the total comes last: its parts say more */

        if (!isfinite(record[2 * k]) || !isfinite(record[2 * k + 1]))
            return k;
    }
    return -1;
}

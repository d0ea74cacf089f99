#include "worker/train/rows.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>

#include "proto/tier.h"
#include "worker/models/model.h"
#include "worker/report/report.h"
#include "worker/report/window.h"
#include "worker/train/control.h"

int rows_report(const struct rows *r, const char *split, int64_t step, const struct window *w, double images_per_s, struct err *err)
{
    struct report_term terms[WINDOW_MAX_TERMS];
    double epoch = r->images > 0 ? (double)step * (double)r->batch / (double)r->images : NAN;
    struct report_loss loss = { split, step, epoch, tier_name(control_tier_at(r->control, step)), images_per_s, w->nterms, terms };

    for (int k = 0; k < w->nterms; k++)
        terms[k] = (struct report_term){ r->model->terms[k].name, w->sum[2 * k], window_denominator(w, k) };
    return report_loss(r->report, &loss, err);
}

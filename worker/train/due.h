/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/due.h - what is due after a training step, by number or by
 * word. Pure. A step validates at most once, before its checkpoint. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/report/report.h"

struct jobspec;

struct due {
    bool log, validate, save;
    bool counts; /* the validation is due by number: train.stop_after counts it */
    bool ends;   /* the job ends here */
    enum report_word word;
};

/* After `step` of a job with `last` steps. validates: the job has data to validate on. word: a command that acts after
 * this step. */
struct due due_after(const struct jobspec *spec, int64_t step, int64_t last, bool validates, enum report_word word);
/* The step was validated. stale: by train.stop_after the job ends. best: this step is the best so far. */
void due_validated(struct due *d, const struct jobspec *spec, bool stale, bool best);
/* Whether anything is due, and so the losses of the step are needed now. */
bool due_is_any(const struct due *d);
/* How the run ends after this step; NULL: it goes on. */
const char *due_outcome(const struct due *d);

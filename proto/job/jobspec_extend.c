/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobspec_extend.c - more steps for a job that has trained all its
 * steps. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec_table.h"

/* So many of the last steps have the largest size: one in LARGEST_PART, at most LARGEST_MAX (multiscale_size() of the
 * sampler). */
enum { LARGEST_PART = 20, LARGEST_MAX = 200 };

static bool is(const char *word, const char *other)
{
    return strcmp(word, other) == 0;
}

/* The first fraction in train.lr_steps; they ascend. NAN: the job has no fractions. */
static double first_fraction(const struct jobspec *s)
{
    return is(s->train_schedule, "steps") && s->train_lr_steps.n > 0 && s->train_lr_steps.v[0] < 1 ? s->train_lr_steps.v[0] : NAN;
}

static int64_t largest_at_end(const struct jobspec *s)
{
    int64_t n = s->train_steps / LARGEST_PART;

    return !s->data_augment_multiscale ? 0 : n < LARGEST_MAX ? n : LARGEST_MAX;
}

/* The rounded step from which on the rate is another one. */
static int64_t first_other(const struct jobspec *s, double fraction)
{
    return (int64_t)(fraction * (double)s->train_steps + 0.5);
}

/* The last step that would be the same in a longer job. For rates see schedule_lr() of the worker. */
static int64_t last_common(const struct jobspec *s)
{
    int64_t last = s->train_steps - largest_at_end(s);
    double x = first_fraction(s);

    if (is(s->train_schedule, "cosine") || is(s->train_schedule, "poly"))
        return 0;
    if (!isnan(x) && first_other(s, x) - 1 < last)
        last = first_other(s, x) - 1;
    return last;
}

static bool cuts_nothing(const struct jobspec *s, int64_t step)
{
    return step % s->train_log_every == 0 && (s->val_every <= 0 || step % s->val_every == 0);
}

bool jobspec_on_the_way(const struct jobspec *s, int64_t step)
{
    return step <= last_common(s) && (step < s->train_steps || cuts_nothing(s, step));
}

int jobspec_not_on_the_way(const struct jobspec *s, struct err *err)
{
    long long steps = s->train_steps;

    if (is(s->train_schedule, "cosine") || is(s->train_schedule, "poly"))
        return job_error(err, "train.schedule", "with %s each rate depends on train.steps (%lld)", s->train_schedule, steps);
    if (!isnan(first_fraction(s)))
        return job_error(err, "train.lr_steps", "the rate has fallen after a fraction (%g) of train.steps (%lld)", first_fraction(s),
                         steps);
    if (largest_at_end(s) > 0)
        return job_error(err, "data.augment.multiscale", "the last %lld of train.steps (%lld) had the largest size",
                         (long long)largest_at_end(s), steps);
    return job_error(err, s->train_steps % s->train_log_every ? "train.log_every" : "val.every",
                     "step %lld is not a multiple of it: values that the end of the job stored would be missing in a longer job", steps);
}

int jobspec_extend(json_t *root, int64_t steps, struct jobspec **ret_was, struct err *err)
{
    struct jobspec *now = NULL;
    int rc = jobspec_parse_stored(root, ret_was, err);

    if (rc < 0)
        return rc;
    if (steps <= (*ret_was)->train_steps)
        rc = job_error(err, "train.steps", "must be more than the %lld that it was given, is %lld", (long long)(*ret_was)->train_steps,
                       (long long)steps);
    if (rc == 0 && json_object_set_new(json_object_get(root, "train"), "steps", json_integer(steps)) < 0)
        rc = err_set(err, -ENOMEM, "out of memory");
    if (rc == 0)
        rc = jobspec_parse_stored(root, &now, err); /* checks its range */
    jobspec_free(now);
    if (rc < 0) {
        jobspec_free(*ret_was);
        *ret_was = NULL;
    }
    return rc;
}

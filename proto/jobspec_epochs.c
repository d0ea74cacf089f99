/* proto/jobspec_epochs.c - train.epochs as train.steps. */
#include <errno.h>
#include <float.h>
#include <math.h>

#include "proto/err.h"
#include "proto/jobspec_table.h"

/* What is a whole number of steps on paper may lie three roundings above it. */
static double steps_of(double epochs, int64_t images, int64_t batch)
{
    double part = epochs * (double)images / (double)batch, steps = ceil(part - 2 * DBL_EPSILON * part);

    return steps < 1 ? 1 : steps;
}

int jobspec_count_steps(json_t *root, const struct jobspec *s, int64_t images, int64_t *ret_steps, struct err *err)
{
    double steps = steps_of(s->train_epochs, images, s->train_batch), max = job_keys[JOB_KEY_train_steps].max;
    json_t *train = json_object_get(root, "train");

    if (steps > max)
        return job_error(err, "train.epochs", "%.10g epochs of %lld images, batch %lld, are %.0f steps; at most %.0f are possible",
                         s->train_epochs, (long long)images, (long long)s->train_batch, steps, max);
    if (json_object_set_new(train, "steps", json_integer((json_int_t)steps)) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    json_object_del(train, "epochs");
    *ret_steps = (int64_t)steps;
    return 0;
}

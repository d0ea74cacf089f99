/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobspec_epochs.c - steps that are written as epochs:
 * train.epochs, and texts such as "2 epochs" in other keys. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "proto/err.h"
#include "proto/job/jobspec_table.h"

/* The computed part may lie three roundings above a whole number of steps, so a little is taken off before ceil(). */
static double steps_of(double epochs, int64_t images, int64_t batch)
{
    double part = epochs * (double)images / (double)batch, steps = ceil(part - 2 * DBL_EPSILON * part);

    return steps < 1 ? 1 : steps;
}

/* ---- texts with a unit ---- */

static const int unit_keys[] = { JOB_KEY_train_lr_steps, JOB_KEY_val_every, JOB_KEY_checkpoint_every };
enum { UNIT_KEYS = sizeof unit_keys / sizeof *unit_keys };

int job_key_takes_units(const struct job_key *k)
{
    for (int i = 0; i < UNIT_KEYS; i++)
        if (k->offset == job_keys[unit_keys[i]].offset) /* k may be a copy */
            return 1;
    return 0;
}

static bool is_one_of(const char *word, const char *one, const char *many)
{
    return strcmp(word, one) == 0 || strcmp(word, many) == 0;
}

/* Reads "2 epochs" or "100 steps". */
static int read_text(const struct job_key *k, const char *text, double *ret, bool *ret_epochs, struct err *err)
{
    char *unit;
    double x = strtod(text, &unit);

    *ret_epochs = false;
    if (unit == text || text[0] < '0' || text[0] > '9' || strcspn(text, "xX") < (size_t)(unit - text) || !isfinite(x))
        return job_error(err, k->path, "'%.40s' is neither a number of steps nor a text as \"2 epochs\"", text);
    unit += strspn(unit, " ");
    *ret_epochs = is_one_of(unit, "epoch", "epochs");
    if (!*ret_epochs && !is_one_of(unit, "step", "steps"))
        return job_error(err, k->path, "'%.40s' has no unit that is known: \"2 epochs\" and \"100 steps\" have one", text);
    if (*ret_epochs && !(x > 0))
        return job_error(err, k->path, "must be above 0 epochs, is '%.40s'", text);
    if (!*ret_epochs && x != floor(x))
        return job_error(err, k->path, "must be whole steps, is '%.40s'", text);
    *ret = x;
    return 0;
}

int job_units_read(const struct job_key *k, const json_t *value, struct err *err)
{
    const size_t n = json_is_array(value) ? json_array_size(value) : 1;
    bool epochs, found = false;
    double x;

    for (size_t i = 0; i < n && job_key_takes_units(k); i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;

        if (!json_is_string(one))
            continue;
        if (json_is_array(value) && k->type == TYPE_INT)
            return 0; /* this key takes no list */
        if (read_text(k, json_string_value(one), &x, &epochs, err) < 0)
            return ERR_INPUT;
        found = true;
    }
    return found;
}

/* ---- counting ---- */

static json_t *value_at(const json_t *root, const struct job_key *k)
{
    const char *dot = strchr(k->path, '.');
    char group[32];

    snprintf(group, sizeof group, "%.*s", (int)(dot - k->path), k->path);
    return json_object_get(json_object_get(root, group), dot + 1);
}

bool jobspec_has_units(const json_t *root, bool *ret_epochs)
{
    const json_t *epochs = value_at(root, &job_keys[JOB_KEY_train_epochs]);
    struct err err;
    bool any = false;

    *ret_epochs = epochs && !json_is_null(epochs);
    for (int i = 0; i < UNIT_KEYS; i++) {
        const json_t *value = value_at(root, &job_keys[unit_keys[i]]);
        char *text = value && job_units_read(&job_keys[unit_keys[i]], value, &err) > 0 ? json_dumps(value, JSON_ENCODE_ANY) : NULL;

        any |= text != NULL;
        *ret_epochs |= text && strstr(text, "epoch");
        free(text);
    }
    return any || *ret_epochs;
}

/* Counts one number of epochs or steps. *ret: steps. */
static int count_one(const struct job_key *k, const json_t *one, int64_t images, int64_t batch, json_t **ret, struct err *err)
{
    const double max = job_keys[JOB_KEY_train_steps].max;
    bool epochs = false;
    double x = 0, steps;

    if (!json_is_string(one)) {
        *ret = json_deep_copy(one);
        return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
    }
    if (read_text(k, json_string_value(one), &x, &epochs, err) < 0)
        return ERR_INPUT;
    steps = epochs ? steps_of(x, images, batch) : x;
    if (steps > max)
        return job_error(err, k->path, "'%.40s' of %lld images, batch %lld, are %.15g steps; at most %.15g are possible",
                         json_string_value(one), (long long)images, (long long)batch, steps, max);
    *ret = json_integer((json_int_t)steps);
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* Counts a list, or one number as a list of one. */
static int count_list(const struct job_key *k, const json_t *value, int64_t images, int64_t batch, json_t **ret, struct err *err)
{
    const size_t n = json_is_array(value) ? json_array_size(value) : 1;
    json_t *list = json_array(), *one = NULL;
    int rc = list ? 0 : err_set(err, -ENOMEM, "out of memory");

    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = count_one(k, json_is_array(value) ? json_array_get(value, i) : value, images, batch, &one, err);
        if (rc == 0 && json_array_append_new(list, one) < 0)
            rc = err_set(err, -ENOMEM, "out of memory");
    }
    if (rc == 0)
        *ret = list;
    else
        json_decref(list);
    return rc;
}

static int count_texts(json_t *root, const struct job_key *k, int64_t images, int64_t batch, struct err *err)
{
    json_t *value = value_at(root, k), *counted = NULL;
    int rc = value ? job_units_read(k, value, err) : 0;
    const char *dot = strchr(k->path, '.');
    char group[32];

    if (rc <= 0)
        return rc;
    rc = (k->type == TYPE_REALS ? count_list : count_one)(k, value, images, batch, &counted, err);
    if (rc < 0)
        return rc;
    snprintf(group, sizeof group, "%.*s", (int)(dot - k->path), k->path);
    return json_object_set_new(json_object_get(root, group), dot + 1, counted) < 0 ? err_set(err, -ENOMEM, "out of memory") : 0;
}

static int count_epochs(json_t *root, const struct jobspec *s, int64_t images, int64_t *ret_steps, struct err *err)
{
    double steps = steps_of(s->train_epochs, images, s->train_batch), max = job_keys[JOB_KEY_train_steps].max;
    json_t *train = json_object_get(root, "train");

    if (steps > max)
        return job_error(err, "train.epochs", "%.10g epochs of %lld images, batch %lld, are %.15g steps; at most %.15g are possible",
                         s->train_epochs, (long long)images, (long long)s->train_batch, steps, max);
    if (json_object_set_new(train, "steps", json_integer((json_int_t)steps)) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    json_object_del(train, "epochs");
    *ret_steps = (int64_t)steps;
    return 0;
}

int jobspec_count_steps(json_t *root, const struct jobspec *s, int64_t images, int64_t *ret_steps, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < UNIT_KEYS && rc == 0; i++)
        rc = count_texts(root, &job_keys[unit_keys[i]], images, s->train_batch, err);
    if (rc == 0 && !isnan(s->train_epochs))
        rc = count_epochs(root, s, images, ret_steps, err);
    return rc;
}

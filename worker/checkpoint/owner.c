#include "worker/checkpoint/owner.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "proto/hash/hash.h"
#include "worker/checkpoint/state.h"

/* Takes the reference to keys. Returns NULL when keys is NULL or memory is out. */
static char *text_of(json_t *keys)
{
    char *text = keys ? json_dumps(keys, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    json_decref(keys);
    return text;
}

char *owner_text(const struct jobspec *spec)
{
    return text_of(jobspec_deciding(spec, NULL));
}

/* Frees text, which may be NULL: out of memory. */
static int hash_text(char *text, struct hash128 *ret, struct err *err)
{
    if (!text)
        return err_set(err, ERR_DEVICE, "out of memory: job file");
    *ret = hash_bytes(text, strlen(text), hash_name("spec"));
    free(text);
    return 0;
}

int owner_keys(const struct jobspec *spec, struct hash128 *ret, struct err *err)
{
    return hash_text(text_of(jobspec_portable(spec)), ret, err);
}

int owner_identity(const struct jobspec *spec, const char *store_id, struct ckpt_identity *ret, struct err *err)
{
    struct hash128 hash;
    int rc = hash_text(owner_text(spec), &hash, err);

    memset(ret, 0, sizeof *ret);
    if (rc < 0)
        return rc;
    hash_hex(hash, ret->spec);
    snprintf(ret->store_id, sizeof ret->store_id, "%s", store_id);
    return 0;
}

/* ---- differing keys ---- */

static const struct job_word {
    const char *path, *neutral;
} keys[] = {
#define X(field, key, type, def, neutral, ...) { key, neutral },
    JOB_KEYS(X)
#undef X
};
enum { KEYS = sizeof keys / sizeof *keys };

/* The value at a path like "train.lr" in the JSON of owner_text(), as JSON text; the neutral value where the key is
 * left out. The caller frees. */
static char *value_text(const json_t *spec, const struct job_word *key)
{
    char path[64], *rest = path, *name;

    snprintf(path, sizeof path, "%s", key->path);
    while ((name = strsep(&rest, ".")))
        spec = json_object_get(spec, name);
    return spec ? json_dumps(spec, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15)) : strdup(key->neutral);
}

/* Lists the values of `theirs` that differ: 'train.optimizer "sgd", train.lr 0.1'. *ret_first is the first of these
 * keys; NULL: no key differs. */
static void differences(const json_t *theirs, const json_t *ours, char *text, size_t size, const char **ret_first)
{
    size_t used = 0;

    *ret_first = NULL;
    text[0] = '\0';
    for (int i = 0; i < KEYS; i++) {
        char *was = value_text(theirs, &keys[i]), *is = value_text(ours, &keys[i]);

        if (was && is && strcmp(was, is) != 0) {
            if (used < size)
                used += (size_t)snprintf(text + used, size - used, "%s%s %.60s", *ret_first ? ", " : "", keys[i].path, was);
            *ret_first = *ret_first ? *ret_first : keys[i].path;
        }
        free(was);
        free(is);
    }
}

/* The job that made the newest checkpoint of this store, as the checkpoint says. NULL: it does not say. */
static json_t *job_of_newest(const char *store_id, const char *dir, int64_t *ret_step)
{
    struct ckpt_identity anybody = { .spec = "" };
    const char *text;
    json_t *job = NULL;
    struct err ignored;
    struct ckpt *c;

    snprintf(anybody.store_id, sizeof anybody.store_id, "%s", store_id);
    if (ckpt_pick(dir, &anybody, NULL, NULL, ret_step, &ignored) < 0 || *ret_step == 0 ||
        ckpt_open(dir, *ret_step, &anybody, &c, &ignored) < 0)
        return NULL;
    text = safetensors_meta(c->state, STATE_JOB);
    if (text)
        job = json_loads(text, 0, NULL);
    ckpt_close(c);
    return job;
}

/* Returns 0 when the checkpoint does not say its job, or no key differs. */
static int refuse_by_its_word(const struct jobspec *spec, const char *store_id, const char *dir, struct err *err)
{
    int64_t step = 0;
    json_t *theirs = job_of_newest(store_id, dir, &step), *ours = theirs ? jobspec_deciding(spec, NULL) : NULL;
    const char *first = NULL;
    char text[160];

    if (ours)
        differences(theirs, ours, text, sizeof text, &first);
    json_decref(theirs);
    json_decref(ours);
    if (!first)
        return 0;
    return err_field(err, ERR_INPUT, first, "%s: '%.150s/step-%lld' was trained with %s; other values need a new job", first, dir,
                     (long long)step, text);
}

int owner_refuse(const struct jobspec *spec, const char *store_id, const char *dir, struct err *err)
{
    struct err why = *err;
    int rc = refuse_by_its_word(spec, store_id, dir, err);

    return rc < 0
               ? rc
               : err_set(err, ERR_INPUT, "%s: it was trained by another job, or the job has changed since; train it as a new job", why.msg);
}

/* ---- fewer steps ---- */

/* Reads text, the job in a checkpoint. Returns its number of steps if this number is smaller than ours and the only
 * difference. 0: another job, or not fewer steps. */
static int64_t fewer_steps(const struct jobspec *spec, const char *text, const char *hash)
{
    json_t *theirs = text ? json_loads(text, 0, NULL) : NULL, *ours = theirs ? jobspec_deciding(spec, "train.steps") : NULL;
    json_t *train = json_object_get(theirs, "train");
    int64_t steps = json_integer_value(json_object_get(train, "steps"));
    char said[33] = "";

    if (theirs)
        hash_hex(hash_bytes(text, strlen(text), hash_name("spec")), said);
    if (!ours || strcmp(said, hash) != 0 || steps >= spec->train_steps || json_object_del(train, "steps") < 0 || !json_equal(theirs, ours))
        steps = 0;
    json_decref(theirs);
    json_decref(ours);
    return steps;
}

/* Returns 1 if training may continue from this checkpoint, 0 if its step rules that out, ERR_STATE if its job does. */
static int look_at(const struct jobspec *spec, const struct ckpt_identity *anybody, const char *dir, int64_t step, struct err *err)
{
    struct jobspec shorter = *spec; /* only read */
    struct ckpt *c;
    int rc = ckpt_open(dir, step, anybody, &c, err);

    if (rc < 0)
        return rc;
    shorter.train_steps = fewer_steps(spec, safetensors_meta(c->state, STATE_JOB), c->id.spec);
    ckpt_close(c);
    if (shorter.train_steps == 0)
        return err_set(err, ERR_STATE, "'%s/step-%lld' is of another job", dir, (long long)step);
    return jobspec_on_the_way(&shorter, step);
}

int owner_pick_shorter(const struct jobspec *spec, const char *store_id, const char *dir, int64_t *ret_step, struct err *err)
{
    struct ckpt_identity anybody = { .spec = "" };
    int64_t step = 0, most = INT64_MAX;
    int rc = 0;

    snprintf(anybody.store_id, sizeof anybody.store_id, "%s", store_id);
    do {
        rc = ckpt_newest(dir, &anybody, most, &step, err);
        most = step - 1;
    } while (rc == 0 && step > 0 && (rc = look_at(spec, &anybody, dir, step, err)) == 0);
    if (rc >= 0 && step == 0) /* trained checkpoints stay until the user removes them */
        return err_set(err, ERR_STATE, "'%s' holds no checkpoint from which more steps can be trained", dir);
    if (rc >= 0)
        rc = ckpt_drop_after(dir, step, err);
    if (rc == 0)
        *ret_step = step;
    return rc;
}

#include "proto/job/jobspec.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clean.h"
#include "proto/err.h"
#include "proto/job/jobspec_table.h"

enum {
    TEXTS_MAX = 128 << 10 /* bytes of run.env, and of program.command */,
    STRS_LENGTH_MAX = 128,
    NAME_SHOWN = 48,
    PRESET_NAMES_MAX = 2048
};

static void *member(struct jobspec *s, const struct job_key *k)
{
    return (char *)s + k->offset;
}

/* A value as an error shows it: its JSON, cut short. */
struct shown {
    char text[NAME_SHOWN + 4];
};
static struct shown show(const json_t *v)
{
    struct shown s = { "..." };
    char *text = json_is_object(v)  ? strdup("an object")
                 : json_is_array(v) ? strdup(json_array_size(v) ? "a list" : "an empty list")
                                    : json_dumps(v, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));

    if (text)
        snprintf(s.text, sizeof s.text, strlen(text) > NAME_SHOWN ? "%.45s..." : "%s", text);
    free(text);
    return s;
}

/* Writes "a, b or c" for "a|b|c". */
static void words(char *out, size_t size, const char *values)
{
    size_t used = 0;

    for (const char *p = values; *p && used + 1 < size;) {
        size_t n = strcspn(p, "|");
        const char *more = p[n] ? (strchr(p + n + 1, '|') ? ", " : " or ") : "";

        used += (size_t)snprintf(out + used, size - used, "%.*s%s", (int)n, p, more);
        p += n + (p[n] == '|');
    }
}

/* ---- values: one function per type; v is the JSON value of key k, NULL is never passed ---- */

static int take_text(char **ret, const struct job_key *k, const json_t *v, struct err *err)
{
    const char *text = json_string_value(v);
    size_t len = json_string_length(v);

    if (!text)
        return job_error(err, k->path, "must be a string, is %s", show(v).text);
    if (len == 0 && (k->min > 0 || k->type == TYPE_PATH))
        return job_error(err, k->path, "must not be empty");
    if ((double)len > k->max)
        return job_error(err, k->path, "must have at most %.0f bytes, has %zu", k->max, len);
    if (clean_has_obeyed(text))
        return job_error(err, k->path, "must not have control or format characters, is %s", show(v).text);
    *ret = strdup(text);
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int take_enum(char **ret, const struct job_key *k, const json_t *v, struct err *err)
{
    const char *text = json_string_value(v);
    char list[PRESET_NAMES_MAX];

    for (const char *p = k->values; text && *text && *p;) {
        size_t n = strcspn(p, "|");

        if (strlen(text) == n && strncmp(text, p, n) == 0) {
            *ret = strdup(text);
            return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
        }
        p += n + (p[n] == '|');
    }
    words(list, sizeof list, k->values);
    return job_error(err, k->path, "must be %s, is %s", list, show(v).text);
}

static int check_range(const struct job_key *k, double x, const json_t *v, struct err *err)
{
    if (job_key_positive(k) ? x <= 0 : x < k->min)
        return job_key_positive(k) ? job_error(err, k->path, "must be > 0, is %s", show(v).text)
                                   : job_error(err, k->path, "must be at least %.16g, is %s", k->min, show(v).text);
    if (x > k->max)
        return job_error(err, k->path, "must be at most %.16g, is %s", k->max, show(v).text);
    return 0;
}

static int take_int(int64_t *ret, const struct job_key *k, const json_t *v, struct err *err)
{
    double x = json_number_value(v);

    if (!json_is_number(v) || (json_is_real(v) && (x != floor(x) || fabs(x) > JOB_MAX_WHOLE)))
        return job_error(err, k->path, "must be a whole number, is %s", show(v).text);
    int rc = check_range(k, x, v, err);
    if (rc == 0)
        *ret = json_is_integer(v) ? json_integer_value(v) : (int64_t)x;
    return rc;
}

static int take_side(int64_t *ret, const struct job_key *k, const json_t *v, struct err *err)
{
    int rc = json_is_number(v) ? take_int(ret, k, v, err) : job_error(err, k->path, "sides must be whole numbers, one is %s", show(v).text);

    if (rc == 0 && *ret % JOB_SIZE_GRAIN != 0)
        return job_error(err, k->path, "must be a multiple of %d, is %lld", JOB_SIZE_GRAIN, (long long)*ret);
    return rc;
}

static int take_size(struct jobspec_size *ret, const struct job_key *k, const json_t *v, struct err *err)
{
    int rc;

    if (json_is_array(v) && json_array_size(v) == 2) {
        rc = take_side(&ret->w, k, json_array_get(v, 0), err);
        return rc == 0 ? take_side(&ret->h, k, json_array_get(v, 1), err) : rc;
    }
    if (json_is_array(v))
        return job_error(err, k->path, "must be a whole number or [width, height], is a list of %zu", json_array_size(v));
    if (!json_is_number(v))
        return job_error(err, k->path, "must be a whole number or [width, height], is %s", show(v).text);
    rc = take_side(&ret->w, k, v, err);
    ret->h = ret->w;
    return rc;
}

static int take_real(double *ret, const struct job_key *k, const json_t *v, struct err *err)
{
    if (!json_is_number(v))
        return job_error(err, k->path, "must be a number, is %s", show(v).text);
    int rc = check_range(k, json_number_value(v), v, err);
    if (rc == 0)
        *ret = json_number_value(v);
    return rc;
}

static int take_reals(struct jobspec_list *ret, const struct job_key *k, const json_t *v, struct err *err)
{
    size_t i, n = json_array_size(v);
    json_t *x;

    if (!json_is_array(v))
        return job_error(err, k->path, "must be a list of numbers, is %s", show(v).text);
    if ((double)n > k->max)
        return job_error(err, k->path, "must have at most %.0f numbers, has %zu", k->max, n);
    json_array_foreach (v, i, x) {
        if (!json_is_number(x))
            return job_error(err, k->path, "number %zu must be a number, is %s", i + 1, show(x).text);
        ret->v[i] = json_number_value(x);
    }
    ret->n = (int)n;
    return 0;
}

/* Takes a whole number, or a list of at least one. */
static int take_ints(struct jobspec_list *ret, const struct job_key *k, const json_t *v, struct err *err)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    int64_t x = 0;
    int rc = 0;

    if (!json_is_number(v) && !json_is_array(v))
        return job_error(err, k->path, "must be a whole number or a list of them, is %s", show(v).text);
    if (n < 1 || n > JOB_MAX_LIST)
        return job_error(err, k->path, "must have 1 to %d numbers, has %zu", JOB_MAX_LIST, n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = take_int(&x, k, json_is_array(v) ? json_array_get(v, i) : v, err);
        ret->v[i] = (double)x;
    }
    ret->n = (int)n;
    return rc;
}

static int take_map(json_t **ret, const struct job_key *k, const json_t *v, struct err *err)
{
    const char *name;
    size_t bytes = 0;
    json_t *x;

    if (!json_is_object(v))
        return job_error(err, k->path, "must be an object, is %s", show(v).text);
    if ((double)json_object_size(v) > k->max)
        return job_error(err, k->path, "must have at most %.0f members, has %zu", k->max, json_object_size(v));
    json_object_foreach ((json_t *)v, name, x) {
        if (!*name || strlen(name) > 128 || strchr(name, '='))
            return job_error(err, k->path, "'%.40s' is not a variable name", name);
        if (!json_is_string(x))
            return job_error(err, k->path, "%.128s must be a string", name);
        bytes += strlen(name) + json_string_length(x) + 2;
        if (bytes > TEXTS_MAX)
            return job_error(err, k->path, "must have at most %d bytes in all", TEXTS_MAX);
    }
    *ret = json_deep_copy(v);
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int take_strs(json_t **ret, const struct job_key *k, const json_t *v, struct err *err)
{
    json_t *list = json_is_string(v) ? json_pack("[O]", v) : json_is_array(v) ? json_deep_copy(v) : NULL, *x;
    int rc = list ? 0 : job_error(err, k->path, "must be a string or a list of strings, is %s", show(v).text);
    size_t i;

    if (rc == 0 && (double)json_array_size(list) > k->max)
        rc = job_error(err, k->path, "must have at most %.0f strings, has %zu", k->max, json_array_size(list));
    json_array_foreach (list, i, x) {
        if (rc == 0 && (!json_is_string(x) || json_string_length(x) == 0 || json_string_length(x) > STRS_LENGTH_MAX))
            rc = job_error(err, k->path, "number %zu must be a string of 1 to %d bytes, is %s", i + 1, STRS_LENGTH_MAX, show(x).text);
    }
    if (rc == 0)
        *ret = list;
    else
        json_decref(list);
    return rc;
}

/* Arguments of a command: they may be empty, and hold any character but NUL. */
static int take_args(json_t **ret, const struct job_key *k, const json_t *v, struct err *err)
{
    size_t i, bytes = 0;
    json_t *x;

    if (!json_is_array(v) || json_array_size(v) == 0)
        return job_error(err, k->path, "must be a list of a program and its arguments, is %s", show(v).text);
    if ((double)json_array_size(v) > k->max)
        return job_error(err, k->path, "must have at most %.0f arguments, has %zu", k->max, json_array_size(v));
    json_array_foreach (v, i, x) {
        if (!json_is_string(x) || strlen(json_string_value(x)) != json_string_length(x))
            return job_error(err, k->path, "argument %zu must be a string, is %s", i, show(x).text);
        bytes += json_string_length(x) + 1;
    }
    if (bytes > TEXTS_MAX)
        return job_error(err, k->path, "must have at most %d bytes in all, has %zu", TEXTS_MAX, bytes);
    *ret = json_deep_copy(v);
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* Keeps whole numbers and others alike: 2 is 2.0. */
static int take_numbers(json_t **ret, const struct job_key *k, const json_t *v, struct err *err)
{
    const char *name;
    json_t *x, *out;
    int rc = 0;

    if (!json_is_object(v))
        return job_error(err, k->path, "must be an object, is %s", show(v).text);
    if (json_object_size(v) > JOB_MAX_NUMBERS)
        return job_error(err, k->path, "must have at most %d members, has %zu", JOB_MAX_NUMBERS, json_object_size(v));
    out = json_object();
    json_object_foreach ((json_t *)v, name, x) {
        double number = json_number_value(x);
        bool positive = job_key_positive(k);

        if (rc == 0 && !json_is_number(x))
            rc = job_error(err, k->path, "of '%.80s' must be a number, is %s", name, show(x).text);
        else if (rc == 0 && (positive ? !(number > 0) : !(number >= k->min)))
            rc = job_error(err, k->path, positive ? "of '%.80s' must be > 0, is %s" : "of '%.80s' must not be so small, is %s", name,
                           show(x).text);
        else if (rc == 0 && !(number <= k->max))
            rc = job_error(err, k->path, "of '%.80s' must be at most %.16g, is %s", name, k->max, show(x).text);
        else if (rc == 0 && (!out || json_object_set_new(out, name, json_real(number)) < 0))
            rc = err_set(err, -ENOMEM, "out of memory");
    }
    if (rc == 0 && out)
        *ret = out;
    else
        json_decref(out);
    return rc == 0 && !out ? err_set(err, -ENOMEM, "out of memory") : rc;
}

static int take(struct jobspec *s, const struct job_key *k, const json_t *v, struct err *err)
{
    void *at = member(s, k);
    int rc = job_units_read(k, v, err);

    if (rc != 0)
        return rc < 0
                   ? rc
                   : job_error(err, k->path, "only detctl submit, clone and check make steps of %s; a number is needed here", show(v).text);
    switch (k->type) {
    case TYPE_STR:
    case TYPE_PATH:
        return take_text(at, k, v, err);
    case TYPE_ENUM:
        return take_enum(at, k, v, err);
    case TYPE_INT:
        return take_int(at, k, v, err);
    case TYPE_REAL:
        return take_real(at, k, v, err);
    case TYPE_REALS:
        return take_reals(at, k, v, err);
    case TYPE_MAP:
        return take_map(at, k, v, err);
    case TYPE_SIZE:
        return take_size(at, k, v, err);
    case TYPE_INTS:
        return take_ints(at, k, v, err);
    case TYPE_STRS:
        return take_strs(at, k, v, err);
    case TYPE_NUMBERS:
        return take_numbers(at, k, v, err);
    case TYPE_ARGS:
        return take_args(at, k, v, err);
    case TYPE_BOOL:
        break;
    }
    if (!json_is_boolean(v))
        return job_error(err, k->path, "must be true or false, is %s", show(v).text);
    *(bool *)at = json_is_true(v);
    return 0;
}

static void take_null(struct jobspec *s, const struct job_key *k)
{
    if (k->type == TYPE_INT)
        *(int64_t *)member(s, k) = -1;
    else if (k->type == TYPE_SIZE)
        *(struct jobspec_size *)member(s, k) = (struct jobspec_size){ -1, -1 };
    else if (k->type == TYPE_REAL)
        *(double *)member(s, k) = NAN;
    else if (k->type == TYPE_INTS)
        ((struct jobspec_list *)member(s, k))->n = 0;
}

/* ---- the walk over the object ---- */

static int unknown(struct err *err, const char *group, const char *name)
{
    char path[96];

    snprintf(path, sizeof path, "%s%s%.*s", group, *group ? "." : "", NAME_SHOWN, name);
    for (char *p = path; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    return job_key_unknown(err, path);
}

/* Finds the given value of each key. A member that is neither key nor group is an error. The table bounds the depth. */
static int walk(const json_t *obj, const char *group, const json_t **given, struct err *err)
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)obj, name, value) {
        char path[96];
        int len = snprintf(path, sizeof path, "%s%s%s", group, *group ? "." : "", name);
        const struct job_key *k;

        if (len >= (int)sizeof path || !*name || strchr(name, '.'))
            return unknown(err, group, name);
        if ((k = job_key_find(path, (size_t)len))) {
            given[k - job_keys] = value;
        } else if (!job_key_is_group(path, (size_t)len)) {
            return unknown(err, group, name);
        } else if (!json_is_object(value)) {
            return job_error(err, path, "must be an object, is %s", show(value).text);
        } else if (walk(value, path, given, err) < 0) {
            return ERR_INPUT;
        }
    }
    return 0;
}

/* def: the value of a key that is not given. */
static int fill(struct jobspec *s, const struct job_key *k, const char *def, const json_t *given, struct err *err)
{
    bool required = strcmp(def, "-") == 0, nullable = strcmp(k->def, "null") == 0;

    if (given && !(json_is_null(given) && nullable))
        return take(s, k, given, err);
    if (required)
        return job_error(err, k->path, "is required (%s)", k->help);
    if (strcmp(def, "null") == 0 || given) {
        take_null(s, k);
        return 0;
    }
    json_t *value = json_loads(def, JSON_DECODE_ANY, NULL);
    int rc = value ? take(s, k, value, err) : err_set(err, -ENOMEM, "out of memory");
    json_decref(value);
    return rc;
}

/* A key that is null counts as not given. */
static bool is_given(const json_t *value)
{
    return value && !json_is_null(value);
}

/* Writes "a|b|c" from the presets' names, for the row of model.preset. */
static void preset_words(const struct job_presets *presets, char *out, size_t size)
{
    size_t used = 0;

    *out = '\0';
    for (int i = 0; i < presets->n && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? "|" : "", presets->row[i].name);
}

static int refuse_of_program(const struct job_key *k, struct err *err)
{
    if (job_key_is_of_programs(k))
        return job_error(err, k->path, "needs program.command");
    return job_error(err, k->path, "not a key of a program (program.command)%s",
                     job_key_is_of_models(k) ? ": detd knows neither its model nor its data" : "");
}

static int fill_all(struct jobspec *s, const struct job_presets *presets, bool stored, const json_t *const *given, struct err *err)
{
    bool program = is_given(given[JOB_KEY_program_command]);
    char names[PRESET_NAMES_MAX];
    int rc = 0;

    preset_words(presets, names, sizeof names);
    for (size_t i = 0; i < JOB_KEY_COUNT && rc == 0; i++) {
        struct job_key k = job_keys[i];

        if (i == JOB_KEY_model_preset)
            k.values = names;
        if (program && job_key_is_of_models(&k) && !stored && is_given(given[i]))
            return refuse_of_program(&k, err);
        if (program && job_key_is_of_models(&k) && strcmp(k.def, "-") == 0)
            k.def = "null";
        rc = fill(s, &k, stored && job_key_has_neutral(&k) ? k.neutral : k.def, given[i], err);
    }
    return rc;
}

static int fill_from_family(struct jobspec *s, const struct job_key *k, const struct job_default *d, struct err *err)
{
    json_t *value = json_loads(job_default_text(s, d), JSON_DECODE_ANY, NULL);
    int rc;

    if (!value)
        return err_set(err, -ENOMEM, "out of memory");
    if (k->type <= TYPE_ENUM) {
        free(*(char **)member(s, k));
        *(char **)member(s, k) = NULL;
    }
    rc = take(s, k, value, err);
    json_decref(value);
    if (rc == 0 && d->batch)
        *(double *)member(s, k) *= (double)s->train_batch / d->batch;
    return rc;
}

/* Keys that are not given get the family's default. */
static int fill_family(struct jobspec *s, bool stored, const json_t *const *given, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < JOB_KEY_COUNT && rc == 0; i++) {
        const struct job_key *k = &job_keys[i];
        const struct job_default *d = job_default_find(s->family, k->path);

        if (d && (!given[i] || json_is_null(given[i])) && !(stored && job_key_has_neutral(k)))
            rc = fill_from_family(s, k, d, err);
    }
    return rc;
}

/* Drops keys whose steps are still to be counted. */
static int forget_units(const json_t **given, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < JOB_KEY_COUNT && rc >= 0; i++) {
        rc = given[i] ? job_units_read(&job_keys[i], given[i], err) : 0;
        if (rc > 0)
            given[i] = NULL;
    }
    return rc < 0 ? rc : 0;
}

/* Refuses keys of other families. */
static int refuse_foreign(const struct jobspec *s, const json_t *const *given, struct err *err)
{
    for (size_t i = 0; i < JOB_KEY_COUNT; i++) {
        const struct job_key *k = &job_keys[i];

        if (!is_given(given[i]) || job_key_of(k, s->family))
            continue;
        if (jobspec_is_program(s) || job_key_is_of_programs(k))
            return refuse_of_program(k, err);
        if (*k->families == '!')
            return job_error(err, k->path, "not a key of preset '%s'", s->model_preset);
        if (!s->model_preset)
            return job_error(err, k->path, "not a key of models of model.cfg, only of models of the %s %s", job_key_families(k),
                             k->families);
        return job_error(err, k->path, "not a key of preset '%s', only of models of the %s %s", s->model_preset, job_key_families(k),
                         k->families);
    }
    return 0;
}

static int parse(const struct job_presets *presets, const json_t *root, bool stored, bool uncounted, struct jobspec **ret_spec,
                 struct err *err)
{
    const json_t *given[JOB_KEY_COUNT] = { NULL };
    struct jobspec *s;
    int rc;

    if (!json_is_object(root))
        return err_set(err, ERR_INPUT, "a job must be a JSON object, is %s", show(root).text);
    s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    rc = walk(root, "", given, err);
    uncounted = uncounted && !is_given(given[JOB_KEY_program_command]); /* only images are counted */
    if (rc == 0 && uncounted)
        rc = forget_units(given, err);
    if (rc == 0)
        rc = fill_all(s, presets, stored, given, err);
    if (rc == 0)
        rc = jobspec_choose(s, presets, err);
    if (rc == 0)
        rc = fill_family(s, stored, given, err);
    if (rc == 0 && !stored) /* a stored job may hold a key that all families had once */
        rc = refuse_foreign(s, given, err);
    if (rc == 0)
        rc = jobspec_is_program(s) ? jobspec_finish_program(s, err) : jobspec_finish(s, uncounted, err);
    if (rc == 0 && !stored) /* for the same reason */
        rc = jobspec_refuse_idle(s, err);
    if (rc == 0)
        *ret_spec = s;
    else
        jobspec_free(s);
    return rc;
}

const struct job_preset *jobspec_preset(const json_t *root)
{
    const json_t *name = json_object_get(json_object_get(root, "model"), "preset");

    return json_is_string(name) ? job_preset_find(&job_presets, json_string_value(name)) : NULL;
}

int jobspec_parse_for(const struct job_presets *presets, const json_t *root, bool stored, struct jobspec **ret_spec, struct err *err)
{
    return parse(presets, root, stored, false, ret_spec, err);
}

int jobspec_parse_uncounted(const struct job_presets *presets, const json_t *root, struct jobspec **ret_spec, struct err *err)
{
    return parse(presets, root, false, true, ret_spec, err);
}

int jobspec_parse(const json_t *root, struct jobspec **ret_spec, struct err *err)
{
    return jobspec_parse_for(&job_presets, root, false, ret_spec, err);
}

int jobspec_parse_stored(const json_t *root, struct jobspec **ret_spec, struct err *err)
{
    return jobspec_parse_for(&job_presets, root, true, ret_spec, err);
}

void jobspec_free(struct jobspec *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < JOB_KEY_COUNT; i++) {
        void *at = member(s, &job_keys[i]);

        if (job_keys[i].type == TYPE_MAP || job_keys[i].type == TYPE_STRS || job_keys[i].type == TYPE_NUMBERS ||
            job_keys[i].type == TYPE_ARGS)
            json_decref(*(json_t **)at);
        else if (job_keys[i].type <= TYPE_ENUM)
            free(*(char **)at);
    }
    free(s);
}

bool jobspec_next_path(const struct jobspec *s, size_t *i, const char **ret_key, const char **ret_path)
{
    for (; *i < JOB_KEY_COUNT; ++*i) {
        const struct job_key *k = &job_keys[*i];
        const char *path = k->type == TYPE_PATH ? *(char *const *)((const char *)s + k->offset) : NULL;

        if (!path)
            continue;
        *ret_key = k->path;
        *ret_path = path;
        ++*i;
        return true;
    }
    return false;
}

int jobspec_require_absolute(const struct jobspec *s, struct err *err)
{
    const char *key, *path;

    for (size_t i = 0; jobspec_next_path(s, &i, &key, &path);)
        if (path[0] != '/')
            return job_error(err, key, "must be an absolute path, is '%.200s'", path);
    return 0;
}

static bool is_init(const struct job_key *k)
{
    return k->type == TYPE_PATH && strncmp(k->path, "model.init", 10) == 0;
}

int jobspec_inits(const struct jobspec *s, struct jobspec_init ret[JOB_MAX_INITS])
{
    int n = 0;

    for (size_t i = 0; i < JOB_KEY_COUNT; i++) {
        const char *path = is_init(&job_keys[i]) ? *(char *const *)((const char *)s + job_keys[i].offset) : NULL;

        if (path && n < JOB_MAX_INITS)
            ret[n++] = (struct jobspec_init){ job_keys[i].path, path };
    }
    return n;
}

void jobspec_forget_inits(struct jobspec *s)
{
    for (size_t i = 0; i < JOB_KEY_COUNT; i++)
        if (is_init(&job_keys[i])) {
            char **path = (char **)member(s, &job_keys[i]);

            free(*path);
            *path = NULL;
        }
}

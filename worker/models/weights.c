#include "worker/models/weights.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/safetensors.h"
#include "worker/models/model.h"

enum { SHAPE_BYTES = 8 * 24, RENAME_NUMBERS = 4 };

/* A number inside a name. */
struct digits {
    const char *text;
    int len;
};

/* The index in the file of element [k][y][x][c] in memory. */
static size_t stored_at(const struct param *p, int k, int y, int x, int c)
{
    int outputs = p->k / 4;

    if (p->layout == LAYOUT_FLAT)
        return (size_t)k * (size_t)p->c + (size_t)(c % (p->c / p->pixels)) * (size_t)p->pixels + (size_t)(c / (p->c / p->pixels));
    if (p->layout == LAYOUT_IOHW)
        return ((size_t)c * (size_t)outputs + (size_t)(k % outputs)) * 4 + (size_t)(k / outputs);
    return (((size_t)k * (size_t)p->c + (size_t)c) * (size_t)p->r + (size_t)y) * (size_t)p->s + (size_t)x;
}

static void krsc_to_stored(const struct param *p, const float *from, float *to)
{
    for (int k = 0; k < p->k; k++)
        for (int y = 0; y < p->r; y++)
            for (int x = 0; x < p->s; x++)
                for (int c = 0; c < p->c; c++)
                    to[stored_at(p, k, y, x, c)] = *from++;
}

static void stored_to_krsc(const struct param *p, const float *from, float *to)
{
    for (int k = 0; k < p->k; k++)
        for (int y = 0; y < p->r; y++)
            for (int x = 0; x < p->s; x++)
                for (int c = 0; c < p->c; c++)
                    *to++ = from[stored_at(p, k, y, x, c)];
}

int weights_shape(const struct param *p, int64_t shape[4])
{
    shape[0] = p->k;
    if (p->layout == LAYOUT_VECTOR)
        return 1;
    shape[1] = p->c;
    if (p->layout == LAYOUT_FLAT)
        return 2;
    shape[2] = p->r;
    shape[3] = p->s;
    if (p->layout == LAYOUT_IOHW) {
        shape[0] = p->c;
        shape[1] = p->k / 4;
        shape[2] = shape[3] = 2;
    }
    return 4;
}

int weights_put(struct model *m, struct param *p, const float *krsc, struct err *err)
{
    int rc = m->dev->ops->upload(m->dev, p->data, krsc, p->count * sizeof *krsc, err);

    p->version++;
    return rc;
}

/* "[255, 1024, 1, 1]" */
static const char *shape_text(int ndims, const int64_t *shape, char text[SHAPE_BYTES])
{
    int at = snprintf(text, SHAPE_BYTES, "[");

    for (int i = 0; i < ndims; i++)
        at += snprintf(text + at, SHAPE_BYTES - (size_t)at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(text + at, SHAPE_BYTES - (size_t)at, "]");
    return text;
}

static int check_sound(const struct param *p, const float *v, struct err *err)
{
    bool variance = p->kind == PARAM_VAR;

    for (size_t i = 0; i < p->count; i++)
        if (!isfinite(v[i]) || (variance && v[i] < 0))
            return err_set(err, ERR_DATA, "%s: number %zu is %g, which %s", p->name, i, (double)v[i],
                           variance ? "is no variance" : "is not finite");
    return 0;
}

int weights_put_stored(struct model *m, struct param *p, const float *stored, bool own, struct err *err)
{
    float *krsc = malloc(p->count * sizeof *krsc);
    int rc = krsc ? 0 : err_set(err, ERR_DEVICE, "out of memory: %s", p->name);

    if (rc >= 0 && !own)
        rc = check_sound(p, stored, err);
    if (rc >= 0) {
        stored_to_krsc(p, stored, krsc);
        rc = weights_put(m, p, krsc, err);
    }
    free(krsc);
    return rc;
}

int weights_put_array(struct model *m, struct param *p, const struct st_array *a, bool own, struct err *err)
{
    char theirs[SHAPE_BYTES], ours[SHAPE_BYTES];
    int64_t want[4];
    int ndims = weights_shape(p, want), rc;
    float *stored;

    if (a->ndims != ndims || memcmp(a->shape, want, (size_t)ndims * sizeof *want) != 0)
        return err_set(err, ERR_CORRUPT, "%s is %s in the file and %s in the model", p->name, shape_text(a->ndims, a->shape, theirs),
                       shape_text(ndims, want, ours));
    stored = malloc(p->count * sizeof *stored);
    rc = stored ? safetensors_f32(a, stored, err) : err_set(err, ERR_DEVICE, "out of memory: %s", p->name);
    if (rc >= 0)
        rc = weights_put_stored(m, p, stored, own, err);
    free(stored);
    return rc;
}

/* ---- names of others ---- */

/* True if the pattern matches the name; ret[k] is then the k-th number. */
static bool matches(const char *pattern, const char *name, struct digits ret[RENAME_NUMBERS])
{
    int n = 0;

    for (; *pattern; pattern++) {
        size_t len = *pattern == '#' ? strspn(name, "0123456789") : *pattern == *name;

        if (len == 0 || (*pattern == '#' && n == RENAME_NUMBERS))
            return false;
        if (*pattern == '#')
            ret[n++] = (struct digits){ name, (int)len };
        name += len;
    }
    return *name == '\0';
}

/* Renames ours by rule r, into buf. NULL: the rule does not apply. */
static const char *renamed(const struct rename *r, const char *ours, char *buf, size_t size)
{
    struct digits number[RENAME_NUMBERS];
    size_t at = 0;
    int n = 0;

    if (!matches(r->ours, ours, number))
        return NULL;
    for (const char *p = r->theirs; *p && at < size; p++) {
        if (*p == '#')
            at += (size_t)snprintf(buf + at, size - at, "%.*s", number[n].len, number[n].text);
        else
            at += (size_t)snprintf(buf + at, size - at, "%c", *p);
        n += *p == '#';
    }
    return buf;
}

/* Looks for our name, then for the other names in order. NULL: not in the file. */
static const struct st_array *find(const struct safetensors *file, const struct param *p, const struct rename *renames)
{
    const struct st_array *a = safetensors_find(file, p->name);
    char buf[2 * sizeof p->name];

    for (const struct rename *r = renames; !a && r && r->ours; r++) {
        const char *theirs = renamed(r, p->name, buf, sizeof buf);

        a = theirs ? safetensors_find(file, theirs) : NULL;
    }
    return a;
}

/* ---- from files ---- */

/* An array of the file with a name that ends with a dot and ours, or NULL. */
static const struct st_array *longer_name(const struct safetensors *file, const char *ours)
{
    size_t len = strlen(ours);

    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct st_array *a = safetensors_at(file, i);
        size_t theirs = strlen(a->name);

        if (theirs > len && a->name[theirs - len - 1] == '.' && strcmp(a->name + theirs - len, ours) == 0)
            return a;
    }
    return NULL;
}

static int missing(const struct safetensors *file, const struct param *p, struct err *err)
{
    const struct st_array *near = longer_name(file, p->name);

    if (near)
        return err_set(err, ERR_CORRUPT, "%s is not in the file, which has '%.160s': names must not have that prefix", p->name, near->name);
    return err_set(err, ERR_CORRUPT, "%s is not in the file", p->name);
}

static int take(struct model *m, const struct safetensors *file, const struct weights_wanted *w, struct weights_taken *taken,
                struct err *err)
{
    size_t known = 0;

    for (int i = 0; i < m->nparams; i++) {
        struct param *p = m->params[i];
        const struct st_array *a = find(file, p, w->renames);
        bool wanted = (!w->wants || w->wants(w->arg, p)) && !(a && w->of_other_classes && w->of_other_classes(w->arg, p, a));
        int rc = !wanted ? 0 : a ? weights_put_array(m, p, a, w->own, err) : missing(file, p, err);

        if (rc < 0) {
            taken->bad = rc == ERR_CORRUPT ? p : NULL;
            return rc;
        }
        taken->loaded[i] = wanted;
        taken->n += wanted;
        known += a != NULL;
    }
    taken->homeless = safetensors_count(file) > known ? safetensors_count(file) - known : 0; /* two parameters may share an array */
    return 0;
}

int weights_open(const char *path, struct safetensors **ret_file, const char **ret_prefix, struct err *err)
{
    int rc = safetensors_open(path, ret_file, err);

    *ret_prefix = rc < 0 ? NULL : safetensors_unwrap(*ret_file);
    return rc;
}

static bool *flags(const struct model *m, struct err *err)
{
    bool *all = calloc((size_t)m->nparams + 1, sizeof *all);

    if (!all)
        err_set(err, ERR_DEVICE, "out of memory");
    return all;
}

int weights_import(struct model *m, const struct safetensors *file, struct err *err)
{
    struct weights_taken taken = { .loaded = flags(m, err) };
    int rc = taken.loaded ? take(m, file, &(struct weights_wanted){ .own = true }, &taken, err) : err->code;

    free(taken.loaded);
    return rc;
}

int weights_take(struct model *m, const char *path, const struct weights_wanted *w, struct weights_taken *taken, struct err *err)
{
    struct safetensors *file;
    int rc = weights_open(path, &file, &taken->prefix, err);

    if (rc >= 0) {
        rc = take(m, file, w, taken, err);
        safetensors_close(file);
    }
    if (rc == ERR_CORRUPT)
        rc = err->code = ERR_DATA;
    return rc;
}

int weights_load(struct model *m, const char *path, const struct rename *renames, struct err *err)
{
    struct weights_taken taken = { .loaded = flags(m, err) };
    int rc = taken.loaded ? weights_take(m, path, &(struct weights_wanted){ .renames = renames }, &taken, err) : err->code;

    free(taken.loaded);
    if (rc < 0) {
        err_prefix(err, "model.init '%.200s'", path);
        return rc;
    }
    weights_say_taken(m, path, taken.n);
    weights_say_homeless(m, taken.homeless);
    weights_say_prefix(m, taken.prefix);
    return 0;
}

/* ---- the report of loading ---- */

void weights_say(struct model *m, const char *fmt, ...)
{
    size_t at = strlen(m->loaded);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(m->loaded + at, sizeof m->loaded - at, fmt, ap);
    va_end(ap);
}

void weights_list(struct weights_list *l, const char *name)
{
    char clean[160];
    size_t i = 0;

    if (l->n++ >= WEIGHTS_LISTED)
        return;
    for (; name[i] && i + 1 < sizeof clean; i++)
        clean[i] = (unsigned char)name[i] < ' ' || name[i] == 0x7f ? '?' : name[i];
    clean[i] = '\0';
    fprintf(stderr, "model.init '%.200s': %s: %s\n", l->path, l->what, clean);
}

void weights_list_end(const struct weights_list *l)
{
    if (l->n > WEIGHTS_LISTED)
        fprintf(stderr, "model.init '%.200s': %s: and %d more\n", l->path, l->what, l->n - WEIGHTS_LISTED);
}

void weights_say_taken(struct model *m, const char *path, int n)
{
    weights_say(m, "model.init '%.200s': %d of %d arrays loaded", path, n, m->nparams);
}

void weights_say_homeless(struct model *m, size_t n)
{
    if (n > 0)
        weights_say(m, "; arrays of the file without a place in the model: %zu", n);
}

void weights_say_prefix(struct model *m, const char *prefix)
{
    if (prefix)
        weights_say(m, "; all names of the file begin with '%s', which was left out", prefix);
}

float *weights_get(struct model *m, const struct param *p, struct err *err)
{
    float *w = p ? malloc(p->count * sizeof *w) : NULL;

    if (p && (!w || m->dev->ops->download(m->dev, w, p->data, p->count * sizeof *w, err) < 0)) {
        free(w);
        err_set(err, ERR_DEVICE, "out of memory: %s", p->name);
        return NULL;
    }
    return w;
}

/* ---- export ---- */

float *weights_get_stored(struct model *m, const struct param *p, struct err *err)
{
    float *krsc = weights_get(m, p, err), *stored = malloc(p->count * sizeof *stored);

    if (!krsc || !stored) {
        free(krsc);
        free(stored);
        err_set(err, ERR_DEVICE, "out of memory: %s", p->name);
        return NULL;
    }
    krsc_to_stored(p, krsc, stored);
    free(krsc);
    return stored;
}

static int export_one(struct model *m, const struct param *p, struct st_array *a, struct err *err)
{
    a->name = p->name;
    a->dtype = ST_F32;
    a->ndims = weights_shape(p, a->shape);
    a->data = weights_get_stored(m, p, err);
    return a->data ? 0 : err->code;
}

int weights_export(struct model *m, struct st_array **ret_arrays, struct err *err)
{
    struct st_array *a = calloc((size_t)m->nparams, sizeof *a);
    int rc = a ? 0 : err_set(err, ERR_DEVICE, "out of memory");

    for (int i = 0; i < m->nparams && rc >= 0; i++)
        rc = export_one(m, m->params[i], &a[i], err);
    if (rc < 0) {
        weights_export_free(m, a);
        return rc;
    }
    *ret_arrays = a;
    return 0;
}

void weights_export_free(struct model *m, struct st_array *arrays)
{
    for (int i = 0; arrays && i < m->nparams; i++)
        free((void *)arrays[i].data);
    free(arrays);
}

void weights_named_free(struct st_array *arrays, size_t n)
{
    for (size_t i = 0; arrays && i < n; i++) {
        free((void *)arrays[i].data);
        free((void *)arrays[i].name);
    }
    free(arrays);
}

#include "worker/models/arrays.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/safetensors.h"
#include "worker/models/model.h"
#include "worker/models/weights.h"

enum { LISTED = 3 /* most names of arrays in a message */ };

static const char *const program[] = { [RCNN_TV] = "torchvision's names",
                                       [RCNN_D2] = "detectron2's names",
                                       [RCNN_TV_OLD] = "torchvision's old names",
                                       [RCNN_TV_BODY] = "a backbone of torchvision",
                                       [RCNN_D2_BODY] = "a backbone of detectron2",
                                       [RCNN_CAFFE2] = "a backbone of Detectron",
                                       [RCNN_MM] = "mmdetection's names" };

static const struct st_array *array_of(const struct arrays_file *f, enum rcnn_spelling spelling, const struct rcnn_named *a)
{
    char name[ARRAYS_NAME_BYTES];

    return f->of->spell(spelling, a, name, sizeof name) ? safetensors_find(f->file, name) : NULL;
}

const struct st_array *arrays_find(const struct arrays_file *f, const struct rcnn_named *a)
{
    return array_of(f, f->spelling, a);
}

/* The spelling with the most arrays in the file. */
static enum rcnn_spelling spelling_of(const struct arrays_file *f)
{
    enum rcnn_spelling best = RCNN_TV;
    int most = 0;

    for (int s = 0; s < f->of->spellings; s++) {
        int have = 0;

        for (int i = 0; i < f->n; i++)
            have += array_of(f, (enum rcnn_spelling)s, &f->named[i]) != NULL;
        if (have > most) {
            most = have;
            best = (enum rcnn_spelling)s;
        }
    }
    return best;
}

static void mark(struct arrays_file *f, const struct st_array *a)
{
    for (size_t i = 0; i < safetensors_count(f->file); i++)
        if (safetensors_at(f->file, i) == a)
            f->used[i] = true;
}

/* ---- all arrays ---- */

static int put_one(struct arrays_file *f, const struct rcnn_named *a, const struct st_array *in, struct err *err)
{
    int rc;

    mark(f, in);
    rc = f->of->put(f, a, in, err);
    if (rc < 0 && strcmp(in->name, a->p->name) != 0)
        err_prefix(err, "'%.*s'", ARRAYS_NAME_BYTES, in->name);
    f->taken += rc == 0;
    return rc;
}

bool arrays_has_group(const struct arrays_file *f, const char *group)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->of->group(&f->named[i]), group) == 0 && arrays_find(f, &f->named[i]))
            return true;
    return false;
}

/* True for an array that the spelling has no name for, and for a group that is wholly missing. They keep their initial
 * values. */
static bool may_lack(const struct arrays_file *f, const struct rcnn_named *a)
{
    char name[ARRAYS_NAME_BYTES];

    return !f->of->spell(f->spelling, a, name, sizeof name) || (a->part.place > RCNN_SHORTCUT && !arrays_has_group(f, f->of->group(a)));
}

/* Fails on a part with missing arrays. The message names the first one; the log lists all. */
static int broken(const struct arrays_file *f, const struct rcnn_named *first, struct err *err)
{
    struct weights_list list = { f->spec->model_init, "not in the file", 0 };
    char more[80] = "";

    for (int i = 0; i < f->n; i++)
        if (!arrays_find(f, &f->named[i]) && !may_lack(f, &f->named[i]))
            weights_list(&list, f->named[i].p->name);
    weights_list_end(&list);
    if (list.n > 1)
        snprintf(more, sizeof more, "; %d arrays are missing in all, the rank's log names them", list.n);
    return err_set(err, ERR_DATA, "%s is not in the file, which has %s%s", first->p->name, program[f->spelling], more);
}

static int put_all(struct arrays_file *f, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < f->n && rc >= 0; i++) {
        const struct rcnn_named *a = &f->named[i];
        const struct st_array *in = arrays_find(f, a);

        if (in)
            rc = put_one(f, a, in, err);
        else if (!may_lack(f, a))
            rc = broken(f, a, err);
    }
    return rc < 0 ? rc : 0;
}

/* ---- messages ---- */

static void list_missing(const struct arrays_file *f)
{
    struct weights_list list = { f->spec->model_init, "not in the file", 0 };

    for (int i = 0; i < f->n; i++)
        if (f->named[i].part.place > RCNN_SHORTCUT && !arrays_find(f, &f->named[i]))
            weights_list(&list, f->named[i].p->name);
    weights_list_end(&list);
}

static void say_missing(const struct arrays_file *f)
{
    const char *before = "; not in the file: ", *last = "";

    for (int i = 0; i < f->n; i++) {
        const char *group = f->of->group(&f->named[i]);

        if (strcmp(group, last) == 0 || f->named[i].part.place <= RCNN_SHORTCUT || arrays_has_group(f, group))
            continue;
        weights_say(f->m, "%s%s", before, group);
        before = ", ";
        last = group;
    }
    if (*last)
        list_missing(f);
}

static void say_homeless(const struct arrays_file *f)
{
    struct weights_list list = { f->spec->model_init, "without a place in the model", 0 };
    int n;

    for (size_t i = 0; i < safetensors_count(f->file); i++) {
        const char *name = safetensors_at(f->file, i)->name;

        if (f->used[i] || rcnn_is_idle(name))
            continue;
        weights_list(&list, name);
        n = list.n;
        if (n <= LISTED)
            weights_say(f->m, "%s%.80s", n == 1 ? "; without a place in the model: " : ", ", name);
    }
    weights_list_end(&list);
    if (list.n > LISTED)
        weights_say(f->m, " and %d more, which the log names", list.n - LISTED);
}

static void say(const struct arrays_file *f)
{
    weights_say_taken(f->m, f->spec->model_init, f->taken);
    weights_say(f->m, " (%s%s)", program[f->spelling], f->note);
    f->of->say(f);
    say_missing(f);
    say_homeless(f);
}

/* ---- the file ---- */

/* Checks that the file has the job's backbone: place of the strides and colours of pictures. The file says so, or its
 * names do, or it is unknown and accepted. A wrong backbone would only make results worse, without any error. */
static int check_backbone(const struct arrays_file *f, struct err *err)
{
    const char *told = safetensors_meta(f->file, RCNN_TRAIT_BACKBONE), *backbone = f->spec->model_backbone;
    const char *fits = told ? told : backbone;
    bool detector = f->spelling == RCNN_TV || f->spelling == RCNN_TV_OLD;

    if (!told && (f->spelling == RCNN_TV_BODY || detector))
        fits = "torchvision";
    else if (!told && f->spelling == RCNN_CAFFE2)
        fits = "msra";
    if (strcmp(fits, backbone) == 0)
        return 0;
    if (!told && detector && f->of->flavors)
        return err_field(
            err, ERR_DATA, "model.backbone",
            "the file is a detector of torchvision, which fits model.flavor=tv, or at least model.backbone=torchvision; it is %s",
            backbone);
    if (told)
        return err_field(err, ERR_DATA, "model.backbone", "the file is of a job with model.backbone=%.40s; it is %s", told, backbone);
    return err_field(err, ERR_DATA, "model.backbone", "the file is %s, which fits model.backbone=%s; it is %s", program[f->spelling], fits,
                     backbone);
}

static int load_file(struct arrays_file *f, struct err *err)
{
    int rc;

    f->used = calloc(safetensors_count(f->file) + 1, sizeof *f->used);
    if (!f->used)
        return err_set(err, ERR_DEVICE, "out of memory");
    f->spelling = spelling_of(f);
    f->note = "";
    rc = check_backbone(f, err);
    if (rc >= 0)
        rc = f->of->check(f, err);
    if (rc >= 0)
        rc = put_all(f, err);
    if (rc >= 0)
        say(f);
    free(f->used);
    return rc;
}

int arrays_load(struct arrays_file *f, struct err *err)
{
    struct safetensors *file;
    const char *prefix;
    int rc = weights_open(f->spec->model_init, &file, &prefix, err);

    if (rc >= 0) {
        f->file = file;
        rc = load_file(f, err);
        weights_say_prefix(f->m, prefix);
        safetensors_close(file);
    }
    if (rc == ERR_CORRUPT)
        rc = err->code = ERR_DATA;
    if (rc < 0)
        err_prefix(err, "model.init '%.200s'", f->spec->model_init);
    return rc;
}

/* ---- to files ---- */

static int export_one(const struct arrays_export *x, const struct rcnn_named *a, struct st_array *ret, struct err *err)
{
    char name[ARRAYS_NAME_BYTES];

    x->of->spell(x->spelling, a, name, sizeof name);
    ret->dtype = ST_F32;
    ret->ndims = weights_shape(a->p, ret->shape);
    ret->data = x->stored ? x->stored(x, a, ret, err) : weights_get_stored(x->m, a->p, err);
    ret->name = ret->data ? strdup(name) : NULL;
    return ret->name ? 0 : err_set(err, ERR_DEVICE, "out of memory: %s", name);
}

int arrays_export(const struct arrays_export *x, struct st_array **ret_arrays, size_t *ret_n, struct err *err)
{
    struct st_array *a = calloc((size_t)x->n, sizeof *a);
    int rc = a ? 0 : err_set(err, ERR_DEVICE, "out of memory");

    for (int i = 0; i < x->n && rc >= 0; i++)
        rc = export_one(x, &x->named[i], &a[i], err);
    if (rc < 0) {
        weights_named_free(a, (size_t)x->n);
        return rc;
    }
    *ret_arrays = a;
    *ret_n = (size_t)x->n;
    return 0;
}

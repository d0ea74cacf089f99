#include "worker/models/rcnn/load.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/safetensors.h"
#include "worker/models/arrays.h"
#include "worker/models/model.h"
#include "worker/models/rcnn/columns.h"
#include "worker/models/rcnn/network.h"
#include "worker/models/rcnn/rcnn.h"
#include "worker/models/registry.h"
#include "worker/models/weights.h"

enum { ROWS_MOST = 4096 /* ids of categories from here on are not used as rows */ };

struct load {
    struct arrays_file f;
    struct model_classes job;
    int classes; /* classes of the file; 0: it has no arrays of classes */
    bool background_first;
    const int64_t *id;  /* ids of the job's classes, if they number the file's rows; NULL: the rows are in the order of classes */
    bool left_out;      /* rows of classes are left out: another number of classes */
    const char *flavor; /* flavor of the file; NULL: unknown */
    long pool;          /* pooled size that its mask head was trained with; 0: unknown */
};

static bool spell(enum rcnn_spelling spelling, const struct rcnn_named *a, char *buf, size_t size)
{
    return rcnn_spell(spelling, &a->part, a->array, buf, size);
}

static const char *group_of(const struct rcnn_named *a)
{
    return rcnn_group(a->part.place);
}

/* ---- columns of classes ---- */

static int64_t rows_in_file(const struct load *l, enum rcnn_place place)
{
    const struct rcnn_named named = { .part = { .place = place }, .array = RCNN_BIAS };
    const struct st_array *a = arrays_find(&l->f, &named);

    return a && a->ndims == 1 ? a->shape[0] : 0;
}

/* Returns the ids if they can number rows beside the background's; otherwise NULL. */
static const int64_t *ids_as_rows(struct model_classes c)
{
    for (int k = 0; c.id && k < c.n; k++)
        if (c.id[k] <= (k > 0 ? c.id[k - 1] : 0) || c.id[k] >= ROWS_MOST)
            return NULL;
    return c.n > 0 ? c.id : NULL;
}

/* Finds the number of classes and the place of the background. Boxes have rows for the background only if it comes
 * first. The number of rows may be the job's largest id + 1 instead of its number of classes. */
static int read_columns(struct load *l, struct err *err)
{
    const struct model_classes classes = l->job;
    int64_t scores = rows_in_file(l, RCNN_CLASSES), boxes = rows_in_file(l, RCNN_BOXES);

    if (scores == 0 && boxes == 0)
        return 0;
    if (scores < 2 || scores > 1 << 24 || (boxes != 4 * scores && boxes != 4 * (scores - 1)))
        return err_set(err, ERR_DATA, "%lld scores and %lld numbers of boxes belong to no count of classes", (long long)scores,
                       (long long)boxes);
    l->classes = (int)scores - 1;
    l->background_first = boxes == 4 * scores;
    if (l->background_first && l->classes != classes.n && ids_as_rows(classes) && scores == classes.id[classes.n - 1] + 1 &&
        !safetensors_meta(l->f.file, "classes")) { /* checkpoints of jobs have one row after the other */
        l->id = classes.id;
        l->classes = classes.n;
    }
    return 0;
}

static int put_turned(struct load *l, const struct rcnn_named *a, const struct st_array *in, struct err *err)
{
    const struct rcnn_rows from = { a->part.place, l->classes, l->background_first, l->id };
    const struct rcnn_rows to = { a->part.place, l->classes, rcnn_background_first(l->f.m), NULL };
    size_t width = a->p->count / (size_t)rcnn_row_count(&to);
    float *theirs, *ours;
    int rc;

    if (st_count(in) != (uint64_t)rcnn_row_count(&from) * width || in->ndims < 1 || in->shape[0] != rcnn_row_count(&from))
        return err_set(err, ERR_CORRUPT, "%s has %lld rows and %llu numbers in the file; %d rows of %zu numbers are wanted", a->p->name,
                       in->ndims > 0 ? (long long)in->shape[0] : 0, (unsigned long long)st_count(in), rcnn_row_count(&from), width);
    theirs = malloc((size_t)st_count(in) * sizeof *theirs);
    ours = malloc(a->p->count * sizeof *ours);
    rc = theirs && ours ? safetensors_f32(in, theirs, err) : err_set(err, ERR_DEVICE, "out of memory: %s", a->p->name);
    if (rc >= 0) {
        rcnn_turn_rows(&from, theirs, &to, ours, width);
        rc = weights_put_stored(l->f.m, a->p, ours, false, err);
    }
    free(theirs);
    free(ours);
    return rc;
}

static int put(struct arrays_file *f, const struct rcnn_named *a, const struct st_array *in, struct err *err)
{
    struct load *l = (struct load *)f;

    if (!rcnn_has_rows(a->part.place))
        return weights_put_array(f->m, a->p, in, false, err);
    if (l->classes == rcnn_classes(f->m))
        return put_turned(l, a, in, err);
    l->left_out = true;
    return ARRAYS_LEFT_OUT;
}

/* ---- the heads as a whole ---- */

static void say(const struct arrays_file *f)
{
    const struct load *l = (const struct load *)f;
    const char *flavor = f->spec->model_flavor;

    if (l->flavor && strcmp(l->flavor, flavor) != 0)
        weights_say(f->m, "; its model.flavor is %.40s, the job's is %s", l->flavor, flavor);
    if (l->pool && l->pool != f->spec->model_mask_pool)
        weights_say(f->m, "; its model.mask_pool is %ld, the job's is %lld", l->pool, (long long)f->spec->model_mask_pool);
    if (l->left_out)
        weights_say(f->m, "; left out, as the file is of %d classes and the job of %d: the box predictor%s", l->classes, rcnn_classes(f->m),
                    rcnn_network_of(f->m)->masks && arrays_has_group(f, rcnn_group(RCNN_PREDICTOR)) ? ", the mask predictor" : "");
}

/* The flavor that the heads were trained with. A backbone alone has none: NULL. */
static const char *flavor_of(const struct load *l)
{
    const char *told = safetensors_meta(l->f.file, RCNN_TRAIT_FLAVOR);

    return told ? told : l->f.spelling == RCNN_TV || l->f.spelling == RCNN_TV_OLD ? "tv" : NULL;
}

/* The pooled size of the mask head. Its weights fit any size, but they were trained for this one. 0: unknown. */
static long pool_of(const struct load *l)
{
    const char *told = safetensors_meta(l->f.file, RCNN_TRAIT_POOL);

    if (!rcnn_network_of(l->f.m)->masks || !arrays_has_group(&l->f, rcnn_group(RCNN_PREDICTOR)))
        return 0;
    if (told)
        return strtol(told, NULL, 10);
    return safetensors_meta(l->f.file, RCNN_TRAIT_FLAVOR) ? RCNN_USUAL_POOL : 0;
}

static int check(struct arrays_file *f, struct err *err)
{
    struct load *l = (struct load *)f;
    int rc;

    l->flavor = flavor_of(l);
    l->pool = pool_of(l);
    rc = read_columns(l, err);
    f->note = l->id ? ", classes by the ids of their categories" : "";
    return rc;
}

static const struct arrays_family family = {
    .spellings = RCNN_SPELLINGS, .flavors = true, .spell = spell, .group = group_of, .check = check, .put = put, .say = say
};

int rcnn_load(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err)
{
    const struct pyramid *p = &rcnn_network_of(m)->front;
    struct load l = { .f = { .of = &family, .m = m, .named = p->named, .n = p->nnamed, .spec = spec }, .job = classes };

    return arrays_load(&l.f, err);
}

/* ---- to files ---- */

/* The numbers of an array in stored order, with rows of classes as in the spelling; torchvision has rows by id if there
 * are ids. */
static float *stored_copy(const struct arrays_export *x, const struct rcnn_named *a, struct st_array *ret, struct err *err)
{
    const int64_t *id = x->spelling == RCNN_TV ? ids_as_rows(*(const struct model_classes *)x->arg) : NULL;
    const struct rcnn_rows from = { a->part.place, rcnn_classes(x->m), rcnn_background_first(x->m), NULL };
    const struct rcnn_rows to = { a->part.place, rcnn_classes(x->m), x->spelling == RCNN_TV, id };
    float *ours = weights_get_stored(x->m, a->p, err), *theirs;
    size_t width;

    if (!ours || !rcnn_has_rows(a->part.place))
        return ours;
    width = a->p->count / (size_t)rcnn_row_count(&from);
    theirs = malloc((size_t)rcnn_row_count(&to) * width * sizeof *theirs);
    if (theirs)
        rcnn_turn_rows(&from, ours, &to, theirs, width);
    else
        err_set(err, ERR_DEVICE, "out of memory: %s", a->p->name);
    if (theirs && a->part.place == RCNN_CLASSES && a->array == RCNN_BIAS)
        rcnn_silence_rows(&to, theirs);
    ret->shape[0] = rcnn_row_count(&to);
    free(ours);
    return theirs;
}

const char *const rcnn_dialects[] = { "torchvision", "detectron2", NULL };

int rcnn_export_as(struct model *m, int dialect, struct model_classes classes, struct st_array **ret_arrays, size_t *ret_n, struct err *err)
{
    static const enum rcnn_spelling spelling[] = { RCNN_TV, RCNN_D2 };
    const struct pyramid *p = &rcnn_network_of(m)->front;
    const struct arrays_export x = { &family, m, p->named, p->nnamed, spelling[dialect], stored_copy, &classes };

    return arrays_export(&x, ret_arrays, ret_n, err);
}

/* For each dialect: the settings that its program needs for a body or heads of the other dialect. Specs rcnn sections
 * 1.3, 9.3 and 10. */
static const struct {
    const char *body, *heads;
} told[] = {
    { "pictures are blue, green, red of 0 to 255 with image_mean=[103.53, 116.28, 123.675] and image_std=[1, 1, 1], bottlenecks have their "
      "stride in conv1",
      "anchors are not rounded, RoIAlign has aligned=True and sampling_ratio=0" },
    { "INPUT.FORMAT RGB, MODEL.PIXEL_MEAN [123.675, 116.28, 103.53], MODEL.PIXEL_STD [58.395, 57.12, 57.375], MODEL.RESNETS.STRIDE_IN_1X1 "
      "False",
      "anchors are rounded, POOLER_TYPE ROIAlign and POOLER_SAMPLING_RATIO 2 of ROI_BOX_HEAD and ROI_MASK_HEAD" },
};

void rcnn_export_told(const struct model *m, int dialect, char *ret, size_t size)
{
    const char *name = rcnn_dialects[dialect];
    bool torchvision = dialect == 0;
    bool body = rcnn_network_of(m)->front.colours.swap == torchvision, heads = rcnn_background_first(m) != torchvision;

    if (!body && !heads)
        snprintf(ret, size, "%s's defaults are the job's: colours, strides, anchors, RoIAlign", name);
    else
        snprintf(ret, size, "%s is to be set up as the job was: %s%s%s", name, body ? told[dialect].body : "", body && heads ? "; " : "",
                 heads ? told[dialect].heads : "");
}

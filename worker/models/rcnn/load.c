#include "worker/models/rcnn/load.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/safetensors.h"
#include "worker/models/model.h"
#include "worker/models/rcnn/columns.h"
#include "worker/models/rcnn/network.h"
#include "worker/models/rcnn/rcnn.h"
#include "worker/models/registry.h"
#include "worker/models/weights.h"

enum {
    NAME_BYTES = 160,
    LISTED = 3,       /* most names of arrays in a message */
    ROWS_MOST = 4096, /* ids of categories from here on are not used as rows */
};

static const char *const program[] = { [RCNN_TV] = "torchvision's names",           [RCNN_D2] = "detectron2's names",
                                       [RCNN_TV_OLD] = "torchvision's old names",   [RCNN_TV_BODY] = "a backbone of torchvision",
                                       [RCNN_D2_BODY] = "a backbone of detectron2", [RCNN_CAFFE2] = "a backbone of Detectron" };

struct load {
    struct model *m;
    const struct rcnn_network *n;
    const struct safetensors *file;
    const char *path;
    enum rcnn_spelling spelling;
    bool *used; /* [arrays of the file] */
    int taken;
    int classes; /* classes of the file; 0: it has no arrays of classes */
    bool background_first;
    const int64_t *id;  /* ids of the job's classes, if they number the file's rows; NULL: the rows are in the order of classes */
    bool left_out;      /* rows of classes are left out: another number of classes */
    const char *flavor; /* flavor of the file; NULL: unknown */
    long pool;          /* pooled size that its mask head was trained with; 0: unknown */
};

static const struct st_array *array_of(const struct load *l, enum rcnn_spelling spelling, const struct rcnn_named *a)
{
    char name[NAME_BYTES];

    return rcnn_spell(spelling, &a->part, a->array, name, sizeof name) ? safetensors_find(l->file, name) : NULL;
}

/* The spelling with the most arrays in the file. */
static enum rcnn_spelling spelling_of(const struct load *l)
{
    enum rcnn_spelling best = RCNN_TV;
    int most = 0;

    for (int s = 0; s < RCNN_SPELLINGS; s++) {
        int have = 0;

        for (int i = 0; i < l->n->nnamed; i++)
            have += array_of(l, (enum rcnn_spelling)s, &l->n->named[i]) != NULL;
        if (have > most) {
            most = have;
            best = (enum rcnn_spelling)s;
        }
    }
    return best;
}

static void mark(struct load *l, const struct st_array *a)
{
    for (size_t i = 0; i < safetensors_count(l->file); i++)
        if (safetensors_at(l->file, i) == a)
            l->used[i] = true;
}

/* ---- columns of classes ---- */

static int64_t rows_in_file(const struct load *l, enum rcnn_place place)
{
    const struct rcnn_named named = { .part = { .place = place }, .array = RCNN_BIAS };
    const struct st_array *a = array_of(l, l->spelling, &named);

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
static int read_columns(struct load *l, struct model_classes classes, struct err *err)
{
    int64_t scores = rows_in_file(l, RCNN_CLASSES), boxes = rows_in_file(l, RCNN_BOXES);

    if (scores == 0 && boxes == 0)
        return 0;
    if (scores < 2 || scores > 1 << 24 || (boxes != 4 * scores && boxes != 4 * (scores - 1)))
        return err_set(err, ERR_DATA, "%lld scores and %lld numbers of boxes belong to no count of classes", (long long)scores,
                       (long long)boxes);
    l->classes = (int)scores - 1;
    l->background_first = boxes == 4 * scores;
    if (l->background_first && l->classes != classes.n && ids_as_rows(classes) && scores == classes.id[classes.n - 1] + 1 &&
        !safetensors_meta(l->file, "classes")) { /* checkpoints of jobs have one row after the other */
        l->id = classes.id;
        l->classes = classes.n;
    }
    return 0;
}

static int put_turned(struct load *l, const struct rcnn_named *a, const struct st_array *in, struct err *err)
{
    const struct rcnn_rows from = { a->part.place, l->classes, l->background_first, l->id };
    const struct rcnn_rows to = { a->part.place, l->classes, rcnn_background_first(l->m), NULL };
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
        rc = weights_put_stored(l->m, a->p, ours, false, err);
    }
    free(theirs);
    free(ours);
    return rc;
}

/* ---- all arrays ---- */

static int put_one(struct load *l, const struct rcnn_named *a, const struct st_array *in, struct err *err)
{
    int rc;

    mark(l, in);
    if (rcnn_has_rows(a->part.place) && l->classes != rcnn_classes(l->m)) {
        l->left_out = true;
        return 0;
    }
    rc = rcnn_has_rows(a->part.place) ? put_turned(l, a, in, err) : weights_put_array(l->m, a->p, in, false, err);
    if (rc < 0 && strcmp(in->name, a->p->name) != 0)
        err_prefix(err, "'%.*s'", NAME_BYTES, in->name);
    l->taken += rc >= 0;
    return rc;
}

static bool same_group(const struct rcnn_named *a, const char *group)
{
    return strcmp(rcnn_group(a->part.place), group) == 0;
}

/* Returns whether the file has any array of the group. */
static bool has_group(const struct load *l, const char *group)
{
    for (int i = 0; i < l->n->nnamed; i++)
        if (same_group(&l->n->named[i], group) && array_of(l, l->spelling, &l->n->named[i]))
            return true;
    return false;
}

/* True for an array that the spelling has no name for, and for a group that is wholly missing. They keep their initial
 * values. */
static bool may_lack(const struct load *l, const struct rcnn_named *a)
{
    const char *group = rcnn_group(a->part.place);
    char name[NAME_BYTES];

    return !rcnn_spell(l->spelling, &a->part, a->array, name, sizeof name) || (a->part.place > RCNN_SHORTCUT && !has_group(l, group));
}

/* Fails on a part with missing arrays. The message names the first one; the log lists all. */
static int broken(const struct load *l, const struct rcnn_named *first, struct err *err)
{
    struct weights_list list = { l->path, "not in the file", 0 };
    char more[80] = "";

    for (int i = 0; i < l->n->nnamed; i++)
        if (!array_of(l, l->spelling, &l->n->named[i]) && !may_lack(l, &l->n->named[i]))
            weights_list(&list, l->n->named[i].p->name);
    weights_list_end(&list);
    if (list.n > 1)
        snprintf(more, sizeof more, "; %d arrays are missing in all, the rank's log names them", list.n);
    return err_set(err, ERR_DATA, "%s is not in the file, which has %s%s", first->p->name, program[l->spelling], more);
}

static int put_all(struct load *l, struct model_classes classes, struct err *err)
{
    int rc = read_columns(l, classes, err);

    for (int i = 0; i < l->n->nnamed && rc >= 0; i++) {
        const struct rcnn_named *a = &l->n->named[i];
        const struct st_array *in = array_of(l, l->spelling, a);

        if (in)
            rc = put_one(l, a, in, err);
        else if (!may_lack(l, a))
            rc = broken(l, a, err);
    }
    return rc;
}

/* ---- messages ---- */

static void list_missing(const struct load *l)
{
    struct weights_list list = { l->path, "not in the file", 0 };

    for (int i = 0; i < l->n->nnamed; i++)
        if (l->n->named[i].part.place > RCNN_SHORTCUT && !array_of(l, l->spelling, &l->n->named[i]))
            weights_list(&list, l->n->named[i].p->name);
    weights_list_end(&list);
}

static void say_missing(const struct load *l)
{
    const char *before = "; not in the file: ", *last = "";

    for (int i = 0; i < l->n->nnamed; i++) {
        const char *group = rcnn_group(l->n->named[i].part.place);

        if (strcmp(group, last) == 0 || l->n->named[i].part.place <= RCNN_SHORTCUT || has_group(l, group))
            continue;
        weights_say(l->m, "%s%s", before, group);
        before = ", ";
        last = group;
    }
    if (*last)
        list_missing(l);
}

static void say_homeless(const struct load *l)
{
    struct weights_list list = { l->path, "without a place in the model", 0 };
    int n;

    for (size_t i = 0; i < safetensors_count(l->file); i++) {
        const char *name = safetensors_at(l->file, i)->name;

        if (l->used[i] || rcnn_is_idle(name))
            continue;
        weights_list(&list, name);
        n = list.n;
        if (n <= LISTED)
            weights_say(l->m, "%s%.80s", n == 1 ? "; without a place in the model: " : ", ", name);
    }
    weights_list_end(&list);
    if (list.n > LISTED)
        weights_say(l->m, " and %d more, which the log names", list.n - LISTED);
}

static void say(const struct load *l, const char *path, const struct jobspec *spec)
{
    const char *flavor = spec->model_flavor;

    weights_say_taken(l->m, path, l->taken);
    weights_say(l->m, " (%s%s)", program[l->spelling], l->id ? ", classes by the ids of their categories" : "");
    if (l->flavor && strcmp(l->flavor, flavor) != 0)
        weights_say(l->m, "; its model.flavor is %.40s, the job's is %s", l->flavor, flavor);
    if (l->pool && l->pool != spec->model_mask_pool)
        weights_say(l->m, "; its model.mask_pool is %ld, the job's is %lld", l->pool, (long long)spec->model_mask_pool);
    if (l->left_out)
        weights_say(l->m, "; left out, as the file is of %d classes and the job of %d: the box predictor%s", l->classes, rcnn_classes(l->m),
                    l->n->masks && has_group(l, rcnn_group(RCNN_PREDICTOR)) ? ", the mask predictor" : "");
    say_missing(l);
    say_homeless(l);
}

static bool of_torchvision(enum rcnn_spelling spelling)
{
    return spelling == RCNN_TV || spelling == RCNN_TV_OLD;
}

/* The flavor that the heads were trained with. A backbone alone has none: NULL. */
static const char *flavor_of(const struct load *l)
{
    const char *told = safetensors_meta(l->file, RCNN_TRAIT_FLAVOR);

    return told ? told : of_torchvision(l->spelling) ? "tv" : NULL;
}

/* The pooled size of the mask head. Its weights fit any size, but they were trained for this one. 0: unknown. */
static long pool_of(const struct load *l)
{
    const char *told = safetensors_meta(l->file, RCNN_TRAIT_POOL);

    if (!l->n->masks || !has_group(l, rcnn_group(RCNN_PREDICTOR)))
        return 0;
    if (told)
        return strtol(told, NULL, 10);
    return safetensors_meta(l->file, RCNN_TRAIT_FLAVOR) ? RCNN_USUAL_POOL : 0;
}

/* Checks that the file has the job's backbone: place of the strides and colours of pictures. The file says so, or its
 * names do, or it is unknown and accepted. A wrong backbone would only make results worse, without any error. */
static int check_backbone(const struct load *l, const char *backbone, struct err *err)
{
    const char *told = safetensors_meta(l->file, RCNN_TRAIT_BACKBONE);
    const char *fits = told ? told : backbone;

    if (!told && (l->spelling == RCNN_TV_BODY || of_torchvision(l->spelling)))
        fits = "torchvision";
    else if (!told && l->spelling == RCNN_CAFFE2)
        fits = "msra";
    if (strcmp(fits, backbone) == 0)
        return 0;
    if (!told && of_torchvision(l->spelling))
        return err_field(
            err, ERR_DATA, "model.backbone",
            "the file is a detector of torchvision, which fits model.flavor=tv, or at least model.backbone=torchvision; it is %s",
            backbone);
    if (told)
        return err_field(err, ERR_DATA, "model.backbone", "the file is of a job with model.backbone=%.40s; it is %s", told, backbone);
    return err_field(err, ERR_DATA, "model.backbone", "the file is %s, which fits model.backbone=%s; it is %s", program[l->spelling], fits,
                     backbone);
}

static int load_file(struct model *m, const struct jobspec *spec, struct model_classes classes, const struct safetensors *file,
                     struct err *err)
{
    struct load l = {
        .m = m, .n = rcnn_network_of(m), .file = file, .path = spec->model_init, .used = calloc(safetensors_count(file) + 1, sizeof *l.used)
    };
    int rc;

    if (!l.used)
        return err_set(err, ERR_DEVICE, "out of memory");
    l.spelling = spelling_of(&l);
    l.flavor = flavor_of(&l);
    l.pool = pool_of(&l);
    rc = check_backbone(&l, spec->model_backbone, err);
    if (rc >= 0)
        rc = put_all(&l, classes, err);
    if (rc >= 0)
        say(&l, spec->model_init, spec);
    free(l.used);
    return rc;
}

int rcnn_load(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err)
{
    struct safetensors *file;
    const char *prefix;
    int rc = weights_open(spec->model_init, &file, &prefix, err);

    if (rc >= 0) {
        rc = load_file(m, spec, classes, file, err);
        weights_say_prefix(m, prefix);
        safetensors_close(file);
    }
    if (rc == ERR_CORRUPT)
        rc = err->code = ERR_DATA;
    if (rc < 0)
        err_prefix(err, "model.init '%.200s'", spec->model_init);
    return rc;
}

/* ---- to files ---- */

/* The numbers of p in stored order, with rows of classes as in `spelling`; torchvision has rows by id if there are ids.
 * The caller frees. */
static float *stored_copy(struct model *m, const struct rcnn_named *a, enum rcnn_spelling spelling, const int64_t *id, struct st_array *ret,
                          struct err *err)
{
    const struct rcnn_rows from = { a->part.place, rcnn_classes(m), rcnn_background_first(m), NULL };
    const struct rcnn_rows to = { a->part.place, rcnn_classes(m), spelling == RCNN_TV, spelling == RCNN_TV ? id : NULL };
    float *ours = weights_get_stored(m, a->p, err), *theirs;
    size_t width;

    ret->ndims = weights_shape(a->p, ret->shape);
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

static int export_one(struct model *m, const struct rcnn_named *a, enum rcnn_spelling spelling, const int64_t *id, struct st_array *ret,
                      struct err *err)
{
    char name[NAME_BYTES];

    rcnn_spell(spelling, &a->part, a->array, name, sizeof name);
    ret->dtype = ST_F32;
    ret->data = stored_copy(m, a, spelling, id, ret, err);
    ret->name = ret->data ? strdup(name) : NULL;
    return ret->name ? 0 : err_set(err, ERR_DEVICE, "out of memory: %s", name);
}

const char *const rcnn_dialects[] = { "torchvision", "detectron2", NULL };

int rcnn_export_as(struct model *m, int dialect, struct model_classes classes, struct st_array **ret_arrays, size_t *ret_n, struct err *err)
{
    static const enum rcnn_spelling spelling[] = { RCNN_TV, RCNN_D2 };
    const struct rcnn_network *n = rcnn_network_of(m);
    struct st_array *a = calloc((size_t)n->nnamed, sizeof *a);
    int rc = a ? 0 : err_set(err, ERR_DEVICE, "out of memory");

    for (int i = 0; i < n->nnamed && rc >= 0; i++)
        rc = export_one(m, &n->named[i], spelling[dialect], ids_as_rows(classes), &a[i], err);
    if (rc < 0) {
        weights_named_free(a, (size_t)n->nnamed);
        return rc;
    }
    *ret_arrays = a;
    *ret_n = (size_t)n->nnamed;
    return 0;
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
    bool body = rcnn_network_of(m)->colours.swap == torchvision, heads = rcnn_background_first(m) != torchvision;

    if (!body && !heads)
        snprintf(ret, size, "%s's defaults are the job's: colours, strides, anchors, RoIAlign", name);
    else
        snprintf(ret, size, "%s is to be set up as the job was: %s%s%s", name, body ? told[dialect].body : "", body && heads ? "; " : "",
                 heads ? told[dialect].heads : "");
}

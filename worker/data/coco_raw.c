#include "worker/data/coco_raw.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/box_rule.h"
#include "worker/data/coco_segm.h"
#include "worker/data/dataset.h"
#include "worker/data/json_scan.h"

void coco_raw_free(struct coco_raw *raw)
{
    for (int i = 0; i < raw->nclasses; i++)
        free(raw->classes[i].name);
    for (int i = 0; i < raw->nimages; i++)
        free(raw->images[i].file);
    free(raw->classes);
    free(raw->images);
    free(raw->annotations);
    free(raw->text);
}

static bool no_memory(struct json_scan *s)
{
    if (!scan_failed(s))
        err_set(&s->err, -ENOMEM, "%s: no memory", s->name);
    return false;
}

/* Room for one more element. */
static void *grown(void *array, int64_t count, int64_t *cap, size_t size)
{
    int64_t more = *cap ? *cap * 2 : 64;
    void *bigger;

    if (count < *cap)
        return array;
    bigger = realloc(array, (size_t)more * size);
    if (bigger)
        *cap = more;
    return bigger;
}

/* Takes whatever value comes; true when it was an integer. */
static bool integer_or_skip(struct json_scan *s, int64_t *ret)
{
    struct json_num n;

    if (scan_peek(s) != JSON_NUMBER) {
        scan_skip(s);
        return false;
    }
    if (!scan_number(s, &n) || !n.is_integer)
        return false;
    *ret = n.integer;
    return true;
}

static bool real_or_skip(struct json_scan *s, double *ret)
{
    struct json_num n;

    if (scan_peek(s) != JSON_NUMBER) {
        scan_skip(s);
        return false;
    }
    if (!scan_number(s, &n))
        return false;
    *ret = n.real;
    return true;
}

static void flaw(const char **f, const char *text)
{
    if (!*f)
        *f = text;
}

/* ---- categories ---- */

static bool read_class(struct coco_raw *raw, struct json_scan *s)
{
    bool has_id = false, has_name = false;
    int64_t cap = raw->classes_cap;
    struct raw_class *c, *all = grown(raw->classes, raw->nclasses, &cap, sizeof *all);
    char name[COCO_MAX_NAME];
    size_t len;

    if (!all)
        return no_memory(s);
    raw->classes = all;
    raw->classes_cap = (int)cap;
    c = &raw->classes[raw->nclasses];
    *c = (struct raw_class){ 0 };
    scan_object(s);
    while (scan_member(s)) {
        if (scan_key_is(s, "id"))
            has_id = integer_or_skip(s, &c->id) || scan_fail(s, "the id of a category is not an integer");
        else if (scan_key_is(s, "name"))
            has_name = scan_string(s, name, sizeof name, &len);
        else
            scan_skip(s);
    }
    if (scan_failed(s))
        return false;
    if (!has_id || !has_name)
        return scan_fail(s, "the category that ends here has no %s", has_id ? "name" : "id");
    if (raw->nclasses == DATASET_MAX_CLASSES)
        return scan_fail(s, "more than %d categories", DATASET_MAX_CLASSES);
    c->name = strdup(name);
    if (!c->name)
        return no_memory(s);
    raw->nclasses++;
    return true;
}

/* ---- images ---- */

static void image_member(struct json_scan *s, struct coco_raw *raw, struct raw_image *im)
{
    int64_t side;
    size_t len;

    if (scan_key_is(s, "id")) {
        im->has_id = integer_or_skip(s, &im->id);
    } else if (scan_key_is(s, "file_name")) {
        if (scan_peek(s) != JSON_STRING) {
            scan_skip(s);
            return;
        }
        if (!scan_text(s, &raw->text, &raw->text_cap, &len))
            return;
        free(im->file);
        im->file = NULL;
        if (len == 0 || len >= DATASET_MAX_PATH / 2)
            flaw(&im->flaw, "file_name is empty or too long");
        else if (!(im->file = strdup(raw->text)))
            no_memory(s);
    } else if (scan_key_is(s, "width") || scan_key_is(s, "height")) {
        bool width = s->key[0] == 'w';

        if (!integer_or_skip(s, &side) || side < 1 || side > INT32_MAX)
            flaw(&im->flaw, width ? "width is not a positive integer" : "height is not a positive integer");
        else
            *(width ? &im->w : &im->h) = (int)side;
    } else {
        scan_skip(s);
    }
}

static bool read_image(struct coco_raw *raw, struct json_scan *s)
{
    int64_t cap = raw->images_cap;
    struct raw_image *im, *all = grown(raw->images, raw->nimages, &cap, sizeof *all);

    if (!all)
        return no_memory(s);
    raw->images = all;
    raw->images_cap = (int)cap;
    if (raw->nimages == DATASET_MAX_IMAGES)
        return scan_fail(s, "more than %d images", DATASET_MAX_IMAGES);
    im = &raw->images[raw->nimages++]; /* counted at once, so that its name is freed whatever happens */
    *im = (struct raw_image){ .at = s->at - s->begin };
    scan_object(s);
    while (scan_member(s))
        image_member(s, raw, im);
    if (!im->file)
        flaw(&im->flaw, "file_name is missing or not a string");
    if ((im->w == 0) != (im->h == 0))
        flaw(&im->flaw, "only one of width and height is stated");
    return !scan_failed(s);
}

/* ---- annotations ---- */

static bool read_box(struct json_scan *s, double box[4])
{
    int n = 0;
    bool ok = true;
    double v;

    if (scan_peek(s) != JSON_ARRAY) {
        scan_skip(s);
        return false;
    }
    scan_array(s);
    for (; scan_element(s); n++) {
        ok = real_or_skip(s, &v) && ok && n < 4;
        if (ok)
            box[n] = v;
    }
    return ok && n == 4;
}

static bool read_crowd(struct json_scan *s, bool *ret)
{
    enum json_kind kind = scan_peek(s);
    int64_t v = 2;

    if (kind == JSON_TRUE || kind == JSON_FALSE) {
        *ret = kind == JSON_TRUE;
        return scan_skip(s);
    }
    if (!integer_or_skip(s, &v) || v < 0 || v > 1)
        return false;
    *ret = v == 1;
    return true;
}

/* What is not false: true, or any number but 0. */
static bool read_ignore(struct json_scan *s)
{
    enum json_kind kind = scan_peek(s);
    double v = 0;

    if (kind != JSON_NUMBER) {
        scan_skip(s);
        return kind == JSON_TRUE;
    }
    return real_or_skip(s, &v) && v != 0;
}

/* A reservation doubles, as the annotations do. */
static bool keep_mask(struct coco_raw *raw, const struct mask_ref *mask)
{
    struct masks *m = raw->masks;

    if (raw->nannotations > m->refs_cap && !masks_reserve(m, raw->annotations_cap))
        return false;
    m->ref[raw->nannotations - 1] = *mask;
    return true;
}

static void read_mask(struct json_scan *s, struct coco_raw *raw, struct raw_annotation *a)
{
    struct coco_segm segm;
    const char *why = coco_segm_read(s, &raw->text, &raw->text_cap, raw->masks, &segm);

    a->rle_w = segm.rle_w;
    a->rle_h = segm.rle_h;
    a->left_out = segm.left_out;
    if (why)
        flaw(&a->flaw, why);
    if (raw->masks && !keep_mask(raw, &segm.mask))
        no_memory(s);
}

static void annotation_member(struct json_scan *s, struct coco_raw *raw, struct raw_annotation *a)
{
    if (scan_key_is(s, "id")) {
        a->has_id = integer_or_skip(s, &a->id);
    } else if (scan_key_is(s, "image_id")) {
        a->has_image = integer_or_skip(s, &a->image_id);
    } else if (scan_key_is(s, "category_id")) {
        a->has_class = integer_or_skip(s, &a->class_id);
    } else if (scan_key_is(s, "bbox")) {
        a->has_box = true;
        if (!read_box(s, a->box))
            flaw(&a->flaw, "bbox is not a list of four numbers");
    } else if (scan_key_is(s, "area")) {
        if (scan_peek(s) == JSON_NULL)
            scan_skip(s);
        else if (!real_or_skip(s, &a->area) || a->area < 0)
            flaw(&a->flaw, "area is not a number >= 0");
    } else if (scan_key_is(s, "iscrowd")) {
        if (scan_peek(s) == JSON_NULL)
            scan_skip(s);
        else if (!read_crowd(s, &a->crowd))
            flaw(&a->flaw, "iscrowd is neither 0 nor 1");
    } else if (scan_key_is(s, "ignore")) {
        a->ignored = read_ignore(s);
    } else if (scan_key_is(s, "segmentation")) {
        read_mask(s, raw, a);
    } else {
        scan_skip(s);
    }
}

static bool read_annotation(struct coco_raw *raw, struct json_scan *s)
{
    struct raw_annotation *a, *all = grown(raw->annotations, raw->nannotations, &raw->annotations_cap, sizeof *all);

    if (!all)
        return no_memory(s);
    raw->annotations = all;
    if (raw->nannotations == DATASET_MAX_BOXES)
        return scan_fail(s, "more than %d annotations", DATASET_MAX_BOXES);
    a = &raw->annotations[raw->nannotations++];
    *a = (struct raw_annotation){ .at = s->at - s->begin, .area = -1 };
    scan_object(s);
    while (scan_member(s))
        annotation_member(s, raw, a);
    if (!a->has_id)
        flaw(&a->flaw, "id is not an integer, or missing");
    if (!a->has_image)
        flaw(&a->flaw, "image_id is not an integer, or missing");
    if (!a->has_class)
        flaw(&a->flaw, "category_id is not an integer, or missing");
    if (!a->has_box)
        flaw(&a->flaw, "bbox is missing");
    if (a->ignored && !a->crowd)
        flaw(&a->flaw, "ignore is true, and iscrowd is not 1: COCO's tools look at that alone");
    for (int i = 0; i < 4; i++)
        if (fabs(a->box[i]) > BOX_COORDINATE_MAX)
            flaw(&a->flaw, "bbox holds an impossible number");
    return !scan_failed(s);
}

/* ---- the document ---- */

enum { SECTION_IMAGES = 1, SECTION_ANNOTATIONS = 2, SECTION_CATEGORIES = 4 };

static void read_section(struct coco_raw *raw, struct json_scan *s, int section, int *seen)
{
    if (*seen & section) {
        scan_fail(s, "\"%s\" stands here a second time", s->key);
        return;
    }
    *seen |= section;
    scan_array(s);
    while (scan_element(s)) {
        if (section == SECTION_IMAGES)
            read_image(raw, s);
        else if (section == SECTION_ANNOTATIONS)
            read_annotation(raw, s);
        else
            read_class(raw, s);
    }
}

int coco_raw_parse(struct coco_raw *raw, const char *name, const char *bytes, size_t len, struct err *err)
{
    static const char *const sections[] = { "images", "annotations", "categories" };
    struct json_scan s;
    int seen = 0, k;

    scan_open(&s, name, bytes, len);
    if (len == 0)
        err_set(&s.err, ERR_DATA, "%s: file is empty", name);
    scan_object(&s);
    while (scan_member(&s)) {
        for (k = 0; k < 3 && !scan_key_is(&s, sections[k]); k++)
            ;
        if (k < 3)
            read_section(raw, &s, 1 << k, &seen);
        else
            scan_skip(&s);
    }
    scan_finish(&s);
    for (k = 0; k < 3 && !scan_failed(&s); k++)
        if (!(seen & 1 << k) && !(raw->unlabelled && 1 << k == SECTION_ANNOTATIONS))
            err_set(&s.err, ERR_DATA, "%s: there is no \"%s\"", name, sections[k]);
    if (scan_failed(&s) && err)
        *err = s.err;
    return s.err.code;
}

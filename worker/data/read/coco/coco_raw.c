#include "worker/data/read/coco/coco_raw.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/data/set/box_rule.h"
#include "worker/data/read/coco/coco_segm.h"
#include "worker/data/set/dataset.h"
#include "worker/data/text/json_scan.h"

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

/* Reads any value. Returns true if it was an integer. */
static bool integer_or_skip(struct json_scan *s, int64_t *ret)
{
    struct json_num n;

    if (!scan_finite(s, &n) || !n.is_integer)
        return false;
    *ret = n.integer;
    return true;
}

/* True if the whole text is one integer as C writes it: "12", not "012" or "1.0". */
static bool text_integer(const char *text, int64_t *ret)
{
    char again[32];
    long long v = strtoll(text, NULL, 10);

    snprintf(again, sizeof again, "%lld", v);
    *ret = v;
    return strcmp(again, text) == 0;
}

/* The same for an id, which may be an integer in a string. */
static bool id_or_skip(struct coco_raw *raw, struct json_scan *s, int64_t *ret)
{
    size_t len;

    if (scan_peek(s) != JSON_STRING)
        return integer_or_skip(s, ret);
    if (!scan_text(s, &raw->text, &raw->text_cap, &len) || !text_integer(raw->text, ret))
        return false;
    raw->text_ids++;
    return true;
}

static bool real_or_skip(struct json_scan *s, double *ret)
{
    struct json_num n;

    if (!scan_finite(s, &n))
        return false;
    *ret = n.real;
    return true;
}

/* Keeps only the first reason. */
static void flaw(const char **f, const char *text)
{
    if (!*f)
        *f = text;
}

static void skip_unread(struct coco_raw *raw, struct json_scan *s, enum coco_place place, int64_t record)
{
    coco_keys_see(&raw->keys, place, s->key, record);
    scan_skip(s);
}

/* ---- categories ---- */

static bool read_class(struct coco_raw *raw, struct json_scan *s)
{
    bool has_id = false, has_name = false;
    struct raw_class *c;
    int64_t at = s->at - s->begin;
    char name[COCO_MAX_NAME];
    size_t len;

    if (!GROW(raw->classes, raw->classes_cap, raw->nclasses + 1))
        return scan_no_memory(s);
    c = &raw->classes[raw->nclasses];
    *c = (struct raw_class){ 0 };
    scan_object(s);
    while (scan_member(s)) {
        if (scan_key_is(s, "id"))
            has_id = id_or_skip(raw, s, &c->id) || scan_fail(s, "the id of a category is not an integer");
        else if (scan_key_is(s, "name"))
            has_name = scan_string(s, name, sizeof name, &len);
        else
            skip_unread(raw, s, COCO_CATEGORIES, at);
    }
    if (scan_failed(s))
        return false;
    if (!has_id || !has_name)
        return scan_fail(s, "the category that ends here has no %s", has_id ? "name" : "id");
    if (raw->nclasses == DATASET_MAX_CLASSES)
        return scan_fail(s, "more than %d categories", DATASET_MAX_CLASSES);
    c->name = strdup(name);
    if (!c->name)
        return scan_no_memory(s);
    raw->nclasses++;
    return true;
}

/* ---- images ---- */

static void read_file_name(struct json_scan *s, struct coco_raw *raw, struct raw_image *im)
{
    size_t len;

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
        scan_no_memory(s);
}

/* A wrong size is only reported: the picture's file has the right one. */
static void read_side(struct json_scan *s, struct raw_image *im, bool width)
{
    const bool null = scan_peek(s) == JSON_NULL;
    int64_t side = 0;

    if (integer_or_skip(s, &side) && side > 0 && side <= INT32_MAX)
        *(width ? &im->w : &im->h) = (int)side;
    else if (!null)
        flaw(&im->doubt, width ? "width is not a positive integer" : "height is not a positive integer");
}

static void image_member(struct json_scan *s, struct coco_raw *raw, struct raw_image *im)
{
    if (scan_key_is(s, "id")) {
        im->has_id = id_or_skip(raw, s, &im->id);
    } else if (scan_key_is(s, "file_name")) {
        read_file_name(s, raw, im);
    } else if (scan_key_is(s, "width") || scan_key_is(s, "height")) {
        read_side(s, im, s->key[0] == 'w');
    } else {
        im->has_url = im->has_url || scan_key_is(s, "coco_url");
        skip_unread(raw, s, COCO_IMAGES, im->at);
    }
}

static bool read_image(struct coco_raw *raw, struct json_scan *s)
{
    struct raw_image *im;

    if (!GROW(raw->images, raw->images_cap, raw->nimages + 1))
        return scan_no_memory(s);
    if (raw->nimages == DATASET_MAX_IMAGES)
        return scan_fail(s, "more than %d images", DATASET_MAX_IMAGES);
    im = &raw->images[raw->nimages++]; /* counted before it is read, so that its name is always freed */
    *im = (struct raw_image){ .at = s->at - s->begin };
    scan_object(s);
    while (scan_member(s))
        image_member(s, raw, im);
    if (!im->file && im->has_url)
        flaw(&im->flaw, "file_name is missing: make it the end of coco_url, as LVIS's tools do");
    if (!im->file)
        flaw(&im->flaw, "file_name is missing or not a string");
    if ((im->w == 0) != (im->h == 0))
        flaw(&im->doubt, "only one of width and height is stated");
    if (im->doubt)
        im->w = im->h = 0;
    return !scan_failed(s);
}

/* ---- annotations ---- */

/* Returns the flaw of the box, or NULL. */
static const char *read_box(struct json_scan *s, double box[4])
{
    int n = 0;
    bool ok = true, finite = true;
    double v;

    if (scan_peek(s) != JSON_ARRAY) {
        scan_skip(s);
        return "bbox is not a list of four numbers";
    }
    scan_array(s);
    for (; scan_element(s); n++) {
        finite = finite && scan_peek(s) != JSON_NONFINITE;
        ok = real_or_skip(s, &v) && ok && n < 4;
        if (ok)
            box[n] = v;
    }
    if (!finite)
        return "bbox holds NaN or Infinity";
    return ok && n == 4 ? NULL : "bbox is not a list of four numbers";
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

/* True for true and any number but 0. */
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

static bool keep_mask(struct coco_raw *raw, const struct mask_ref *mask)
{
    struct masks *m = raw->masks;

    if (!masks_reserve(m, raw->nannotations))
        return false;
    m->ref[raw->nannotations - 1] = *mask;
    return true;
}

/* Only networks that predict masks need it. */
static void read_mask(struct json_scan *s, struct coco_raw *raw, struct raw_annotation *a)
{
    struct coco_segm segm;
    const char *why = coco_segm_read(s, &raw->text, &raw->text_cap, raw->masks, &segm);

    a->rle_w = segm.rle_w;
    a->rle_h = segm.rle_h;
    if (segm.left_out)
        flaw(&a->doubt, segm.left_out);
    if (why)
        flaw(raw->masks ? &a->flaw : &a->doubt, why);
    if (raw->masks && !keep_mask(raw, &segm.mask))
        scan_no_memory(s);
}

static void read_area(struct json_scan *s, struct raw_annotation *a)
{
    const bool null = scan_peek(s) == JSON_NULL;

    if (real_or_skip(s, &a->area) && a->area >= 0)
        return;
    a->area = -1;
    if (!null)
        flaw(&a->doubt, "area is not a number >= 0: that of the box is taken");
}

static void annotation_member(struct json_scan *s, struct coco_raw *raw, struct raw_annotation *a)
{
    const char *why;

    if (scan_key_is(s, "id")) {
        a->has_id = id_or_skip(raw, s, &a->id);
    } else if (scan_key_is(s, "image_id")) {
        a->has_image = id_or_skip(raw, s, &a->image_id);
    } else if (scan_key_is(s, "category_id")) {
        a->has_class = id_or_skip(raw, s, &a->class_id);
    } else if (scan_key_is(s, "bbox")) {
        a->has_box = true;
        why = read_box(s, a->box);
        if (why)
            flaw(&a->flaw, why);
    } else if (scan_key_is(s, "area")) {
        read_area(s, a);
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
        skip_unread(raw, s, COCO_ANNOTATIONS, a->at);
    }
}

static bool read_annotation(struct coco_raw *raw, struct json_scan *s)
{
    struct raw_annotation *a;

    if (!GROW(raw->annotations, raw->annotations_cap, raw->nannotations + 1))
        return scan_no_memory(s);
    if (raw->nannotations == DATASET_MAX_BOXES)
        return scan_fail(s, "more than %d annotations", DATASET_MAX_BOXES);
    a = &raw->annotations[raw->nannotations++];
    *a = (struct raw_annotation){ .at = s->at - s->begin, .area = -1 };
    scan_object(s);
    while (scan_member(s))
        annotation_member(s, raw, a);
    if (!a->has_id)
        flaw(&a->doubt, "id is not an integer, or missing");
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

static const char *const sections[] = { [COCO_IMAGES] = "images", [COCO_ANNOTATIONS] = "annotations", [COCO_CATEGORIES] = "categories" };

static void read_section(struct coco_raw *raw, struct json_scan *s, enum coco_place section, unsigned *seen)
{
    if (*seen & 1U << section) {
        scan_fail(s, "\"%s\" stands here a second time", s->key);
        return;
    }
    *seen |= 1U << section;
    scan_array(s);
    while (scan_element(s)) {
        if (section == COCO_IMAGES)
            read_image(raw, s);
        else if (section == COCO_ANNOTATIONS)
            read_annotation(raw, s);
        else
            read_class(raw, s);
    }
}

static void missing(const struct coco_raw *raw, struct json_scan *s, const char *section)
{
    const char *like = coco_keys_like(&raw->keys, section);

    if (like)
        err_set(&s->err, ERR_DATA, "%s: there is no \"%s\"; is it \"%s\"?", s->name, section, like);
    else
        err_set(&s->err, ERR_DATA, "%s: there is no \"%s\"", s->name, section);
}

static void read_document(struct coco_raw *raw, struct json_scan *s)
{
    unsigned seen = 0;
    int k;

    if (scan_peek(s) == JSON_ARRAY)
        scan_fail(s, "expected an object with \"images\", \"annotations\" and \"categories\", found '[': results files are such lists");
    scan_object(s);
    while (scan_member(s)) {
        for (k = COCO_IMAGES; k <= COCO_CATEGORIES && !scan_key_is(s, sections[k]); k++)
            ;
        if (k <= COCO_CATEGORIES)
            read_section(raw, s, (enum coco_place)k, &seen);
        else
            skip_unread(raw, s, COCO_FILE, s->at - s->begin);
    }
    scan_finish(s);
    for (k = COCO_IMAGES; k <= COCO_CATEGORIES && !scan_failed(s); k++)
        if (!(seen & 1U << k) && !(raw->unlabelled && k == COCO_ANNOTATIONS))
            missing(raw, s, sections[k]);
}

int coco_raw_parse(struct coco_raw *raw, const char *name, const char *bytes, size_t len, struct err *err)
{
    struct json_scan s;

    scan_open(&s, name, bytes, len);
    if (len == 0)
        err_set(&s.err, ERR_DATA, "%s: file is empty", name);
    read_document(raw, &s);
    if (scan_failed(&s) && err)
        *err = s.err;
    return s.err.code;
}

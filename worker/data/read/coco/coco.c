#include "worker/data/read/coco/coco.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/set/box_rule.h"
#include "worker/data/read/coco/coco_raw.h"
#include "worker/data/set/idmap.h"
#include "worker/data/image/image_codec.h"
#include "worker/data/set/problems.h"
#include "worker/data/text/whole_file.h"

/* Builds a data set from records: resolves ids, checks rules, reports problems. */
struct build {
    const struct coco_raw *raw;
    const char *source, *folder;
    enum bad_policy on_bad;
    bool upright;
    struct problems *problems;
    struct err *err;
    struct dataset *d;
    int32_t *image_of; /* [raw->nannotations]: index into d->images, -1: left out */
    struct idmap gone; /* images left out under BAD_SKIP; their boxes are dropped without a message */
    struct decoder *dec;
};

struct name {
    char text[80];
};

static int by_class_id(const void *a, const void *b)
{
    int64_t x = ((const struct dataset_class *)a)->id, y = ((const struct dataset_class *)b)->id;

    return (x > y) - (x < y);
}

static int by_image_id(const void *a, const void *b)
{
    int64_t x = ((const struct raw_image *)a)->id, y = ((const struct raw_image *)b)->id;

    return (x > y) - (x < y);
}

/* The line where a record begins, for a problem or a note. */
static long long line_of(const struct build *b, int64_t at, bool note)
{
    long long line = 1;

    if (note ? b->problems->notes_kept == NOTES_KEPT : b->problems->kept == PROBLEMS_KEPT)
        return 0; /* this message is counted but not kept */
    for (int64_t i = 0; i < at; i++)
        line += b->raw->bytes[i] == '\n';
    return line;
}

static int no_memory(struct build *b)
{
    return err_set(b->err, -ENOMEM, "%s: no memory for %lld annotations", b->source, (long long)b->raw->nannotations);
}

static int build_classes(struct build *b)
{
    const struct coco_raw *raw = b->raw;
    struct dataset *d = b->d;

    if (raw->nclasses == 0)
        return err_set(b->err, ERR_DATA, "%s: \"categories\" is empty", b->source);
    d->classes = calloc((size_t)raw->nclasses, sizeof *d->classes);
    if (!d->classes)
        return no_memory(b);
    for (int i = 0; i < raw->nclasses; i++) {
        d->classes[i].id = raw->classes[i].id;
        d->classes[i].name = strdup(raw->classes[i].name);
        d->nclasses = i + 1;
        if (!d->classes[i].name)
            return no_memory(b);
    }
    qsort(d->classes, (size_t)d->nclasses, sizeof *d->classes, by_class_id);
    for (int i = 1; i < d->nclasses; i++)
        if (d->classes[i].id == d->classes[i - 1].id)
            return err_set(b->err, ERR_DATA, "%s: category id %lld is used twice ('%s' and '%s')", b->source, (long long)d->classes[i].id,
                           d->classes[i - 1].name, d->classes[i].name);
    for (int i = 0; i < d->nclasses; i++)
        for (int k = 0; k < i && d->nclasses <= 4096; k++)
            if (strcmp(d->classes[i].name, d->classes[k].name) == 0)
                problems_note(b->problems, "categories %lld and %lld are both named '%s'", (long long)d->classes[k].id,
                              (long long)d->classes[i].id, d->classes[i].name);
    return 0;
}

/* file_name is foreign input: it must not name a file outside of the folder. */
static bool leaves_folder(const char *file)
{
    if (file[0] == '/')
        return true;
    for (const char *p = file; *p;) {
        size_t len = strcspn(p, "/");

        if (len == 2 && p[0] == '.' && p[1] == '.')
            return true;
        p += len + (p[len] == '/');
    }
    return false;
}

/* Cuts the image folder off an absolute name below it. */
static void make_relative(const char *folder, char *file)
{
    char real[PATH_MAX];
    const char *const begins[] = { folder, realpath(folder, real) };

    for (size_t i = 0; i < 2 && file[0] == '/'; i++) {
        size_t len = begins[i] ? strlen(begins[i]) : 0;

        while (len > 0 && begins[i][len - 1] == '/')
            len--;
        if (len > 0 && strncmp(file, begins[i], len) == 0 && file[len] == '/')
            memmove(file, file + len + strspn(file + len, "/"), strlen(file + len + strspn(file + len, "/")) + 1);
    }
}

/* Fills in a size that the file does not state. Returns 1; 0 after reporting a problem; or an error that is not the
 * file's. */
static int image_ok(struct build *b, struct raw_image *im)
{
    char path[DATASET_MAX_PATH];
    struct err why = { 0 };

    if (!im->has_id) {
        problems_add(b->problems, "image in line %lld: id is not an integer, or missing", line_of(b, im->at, false));
        return 0;
    }
    if (im->flaw) {
        problems_add(b->problems, "image %lld (line %lld): %s", (long long)im->id, line_of(b, im->at, false), im->flaw);
        return 0;
    }
    if (leaves_folder(im->file)) {
        problems_add(b->problems, "image %lld: file_name '%s' leaves the image folder", (long long)im->id, im->file);
        return 0;
    }
    if (im->w == 0 && im->h == 0) {
        if (snprintf(path, sizeof path, "%s/%s", b->folder, im->file) >= (int)sizeof path)
            err_set(&why, ERR_DATA, "%s/%s: path too long", b->folder, im->file);
        else
            image_size(b->dec, path, b->upright, &im->w, &im->h, &why);
    } else {
        image_check_size(im->file, im->w, im->h, &why);
    }
    if (why.code && !file_at_fault(why.code))
        return err_set(b->err, why.code, "%s", why.msg);
    if (why.code)
        problems_add(b->problems, "image %lld: %s", (long long)im->id, why.msg);
    else if (im->doubt)
        problems_note(b->problems, "image %lld (line %lld): %s: %d x %d is the size of its file", (long long)im->id,
                      line_of(b, im->at, true), im->doubt, im->w, im->h);
    return why.code == 0;
}

/* True if two records name the same file and do not contradict each other in its size. */
static bool same_image(const struct raw_image *a, const struct raw_image *b)
{
    return a->file && b->file && strcmp(a->file, b->file) == 0 && (a->w == 0 || b->w == 0 || (a->w == b->w && a->h == b->h));
}

/* Two records with one id, in the order of ids. The same file is left out the second time; another file is an error. */
static int told_twice(struct build *b, const struct raw_image *first, struct raw_image *again)
{
    if (same_image(first, again)) {
        problems_note(b->problems, "image %lld stands in \"images\" more than once, with the same file '%s'", (long long)again->id,
                      again->file);
        again->again = true;
        return 0;
    }
    return err_set(b->err, ERR_DATA, "%s: image id %lld is used twice ('%s' and '%s'): its boxes cannot be told apart", b->source,
                   (long long)again->id, first->file ? first->file : "?", again->file ? again->file : "?");
}

static int build_images(struct build *b)
{
    struct coco_raw *raw = (struct coco_raw *)b->raw;
    struct dataset *d = b->d;

    if (raw->nimages > 0)
        qsort(raw->images, (size_t)raw->nimages, sizeof *raw->images, by_image_id);
    for (int i = 0; i < raw->nimages; i++)
        if (raw->images[i].file && raw->images[i].file[0] == '/')
            make_relative(b->folder, raw->images[i].file);
    for (int i = 1; i < raw->nimages; i++)
        if (raw->images[i].has_id && raw->images[i - 1].has_id && raw->images[i].id == raw->images[i - 1].id &&
            told_twice(b, &raw->images[i - 1], &raw->images[i]) < 0)
            return b->err->code;
    d->images = calloc((size_t)raw->nimages + 1, sizeof *d->images);
    if (!d->images)
        return no_memory(b);
    for (int i = 0; i < raw->nimages; i++) {
        struct raw_image *im = &raw->images[i];
        int ok;

        if (im->again)
            continue;
        ok = image_ok(b, im);
        if (ok < 0)
            return ok;
        if (ok == 0) {
            if (im->has_id && idmap_put(&b->gone, im->id, 0) < 0)
                return no_memory(b);
            continue;
        }
        d->images[d->nimages++] = (struct dataset_image){ .id = im->id, .file = im->file, .w = im->w, .h = im->h };
        im->file = NULL;
    }
    return 0;
}

/* "annotation 7", or "annotation in line 12" without an id; for a problem or a note. */
static struct name name_of(const struct build *b, const struct raw_annotation *a, bool note)
{
    struct name name;

    if (a->has_id)
        snprintf(name.text, sizeof name.text, "annotation %lld", (long long)a->id);
    else
        snprintf(name.text, sizeof name.text, "annotation in line %lld", line_of(b, a->at, note));
    return name;
}

/* The same, but always with the line. */
static struct name place_of(const struct build *b, const struct raw_annotation *a, bool note)
{
    struct name name = name_of(b, a, note);

    if (a->has_id)
        snprintf(name.text, sizeof name.text, "annotation %lld (line %lld)", (long long)a->id, line_of(b, a->at, note));
    return name;
}

/* The flaw of an annotation's segmentation, or NULL. Checked only if masks are read. */
static const char *mask_flaw(const struct build *b, const struct raw_annotation *a, const struct dataset_image *im)
{
    const struct masks *m = b->raw->masks;
    int64_t i = a - b->raw->annotations;
    struct mask mask;

    if (!m || a->crowd || b->on_bad == BAD_KEEP)
        return NULL;
    mask = i < (int64_t)m->refs_cap ? masks_view(m, &m->ref[i]) : (struct mask){ .kind = MASK_NONE };
    if (mask.kind == MASK_NONE)
        return "has no segmentation, and its mask is asked for";
    if (mask_inside(&mask, im->w, im->h))
        return NULL;
    return mask.kind == MASK_RUNS ? "its segmentation is empty" : "its segmentation lies outside its image";
}

/* The flaw of an annotation with known image and class, apart from its box. A mask of another size is a flaw only if
 * masks are trained. */
static const char *record_flaw(const struct build *b, const struct raw_annotation *a, const struct dataset_image *im, const char **doubt)
{
    static const char other_size[] = "the size of its segmentation is not that of the image";
    const bool other = a->rle_w && (a->rle_w != im->w || a->rle_h != im->h);

    if (other && b->raw->masks)
        return other_size;
    if (other && !*doubt)
        *doubt = other_size;
    return mask_flaw(b, a, im);
}

/* Reports the reason for leaving out an annotation: a flaw, no image or no class. */
static void tell_left_out(struct build *b, const struct raw_annotation *a, int image, const char *flaw)
{
    if (flaw)
        problems_add(b->problems, "%s: %s", place_of(b, a, false).text, flaw);
    else if (image < 0)
        problems_add(b->problems, "%s: image_id %lld is not in \"images\"", name_of(b, a, false).text, (long long)a->image_id);
    else
        problems_add(b->problems, "%s: category_id %lld is not in \"categories\"", name_of(b, a, false).text, (long long)a->class_id);
}

static void tell_box(struct build *b, const struct raw_annotation *a, const struct dataset_image *im, const char *flaw)
{
    problems_add(b->problems, "%s (image %lld, '%s'): %s: [%g, %g, %g, %g] in %d x %d", name_of(b, a, false).text, (long long)im->id,
                 im->file, flaw, a->box[0], a->box[1], a->box[2], a->box[3], im->w, im->h);
}

/* Resolves and checks one annotation. Returns the image index, or -1 when it is left out; *ret is then undefined. */
static int32_t resolve(struct build *b, const struct raw_annotation *a, struct dataset_box *ret, bool tell)
{
    const struct dataset *d = b->d;
    int image = a->has_image ? dataset_image_index(d, a->image_id) : -1, cls = a->has_class ? dataset_class_index(d, a->class_id) : -1;
    const char *flaw = a->flaw, *doubt = a->doubt;
    bool clipped = false;

    if (!flaw && image >= 0 && cls >= 0)
        flaw = record_flaw(b, a, &d->images[image], &doubt);
    if (flaw || cls < 0 || image < 0) {
        if (tell && (flaw || image >= 0 || idmap_get(&b->gone, a->image_id) < 0))
            tell_left_out(b, a, image, flaw);
        return -1;
    }
    *ret = (struct dataset_box){ a->box[0], a->box[1], a->box[2], a->box[3], a->area, a->id, cls, a->crowd, { 0 } };
    memcpy(ret->told, a->box, sizeof ret->told);
    if (a->area < 0)
        ret->area = a->box[2] * a->box[3];
    flaw = b->on_bad == BAD_KEEP ? NULL : box_flaw(&d->images[image], ret, &clipped);
    if (flaw && tell)
        tell_box(b, a, &d->images[image], flaw);
    else if (tell && doubt) /* otherwise the object is good */
        problems_note(b->problems, "%s: %s", place_of(b, a, true).text, doubt);
    b->d->clipped += tell && clipped;
    return flaw ? -1 : image;
}

/* Ids are used in messages only, so an unusual id does not cost the object. */
static int tell_id(struct build *b, const struct raw_annotation *a, struct idmap *seen)
{
    if (idmap_get(seen, a->id) >= 0) {
        problems_note(b->problems, "annotation id %lld is used more than once (line %lld)", (long long)a->id, line_of(b, a->at, true));
        return 0;
    }
    if (a->id == 0 && b->image_of[a - b->raw->annotations] >= 0)
        problems_note(b->problems, "%s: pycocotools counts a detection that matches an object of id 0 as unmatched; detd does not",
                      place_of(b, a, true).text);
    return idmap_put(seen, a->id, 0) < 0 ? no_memory(b) : 0;
}

static int count_boxes(struct build *b, struct idmap *seen)
{
    const struct coco_raw *raw = b->raw;
    struct dataset_box box;
    int rc = 0;

    for (int64_t i = 0; i < raw->nannotations && rc == 0; i++) {
        const struct raw_annotation *a = &raw->annotations[i];

        b->image_of[i] = resolve(b, a, &box, true);
        if (b->image_of[i] >= 0)
            b->d->offset[b->image_of[i] + 1]++;
        if (a->has_id && b->on_bad != BAD_KEEP)
            rc = tell_id(b, a, seen);
    }
    return rc;
}

/* Orders the refs like the boxes. Masks of dropped boxes stay in the stores, unused. next: where the boxes of each
 * image begin. */
static int build_masks(struct build *b, int64_t *next)
{
    struct masks *m = b->raw->masks;
    int64_t nboxes = b->d->offset[b->d->nimages];
    struct mask_ref *ref;

    if (!m)
        return 0;
    ref = calloc((size_t)nboxes + 1, sizeof *ref);
    if (!ref)
        return no_memory(b);
    for (int64_t i = 0; i < b->raw->nannotations && i < (int64_t)m->refs_cap; i++)
        if (b->image_of[i] >= 0)
            ref[next[b->image_of[i]]++] = m->ref[i];
    free(m->ref);
    m->ref = ref;
    m->refs_cap = (size_t)nboxes + 1;
    masks_trim(m, nboxes);
    return 0;
}

static int build_boxes(struct build *b)
{
    const struct coco_raw *raw = b->raw;
    struct dataset *d = b->d;
    struct idmap seen = { 0 };
    int64_t *next;
    int rc;

    d->offset = calloc((size_t)d->nimages + 2, sizeof *d->offset);
    b->image_of = malloc(((size_t)raw->nannotations + 1) * sizeof *b->image_of);
    if (!d->offset || !b->image_of)
        return no_memory(b);
    rc = count_boxes(b, &seen);
    idmap_free(&seen);
    if (rc < 0)
        return rc;
    for (int i = 0; i < d->nimages; i++) {
        d->max_boxes = d->offset[i + 1] > d->max_boxes ? (int)d->offset[i + 1] : d->max_boxes;
        d->offset[i + 1] += d->offset[i];
    }
    d->boxes = malloc(((size_t)d->offset[d->nimages] + 1) * sizeof *d->boxes);
    next = malloc(((size_t)d->nimages + 1) * sizeof *next);
    if (!d->boxes || !next) {
        free(next);
        return no_memory(b);
    }
    memcpy(next, d->offset, (size_t)d->nimages * sizeof *next);
    for (int64_t i = 0; i < raw->nannotations; i++)
        if (b->image_of[i] >= 0)
            resolve(b, &raw->annotations[i], &d->boxes[next[b->image_of[i]]++], false);
    memcpy(next, d->offset, (size_t)d->nimages * sizeof *next);
    rc = build_masks(b, next);
    free(next);
    return rc;
}

static int build(struct build *b)
{
    int rc = build_classes(b);

    if (b->raw->text_ids > 0)
        problems_note(b->problems, "%lld ids are integers written as text, which are read as numbers", (long long)b->raw->text_ids);
    coco_keys_tell(&b->raw->keys, b->raw->bytes, b->problems);
    if (rc == 0)
        rc = build_images(b);
    if (rc == 0)
        rc = build_boxes(b);
    if (rc == 0 && b->problems->count && b->on_bad != BAD_SKIP)
        rc = problems_refuse(b->problems, b->source, b->err);
    free(b->image_of);
    idmap_free(&b->gone);
    return rc;
}

static int read_all(const struct coco_options *o, struct problems *problems, struct coco_raw *raw, struct dataset *d, struct err *err)
{
    struct build b = { .raw = raw,
                       .source = o->annotations,
                       .folder = o->images,
                       .on_bad = o->on_bad,
                       .upright = o->upright,
                       .problems = problems,
                       .err = err,
                       .d = d };
    int rc;

    raw->unlabelled = o->unlabelled;
    rc = coco_raw_parse(raw, o->annotations, raw->bytes, (size_t)d->source_bytes, err);
    if (rc < 0)
        return rc;
    b.dec = decoder_new();
    d->source = strdup(o->annotations);
    d->folder = strdup(o->images);
    rc = b.dec && d->source && d->folder ? build(&b) : no_memory(&b);
    decoder_free(b.dec);
    return rc;
}

int coco_read(const struct coco_options *opt, struct problems *problems, struct dataset **ret, struct err *err)
{
    const char *annotations = opt->annotations;
    struct dataset *d = calloc(1, sizeof *d);
    struct whole_file file = { 0 };
    struct coco_raw raw = { 0 };
    int rc;

    if (d && opt->masks)
        d->masks = raw.masks = masks_new();
    if (!d || (opt->masks && !d->masks)) {
        free(d);
        return err_set(err, -ENOMEM, "%s: no memory", annotations);
    }
    rc = whole_file_read(&file, annotations, COCO_MAX_BYTES, err);
    if (rc == 0) {
        raw.bytes = (const char *)file.bytes;
        d->source_bytes = (int64_t)file.size;
        d->source_mtime_ns = file.mtime_ns;
        d->source_hash = hash_bytes(file.bytes, file.size, 0);
        rc = read_all(opt, problems, &raw, d, err);
    }
    coco_raw_free(&raw);
    free(file.bytes);
    if (rc < 0)
        dataset_free(d);
    else
        *ret = d;
    return rc;
}

#include "worker/data/read/labels/labels_make.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/data/set/box_rule.h"
#include "worker/data/image/image_codec.h"
#include "worker/data/set/problems.h"

int labels_no_memory(struct labels_maker *m)
{
    return err_set(m->err, -ENOMEM, "%s: no memory", m->opt->annotations);
}

void labels_make_problem(struct labels_maker *m, int64_t line, const char *fmt, ...)
{
    char text[PROBLEM_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    problems_add(m->problems, "%s, line %lld: %s", m->where, (long long)line, text);
}

/* ---- files ---- */

static int keep_file(struct labels_maker *m, const char *path)
{
    struct dataset *d = m->d;
    struct dataset_file *f;

    if (d->nfiles == DATASET_MAX_FILES)
        return err_set(m->err, ERR_DATA, "%s: more than %d files of labels", m->opt->annotations, DATASET_MAX_FILES);
    if (!GROW(d->files, m->files_room, d->nfiles + 1))
        return labels_no_memory(m);
    f = &d->files[d->nfiles];
    *f = (struct dataset_file){ .path = strdup(path),
                                .size_bytes = (int64_t)m->file.size,
                                .mtime_ns = m->file.mtime_ns,
                                .hash = hash_bytes(m->file.bytes, m->file.size, 0) };
    if (!f->path)
        return labels_no_memory(m);
    d->nfiles++;
    return 0;
}

int labels_make_file(struct labels_maker *m, const char *path, int64_t max_bytes, bool must)
{
    struct err why = { 0 };
    int rc = whole_file_read(&m->file, path, max_bytes, &why);

    if (rc == 0)
        return keep_file(m, path);
    if (must || !file_at_fault(rc))
        return err_set(m->err, rc, "%s", why.msg);
    problems_add(m->problems, "%s", why.msg);
    return 1;
}

int labels_make_names(struct labels_maker *m, const char *path)
{
    int rc = labels_make_file(m, path, 1 << 24, true);

    return rc < 0 ? rc : label_names_parse(&m->names, path, m->file.bytes, m->file.size, m->err);
}

int labels_make_train_names(struct labels_maker *m, struct label_names *names)
{
    const struct dataset *train = m->opt->train;
    int rc = 0;

    for (int i = 0; i < train->nclasses && rc >= 0; i++) {
        rc = label_names_add(names, m->opt->annotations, train->classes[i].name, m->err);
        if (rc >= 0 && rc != i)
            rc = err_set(m->err, ERR_DATA, "%s: which class of the training split is '%.80s'? Two are called so, those of id %lld and %lld",
                         m->opt->annotations, train->classes[i].name, (long long)train->classes[rc].id, (long long)train->classes[i].id);
    }
    return rc < 0 ? rc : 0;
}

/* ---- pictures ---- */

int labels_make_item(struct labels_maker *m, const char *picture, int32_t list, int64_t line)
{
    if (m->nitems == DATASET_MAX_IMAGES)
        return err_set(m->err, ERR_DATA, "%s: more than %d images", m->opt->annotations, DATASET_MAX_IMAGES);
    if (!GROW(m->item, m->items_room, m->nitems + 1))
        return labels_no_memory(m);
    m->item[m->nitems] = (struct label_item){ strdup(picture), list, line };
    if (!m->item[m->nitems].picture)
        return labels_no_memory(m);
    m->nitems++;
    return 0;
}

const char *labels_make_place(const struct labels_maker *m, const struct label_item *item, char *buf, size_t size)
{
    *buf = '\0';
    if (item->list >= 0)
        snprintf(buf, size, "%.300s, line %lld: ", m->d->files[item->list].path, (long long)item->line);
    return buf;
}

int labels_make_size(struct labels_maker *m, const char *picture, int *ret_w, int *ret_h)
{
    struct err why = { 0 };
    int rc = image_size(m->dec, picture, m->opt->upright, ret_w, ret_h, &why);

    if (rc == 0)
        return 0;
    if (!file_at_fault(rc))
        return err_set(m->err, rc, "%s", why.msg);
    problems_add(m->problems, "%s", why.msg);
    return 1;
}

int labels_make_image(struct labels_maker *m, int i, const char *picture, int w, int h)
{
    struct dataset *d = m->d;
    struct err why = { 0 };

    if (image_check_size(picture, w, h, &why) < 0) {
        problems_add(m->problems, "%s", why.msg);
        return 1;
    }
    d->images[d->nimages] = (struct dataset_image){ .id = i + 1, .w = w, .h = h };
    m->picture[d->nimages] = strdup(picture);
    if (!m->picture[d->nimages])
        return labels_no_memory(m);
    d->nimages++;
    m->nrows = 0;
    idmap_free(&m->row_of);
    d->offset[d->nimages] = d->offset[d->nimages - 1];
    return 0;
}

/* ---- boxes ---- */

static int keep_outline(struct labels_maker *m, const struct label_box *box, int64_t at)
{
    struct masks *masks = m->d->masks;
    struct mask_ref ref = { .at = masks->npolygons, .n = box->xy ? 1 : 0, .kind = box->xy ? MASK_POLYGONS : MASK_NONE };

    for (int i = 0; i < box->npoints && box->xy; i++)
        if (!masks_add_point(masks, box->xy[i][0], box->xy[i][1]))
            return labels_no_memory(m);
    if ((box->xy && !masks_end_polygon(masks)) || !masks_reserve(masks, at + 1))
        return labels_no_memory(m);
    masks->ref[at] = ref;
    return 0;
}

static int keep_box(struct labels_maker *m, const struct label_box *told, const struct dataset_box *box)
{
    struct dataset *d = m->d;
    int64_t at = d->offset[d->nimages];
    int n;

    if (at == DATASET_MAX_BOXES)
        return err_set(m->err, ERR_DATA, "%s: more than %d boxes", m->opt->annotations, DATASET_MAX_BOXES);
    if (!GROW(d->boxes, m->boxes_room, at + 1))
        return labels_no_memory(m);
    d->boxes[at] = *box;
    d->boxes[at].id = at + 1;
    d->offset[d->nimages] = at + 1;
    n = (int)(at + 1 - d->offset[d->nimages - 1]);
    d->max_boxes = n > d->max_boxes ? n : d->max_boxes;
    return d->masks ? keep_outline(m, told, at) : 0;
}

static struct hash128 hash_of(const struct label_box *told)
{
    const double box[5] = { told->cls, told->x, told->y, told->w, told->h };
    struct hash128 h = hash_bytes(box, sizeof box, 0);

    return told->xy ? hash_fold(h, hash_bytes(told->xy, (size_t)told->npoints * sizeof *told->xy, 0)) : h;
}

/* Looks for the same object in the same picture. *ret_line is its line; 0: this is the first one. Returns -ENOMEM or
 * 0. */
static int find_row(struct labels_maker *m, const struct label_box *told, int64_t *ret_line)
{
    struct label_row row = { hash_of(told), told->line };
    int64_t key = (int64_t)(row.hash.lane[0] >> 1);
    int at;

    for (*ret_line = 0; (at = idmap_get(&m->row_of, key)) >= 0; key++)
        if (memcmp(&m->row[at].hash, &row.hash, sizeof row.hash) == 0) {
            *ret_line = m->row[at].line;
            return 0;
        }
    if (!GROW(m->row, m->rows_room, m->nrows + 1) || idmap_put(&m->row_of, key, m->nrows) < 0)
        return labels_no_memory(m);
    m->row[m->nrows++] = row;
    return 0;
}

static int class_of(const struct labels_maker *m, int cls)
{
    return m->class_of ? m->class_of[cls] : cls;
}

/* Clips a box to its image. Returns its flaw, or NULL. */
static const char *flaw_of(const struct labels_maker *m, const struct label_box *told, struct dataset_box *box, bool *ret_clipped)
{
    const char *flaw;

    for (int i = 0; i < 4; i++)
        if (!(box->told[i] <= BOX_COORDINATE_MAX && box->told[i] >= -BOX_COORDINATE_MAX))
            return "box holds an impossible number";
    flaw = box_flaw(&m->d->images[m->d->nimages - 1], box, ret_clipped);
    if (!flaw && m->d->masks && !told->xy && !told->crowd)
        return "has no outline, and its mask is asked for";
    return flaw;
}

/* Keeps a good box. A repeated object is reported; the yolo form drops it. */
static int put_box(struct labels_maker *m, const struct label_box *told, const struct dataset_box *box, bool clipped)
{
    bool once = m->opt->form == LABELS_YOLO; /* like ultralytics' programs */
    int64_t first;

    if (find_row(m, told, &first) < 0)
        return m->err->code;
    if (first > 0)
        problems_note(m->problems, "%s, line %lld: the same object as in line %lld; %s", m->where, (long long)told->line, (long long)first,
                      once ? "one of them is kept" : "both are kept");
    if (first > 0 && once)
        return 0;
    m->d->clipped += clipped;
    return keep_box(m, told, box);
}

int labels_make_box(struct labels_maker *m, const struct label_box *told)
{
    const struct dataset_image *im = &m->d->images[m->d->nimages - 1];
    struct dataset_box box = { .x = told->x, .y = told->y, .w = told->w, .h = told->h, .area = told->w * told->h, .crowd = told->crowd };
    bool clipped = false;
    const char *flaw;

    if (class_of(m, told->cls) < 0) {
        labels_make_problem(m, told->line, "'%.100s' is no class of the training split", m->names.name[told->cls]);
        return 0;
    }
    box.cls = class_of(m, told->cls);
    memcpy(box.told, (const double[4]){ told->x, told->y, told->w, told->h }, sizeof box.told);
    flaw = flaw_of(m, told, &box, &clipped);
    if (!flaw)
        return put_box(m, told, &box, clipped);
    labels_make_problem(m, told->line, "%s: [%g, %g, %g, %g] in %d x %d", flaw, told->x, told->y, told->w, told->h, im->w, im->h);
    return 0;
}

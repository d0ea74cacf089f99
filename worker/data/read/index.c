/* SPDX-License-Identifier: Apache-2.0 */ /* The checked sample list as a file: magic, the data set field by field
 * (little-endian, as in memory), 128-bit hash of all these bytes. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/core/file.h"
#include "worker/data/read/check.h"
#include "worker/data/read/coco/coco_raw.h"
#include "worker/data/image/image.h"
#include "worker/data/text/whole_file.h"

/* Parts that a form of the index has. Masks follow all else. WITH_TOLD adds boxes as annotated; the hash of a data set
 * and indexes of earlier versions lack these. Jobs with such an index are scored by the boxes that they began with. */
enum {
    WITH_MASKS = 1,
    WITH_TOLD = 2,
    UPRIGHT = 4 /* dataset.upright */,
    VIEWS = 8 /* dataset.views */,
    FILES = 16 /* dataset.files */,
    FORMS = 32
};
static const char MAGIC[] = "detdidx";
static const size_t INDEX_MAX_BYTES = (size_t)64 << 30;
/* Smallest size in bytes of a class, an image, a box, a view and a file, with empty names and no contents; see
 * put_dataset(). */
enum { CLASS_LEAST = 2 * 8, IMAGE_LEAST = 7 * 8 + 16, BOX_LEAST = 7 * 8, VIEW_LEAST = 8 * 8, FILE_LEAST = 3 * 8 + 16 };

/* ---- writing ---- */

struct writer {
    uint8_t *bytes;
    size_t size, cap;
    bool full; /* out of memory */
    /* Also writes paths and times, which say where the data lies, and boxes as annotated, which training never sees. A
     * hash leaves them out. */
    bool whole;
};

static void put(struct writer *w, const void *bytes, size_t n)
{
    if (w->full)
        return;
    w->full = !GROW(w->bytes, w->cap, w->size + n);
    if (w->full)
        return;
    memcpy(w->bytes + w->size, bytes, n);
    w->size += n;
}

static void put_int(struct writer *w, int64_t v)
{
    put(w, &v, sizeof v);
}

static void put_text(struct writer *w, const char *text)
{
    put_int(w, (int64_t)strlen(text));
    put(w, text, strlen(text));
}

/* The magic is followed by the number of the form, from 1. */
static void put_magic(struct writer *w, int form)
{
    const char digit = (char)('1' + form);

    put(w, MAGIC, sizeof MAGIC - 1);
    put(w, &digit, 1);
}

static void put_box(struct writer *w, const struct dataset_box *b)
{
    const double five[5] = { b->x, b->y, b->w, b->h, b->area };

    put(w, five, sizeof five);
    put_int(w, b->id);
    put_int(w, (int64_t)b->cls * 2 + b->crowd);
    if (w->whole)
        put(w, b->told, sizeof b->told);
}

/* Kind and count; the points of each polygon; the runs. */
static void put_mask(struct writer *w, struct mask m)
{
    put_int(w, (int64_t)m.n * 4 + m.kind);
    for (int k = 0; k < m.n && m.kind == MASK_POLYGONS; k++) {
        int64_t points = m.first[k + 1] - m.first[k];

        put_int(w, points);
        put(w, m.xy[m.first[k]], (size_t)points * sizeof *m.xy);
    }
    if (m.kind == MASK_RUNS)
        put(w, m.run, (size_t)m.n * sizeof *m.run);
}

static void put_view(struct writer *w, const struct view *view, int nsources)
{
    put_int(w, view->number);
    put(w, view->camera, sizeof view->camera);
    put(w, &view->stereo, sizeof view->stereo);
    for (int k = 0; k < nsources; k++)
        put_int(w, view->source[k]);
    put_int(w, view->depth);
    put_int(w, view->laser);
}

static void put_views(struct writer *w, const struct views *v)
{
    put_int(w, v->nsources);
    for (int k = 0; k < v->nsources; k++)
        put_int(w, v->source[k]);
    put_int(w, v->nfiles);
    for (int i = 0; i < v->nfiles; i++) {
        put_text(w, v->files[i].file);
        put_int(w, v->files[i].size_bytes);
        put_int(w, w->whole ? v->files[i].mtime_ns : 0);
        put(w, &v->files[i].hash, sizeof v->files[i].hash);
    }
    put_int(w, v->nlasers);
    if (v->nlasers)
        put(w, v->lasers, (size_t)v->nlasers * sizeof *v->lasers);
    put(w, &v->depth_unit_m, sizeof v->depth_unit_m);
    put_int(w, v->dropped);
    put_int(w, v->repeated);
    put_int(w, v->n);
    for (int i = 0; i < v->n; i++)
        put_view(w, &v->view[i], v->nsources);
}

static void put_files(struct writer *w, const struct dataset *d)
{
    put_int(w, d->nfiles);
    for (int i = 0; i < d->nfiles; i++) {
        put_text(w, w->whole ? d->files[i].path : "");
        put_int(w, d->files[i].size_bytes);
        put_int(w, w->whole ? d->files[i].mtime_ns : 0);
        put(w, &d->files[i].hash, sizeof d->files[i].hash);
    }
}

static int form_of(const struct writer *w, const struct dataset *d)
{
    return (d->masks ? WITH_MASKS : 0) + (w->whole ? WITH_TOLD : 0) + (d->upright ? UPRIGHT : 0) + (d->views ? VIEWS : 0) +
           (d->nfiles ? FILES : 0);
}

static void put_dataset(struct writer *w, const struct dataset *d)
{
    put_magic(w, form_of(w, d));
    put_text(w, w->whole ? d->source : "");
    put_text(w, w->whole ? d->folder : "");
    put_int(w, d->source_bytes);
    put_int(w, w->whole ? d->source_mtime_ns : 0);
    put(w, &d->source_hash, sizeof d->source_hash);
    put_int(w, d->clipped);
    put_int(w, d->nclasses);
    for (int i = 0; i < d->nclasses; i++) {
        put_int(w, d->classes[i].id);
        put_text(w, d->classes[i].name);
    }
    put_int(w, d->nimages);
    for (int i = 0; i < d->nimages; i++) {
        const struct dataset_image *im = &d->images[i];

        put_int(w, im->id);
        put_text(w, im->file);
        put_int(w, im->w);
        put_int(w, im->h);
        put_int(w, im->size_bytes);
        put_int(w, w->whole ? im->mtime_ns : 0);
        put(w, &im->hash, sizeof im->hash);
        put_int(w, d->offset[i + 1] - d->offset[i]);
        for (int64_t k = d->offset[i]; k < d->offset[i + 1]; k++)
            put_box(w, &d->boxes[k]);
    }
    for (int64_t k = 0; d->masks && k < d->offset[d->nimages]; k++)
        put_mask(w, dataset_mask(d, k));
    if (d->views)
        put_views(w, d->views);
    if (d->nfiles)
        put_files(w, d);
}

int index_write(const char *path, const struct dataset *d, struct err *err)
{
    struct writer w = { .whole = true };
    struct file_out *out = NULL;
    struct hash128 hash;
    int rc;

    put_dataset(&w, d);
    hash = hash_bytes(w.bytes, w.size, 0);
    put(&w, &hash, sizeof hash);
    rc = w.full ? err_set(err, -ENOMEM, "%s: no memory for the index", path) : file_out_open(path, &out, err);
    if (rc == 0) {
        file_out_write(out, w.bytes, w.size, err);
        rc = file_out_commit(out, err);
    }
    free(w.bytes);
    return rc;
}

int index_hash(const struct dataset *d, struct hash128 *ret, struct err *err)
{
    struct writer w = { 0 };

    put_dataset(&w, d);
    if (!w.full)
        *ret = hash_bytes(w.bytes, w.size, 0);
    free(w.bytes);
    return w.full ? err_set(err, -ENOMEM, "%s: no memory for its hash", d->source) : 0;
}

/* ---- reading ---- */

struct reader {
    const unsigned char *at, *end;
    bool bad;  /* sticky: some bytes did not fit */
    bool told; /* boxes as annotated are present */
};

static void get(struct reader *r, void *to, size_t n)
{
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        memset(to, 0, n);
        return;
    }
    memcpy(to, r->at, n);
    r->at += n;
}

static int64_t get_int(struct reader *r, int64_t min, int64_t max)
{
    int64_t v;

    get(r, &v, sizeof v);
    if (v < min || v > max) {
        r->bad = true;
        return min;
    }
    return v;
}

/* The text is malloc'ed, or NULL. */
static char *get_text(struct reader *r, int64_t max)
{
    size_t len = (size_t)get_int(r, 0, max);
    char *text = r->bad || (size_t)(r->end - r->at) < len ? NULL : malloc(len + 1);

    if (!text) {
        r->bad = true;
        return NULL;
    }
    get(r, text, len);
    text[len] = '\0';
    return text;
}

/* A count of things that take at least `least` bytes each. Checked against the remaining bytes, so a wrong count cannot
 * claim memory. */
static int get_count(struct reader *r, int64_t max, size_t least)
{
    int64_t n = get_int(r, 0, max);

    if ((size_t)(r->end - r->at) / least < (size_t)n)
        r->bad = true;
    return r->bad ? 0 : (int)n;
}

static void get_classes(struct reader *r, struct dataset *d)
{
    int n = get_count(r, DATASET_MAX_CLASSES, CLASS_LEAST);

    d->classes = calloc((size_t)n + 1, sizeof *d->classes);
    r->bad |= !d->classes;
    for (; d->nclasses < n && !r->bad; d->nclasses++) {
        d->classes[d->nclasses].id = get_int(r, INT64_MIN, INT64_MAX);
        d->classes[d->nclasses].name = get_text(r, COCO_MAX_NAME);
    }
}

static void get_box(struct reader *r, struct dataset_box *b, int nclasses)
{
    double five[5], told[4];
    int64_t cls;

    get(r, five, sizeof five);
    memcpy(told, five, sizeof told);
    b->id = get_int(r, INT64_MIN, INT64_MAX);
    cls = get_int(r, 0, (int64_t)nclasses * 2 - 1);
    if (r->told)
        get(r, told, sizeof told);
    *b = (struct dataset_box){ five[0], five[1], five[2], five[3], five[4], b->id, (int32_t)(cls / 2), cls & 1, { 0 } };
    memcpy(b->told, told, sizeof told);
    for (int k = 0; k < 5; k++)
        r->bad |= !isfinite(five[k]) || !isfinite(told[k < 4 ? k : 0]);
}

static void get_image(struct reader *r, struct dataset *d, size_t *boxes_cap)
{
    struct dataset_image *im = &d->images[d->nimages];
    int64_t first = d->offset[d->nimages], n;

    im->id = get_int(r, INT64_MIN, INT64_MAX);
    im->file = get_text(r, DATASET_MAX_PATH);
    d->nimages++;
    im->w = (int)get_int(r, 1, IMAGE_MAX_SIDE);
    im->h = (int)get_int(r, 1, IMAGE_MAX_SIDE);
    im->size_bytes = get_int(r, 0, IMAGE_MAX_BYTES);
    im->mtime_ns = get_int(r, INT64_MIN, INT64_MAX);
    get(r, &im->hash, sizeof im->hash);
    n = get_count(r, DATASET_MAX_BOXES, BOX_LEAST);
    if (!GROW(d->boxes, *boxes_cap, first + n)) {
        r->bad = true;
        return;
    }
    for (int64_t k = 0; k < n; k++)
        get_box(r, &d->boxes[first + k], d->nclasses);
    d->max_boxes = n > d->max_boxes ? (int)n : d->max_boxes;
    d->offset[d->nimages] = first + n;
}

static void get_polygon(struct reader *r, struct masks *m)
{
    int n = get_count(r, MASK_MAX_POINTS, sizeof *m->xy);
    double xy[2];

    r->bad |= n < 3;
    for (int i = 0; i < n && !r->bad; i++) {
        get(r, xy, sizeof xy);
        r->bad |= !isfinite(xy[0]) || !isfinite(xy[1]) || !masks_add_point(m, xy[0], xy[1]);
    }
    r->bad |= !masks_end_polygon(m);
}

/* Runs must fill the picture exactly: unpacking would otherwise write outside of it. */
static void get_runs(struct reader *r, struct masks *m, int n, int64_t pixels)
{
    int64_t sum = 0;
    uint32_t run;

    for (int i = 0; i < n && !r->bad; i++) {
        get(r, &run, sizeof run);
        sum += run;
        r->bad |= sum > pixels || !masks_add_run(m, run);
    }
    r->bad |= sum != pixels;
}

static void get_mask(struct reader *r, struct masks *m, struct mask_ref *ref, int64_t pixels)
{
    int64_t word = get_int(r, 0, (int64_t)MASK_MAX_RUNS * 4 + 3), n = word / 4;

    *ref = (struct mask_ref){ .n = (int32_t)n, .kind = (int32_t)(word % 4) };
    ref->at = ref->kind == MASK_POLYGONS ? m->npolygons : m->nruns;
    r->bad |= ref->kind > MASK_RUNS || (ref->kind == MASK_NONE) != (n == 0) || (ref->kind == MASK_POLYGONS && n > MASK_MAX_POLYGONS);
    for (int64_t k = 0; k < n && !r->bad && ref->kind == MASK_POLYGONS; k++)
        get_polygon(r, m);
    if (!r->bad && ref->kind == MASK_RUNS)
        get_runs(r, m, ref->n, pixels);
}

static void get_masks(struct reader *r, struct dataset *d)
{
    d->masks = masks_new();
    r->bad |= !d->masks || !masks_reserve(d->masks, d->offset[d->nimages] + 1);
    for (int i = 0; i < d->nimages && !r->bad; i++)
        for (int64_t k = d->offset[i]; k < d->offset[i + 1] && !r->bad; k++)
            get_mask(r, d->masks, &d->masks->ref[k], (int64_t)d->images[i].w * d->images[i].h);
    if (!r->bad)
        masks_trim(d->masks, d->offset[d->nimages]);
}

static double get_real(struct reader *r)
{
    double v;

    get(r, &v, sizeof v);
    r->bad |= !isfinite(v);
    return v;
}

static void get_files(struct reader *r, struct views *v)
{
    int n = get_count(r, VIEWS_MAX_FILES, FILE_LEAST);

    v->files = calloc((size_t)n + 1, sizeof *v->files);
    r->bad |= !v->files;
    for (; v->nfiles < n && !r->bad; v->nfiles++) {
        struct views_file *f = &v->files[v->nfiles];

        f->file = get_text(r, DATASET_MAX_PATH);
        f->size_bytes = get_int(r, 0, INT64_MAX);
        f->mtime_ns = get_int(r, INT64_MIN, INT64_MAX);
        get(r, &f->hash, sizeof f->hash);
    }
}

static void get_lasers(struct reader *r, struct views *v)
{
    int n = get_count(r, VIEWS_MAX_LASERS, sizeof *v->lasers);

    v->lasers = calloc((size_t)n + 1, sizeof *v->lasers);
    r->bad |= !v->lasers;
    for (; v->nlasers < n && !r->bad; v->nlasers++)
        for (int k = 0; k < 12; k++)
            v->lasers[v->nlasers].p[k] = get_real(r);
}

static void get_view(struct reader *r, const struct views *v, int nimages, struct view *view)
{
    view->number = get_int(r, 0, INT64_MAX);
    for (int k = 0; k < 4; k++)
        view->camera[k] = get_real(r);
    r->bad |= !(view->camera[0] > 0 && view->camera[1] > 0);
    view->stereo = get_real(r);
    for (int k = 0; k < v->nsources; k++)
        view->source[k] = (int32_t)get_int(r, 0, nimages - 1);
    view->depth = (int32_t)get_int(r, -1, v->nfiles - 1);
    view->laser = (int32_t)get_int(r, -1, v->nlasers - 1);
}

static void get_views(struct reader *r, struct dataset *d)
{
    struct views *v = d->views = calloc(1, sizeof *v);
    int n;

    r->bad |= !v;
    if (r->bad)
        return;
    v->nsources = (int)get_int(r, 0, VIEWS_MAX_SOURCES);
    for (int k = 0; k < v->nsources; k++)
        v->source[k] = (int)get_int(r, INT32_MIN, INT32_MAX);
    get_files(r, v);
    get_lasers(r, v);
    get(r, &v->depth_unit_m, sizeof v->depth_unit_m);
    v->dropped = get_int(r, 0, INT64_MAX);
    v->repeated = get_int(r, 0, INT64_MAX);
    n = get_count(r, d->nimages, VIEW_LEAST);
    v->view = calloc((size_t)n + 1, sizeof *v->view);
    r->bad |= !v->view || n < 1;
    for (; v->n < n && !r->bad; v->n++)
        get_view(r, v, d->nimages, &v->view[v->n]);
}

static void get_label_files(struct reader *r, struct dataset *d)
{
    int n = get_count(r, DATASET_MAX_FILES, FILE_LEAST);

    d->files = calloc((size_t)n + 1, sizeof *d->files);
    r->bad |= !d->files || n < 1;
    for (; d->nfiles < n && !r->bad; d->nfiles++) {
        struct dataset_file *f = &d->files[d->nfiles];

        f->path = get_text(r, DATASET_MAX_PATH);
        f->size_bytes = get_int(r, 0, INT64_MAX);
        f->mtime_ns = get_int(r, INT64_MIN, INT64_MAX);
        get(r, &f->hash, sizeof f->hash);
    }
}

static int get_form(struct reader *r)
{
    char magic[sizeof MAGIC];
    int form;

    get(r, magic, sizeof magic);
    form = magic[sizeof MAGIC - 1] - '1';
    r->bad |= memcmp(magic, MAGIC, sizeof MAGIC - 1) != 0 || form < 0 || form >= FORMS;
    return r->bad ? 0 : form;
}

static void get_dataset(struct reader *r, struct dataset *d)
{
    size_t boxes_cap = 0;
    int form = get_form(r), n;

    r->told = form & WITH_TOLD;
    d->upright = form & UPRIGHT;
    d->source = get_text(r, DATASET_MAX_PATH);
    d->folder = get_text(r, DATASET_MAX_PATH);
    d->source_bytes = get_int(r, 0, COCO_MAX_BYTES);
    d->source_mtime_ns = get_int(r, INT64_MIN, INT64_MAX);
    get(r, &d->source_hash, sizeof d->source_hash);
    d->clipped = get_int(r, 0, DATASET_MAX_BOXES);
    get_classes(r, d);
    n = get_count(r, DATASET_MAX_IMAGES, IMAGE_LEAST);
    d->images = calloc((size_t)n + 1, sizeof *d->images);
    d->boxes = malloc(sizeof *d->boxes);
    d->offset = calloc((size_t)n + 1, sizeof *d->offset);
    r->bad |= !d->images || !d->offset || !d->boxes;
    while (d->nimages < n && !r->bad)
        get_image(r, d, &boxes_cap);
    if ((form & WITH_MASKS) && !r->bad)
        get_masks(r, d);
    if ((form & VIEWS) && !r->bad)
        get_views(r, d);
    if ((form & FILES) && !r->bad)
        get_label_files(r, d);
    r->bad |= r->at != r->end;
}

static int parse(const char *path, const struct file_map *map, struct dataset *d, struct err *err)
{
    struct hash128 want, got;
    struct reader r;

    if (map->size < sizeof MAGIC + sizeof want)
        return err_set(err, ERR_CORRUPT, "%s: %zu bytes are no index", path, map->size);
    memcpy(&want, map->data + map->size - sizeof want, sizeof want);
    got = hash_bytes(map->data, map->size - sizeof want, 0);
    if (memcmp(&want, &got, sizeof want) != 0)
        return err_set(err, ERR_CORRUPT, "%s: the index is damaged, its hash does not fit", path);
    r = (struct reader){ map->data, map->data + map->size - sizeof want, false, false };
    get_dataset(&r, d);
    return r.bad ? err_set(err, ERR_CORRUPT, "%s: the index is malformed", path) : 0;
}

/* ---- is the data unchanged since the check? ---- */

static int same_file(struct whole_file *f, const char *path, int64_t size, int64_t mtime_ns, struct hash128 hash, struct err *err)
{
    struct hash128 now;
    struct stat st;
    int rc;

    if (stat(path, &st) < 0)
        return err_sys(err, "stat '%s', which was there when the data set was checked", path);
    if (st.st_size != size)
        return err_set(err, ERR_DATA, "%s: has changed since the data set was checked (%lld bytes, was %lld)", path, (long long)st.st_size,
                       (long long)size);
    if ((int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec == mtime_ns)
        return 0;
    rc = whole_file_read(f, path, size, err);
    if (rc < 0)
        return rc;
    now = hash_bytes(f->bytes, f->size, 0);
    if (f->size != (size_t)size || memcmp(&now, &hash, sizeof now) != 0)
        return err_set(err, ERR_DATA, "%s: its content has changed since the data set was checked", path);
    return 0;
}

static int verify(const struct dataset *d, const struct check_options *opt, const char *path, struct err *err)
{
    struct whole_file f = { 0 };
    char file[DATASET_MAX_PATH];
    int rc;

    if (!d->source || !d->folder)
        return err_set(err, ERR_CORRUPT, "%s: the index is malformed", path);
    if (strcmp(d->source, opt->annotations) != 0 || (!opt->labels && strcmp(d->folder, opt->images) != 0))
        return err_set(err, ERR_DATA, "%s: the index is of '%s' and '%s', the job has '%s' and '%s'", path, d->source, d->folder,
                       opt->annotations, opt->images ? opt->images : "");
    rc = d->nfiles ? 0 : same_file(&f, d->source, d->source_bytes, d->source_mtime_ns, d->source_hash, err);
    for (int i = 0; i < d->nfiles && rc == 0; i++)
        rc = same_file(&f, d->files[i].path, d->files[i].size_bytes, d->files[i].mtime_ns, d->files[i].hash, err);
    for (int i = 0; i < d->nimages && rc == 0; i++) {
        const struct dataset_image *im = &d->images[i];

        rc = same_file(&f, dataset_path(d, i, file), im->size_bytes, im->mtime_ns, im->hash, err);
    }
    for (int i = 0; d->views && i < d->views->nfiles && rc == 0; i++) {
        const struct views_file *v = &d->views->files[i];
        int n = snprintf(file, sizeof file, "%s/%s", d->folder, v->file);

        rc = n < 0 || (size_t)n >= sizeof file ? err_set(err, ERR_CORRUPT, "%s: the index is malformed", path)
                                               : same_file(&f, file, v->size_bytes, v->mtime_ns, v->hash, err);
    }
    free(f.bytes);
    return rc;
}

int index_load(const char *path, const struct check_options *opt, struct dataset **ret, struct err *err)
{
    struct dataset *d = calloc(1, sizeof *d);
    struct file_map map;
    int rc;

    if (!d)
        return err_set(err, -ENOMEM, "%s: no memory", path);
    rc = file_map_open(path, INDEX_MAX_BYTES, &map, err);
    if (rc == 0) {
        rc = parse(path, &map, d, err);
        file_map_close(&map);
    }
    if (rc == 0 && opt->masks != (d->masks != NULL))
        rc = err_set(err, ERR_CORRUPT, "%s: the index %s", path, opt->masks ? "lacks the masks" : "holds masks that are not asked for");
    if (rc == 0 && (opt->frames != NULL) != (d->views != NULL))
        rc = err_set(err, ERR_CORRUPT, "%s: the index is one of %s", path, d->views ? "frames" : "boxes");
    if (rc == 0 && (opt->labels != NULL) != (d->nfiles > 0))
        rc = err_set(err, ERR_CORRUPT, "%s: the index is one of %s", path, d->nfiles ? "labels" : "other annotations");
    if (rc == 0)
        rc = verify(d, opt, path, err);
    if (rc < 0)
        dataset_free(d);
    else
        *ret = d;
    return rc;
}

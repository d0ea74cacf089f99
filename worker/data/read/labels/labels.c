#include "worker/data/read/labels/labels.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "worker/data/image/image.h"
#include "worker/data/read/labels/labels_make.h"
#include "worker/data/set/problems.h"

/* ---- pictures that are named twice ---- */

static int by_picture(const void *a, const void *b, void *items)
{
    const struct label_item *item = items;
    int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    int order = strcmp(item[i].picture, item[k].picture);

    return order ? order : (i > k) - (i < k);
}

static void tell_double(struct labels_maker *m, int i, int first)
{
    char here[512], there[512];

    labels_make_place(m, &m->item[i], here, sizeof here);
    labels_make_place(m, &m->item[first], there, sizeof there);
    if (*there)
        there[strlen(there) - 2] = '\0'; /* removes its ": " */
    problems_note(m->problems, "%s'%.200s' is there twice%s%s; one of them is kept", here, m->item[i].picture, *there ? ": also in " : "",
                  there);
}

/* Drops repeated pictures: their objects would be trained twice, or one entry's objects would be background in the
 * other. */
static int drop_doubles(struct labels_maker *m)
{
    int32_t *order = calloc((size_t)m->nitems + 1, sizeof *order), *first = calloc((size_t)m->nitems + 1, sizeof *first);

    if (!order || !first) {
        free(order);
        free(first);
        return labels_no_memory(m);
    }
    for (int i = 0; i < m->nitems; i++)
        first[i] = order[i] = i;
    if (m->nitems > 0)
        qsort_r(order, (size_t)m->nitems, sizeof *order, by_picture, m->item);
    for (int i = 1; i < m->nitems; i++)
        if (strcmp(m->item[order[i]].picture, m->item[order[i - 1]].picture) == 0)
            first[order[i]] = first[order[i - 1]];
    for (int i = 0; i < m->nitems; i++)
        if (first[i] != i) {
            tell_double(m, i, first[i]);
            free(m->item[i].picture);
            m->item[i].picture = NULL; /* the first one stays */
        }
    free(order);
    free(first);
    return 0;
}

/* ---- classes ---- */

/* If the training split gives the classes: the index in it of each of our names. */
static int find_classes(struct labels_maker *m)
{
    struct label_names names = { 0 };
    int rc;

    if (!m->opt->train)
        return 0;
    rc = labels_make_train_names(m, &names);
    m->class_of = rc < 0 ? NULL : malloc(((size_t)m->names.n + 1) * sizeof *m->class_of);
    for (int i = 0; i < m->names.n && m->class_of; i++)
        m->class_of[i] = label_names_find(&names, m->names.name[i]);
    label_names_free(&names);
    return rc < 0 ? rc : m->class_of ? 0 : labels_no_memory(m);
}

/* Sorts the classes: names that came with objects have no order. */
static int sort_classes(struct labels_maker *m)
{
    struct dataset *d = m->d;
    int32_t *place = calloc((size_t)m->names.n + 1, sizeof *place);
    int rc = place ? label_names_sort(&m->names, place) : -ENOMEM;

    for (int64_t k = 0; k < d->offset[d->nimages] && rc == 0; k++)
        d->boxes[k].cls = place[d->boxes[k].cls];
    free(place);
    return rc < 0 ? labels_no_memory(m) : 0;
}

static int put_classes(struct labels_maker *m)
{
    const struct dataset *train = m->opt->train;
    struct dataset *d = m->d;
    int n = train ? train->nclasses : m->names.n;

    d->classes = calloc((size_t)n + 1, sizeof *d->classes);
    if (!d->classes)
        return labels_no_memory(m);
    for (; d->nclasses < n; d->nclasses++) {
        struct dataset_class *c = &d->classes[d->nclasses];

        c->id = train ? train->classes[d->nclasses].id : d->nclasses + 1;
        c->name = strdup(train ? train->classes[d->nclasses].name : m->names.name[d->nclasses]);
        if (!c->name)
            return labels_no_memory(m);
    }
    return 0;
}

/* ---- the folder that all pictures are in ---- */

/* Makes the files relative to this folder, so that a data set is the same in any place. */
static int put_folder(struct labels_maker *m)
{
    struct dataset *d = m->d;
    char folder[DATASET_MAX_PATH] = "";
    int len = 0;

    if (d->nimages > 0) {
        label_path_folder(m->picture[0], folder);
        len = strcmp(folder, "/") == 0 || m->picture[0][strlen(folder)] != '/' ? 0 : (int)strlen(folder);
    }
    for (int i = 1; i < d->nimages; i++)
        len = label_path_common(m->picture[0], len, m->picture[i]);
    for (int i = 0; i < d->nimages; i++) {
        d->images[i].file = strdup(m->picture[i] + len + (m->picture[i][len] == '/'));
        if (!d->images[i].file)
            return labels_no_memory(m);
    }
    if (len > 0)
        d->folder = strndup(m->picture[0], (size_t)len);
    else
        d->folder = strdup(d->nimages > 0 && m->picture[0][0] == '/' ? "" : ".");
    return d->folder ? 0 : labels_no_memory(m);
}

/* ---- all of it ---- */

/* Stores the facts of the source if it is a file. A folder has none: its files are listed one by one. */
static int put_source(struct labels_maker *m)
{
    struct dataset *d = m->d;
    struct stat st;

    d->source = strdup(m->opt->annotations);
    if (!d->source)
        return labels_no_memory(m);
    if (stat(m->opt->annotations, &st) < 0)
        return err_sys(m->err, "open '%s'", m->opt->annotations);
    if (S_ISDIR(st.st_mode))
        return 0;
    for (int i = 0; i < d->nfiles; i++)
        if (strcmp(d->files[i].path, m->opt->annotations) == 0) {
            d->source_bytes = d->files[i].size_bytes;
            d->source_mtime_ns = d->files[i].mtime_ns;
            d->source_hash = d->files[i].hash;
        }
    return 0;
}

static int read_items(struct labels_maker *m, const struct labels_kind *kind)
{
    struct dataset *d = m->d;
    int rc = 0;

    d->images = calloc((size_t)m->nitems + 1, sizeof *d->images);
    d->offset = calloc((size_t)m->nitems + 2, sizeof *d->offset);
    d->boxes = calloc(1, sizeof *d->boxes);
    m->boxes_room = d->boxes ? 1 : 0;
    m->picture = calloc((size_t)m->nitems + 1, sizeof *m->picture);
    if (!d->images || !d->offset || !d->boxes || !m->picture)
        return labels_no_memory(m);
    for (int i = 0; i < m->nitems && rc >= 0; i++)
        if (m->item[i].picture)
            rc = kind->take(m, i);
    if (rc >= 0 && kind->end)
        rc = kind->end(m);
    return rc < 0 ? rc : 0;
}

static int read_all(struct labels_maker *m)
{
    static const struct labels_kind *const kinds[] = {
        [LABELS_VOC] = &labels_voc, [LABELS_DARKNET] = &labels_darknet, [LABELS_YOLO] = &labels_yolo
    };
    const struct labels_kind *kind = kinds[m->opt->form];
    bool named;
    int rc = m->opt->names ? labels_make_names(m, m->opt->names) : 0;

    if (rc == 0)
        rc = kind->open(m);
    named = m->names.n > 0;
    if (rc == 0)
        rc = drop_doubles(m);
    if (rc == 0)
        rc = find_classes(m);
    if (rc == 0)
        rc = read_items(m, kind);
    if (rc == 0 && !named)
        rc = sort_classes(m);
    if (rc == 0)
        rc = put_classes(m);
    if (rc == 0)
        rc = put_folder(m);
    if (rc == 0 && m->d->masks)
        masks_trim(m->d->masks, m->d->offset[m->d->nimages]);
    return rc == 0 ? put_source(m) : rc;
}

static void clear(struct labels_maker *m)
{
    for (int i = 0; i < m->nitems; i++)
        free(m->item[i].picture);
    for (int i = 0; m->picture && i < m->nitems; i++)
        free(m->picture[i]);
    free(m->item);
    free(m->picture);
    free(m->class_of);
    free(m->row);
    idmap_free(&m->row_of);
    free(m->file.bytes);
    image_names_free(&m->pictures);
    label_names_free(&m->names);
    decoder_free(m->dec);
}

int labels_read(const struct labels_options *opt, struct problems *problems, struct dataset **ret, struct err *err)
{
    struct labels_maker m = { .opt = opt, .problems = problems, .err = err, .d = calloc(1, sizeof *m.d), .dec = decoder_new() };
    int rc = 0;

    if (m.d && opt->masks)
        m.d->masks = masks_new();
    if (!m.d || !m.dec || (opt->masks && !m.d->masks))
        rc = labels_no_memory(&m);
    if (rc == 0)
        rc = read_all(&m);
    if (rc < 0)
        dataset_free(m.d);
    else
        *ret = m.d;
    clear(&m);
    return rc;
}

#include "worker/data/set/dataset.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"

void dataset_free(struct dataset *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->nclasses; i++)
        free(d->classes[i].name);
    for (int i = 0; i < d->nimages; i++)
        free(d->images[i].file);
    for (int i = 0; i < d->nfiles; i++)
        free(d->files[i].path);
    free(d->files);
    free(d->classes);
    free(d->images);
    free(d->offset);
    free(d->boxes);
    masks_free(d->masks);
    views_free(d->views);
    free(d->source);
    free(d->folder);
    free(d);
}

int dataset_class_index(const struct dataset *d, int64_t id)
{
    int lo = 0, hi = d->nclasses;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;

        if (d->classes[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < d->nclasses && d->classes[lo].id == id ? lo : -1;
}

int dataset_image_index(const struct dataset *d, int64_t id)
{
    int lo = 0, hi = d->nimages;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;

        if (d->images[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < d->nimages && d->images[lo].id == id ? lo : -1;
}

int dataset_same_classes(const struct dataset *a, const struct dataset *b, struct err *err)
{
    for (int i = 0; i < a->nclasses || i < b->nclasses; i++)
        if (i >= a->nclasses || i >= b->nclasses || a->classes[i].id != b->classes[i].id)
            return err_set(err, ERR_DATA, "%s and %s list different categories: both splits need the same ids", a->source, b->source);
    for (int i = 0; i < a->nclasses; i++)
        if (strcmp(a->classes[i].name, b->classes[i].name) != 0)
            return err_set(err, ERR_DATA, "category %lld is '%.60s' in %s and '%.60s' in %s", (long long)a->classes[i].id,
                           a->classes[i].name, a->source, b->classes[i].name, b->source);
    return 0;
}

/* place[nclasses]: index of each class in the other list, or -1. Returns the number of classes found. */
static int find_places(const struct dataset *d, int n, const char *const *name, int32_t *place)
{
    int found = 0;

    for (int k = 0; k < d->nclasses; k++) {
        place[k] = -1;
        for (int c = 0; c < n && place[k] < 0; c++)
            if (strcmp(name[c], d->classes[k].name) == 0)
                place[k] = c;
        found += place[k] >= 0;
    }
    return found;
}

/* Gives boxes their new classes and drops boxes without one. Returns the number dropped. */
static int64_t move_boxes(struct dataset *d, const int32_t *place)
{
    int64_t kept = 0, all = d->offset[d->nimages], from = 0;

    d->max_boxes = 0;
    for (int i = 0; i < d->nimages; i++) {
        int64_t to = d->offset[i + 1], first = kept;

        for (; from < to; from++) {
            if (place[d->boxes[from].cls] < 0)
                continue;
            d->boxes[kept] = d->boxes[from];
            d->boxes[kept].cls = place[d->boxes[from].cls];
            if (d->masks)
                d->masks->ref[kept] = d->masks->ref[from];
            kept++;
        }
        d->offset[i] = first;
        d->max_boxes = kept - first > d->max_boxes ? (int)(kept - first) : d->max_boxes;
    }
    d->offset[d->nimages] = kept;
    return all - kept;
}

static struct dataset_class *copy_classes(int n, const int64_t *id, const char *const *name)
{
    struct dataset_class *c = calloc((size_t)n + 1, sizeof *c);
    bool whole = c != NULL;

    for (int k = 0; k < n && whole; k++) {
        c[k] = (struct dataset_class){ id[k], strdup(name[k]) };
        whole = c[k].name != NULL;
    }
    for (int k = 0; c && !whole && k < n; k++)
        free(c[k].name);
    if (!whole)
        free(c);
    return whole ? c : NULL;
}

int dataset_take_classes(struct dataset *d, int n, const int64_t *id, const char *const *name, int64_t *ret_gone, struct err *err)
{
    int32_t *place = calloc((size_t)d->nclasses + 1, sizeof *place);
    struct dataset_class *classes = place && d->nclasses > 0 ? copy_classes(n, id, name) : NULL;
    int rc = 0;

    *ret_gone = 0;
    if (!place || (d->nclasses > 0 && !classes)) {
        rc = err_set(err, ERR_DEVICE, "%s: out of memory", d->source);
    } else if (d->nclasses > 0 && find_places(d, n, name, place) == 0) {
        rc =
            err_set(err, ERR_DATA, "%s: no category of it is a class of the network, for example '%.60s'", d->source, n > 0 ? name[0] : "");
        for (int k = 0; k < n; k++)
            free(classes[k].name);
        free(classes);
    } else if (d->nclasses > 0) {
        *ret_gone = move_boxes(d, place);
        for (int k = 0; k < d->nclasses; k++)
            free(d->classes[k].name);
        free(d->classes);
        d->classes = classes;
        d->nclasses = n;
    }
    free(place);
    return rc;
}

int dataset_has_objects(const struct dataset *d, struct err *err)
{
    if (d->views)
        return 0;
    for (int64_t k = 0; k < d->offset[d->nimages]; k++)
        if (!d->boxes[k].crowd)
            return 0;
    return err_set(err, ERR_DATA, "%s: no image has an object to train on", d->source);
}

char *dataset_path(const struct dataset *d, int image, char *buf)
{
    snprintf(buf, DATASET_MAX_PATH, "%s/%s", d->folder, d->images[image].file);
    return buf;
}

#include "worker/data/dataset.h"

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

char *dataset_path(const struct dataset *d, int image, char *buf)
{
    snprintf(buf, DATASET_MAX_PATH, "%s/%s", d->folder, d->images[image].file);
    return buf;
}

#include "worker/data/make/pictures.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "proto/err.h"
#include "worker/data/make/cache.h"
#include "worker/data/set/dataset.h"
#include "worker/data/image/image.h"

struct pictures {
    const struct dataset *d;
    struct cache *cache;
};

struct pictures *pictures_new(const struct dataset *d, size_t cache_bytes)
{
    struct pictures *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->d = d;
    p->cache = cache_new(d->nimages, cache_bytes);
    if (!p->cache) {
        free(p);
        return NULL;
    }
    return p;
}

void pictures_free(struct pictures *p)
{
    if (!p)
        return;
    cache_free(p->cache);
    free(p);
}

static int other_size(const char *path, const struct image *now, const struct dataset_image *was, struct err *err)
{
    return err_set(err, ERR_DATA,
                   was->size_bytes > 0 ? "%s: is %d x %d pixels now, was %d x %d when it was checked"
                                       : "%s: is %d x %d pixels, and not %d x %d as its set has it",
                   path, now->w, now->h, was->w, was->h);
}

int pictures_get(struct pictures *p, struct decoder *dec, int32_t image, const uint8_t **ret_rgb, struct err *err)
{
    const struct dataset_image *im = &p->d->images[image];
    char path[DATASET_MAX_PATH];
    struct image img;
    int rc;

    *ret_rgb = cache_get(p->cache, image);
    if (*ret_rgb)
        return 0;
    rc = image_read(dec, dataset_path(p->d, image, path), &img, err);
    if (rc >= 0 && p->d->upright)
        rc = image_upright(dec, path, &img, err);
    if (rc < 0)
        return rc;
    if (img.w != im->w || img.h != im->h)
        return other_size(path, &img, im, err);
    cache_put(p->cache, image, img.rgb, (size_t)im->w * (size_t)im->h * 3);
    *ret_rgb = img.rgb;
    return 0;
}

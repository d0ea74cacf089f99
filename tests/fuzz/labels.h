/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/labels.h - the input of these targets is the label file of a
 * picture: here are a folder with that picture, and checks for every data set read from it. */
#pragma once
#include <string.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/image/image.h"
#include "worker/data/read/labels/labels.h"
#include "worker/data/set/problems.h"

/* A file in the target's folder; ret has room for TEMP_MAX + 16. */
static inline const char *labels_file(const char *name, char *ret)
{
    snprintf(ret, TEMP_MAX + 16, "%s/%s", fuzz_path(), name);
    return ret;
}

static inline void labels_begin(const char *picture)
{
    static const uint8_t rgb[8 * 6 * 3];
    char path[TEMP_MAX + 16];
    struct err err;

    assert_int_equal(mkdir(fuzz_path(), 0755), 0);
    assert_int_equal(image_write_png(labels_file(picture, path), rgb, 8, 6, &err), 0);
}

static inline void labels_end(const char *const *files)
{
    char path[TEMP_MAX + 16];

    for (; *files; files++)
        unlink(labels_file(*files, path));
    assert_int_equal(rmdir(fuzz_path()), 0);
}

static inline void labels_check(const struct labels_options *opt)
{
    struct problems *p = calloc(1, sizeof *p);
    struct dataset *d;
    struct err err = { 0 };
    int rc = labels_read(opt, p, &d, &err);

    assert_true(rc == 0 || (rc == ERR_DATA && err.msg[0]) || rc == -2 /* ENOENT */);
    for (int i = 0; i < p->kept; i++)
        assert_true(strlen(p->text[i]) > 10);
    for (int i = 0; rc == 0 && i < d->nimages; i++)
        for (int64_t k = d->offset[i]; k < d->offset[i + 1]; k++) {
            const struct dataset_box *b = &d->boxes[k];

            assert_in_range(b->cls, 0, d->nclasses - 1);
            assert_true(b->w > 0 && b->h > 0 && b->x >= 0 && b->y >= 0);
            assert_true(b->x + b->w <= d->images[i].w * (1 + 1e-12) && b->y + b->h <= d->images[i].h * (1 + 1e-12));
            assert_true(!d->masks || b->crowd || dataset_mask(d, k).kind == MASK_POLYGONS);
        }
    if (rc == 0)
        dataset_free(d);
    free(p);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_coco.c - uses: proto worker/core worker/mask worker/data
 * Annotations, with and without masks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/read/coco/coco.h"
#include "worker/data/set/problems.h"

const char fuzz_name[] = "coco";
const int fuzz_places = 40;

static void check_dataset(const struct dataset *d)
{
    for (int i = 0; i < d->nimages; i++)
        for (int64_t k = d->offset[i]; k < d->offset[i + 1]; k++) {
            const struct dataset_box *b = &d->boxes[k];

            assert_in_range(b->cls, 0, d->nclasses - 1);
            assert_true(b->w > 0 && b->h > 0 && b->x >= 0 && b->y >= 0);
            assert_true(b->x + b->w <= d->images[i].w * (1 + 1e-12) && b->y + b->h <= d->images[i].h * (1 + 1e-12));
        }
}

static void check_masks(const struct dataset *d)
{
    double sum = 0;

    for (int i = 0; i < d->nimages; i++)
        for (int64_t k = d->offset[i]; k < d->offset[i + 1]; k++) {
            struct mask m = dataset_mask(d, k);
            int64_t pixels = 0;

            assert_true(d->boxes[k].crowd || m.kind != MASK_NONE);
            for (int64_t p = m.kind == MASK_POLYGONS ? m.first[0] : 0; m.kind == MASK_POLYGONS && p < m.first[m.n]; p++)
                sum += m.xy[p][0] + m.xy[p][1];
            for (int r = 0; m.kind == MASK_RUNS && r < m.n; r++)
                pixels += m.run[r];
            assert_true(m.kind != MASK_RUNS || pixels == (int64_t)d->images[i].w * d->images[i].h);
        }
    assert_true(sum == sum);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    struct problems *p = calloc(1, sizeof *p);
    struct dataset *d;
    struct err err = { 0 };

    fuzz_write(fuzz_path(), bytes, size);
    for (enum bad_policy policy = BAD_ERROR; policy <= BAD_SKIP; policy++) {
        struct coco_options o = { .annotations = fuzz_path(), .images = "tests/fuzz/coco", .on_bad = policy };

        if (coco_read(&o, p, &d, &err) == 0) {
            check_dataset(d);
            dataset_free(d);
        } else {
            assert_non_null(strstr(err.msg, fuzz_path()));
        }
        o.masks = true;
        if (coco_read(&o, p, &d, &err) == 0) {
            check_dataset(d);
            check_masks(d);
            dataset_free(d);
        }
    }
    unlink(fuzz_path());
    free(p);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_index.c - uses: proto worker/core worker/mask worker/data
 * The checked list of samples that a job keeps. */
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
#include "worker/data/read/check.h"
#include "worker/data/read/coco/coco.h"

const char fuzz_name[] = "index";
const int fuzz_places = 40;

/* The hash at the end is made to fit, or nothing behind it would ever be reached. */
void fuzz_one(const uint8_t *bytes, size_t size)
{
    struct check_options opt = { .annotations = "a.json", .images = "images", .on_bad = BAD_ERROR, .threads = 1 };
    uint8_t *copy = malloc(size + 1);
    struct dataset *d = NULL;
    struct hash128 hash;
    struct err err = { 0 };

    memcpy(copy, bytes, size);
    if (size >= sizeof hash) {
        hash = hash_bytes(copy, size - sizeof hash, 0);
        memcpy(copy + size - sizeof hash, &hash, sizeof hash);
    }
    fuzz_write(fuzz_path(), copy, size);
    assert_true(index_load(fuzz_path(), &opt, &d, &err) < 0); /* its pictures are not here */
    opt.masks = true;
    assert_true(index_load(fuzz_path(), &opt, &d, &err) < 0);
    unlink(fuzz_path());
    free(copy);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_rle.c - uses: proto worker/core worker/mask worker/data
 * A mask as a run string. */
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
#include "tests/unit/worker/mask/rle_pairs.h"
#include "worker/mask/rle.h"

const char fuzz_name[] = "rle";
const int fuzz_places = 120;

/* A mask that was read goes there and back again by every way. */
static void check_mask(const struct rle *m)
{
    char *text = malloc(m->n * RLE_TEXT_MOST + 1);
    struct rle back = { 0 };
    uint8_t *bits;
    int box[4];
    size_t stride;
    struct err err;

    assert_int_equal(rle_from_text(&back, m->h, m->w, text, rle_to_text(m, text), &err), 0);
    assert_int_equal(back.n, m->n);
    assert_memory_equal(back.run, m->run, m->n * sizeof *m->run);
    rle_bounds(m, box);
    assert_true(box[0] >= 0 && box[1] >= 0 && box[0] + box[2] <= m->w && box[1] + box[3] <= m->h);
    stride = (size_t)(box[2] + 7) / 8;
    bits = malloc(stride * (size_t)box[3] + 1);
    rle_to_crop(m, box[0], box[1], box[2], box[3], bits);
    assert_int_equal(rle_from_crop(&back, m->h, m->w, &(struct rle_crop){ box[0], box[1], box[2], box[3], bits }, &err), 0);
    assert_int_equal(rle_area(&back), rle_area(m));
    assert_int_equal(rle_common(&back, m), rle_area(m));
    rle_free(&back);
    free(bits);
    free(text);
}

/* "HEIGHT WIDTH", a line, and the run string behind it. */
void fuzz_one(const uint8_t *bytes, size_t size)
{
    const uint8_t *line = memchr(bytes, '\n', size);
    size_t head = line ? (size_t)(line - bytes) + 1 : 0;
    long long h = 480, w = 640;
    char first[64] = "";
    struct rle m = { 0 };
    struct err err = { 0 };

    memcpy(first, bytes, head < sizeof first ? head : sizeof first - 1);
    sscanf(first, "%lld %lld", &h, &w);
    if (rle_from_text(&m, h, w, (const char *)bytes + head, size - head, &err) == 0)
        check_mask(&m);
    else
        assert_true(err.code == ERR_DATA && err.msg[0]);
    rle_free(&m);
}

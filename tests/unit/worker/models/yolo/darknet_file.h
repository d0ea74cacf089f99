/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/yolo/darknet_file.h - .weights files for tests;
 * the program reads them alone. */
#pragma once
#include <stdint.h>
#include <stdio.h>

#include "worker/models/yolo/darknet_weights.h"

static void put_floats(FILE *f, const float *v, size_t count)
{
    assert_int_equal(fwrite(v, sizeof *v, count, f), count);
}

static void put_block(FILE *f, const struct darknet_block *b)
{
    size_t taps = (size_t)b->size * (size_t)b->size, channels = (size_t)b->channels, filters = (size_t)b->filters;

    put_floats(f, b->bias, filters);
    if (b->scale) {
        put_floats(f, b->scale, filters);
        put_floats(f, b->mean, filters);
        put_floats(f, b->var, filters);
    }
    for (size_t k = 0; k < filters; k++)
        for (size_t c = 0; c < channels; c++)
            for (size_t rs = 0; rs < taps; rs++)
                put_floats(f, &b->weights[(k * taps + rs) * channels + c], 1);
}

/* Version 0.2.0. seen: images consumed in training. */
static void write_darknet_file(const char *path, const struct darknet_block *blocks, size_t n, int64_t seen)
{
    static const int32_t version[3] = { 0, 2, 0 };
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(version, sizeof version, 1, f), 1);
    assert_int_equal(fwrite(&seen, sizeof seen, 1, f), 1);
    for (size_t i = 0; i < n; i++)
        put_block(f, &blocks[i]);
    assert_int_equal(fclose(f), 0);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/jpeg.h - JPEG files for tests; the program writes PNG alone. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <turbojpeg.h>

/* rgb [h][w][3]; quality: 1 .. 100. */
static inline void write_jpeg(const char *path, const uint8_t *rgb, int w, int h, int quality)
{
    tjhandle tj = tjInitCompress();
    unsigned char *bytes = NULL;
    unsigned long size = 0;
    FILE *f = fopen(path, "wb");

    assert_true(tj && f);
    assert_int_equal(tjCompress2(tj, rgb, w, 0, h, TJPF_RGB, &bytes, &size, TJSAMP_444, quality, TJFLAG_ACCURATEDCT), 0);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    tjFree(bytes);
    tjDestroy(tj);
}

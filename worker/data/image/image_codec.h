/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/image/image_codec.h - shared by image.c and the codecs. Not for
 * other modules. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "worker/data/image/image.h"
#include "worker/data/text/whole_file.h"

struct err;

struct decoder {
    void *jpeg; /* tjhandle, made when first needed */
    uint8_t *rgb, *spare;
    size_t rgb_cap, spare_cap;
    struct whole_file file;
};

/* Makes *buf at least `need` bytes; its contents are lost. -ENOMEM names `name`. */
int buffer_reserve(uint8_t **buf, size_t *cap, size_t need, const char *name, struct err *err);
/* ERR_DATA when a side is 0 or over a limit of image.h. */
int image_check_size(const char *name, int64_t w, int64_t h, struct err *err);

/* Pixels go to dec->rgb; with header_only just w and h are found. */
int jpeg_decode(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size, int header_only, struct image *ret,
                struct err *err);
int png_decode(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size, int header_only, struct image *ret,
               struct err *err);
int webp_decode(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size, int header_only, struct image *ret,
                struct err *err);
int bmp_decode(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size, int header_only, struct image *ret,
               struct err *err);
void jpeg_release(struct decoder *dec);

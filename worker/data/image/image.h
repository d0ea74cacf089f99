/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/image/image.h - JPEG, PNG, WebP and BMP files to RGB bytes, and
 * these to PNG files. The content tells the type, not the name. Every claim of a header is checked against the limits
 * before memory is taken; a decoder's warning counts as damage, since it means invented pixels. Only image_upright()
 * applies an EXIF orientation: callers that want pixels as stored do not call it. Grey, palette, 16-bit, alpha and CMYK
 * become RGB8: grey is in all three, alpha is dropped and not blended, 16 bits keep the high byte, CMYK and YCCK follow
 * the Adobe convention (stored inverted), R = C' K' / 255 rounded as Pillow does. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct decoder;

enum { IMAGE_MAX_SIDE = 16384, IMAGE_MAX_PIXELS = 64 << 20, IMAGE_MAX_BYTES = 256 << 20 };

struct image {
    int w, h;
    const uint8_t *rgb; /* [h][w][3] */
    /* The source file: */
    const uint8_t *bytes;
    size_t size_bytes;
    int64_t mtime_ns; /* by image_read() */
};

/* Working memory for one thread; it grows to the largest image seen. Caller frees. NULL: out of memory. */
struct decoder *decoder_new(void);
void decoder_free(struct decoder *dec);
/* All of these fail with ERR_DATA (damaged, or over a limit), ERR_UNSUPPORTED (a kind of file that is not read) or
 * -errno; the message names the file. The result is borrowed from dec until its next call. */
int image_read(struct decoder *dec, const char *path, struct image *ret, struct err *err);
/* The same from memory; messages call it `name`. */
int image_decode(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size_bytes, struct image *ret, struct err *err);
/* Turns the result of one of these by the orientation in its file (exif.h), so that sides may change places. Returns 1,
 * or 0 if it stands upright already, or -ENOMEM. */
int image_upright(struct decoder *dec, const char *name, struct image *img, struct err *err);
/* Width and height from the header alone; upright: as after image_upright(). */
int image_size(struct decoder *dec, const char *path, bool upright, int *ret_w, int *ret_h, struct err *err);
/* Written whole or not at all (a temporary file beside path, then rename). The file says that detd made it. */
int image_write_png(const char *path, const uint8_t *rgb, int w, int h, struct err *err);
/* The same for one grey channel of 16 bits, with texts[n] as tEXt chunks. */
struct image_text {
    const char *key, *text; /* key: 1 .. 79 Latin letters, for example "Software" */
};
int image_write_png16(const char *path, const uint16_t *grey, int w, int h, const struct image_text *texts, int n, struct err *err);
/* Reads a w x h PNG of one grey channel of 16 bits (measured depth) from memory to ret [h][w]; messages call it `name`.
 * ERR_DATA also for another kind or size of picture. */
int image_grey16(const char *name, const uint8_t *bytes, size_t size_bytes, int w, int h, uint16_t *ret, struct err *err);
/* The libraries that decode: pixels depend on them. */
enum { IMAGE_CODECS = 3 };
struct image_codec {
    const char *name;
    char version[64]; /* as the running library tells it; libjpeg-turbo tells no version: the name of its file */
    char path[4096];  /* of the file that was loaded; "" if not known */
};
void image_codecs(struct image_codec ret[IMAGE_CODECS]);
/* Did image_write_png() or image_write_png16() write the file? */
bool image_is_own_png(const char *path);

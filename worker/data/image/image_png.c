/* SPDX-License-Identifier: Apache-2.0 */ /* PNG by libpng. Its errors come by longjmp, which stays inside this file.
 * Texts, profiles and other ancillary chunks are never inflated, so a small file cannot claim gigabytes. */
#include <errno.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/image/image_codec.h"

enum { PNG_CHUNK_LIMIT = 8 << 20 };

struct source {
    const uint8_t *next, *end;
    const char *name;
    char text[160];
};

static void on_error(png_structp png, png_const_charp text)
{
    struct source *src = png_get_error_ptr(png);

    snprintf(src->text, sizeof src->text, "%s", text);
    longjmp(png_jmpbuf(png), 1);
}

/* libpng warns of damage that costs no pixels (a chunk too many, a wrong gamma). Damage to pixels is an error. */
static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void on_read(png_structp png, png_bytep to, size_t len)
{
    struct source *src = png_get_io_ptr(png);

    if (len > (size_t)(src->end - src->next))
        png_error(png, "file ends in the middle of a chunk");
    memcpy(to, src->next, len);
    src->next += len;
}

/* Converts every kind to 8-bit RGB. Alpha is dropped, not blended: a training picture has no background. */
static void ask_for_rgb(png_structp png, png_infop info)
{
    int colour = png_get_color_type(png, info);

    png_set_expand(png); /* palette, 1, 2 and 4 bits; transparency becomes alpha */
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    if (colour == PNG_COLOR_TYPE_GRAY || colour == PNG_COLOR_TYPE_GRAY_ALPHA)
        png_set_gray_to_rgb(png);
}

static void bound(png_structp png, struct source *src)
{
    png_set_user_limits(png, IMAGE_MAX_SIDE, IMAGE_MAX_SIDE);
    png_set_chunk_malloc_max(png, PNG_CHUNK_LIMIT);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_read_fn(png, src, on_read);
}

/* longjmp may leave this function, so it owns nothing. */
static int decode(struct decoder *dec, png_structp png, png_infop info, struct source *src, int header_only, struct image *ret,
                  struct err *err)
{
    int rc, passes;

    if (setjmp(png_jmpbuf(png)))
        return err_set(err, ERR_DATA, "%s: damaged PNG: %s", src->name, src->text);
    bound(png, src);
    png_read_info(png, info);
    rc = image_check_size(src->name, png_get_image_width(png, info), png_get_image_height(png, info), err);
    if (rc < 0)
        return rc;
    ret->w = (int)png_get_image_width(png, info);
    ret->h = (int)png_get_image_height(png, info);
    if (header_only)
        return 0;
    rc = buffer_reserve(&dec->rgb, &dec->rgb_cap, (size_t)ret->w * (size_t)ret->h * 3, src->name, err);
    if (rc < 0)
        return rc;
    ret->rgb = dec->rgb;
    ask_for_rgb(png, info);
    passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != (size_t)ret->w * 3)
        png_error(png, "unexpected row size");
    while (passes-- > 0)
        for (int y = 0; y < ret->h; y++)
            png_read_row(png, dec->rgb + (size_t)y * (size_t)ret->w * 3, NULL);
    return 0;
}

int png_decode(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size, int header_only, struct image *ret,
               struct err *err)
{
    struct source src = { .next = bytes, .end = bytes + size, .name = name };
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &src, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    int rc = info ? decode(dec, png, info, &src, header_only, ret, err) : err_set(err, -ENOMEM, "%s: no memory for a PNG decoder", name);

    png_destroy_read_struct(&png, &info, NULL);
    return rc;
}

static int decode_grey16(png_structp png, png_infop info, struct source *src, int w, int h, uint16_t *ret, struct err *err)
{
    const union {
        uint16_t word;
        uint8_t byte[2];
    } order = { .word = 1 };
    int passes;

    if (setjmp(png_jmpbuf(png)))
        return err_set(err, ERR_DATA, "%s: damaged PNG: %s", src->name, src->text);
    bound(png, src);
    png_read_info(png, info);
    if (png_get_color_type(png, info) != PNG_COLOR_TYPE_GRAY || png_get_bit_depth(png, info) != 16)
        return err_set(err, ERR_DATA, "%s: is no PNG of one grey channel of 16 bits", src->name);
    if (png_get_image_width(png, info) != (png_uint_32)w || png_get_image_height(png, info) != (png_uint_32)h)
        return err_set(err, ERR_DATA, "%s: is %u x %u pixels, but its frame is %d x %d", src->name,
                       (unsigned)png_get_image_width(png, info), (unsigned)png_get_image_height(png, info), w, h);
    if (order.byte[0])
        png_set_swap(png);
    passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    while (passes-- > 0)
        for (int y = 0; y < h; y++)
            png_read_row(png, (png_bytep)(ret + (size_t)y * (size_t)w), NULL);
    return 0;
}

int image_grey16(const char *name, const uint8_t *bytes, size_t size_bytes, int w, int h, uint16_t *ret, struct err *err)
{
    struct source src = { .next = bytes, .end = bytes + size_bytes, .name = name };
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &src, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    int rc = info ? decode_grey16(png, info, &src, w, h, ret, err) : err_set(err, -ENOMEM, "%s: no memory for a PNG decoder", name);

    png_destroy_read_struct(&png, &info, NULL);
    return rc;
}

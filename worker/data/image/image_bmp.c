/* SPDX-License-Identifier: Apache-2.0 */ /* BMP files. Headers: 12, 40, 52, 56, 108 and 124 bytes. Pixels: 1, 4 and 8
 * bits with a palette, 16, 24 and 32 bits with the usual masks, rows from either end. Run lengths, and JPEG or PNG
 * inside, are refused. The file must hold the whole picture, and the palette every pixel's colour. No library of Debian
 * reads BMP alone. Source: Microsoft's description of BITMAPFILEHEADER, BITMAPINFOHEADER and BITMAPV5HEADER. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/image/image_codec.h"

enum { FILE_HEADER = 14, CORE_HEADER = 12, INFO_HEADER = 40, MASKS_AT = FILE_HEADER + INFO_HEADER };
enum { PLAIN = 0, MASKS = 3, ALPHA_MASKS = 6 };

struct bmp {
    const char *name;
    const uint8_t *bytes;
    size_t size, pixels; /* size of the file; offset of the pixels */
    size_t header;       /* bytes of the second header */
    int64_t w, h;
    bool top_down;
    int bits;
    uint32_t compression, colours;
    uint32_t mask[3]; /* of red, green, blue; for 16 and 32 bits */
};

static uint32_t number(const struct bmp *b, size_t at, int n)
{
    uint32_t v = 0;

    for (int i = n - 1; i >= 0; i--)
        v = v << 8 | b->bytes[at + (size_t)i];
    return v;
}

static int damaged(const struct bmp *b, const char *why, struct err *err)
{
    return err_set(err, ERR_DATA, "%s: damaged BMP: %s", b->name, why);
}

static int unsupported(const struct bmp *b, const char *what, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "%s: a BMP %s is not read", b->name, what);
}

static int read_compression(struct bmp *b, struct err *err)
{
    switch (b->compression) {
    case PLAIN:
        return 0;
    case 1:
    case 2:
        return unsupported(b, "with run lengths", err);
    case MASKS:
    case ALPHA_MASKS:
        if (b->bits != 16 && b->bits != 32)
            return damaged(b, "it has masks, and neither 16 nor 32 bits", err);
        if (b->size < MASKS_AT + 12)
            return damaged(b, "it ends before its masks do", err);
        for (int i = 0; i < 3; i++)
            b->mask[i] = number(b, MASKS_AT + (size_t)i * 4, 4);
        return 0;
    default:
        return unsupported(b, "that is compressed", err);
    }
}

static int read_headers(struct bmp *b, struct err *err)
{
    static const size_t known[] = { CORE_HEADER, INFO_HEADER, 52, 56, 108, 124 };
    size_t k = 0;
    int32_t h;

    if (b->size < FILE_HEADER + CORE_HEADER)
        return damaged(b, "it ends in its header", err);
    b->pixels = number(b, 10, 4);
    b->header = number(b, FILE_HEADER, 4);
    while (k < sizeof known / sizeof *known && known[k] != b->header)
        k++;
    if (k == sizeof known / sizeof *known)
        return unsupported(b, "with a header of that size", err);
    if (b->size < FILE_HEADER + b->header)
        return damaged(b, "it ends in its header", err);
    if (b->header == CORE_HEADER) {
        b->w = number(b, FILE_HEADER + 4, 2);
        b->h = number(b, FILE_HEADER + 6, 2);
        b->bits = (int)number(b, FILE_HEADER + 10, 2);
        return 0;
    }
    h = (int32_t)number(b, FILE_HEADER + 8, 4);
    b->w = (int32_t)number(b, FILE_HEADER + 4, 4);
    b->top_down = h < 0;
    b->h = h < 0 ? -(int64_t)h : h;
    b->bits = (int)number(b, FILE_HEADER + 14, 2);
    b->compression = number(b, FILE_HEADER + 16, 4);
    b->colours = number(b, FILE_HEADER + 32, 4);
    return read_compression(b, err);
}

/* ---- pixels ---- */

/* Bytes of a row, padded to a multiple of four. */
static size_t row_bytes(const struct bmp *b)
{
    return ((size_t)b->w * (size_t)b->bits + 31) / 32 * 4;
}

static const uint8_t *row(const struct bmp *b, int64_t y)
{
    return b->bytes + b->pixels + (size_t)(b->top_down ? y : b->h - 1 - y) * row_bytes(b);
}

static int read_palette(struct bmp *b, uint8_t *rgb, struct err *err)
{
    const size_t each = b->header == CORE_HEADER ? 3 : 4, at = FILE_HEADER + b->header;
    uint32_t n = b->colours ? b->colours : 1u << b->bits;

    if (n > 1u << b->bits || at + n * each > b->pixels)
        return damaged(b, "its palette has no room", err);
    for (int64_t y = 0; y < b->h; y++) {
        const uint8_t *from = row(b, y);

        for (int64_t x = 0; x < b->w; x++, rgb += 3) {
            size_t bit = (size_t)x * (size_t)b->bits;
            uint32_t c = from[bit / 8] >> (8 - b->bits - (int)(bit % 8)) & ((1u << b->bits) - 1);

            if (c >= n)
                return damaged(b, "a pixel's colour is not in its palette", err);
            for (size_t i = 0; i < 3; i++)
                rgb[i] = b->bytes[at + c * each + 2 - i];
        }
    }
    return 0;
}

/* Position and number of a channel's bits. */
static int shift_of(uint32_t mask, int *ret_bits)
{
    int shift = 0, bits = 0;

    while (shift < 32 && !(mask >> shift & 1))
        shift++;
    while (shift + bits < 32 && (mask >> (shift + bits) & 1))
        bits++;
    *ret_bits = shift + bits < 32 && mask >> (shift + bits) ? 0 : bits; /* 0: empty, or in several pieces */
    return shift;
}

static int read_masked(struct bmp *b, uint8_t *rgb, struct err *err)
{
    const uint32_t plain16[3] = { 0x7c00, 0x3e0, 0x1f }, plain32[3] = { 0xff0000, 0xff00, 0xff };
    const int bytes = b->bits / 8;
    int shift[3], bits[3];

    if (b->compression == PLAIN)
        memcpy(b->mask, b->bits == 16 ? plain16 : plain32, sizeof b->mask);
    for (int i = 0; i < 3; i++) {
        shift[i] = shift_of(b->mask[i], &bits[i]);
        if (bits[i] < 1 || bits[i] > 8 || shift[i] + bits[i] > b->bits)
            return unsupported(b, "with such masks", err);
    }
    for (int64_t y = 0; y < b->h; y++) {
        size_t at = (size_t)(row(b, y) - b->bytes);

        for (int64_t x = 0; x < b->w; x++, at += (size_t)bytes, rgb += 3) {
            uint32_t v = number(b, at, bytes);

            for (int i = 0; i < 3; i++)
                rgb[i] = (uint8_t)(((v & b->mask[i]) >> shift[i]) * 255 / ((1u << bits[i]) - 1));
        }
    }
    return 0;
}

static int read_true(const struct bmp *b, uint8_t *rgb)
{
    for (int64_t y = 0; y < b->h; y++) {
        const uint8_t *from = row(b, y);

        for (int64_t x = 0; x < b->w; x++, from += 3, rgb += 3) {
            rgb[0] = from[2];
            rgb[1] = from[1];
            rgb[2] = from[0];
        }
    }
    return 0;
}

int bmp_decode(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size, int header_only, struct image *ret,
               struct err *err)
{
    struct bmp b = { .name = name, .bytes = bytes, .size = size };
    int rc = read_headers(&b, err);

    if (rc == 0)
        rc = image_check_size(name, b.w, b.h, err);
    if (rc < 0)
        return rc;
    ret->w = (int)b.w;
    ret->h = (int)b.h;
    if (header_only)
        return 0;
    if (b.bits != 1 && b.bits != 4 && b.bits != 8 && b.bits != 16 && b.bits != 24 && b.bits != 32)
        return unsupported(&b, "of so many bits a pixel", err);
    if (b.pixels < FILE_HEADER + b.header || b.pixels > size || (size - b.pixels) / row_bytes(&b) < (size_t)b.h)
        return damaged(&b, "it ends before its picture does", err);
    rc = buffer_reserve(&dec->rgb, &dec->rgb_cap, (size_t)b.w * (size_t)b.h * 3, name, err);
    if (rc < 0)
        return rc;
    ret->rgb = dec->rgb;
    if (b.bits == 24)
        return read_true(&b, dec->rgb);
    return b.bits <= 8 ? read_palette(&b, dec->rgb, err) : read_masked(&b, dec->rgb, err);
}

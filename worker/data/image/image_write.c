#include "worker/data/image/image.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/core/file.h"

/* The chunk "Software: detd" with its checksum 0xc1, 0x7b, 0xd7, 0xa7. It follows the signature and IHDR. */
static const uint8_t own[] = { 0,   0,   0,   13, 't', 'E', 'X', 't', 'S',  'o',  'f',  't', 'w',
                               'a', 'r', 'e', 0,  'd', 'e', 't', 'd', 0xc1, 0x7b, 0xd7, 0xa7 };
enum { OWN_AT = 8 + 25 };

/* Writes size bytes with `own` inserted. */
static int publish(const char *path, const uint8_t *bytes, size_t size, struct err *err)
{
    struct file_out *out;
    int rc = file_out_open_named(path, image_is_own_png, &out, err);

    if (rc < 0)
        return rc;
    file_out_write(out, bytes, OWN_AT, err);
    file_out_write(out, own, sizeof own, err);
    file_out_write(out, bytes + OWN_AT, size - OWN_AT, err);
    return file_out_commit(out, err);
}

int image_write_png(const char *path, const uint8_t *rgb, int w, int h, struct err *err)
{
    png_image image = { .version = PNG_IMAGE_VERSION, .width = (png_uint_32)w, .height = (png_uint_32)h, .format = PNG_FORMAT_RGB };
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
    uint8_t *bytes = malloc(size);
    int rc;

    if (!bytes)
        return err_set(err, -ENOMEM, "%s: no memory for %zu bytes", path, (size_t)size);
    if (png_image_write_to_memory(&image, bytes, &size, 0, rgb, 0, NULL))
        rc = publish(path, bytes, size, err);
    else
        rc = err_set(err, ERR_STATE, "%s: cannot encode: %s", path, image.message);
    free(bytes);
    return rc;
}

/* ---- 16 bits: libpng's errors come by longjmp, which stays in this file ---- */

enum { MAX_TEXTS = 8 };

/* The bytes written so far. */
struct sink {
    uint8_t *bytes;
    size_t size, room;
    char text[160];
};

static void on_error(png_structp png, png_const_charp text)
{
    struct sink *to = png_get_error_ptr(png);

    snprintf(to->text, sizeof to->text, "%s", text);
    longjmp(png_jmpbuf(png), 1);
}

static void on_write(png_structp png, png_bytep bytes, size_t n)
{
    struct sink *to = png_get_io_ptr(png);

    if (!GROW(to->bytes, to->room, to->size + n))
        png_error(png, "out of memory");
    memcpy(to->bytes + to->size, bytes, n);
    to->size += n;
}

static void on_flush(png_structp png)
{
    (void)png;
}

/* longjmp may leave this function, so it owns nothing. row [2 * w] */
static int encode16(png_structp png, png_infop info, struct sink *to, const uint16_t *grey, int w, int h, png_text *texts, int n,
                    uint8_t *row)
{
    if (setjmp(png_jmpbuf(png)))
        return ERR_STATE;
    png_set_write_fn(png, to, on_write, on_flush);
    png_set_IHDR(png, info, (png_uint_32)w, (png_uint_32)h, 16, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_set_text(png, info, texts, n);
    png_write_info(png, info);
    for (int y = 0; y < h; y++) {
        const uint16_t *from = grey + (size_t)y * (size_t)w;

        for (int x = 0; x < w; x++) {
            row[2 * x] = (uint8_t)(from[x] >> 8);
            row[2 * x + 1] = (uint8_t)from[x];
        }
        png_write_row(png, row);
    }
    png_write_end(png, NULL);
    return 0;
}

int image_write_png16(const char *path, const uint16_t *grey, int w, int h, const struct image_text *texts, int n, struct err *err)
{
    struct sink to = { 0 };
    png_text text[MAX_TEXTS] = { { 0 } };
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &to, on_error, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    uint8_t *row = malloc(2 * (size_t)w);
    int rc;

    assert(n <= MAX_TEXTS);
    for (int i = 0; i < n; i++)
        text[i] = (png_text){ .compression = PNG_TEXT_COMPRESSION_NONE, .key = (char *)texts[i].key, .text = (char *)texts[i].text };
    rc = info && row ? encode16(png, info, &to, grey, w, h, text, n, row) : -ENOMEM;
    if (rc == -ENOMEM)
        err_set(err, rc, "%s: no memory for %d x %d pixels", path, w, h);
    else if (rc < 0)
        err_set(err, rc, "%s: cannot encode: %s", path, to.text);
    else
        rc = publish(path, to.bytes, to.size, err);
    png_destroy_write_struct(&png, &info);
    free(row);
    free(to.bytes);
    return rc;
}

bool image_is_own_png(const char *path)
{
    struct file_map m;
    struct err ignored;
    bool is;

    if (file_map_open(path, IMAGE_MAX_BYTES, &m, &ignored) < 0)
        return false;
    is = m.size >= OWN_AT + sizeof own && memcmp(m.data + OWN_AT, own, sizeof own) == 0;
    file_map_close(&m);
    return is;
}

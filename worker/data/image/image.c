#include "worker/data/image/image.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/image/exif.h"
#include "worker/data/image/image_codec.h"

struct decoder *decoder_new(void)
{
    return calloc(1, sizeof(struct decoder));
}

void decoder_free(struct decoder *dec)
{
    if (!dec)
        return;
    jpeg_release(dec);
    free(dec->rgb);
    free(dec->spare);
    free(dec->file.bytes);
    free(dec);
}

/* The kind of a file that cannot be decoded, and advice for it. */
static const char *other_kind(const uint8_t *bytes, size_t size)
{
    static const struct {
        const char *begin;
        size_t at, len;
        const char *what;
    } kinds[] = {
        { "II*\0", 0, 4, "a TIFF file" },
        { "MM\0*", 0, 4, "a TIFF file" },
        { "GIF8", 0, 4, "a GIF file" },
        { "ftypavif", 4, 8, "an AVIF file" },
        { "ftyphei", 4, 7, "a HEIC file" },
        { "ftypmif1", 4, 8, "a HEIC file" },
        { "\0\0\0\x0cjP  ", 0, 8, "a JPEG 2000 file" },
        { "\xff\x4f\xff\x51", 0, 4, "a JPEG 2000 file" },
        { "8BPS", 0, 4, "a Photoshop file" },
        { "\x76\x2f\x31\x01", 0, 4, "an OpenEXR file" },
        { "P5", 0, 2, "a PGM file" },
        { "P6", 0, 2, "a PPM file" },
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (size >= kinds[i].at + kinds[i].len && memcmp(bytes + kinds[i].at, kinds[i].begin, kinds[i].len) == 0)
            return kinds[i].what;
    return NULL;
}

static int not_decoded(const char *name, const uint8_t *bytes, size_t size, struct err *err)
{
    static const char lfs[] = "version https://git-lfs";
    const char *what = other_kind(bytes, size);

    if (what)
        return err_set(err, ERR_DATA, "%s: %s, which is not read; convert it to PNG or JPEG", name, what);
    if (size >= sizeof lfs - 1 && memcmp(bytes, lfs, sizeof lfs - 1) == 0)
        return err_set(err, ERR_DATA, "%s: a pointer of Git LFS, not the picture; 'git lfs pull' fetches it", name);
    return err_set(err, ERR_DATA, "%s: neither a JPEG, PNG, WebP nor BMP file", name);
}

static int decode(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size, int header_only, struct image *ret,
                  struct err *err)
{
    static const uint8_t png_magic[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };

    memset(ret, 0, sizeof *ret);
    if (size > IMAGE_MAX_BYTES)
        return err_set(err, ERR_DATA, "%s: file of %zu bytes is over the limit of %d", name, size, IMAGE_MAX_BYTES);
    if (size == 0)
        return err_set(err, ERR_DATA, "%s: file is empty", name);
    if (size >= 8 && memcmp(bytes, png_magic, 8) == 0)
        return png_decode(dec, name, bytes, size, header_only, ret, err);
    if (size >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8)
        return jpeg_decode(dec, name, bytes, size, header_only, ret, err);
    if (size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0)
        return webp_decode(dec, name, bytes, size, header_only, ret, err);
    if (size >= 2 && memcmp(bytes, "BM", 2) == 0)
        return bmp_decode(dec, name, bytes, size, header_only, ret, err);
    return not_decoded(name, bytes, size, err);
}

int image_decode(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size_bytes, struct image *ret, struct err *err)
{
    int rc = decode(dec, name, bytes, size_bytes, 0, ret, err);

    ret->bytes = bytes;
    ret->size_bytes = size_bytes;
    return rc;
}

int image_read(struct decoder *dec, const char *path, struct image *ret, struct err *err)
{
    int rc = whole_file_read(&dec->file, path, IMAGE_MAX_BYTES, err);

    if (rc < 0)
        return rc;
    rc = image_decode(dec, path, dec->file.bytes, dec->file.size, ret, err);
    ret->mtime_ns = dec->file.mtime_ns;
    return rc;
}

/* Orientations from 5 on swap width and height. */
static bool lies_on_its_side(int orientation)
{
    return orientation >= 5;
}

/* Pixel (x, y) of the turned picture is number begin + x * right + y * down of the stored picture. */
struct walk {
    ptrdiff_t begin, right, down;
};

static struct walk walk_of(int orientation, ptrdiff_t w, ptrdiff_t h)
{
    const ptrdiff_t last = w * h - 1, bottom = (h - 1) * w;
    const struct walk by[9] = { [1] = { 0, 1, w }, [2] = { w - 1, -1, w },  [3] = { last, -1, -w }, [4] = { bottom, 1, -w },
                                [5] = { 0, w, 1 }, [6] = { bottom, -w, 1 }, [7] = { last, -w, -1 }, [8] = { w - 1, w, -1 } };

    return by[orientation];
}

static void copy_turned(const uint8_t *from, const struct walk *walk, uint8_t *to, int w, int h)
{
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++, to += 3)
            memcpy(to, from + 3 * (walk->begin + x * walk->right + y * walk->down), 3);
}

int image_upright(struct decoder *dec, const char *name, struct image *img, struct err *err)
{
    int orientation = exif_orientation(img->bytes, img->size_bytes), w = img->w, h = img->h, rc;
    struct walk walk = walk_of(orientation, w, h);

    if (orientation == 1)
        return 0;
    rc = buffer_reserve(&dec->spare, &dec->spare_cap, (size_t)w * (size_t)h * 3, name, err);
    if (rc < 0)
        return rc;
    img->w = lies_on_its_side(orientation) ? h : w;
    img->h = lies_on_its_side(orientation) ? w : h;
    copy_turned(img->rgb, &walk, dec->spare, img->w, img->h);
    img->rgb = dec->spare;
    return 1;
}

int image_size(struct decoder *dec, const char *path, bool upright, int *ret_w, int *ret_h, struct err *err)
{
    bool turned;
    struct image img = { 0 };
    int rc = whole_file_read(&dec->file, path, IMAGE_MAX_BYTES, err);

    if (rc == 0)
        rc = decode(dec, path, dec->file.bytes, dec->file.size, 1, &img, err);
    if (rc < 0)
        return rc;
    turned = upright && lies_on_its_side(exif_orientation(dec->file.bytes, dec->file.size));
    *ret_w = turned ? img.h : img.w;
    *ret_h = turned ? img.w : img.h;
    return 0;
}

#include "worker/data/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/image_codec.h"

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

int buffer_reserve(uint8_t **buf, size_t *cap, size_t need, const char *name, struct err *err)
{
    if (*cap >= need)
        return 0;
    free(*buf);
    *cap = 0;
    *buf = malloc(need);
    if (!*buf)
        return err_set(err, -ENOMEM, "%s: no memory for %zu bytes", name, need);
    *cap = need;
    return 0;
}

int image_check_size(const char *name, int64_t w, int64_t h, struct err *err)
{
    if (w < 1 || h < 1)
        return err_set(err, ERR_DATA, "%s: image of %lld x %lld pixels", name, (long long)w, (long long)h);
    if (w > IMAGE_MAX_SIDE || h > IMAGE_MAX_SIDE || w * h > IMAGE_MAX_PIXELS)
        return err_set(err, ERR_DATA, "%s: image of %lld x %lld pixels is over the limit of %d a side and %d in all", name, (long long)w,
                       (long long)h, IMAGE_MAX_SIDE, IMAGE_MAX_PIXELS);
    return 0;
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
    return err_set(err, ERR_DATA, "%s: neither a JPEG nor a PNG file", name);
}

int image_decode(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size_bytes, struct image *ret, struct err *err)
{
    return decode(dec, name, bytes, size_bytes, 0, ret, err);
}

int image_read(struct decoder *dec, const char *path, struct image *ret, struct err *err)
{
    int rc = whole_file_read(&dec->file, path, IMAGE_MAX_BYTES, err);

    if (rc < 0)
        return rc;
    rc = image_decode(dec, path, dec->file.bytes, dec->file.size, ret, err);
    ret->bytes = dec->file.bytes;
    ret->size_bytes = dec->file.size;
    ret->mtime_ns = dec->file.mtime_ns;
    return rc;
}

int image_size(struct decoder *dec, const char *path, int *ret_w, int *ret_h, struct err *err)
{
    struct image img = { 0 };
    int rc = whole_file_read(&dec->file, path, IMAGE_MAX_BYTES, err);

    if (rc == 0)
        rc = decode(dec, path, dec->file.bytes, dec->file.size, 1, &img, err);
    if (rc < 0)
        return rc;
    *ret_w = img.w;
    *ret_h = img.h;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* JPEG by the TurboJPEG API. It returns the same code for a warning (some
 * pixels are invented) and a fatal error, so every warning counts as damage. Two common warnings change no pixel and
 * are accepted: junk between header segments, which is cut out before a second try, and junk before the end marker. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

#include "proto/err.h"
#include "worker/data/image/image_codec.h"

void jpeg_release(struct decoder *dec)
{
    if (dec->jpeg)
        tjDestroy(dec->jpeg);
    dec->jpeg = NULL;
}

/* Adobe stores CMYK and YCCK files inverted, and nearly all other programs do, too. */
static void cmyk_to_rgb(const uint8_t *cmyk, uint8_t *rgb, size_t count)
{
    for (size_t i = 0; i < count; i++, cmyk += 4, rgb += 3)
        for (int c = 0; c < 3; c++)
            rgb[c] = (uint8_t)((cmyk[c] * cmyk[3] + 127) / 255);
}

static int fail(struct decoder *dec, const char *name, struct err *err)
{
    const char *text = tjGetErrorStr2(dec->jpeg);
    int code = strstr(text, "Unsupported") || strstr(text, "not supported") ? ERR_UNSUPPORTED : ERR_DATA;

    return err_set(err, code, "%s: damaged or unsupported JPEG: %s", name, text);
}

/* Decodes to one of TurboJPEG's formats. The strict run stops at the first warning. If that is junk before the end
 * marker (0xd9), all data before it was sound, and a second run without stopping gives the pixels. */
static int pixels(struct decoder *dec, const uint8_t *bytes, size_t size, uint8_t *to, const struct image *img, int format)
{
    const int flags = TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS;
    int rc = tjDecompress2(dec->jpeg, bytes, size, to, img->w, 0, img->h, format, flags | TJFLAG_STOPONWARNING);

    if (rc < 0 && strstr(tjGetErrorStr2(dec->jpeg), "extraneous bytes before marker 0xd9")) {
        tjDecompress2(dec->jpeg, bytes, size, to, img->w, 0, img->h, format, flags);
        rc = strstr(tjGetErrorStr2(dec->jpeg), "extraneous bytes before marker 0xd9") ? 0 : -1;
    }
    return rc;
}

static int decompress(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size, int header_only, struct image *ret,
                      struct err *err)
{
    int w = 0, h = 0, sampling = -1, space = -1, rc;
    size_t count;

    if (tjDecompressHeader3(dec->jpeg, bytes, size, &w, &h, &sampling, &space) < 0)
        return fail(dec, name, err);
    if (w == 0 || h == 0) /* TurboJPEG accepts a file of tables alone and leaves the sizes unset */
        return err_set(err, ERR_DATA, "%s: damaged JPEG: it ends before its picture", name);
    rc = image_check_size(name, w, h, err);
    if (rc < 0)
        return rc;
    ret->w = w;
    ret->h = h;
    if (header_only)
        return 0;
    count = (size_t)w * (size_t)h;
    rc = buffer_reserve(&dec->rgb, &dec->rgb_cap, count * 3, name, err);
    if (rc < 0)
        return rc;
    ret->rgb = dec->rgb;
    if (space != TJCS_CMYK && space != TJCS_YCCK)
        return pixels(dec, bytes, size, dec->rgb, ret, TJPF_RGB) < 0 ? fail(dec, name, err) : 0;
    rc = buffer_reserve(&dec->spare, &dec->spare_cap, count * 4, name, err);
    if (rc < 0)
        return rc;
    if (pixels(dec, bytes, size, dec->spare, ret, TJPF_CMYK) < 0)
        return fail(dec, name, err);
    cmyk_to_rgb(dec->spare, dec->rgb, count);
    return 0;
}

static int has_length(int marker)
{
    return marker != 0x01 && !(marker >= 0xd0 && marker <= 0xd8);
}

/* Copies the file without bytes between header segments. Returns the new size; 0: there is no junk to cut. */
static size_t cut_header_junk(const uint8_t *in, size_t size, uint8_t *out)
{
    size_t from = 2, to = 2, len;
    int cut = 0;

    memcpy(out, in, 2);
    while (from + 4 <= size) {
        if (in[from] != 0xff || in[from + 1] == 0 || in[from + 1] == 0xff) {
            cut |= !(in[from] == 0xff && in[from + 1] == 0xff); /* fill bytes are legal */
            from++;
            continue;
        }
        if (in[from + 1] == 0xda) { /* start of scan: the pixels follow */
            memcpy(out + to, in + from, size - from);
            return cut ? to + size - from : 0;
        }
        len = has_length(in[from + 1]) ? 2 + (size_t)(in[from + 2] << 8 | in[from + 3]) : 2;
        if (len > size - from)
            return 0;
        memcpy(out + to, in + from, len);
        from += len;
        to += len;
    }
    return 0;
}

/* After some errors TurboJPEG keeps half-read state that would damage the next picture. So a failed handle is
 * replaced. */
static int decompress_fresh(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size, int header_only, struct image *ret,
                            int *ret_junk, struct err *err)
{
    int rc;

    *ret_junk = 0;
    if (!dec->jpeg)
        dec->jpeg = tjInitDecompress();
    if (!dec->jpeg)
        return err_set(err, -ENOMEM, "%s: no memory for a JPEG decoder", name);
    rc = decompress(dec, name, bytes, size, header_only, ret, err);
    *ret_junk = rc < 0 && strstr(tjGetErrorStr2(dec->jpeg), "extraneous bytes before marker") != NULL;
    if (rc < 0)
        jpeg_release(dec);
    return rc;
}

int jpeg_decode(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size, int header_only, struct image *ret,
                struct err *err)
{
    uint8_t *copy = NULL;
    size_t cap = 0, cleaned;
    int junk, rc = decompress_fresh(dec, name, bytes, size, header_only, ret, &junk, err);

    if (!junk)
        return rc;
    rc = buffer_reserve(&copy, &cap, size, name, err);
    if (rc < 0)
        return rc;
    cleaned = cut_header_junk(bytes, size, copy);
    rc = cleaned ? decompress_fresh(dec, name, copy, cleaned, header_only, ret, &junk, err)
                 : err_set(err, ERR_DATA, "%s: damaged JPEG: foreign bytes between its markers", name);
    free(copy);
    return rc;
}

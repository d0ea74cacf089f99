/* SPDX-License-Identifier: Apache-2.0 */ /* WebP by libwebp, with and without loss. Alpha is dropped, as for PNG.
 * Animations are refused. */
#include <stdlib.h>
#include <webp/decode.h>

#include "proto/err.h"
#include "worker/data/image/image_codec.h"

static const char *text_of(VP8StatusCode status)
{
    switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
        return "no memory";
    case VP8_STATUS_NOT_ENOUGH_DATA:
        return "the file ends before its picture does";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return "it uses a feature that libwebp does not support";
    default:
        return "its data is damaged";
    }
}

int webp_decode(struct decoder *dec, const char *name, const uint8_t *bytes, size_t size, int header_only, struct image *ret,
                struct err *err)
{
    WebPBitstreamFeatures f;
    VP8StatusCode status = WebPGetFeatures(bytes, size, &f);
    int rc;

    if (status != VP8_STATUS_OK)
        return err_set(err, ERR_DATA, "%s: damaged WebP: %s", name, text_of(status));
    if (f.has_animation)
        return err_set(err, ERR_UNSUPPORTED, "%s: an animated WebP is no picture", name);
    rc = image_check_size(name, f.width, f.height, err);
    if (rc < 0)
        return rc;
    ret->w = f.width;
    ret->h = f.height;
    if (header_only)
        return 0;
    rc = buffer_reserve(&dec->rgb, &dec->rgb_cap, (size_t)f.width * (size_t)f.height * 3, name, err);
    if (rc < 0)
        return rc;
    ret->rgb = dec->rgb;
    if (!WebPDecodeRGBInto(bytes, size, dec->rgb, (size_t)f.width * (size_t)f.height * 3, f.width * 3))
        return err_set(err, ERR_DATA, "%s: damaged WebP: its data is cut or broken", name);
    return 0;
}

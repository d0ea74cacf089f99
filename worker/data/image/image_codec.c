#include "worker/data/image/image_codec.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>

#include "proto/err.h"

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

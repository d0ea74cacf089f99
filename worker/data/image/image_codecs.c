/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/image/image_codecs.c - the libraries that decode pictures. */
#include <dlfcn.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>
#include <webp/decode.h>

#include "worker/data/image/image.h"

/* Finds the library file that contains the function. */
static void find(struct image_codec *c, const char *name, const char *function)
{
    void *address = dlsym(RTLD_DEFAULT, function);
    char *real = NULL;
    Dl_info info;

    c->name = name;
    c->path[0] = '\0';
    if (address && dladdr(address, &info))
        real = realpath(info.dli_fname, NULL);
    if (real)
        snprintf(c->path, sizeof c->path, "%s", real);
    free(real);
}

void image_codecs(struct image_codec ret[IMAGE_CODECS])
{
    const char *slash;
    int webp;

    find(&ret[0], "libjpeg-turbo", "tjDecompress2");
    slash = strrchr(ret[0].path, '/');
    snprintf(ret[0].version, sizeof ret[0].version, "%.60s", slash ? slash + 1 : "");
    find(&ret[1], "libpng", "png_read_image");
    snprintf(ret[1].version, sizeof ret[1].version, "%s", png_get_libpng_ver(NULL));
    find(&ret[2], "libwebp", "WebPDecodeRGBInto");
    webp = WebPGetDecoderVersion();
    snprintf(ret[2].version, sizeof ret[2].version, "%d.%d.%d", webp >> 16, webp >> 8 & 255, webp & 255);
}

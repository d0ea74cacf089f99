/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/make/pictures.h - the decoded pictures of a data set: from
 * memory, or from their files. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct dataset;
struct decoder;
struct err;
struct pictures;

/* Keeps up to cache_bytes of decoded pictures. d must outlive it. Caller frees. NULL: out of memory. */
struct pictures *pictures_new(const struct dataset *d, size_t cache_bytes);
void pictures_free(struct pictures *p);
/* RGB of a picture of the data set, in the size of its check; borrowed until the decoder's next use. Thread-safe, each
 * thread with a decoder of its own. Errors name the file; ERR_DATA also if the picture has another size now. */
int pictures_get(struct pictures *p, struct decoder *dec, int32_t image, const uint8_t **ret_rgb, struct err *err);

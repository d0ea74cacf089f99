/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/file_kind.h - names the kind of a file that does not hold the
 * expected weights, by its first bytes. */
#pragma once
#include <stddef.h>

enum weights_format { WEIGHTS_SAFETENSORS, WEIGHTS_DARKNET, WEIGHTS_NONE };

/* A phrase such as "a web page (HTML)", often with advice; NULL: an unknown kind. A good file of weights may begin in
 * the same way: call this only after reading has failed. wanted: the expected format, which is never the answer. Static
 * text. */
const char *file_kind(const void *bytes, size_t size, enum weights_format wanted);

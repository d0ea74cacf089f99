/* worker/core/file_kind.h - what a file is that should hold weights and does not, by its first bytes. */
#pragma once
#include <stddef.h>

enum weights_format { WEIGHTS_SAFETENSORS, WEIGHTS_DARKNET };

/* A phrase such as "a web page (HTML)", with what to do where that is known; NULL: nothing that is known here. A good file of weights may begin
 * so too: ask only about one that could not be read. wanted: the format that it should be in, which is never named. Static text. */
const char *file_kind(const void *bytes, size_t size, enum weights_format wanted);

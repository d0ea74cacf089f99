/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/memory.h - device memory for the files of the plugin that need some of their own; ops take cuda_scratch(). */
#pragma once
#include "cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Contents undefined; cudaFree() gives it back. -ENOMEM: names what, the size, what the GPU has free and what would fit. */
int cuda_malloc(void **ret, size_t bytes, const char *what, struct err *err);

#ifdef __cplusplus
}
#endif

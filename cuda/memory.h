/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/memory.h - device memory for files of the plugin that need memory of
 * their own; ops take cuda_scratch(). */
#pragma once
#include "cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Contents undefined; free with cudaFree(). -ENOMEM: the text names the purpose, the size, the GPU's free memory and a
 * size that would fit. */
int cuda_malloc(void **ret, size_t bytes, const char *what, struct err *err);

#ifdef __cplusplus
}
#endif

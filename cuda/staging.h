/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/staging.h - pinned memory of a device through which bytes of any host
 * memory travel. Nothing waits unless the ring is full. */
#pragma once
#include "cuda/cuda.h"

/* Opens the rings of the device's stream, which must exist. The first transfer takes the memory. The caller must close
 * it after the stream has ended its work. */
int staging_open(struct cuda_device *d, struct staging **ret_staging, struct err *err);
void staging_close(struct staging *s);

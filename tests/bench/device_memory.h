/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/device_memory.h - the memory of a benchmark on a device. */
#pragma once
#include <stdio.h>
#include <stdlib.h>

#include "proto/err.h"
#include "worker/core/device.h"

/* Allocates `bytes` of device memory and fills them from host (NULL: undefined). Ends the program if there is no
 * memory; the caller frees it. */
static inline void *bench_device_memory(struct device *dev, const void *host, size_t bytes)
{
    void *p = dev->ops->alloc(dev, bytes);
    struct err err = { 0 };

    if (!p)
        err_set(&err, ERR_DEVICE, "out of memory: %zu bytes", bytes);
    if (p && (!host || dev->ops->upload(dev, p, host, bytes, &err) >= 0))
        return p;
    fprintf(stderr, "%s\n", err.msg);
    exit(1);
}

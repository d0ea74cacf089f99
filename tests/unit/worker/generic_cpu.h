/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/generic_cpu.h - the CPU device in generic code, for tests
 * of the layers above devices. */
#pragma once
#include "proto/err.h"
#include "worker/core/device.h"

extern const struct device_ops *cpu_backend_generic(void);

static struct device *dev;

static int open_generic(void **state)
{
    struct device_options opt = { 1, "generic", PRECISION_FP32 };
    struct err err;

    (void)state;
    return cpu_backend_generic()->open(0, &opt, &dev, &err);
}

static int close_generic(void **state)
{
    (void)state;
    dev->ops->close(dev);
    return 0;
}

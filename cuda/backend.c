/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/backend.c - the tables of the CUDA device, and the only symbol that
 * the plugin exports. */
#include "cuda/cuda.h"

#include "proto/version.h"
#include "worker/comm/abi.h"

static const struct device_ops ops = { .abi = DEVICE_ABI,
                                       .name = "cuda",
                                       .version = DETD_VERSION,
#define X(row) .row = cuda_##row,
                                       CUDA_MACHINE(X)
#undef X
};

#define ROW(family, name, params, args) .name = cuda_##family##_##name,
#define TABLE(family, LIST)             static const struct family##_ops family##_table = { LIST(ROW) };
FAMILIES_OF_ALL(TABLE)
FAMILIES_OF_CUDA(TABLE)
#undef TABLE
#undef ROW

#define FAMILY(family, LIST) .family = &family##_table,
static const struct families cuda_families = { FAMILIES_OF_ALL(FAMILY) FAMILIES_OF_CUDA(FAMILY) };
#undef FAMILY

int cuda_open(int index, const struct device_options *opt, struct device **ret_dev, struct err *err)
{
    struct cuda_device *d;
    int rc = cuda_queue_open(index, opt, &d, err);

    if (rc < 0)
        return rc;
    d->dev.ops = &ops;
    d->dev.on = &cuda_families;
    *ret_dev = &d->dev;
    return 0;
}

const struct device_ops *detd_backend(void)
{
    return &ops;
}

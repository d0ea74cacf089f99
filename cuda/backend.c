/* cuda/backend.c - the table of the CUDA device, and the one symbol the plugin exports. */
#include "cuda/cuda.h"

#include "proto/version.h"

static const struct device_ops ops = { .abi = DEVICE_ABI,
                                       .name = "cuda",
                                       .version = DETD_VERSION,
#define X(row) .row = cuda_##row,
                                       CUDA_OPS(X)
#undef X
};

const struct device_ops *detd_backend(void)
{
    return &ops;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/plugin.h - the CUDA device of a real GPU, where the
 * environment's DETD_TEST_CUDA names a libdetd-cuda.so. */
#pragma once
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/comm/abi.h"

/* Returns NULL if no plugin is named. A plugin that cannot be loaded, or of another version, ends the program. */
__attribute__((unused)) static const struct device_ops *cuda_plugin(void)
{
    const char *path = getenv("DETD_TEST_CUDA");
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct device_ops *(*backend)(void) = NULL;

    if (!path)
        return NULL;
    if (lib)
        *(void **)&backend = dlsym(lib, "detd_backend");
    if (!backend) {
        fprintf(stderr, "DETD_TEST_CUDA=%s: %s\n", path, dlerror());
        exit(1);
    }
    if (backend()->abi != DEVICE_ABI) {
        fprintf(stderr, "DETD_TEST_CUDA=%s: its device interface is number %08x, this program's %08x\n", path, backend()->abi, DEVICE_ABI);
        exit(1);
    }
    return backend();
}

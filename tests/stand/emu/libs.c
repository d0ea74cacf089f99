/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/libs.c - cuda/versions.h for programs that search no
 * library: no library is missing, and the emulator gives its own name. */
#include <stdio.h>

#include "cuda/versions.h"
#include "worker/core/device.h"

int libs_check(struct err *err)
{
    (void)err;
    return 0;
}

void libs_info(struct device_info *ret)
{
    if (ret->nversions >= DEVICE_MAX_VERSIONS)
        return;
    snprintf(ret->version[ret->nversions].name, sizeof ret->version[0].name, "emulator");
    snprintf(ret->version[ret->nversions++].value, sizeof ret->version[0].value, "1");
}

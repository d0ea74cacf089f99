#include "proto/host/driver.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <unistd.h>

#include "proto/err.h"

int driver_missing(const char *device, const char *why, struct err *err)
{
    if (access(device, F_OK) < 0)
        return err_set(err, ERR_UNSUPPORTED, "this machine has no NVIDIA driver: %s", why);
    return err_set(err, ERR_DEVICE,
                   "the NVIDIA driver cannot be asked: %s; its folder in /etc/ld.so.conf.d and `ldconfig` as root make it known, "
                   "LD_LIBRARY_PATH is not passed on to ranks",
                   why);
}

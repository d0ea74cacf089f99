/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/driver.h - the message when a library of NVIDIA's driver cannot
 * be loaded. For detd, which asks the driver, and for ranks, which use it. */
#pragma once

struct err;

/* This file exists while the driver is loaded, wherever its libraries are. */
#define DRIVER_DEVICE "/dev/nvidiactl"

/* device: DRIVER_DEVICE. why: the loader's message, which names the library. Returns ERR_UNSUPPORTED: this machine has
 * no driver, which is no fault; or ERR_DEVICE: it has a driver that the linker does not find, and err names the
 * remedy. */
int driver_missing(const char *device, const char *why, struct err *err);

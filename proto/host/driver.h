/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/driver.h - what is said where a library of NVIDIA's driver cannot be loaded; by detd, which asks the driver, and by ranks, which use it. */
#pragma once

struct err;

/* There while the driver is loaded, wherever its libraries lie. */
#define DRIVER_DEVICE "/dev/nvidiactl"

/* device: DRIVER_DEVICE. why: the loader's words, which name the library. ERR_UNSUPPORTED: this machine has no driver, which is nothing to
 * complain about; ERR_DEVICE: it has one that the linker does not find, and the remedy. */
int driver_missing(const char *device, const char *why, struct err *err);

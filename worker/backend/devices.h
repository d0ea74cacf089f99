/* SPDX-License-Identifier: Apache-2.0 */ /* worker/backend/devices.h - chooses the device of a rank: the CUDA plugin if
 * it can be used, else the CPU build for this processor. */
#pragma once

struct device_ops;
struct err;

/* device: "auto", "cpu" or "cuda"; isa, of the CPU: "auto", "avx512", "avx2", "generic" (all give the same bits).
 * "auto" takes the GPU if it can. If it takes the CPU, *ret_why (may be NULL) holds a sentence with the reason, else
 * its code is 0. The CPU build is the best this processor runs; ERR_INPUT, field run.isa, for one it cannot run;
 * ERR_UNSUPPORTED, field run.device, with the reason if "cuda" is not available. */
int device_choose(const char *device, const char *isa, const struct device_ops **ret_ops, struct err *ret_why, struct err *err);
/* The same without the reason. */
int device_backend(const char *device, const char *isa, const struct device_ops **ret_ops, struct err *err);

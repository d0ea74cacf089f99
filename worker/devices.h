/* worker/devices.h - which device a rank computes on: the CPU build for this processor, later the CUDA plugin. */
#pragma once

struct device_ops;
struct err;

/* device: "auto", "cpu" or "cuda"; isa: "auto", "avx512", "avx2", "generic" (all give the same bits). The build is the best this processor runs;
 * ERR_INPUT for one it cannot run, ERR_UNSUPPORTED for a device this program was built without. */
int device_backend(const char *device, const char *isa, const struct device_ops **ret_ops, struct err *err);

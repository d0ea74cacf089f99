/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/gpu/gpu_nvml.h - NVML functions, loaded by name, so that the build
 * needs nothing of NVML. Only the probe's process ever loads it: a driver may hang.
 *
 * Every function returns an NVML code, 0 for success. Those marked "may be NULL" are missing in some versions. A code
 * that says "not supported" means that the device does not have the value, and is no error. The layouts are those of
 * the driver's interface, which changes only by new names. */
#pragma once
#include <stddef.h>

struct err;

enum { NVML_TOO_SMALL = 7, NVML_NO_DRIVER = 9, NVML_TIMEOUT = 10 };
enum { NVML_UUID_BYTES = 96, NVML_NAME_BYTES = 96, NVML_DRIVER_BYTES = 80, NVML_PROCESSES = 64 };
enum { NVML_ECC_UNCORRECTED = 1, NVML_ECC_SINCE_LOAD = 0, NVML_TEMPERATURE_GPU = 0 };
enum { NVML_EVENT_DOUBLE_BIT = 2, NVML_EVENT_XID = 8 };

struct nvml_memory { /* bytes; version is set before the call */
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct nvml_memory_v1 { /* of older drivers: reserved memory counts as used */
    unsigned long long total, free, used;
};

struct nvml_utilisation { /* percent of the last sample period */
    unsigned gpu, memory;
};

struct nvml_process {
    unsigned pid;
    unsigned long long used_bytes; /* all bits set: not known */
    unsigned gpu_instance, compute_instance;
};

struct nvml_event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct nvml {
    int (*init)(void);
    const char *(*error_string)(int code);
    int (*count)(unsigned *ret);
    int (*handle)(unsigned index, void **ret);
    int (*uuid)(void *device, char *ret, unsigned size);
    int (*name)(void *device, char *ret, unsigned size);
    int (*memory_v1)(void *device, struct nvml_memory_v1 *ret);
    /* from here on each may be NULL */
    int (*memory)(void *device, struct nvml_memory *ret);
    int (*driver)(char *ret, unsigned size);
    int (*utilisation)(void *device, struct nvml_utilisation *ret);
    int (*temperature)(void *device, int sensor, unsigned *ret);
    int (*power_mw)(void *device, unsigned *ret);
    int (*processes)(void *device, unsigned *count, struct nvml_process *ret);
    int (*ecc)(void *device, int type, int counter, unsigned long long *ret);
    int (*mig_mode)(void *device, unsigned *now, unsigned *pending);
    int (*mig_count)(void *device, unsigned *ret);
    int (*mig_handle)(void *device, unsigned index, void **ret);
    int (*mig_instance)(void *device, unsigned *ret);
    int (*events_new)(void **ret);
    int (*events_register)(void *device, unsigned long long types, void *events);
    int (*events_wait)(void *events, struct nvml_event *ret, unsigned timeout_ms);
};

/* Loads libnvidia-ml.so.1 and initialises it. ERR_UNSUPPORTED: this machine has no driver, which is no fault;
 * ERR_DEVICE: there is a driver, but it cannot be used. */
int nvml_open(struct nvml *ret, struct err *err);

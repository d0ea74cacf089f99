#include "daemon/gpu/gpu_nvml.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "proto/host/driver.h"
#include "proto/err.h"

static const char library[] = "libnvidia-ml.so.1";

#define ROW(member, symbol, needed)                   \
    {                                                 \
        offsetof(struct nvml, member), symbol, needed \
    }
static const struct {
    size_t at;
    const char *symbol;
    bool needed;
} symbols[] = {
    ROW(init, "nvmlInit_v2", true),
    ROW(error_string, "nvmlErrorString", true),
    ROW(count, "nvmlDeviceGetCount_v2", true),
    ROW(handle, "nvmlDeviceGetHandleByIndex_v2", true),
    ROW(uuid, "nvmlDeviceGetUUID", true),
    ROW(name, "nvmlDeviceGetName", true),
    ROW(memory_v1, "nvmlDeviceGetMemoryInfo", true),
    ROW(memory, "nvmlDeviceGetMemoryInfo_v2", false),
    ROW(driver, "nvmlSystemGetDriverVersion", false),
    ROW(utilisation, "nvmlDeviceGetUtilizationRates", false),
    ROW(temperature, "nvmlDeviceGetTemperature", false),
    ROW(power_mw, "nvmlDeviceGetPowerUsage", false),
    ROW(processes, "nvmlDeviceGetComputeRunningProcesses_v3", false),
    ROW(ecc, "nvmlDeviceGetTotalEccErrors", false),
    ROW(mig_mode, "nvmlDeviceGetMigMode", false),
    ROW(mig_count, "nvmlDeviceGetMaxMigDeviceCount", false),
    ROW(mig_handle, "nvmlDeviceGetMigDeviceHandleByIndex", false),
    ROW(mig_instance, "nvmlDeviceGetGpuInstanceId", false),
    ROW(events_new, "nvmlEventSetCreate", false),
    ROW(events_register, "nvmlDeviceRegisterEvents", false),
    ROW(events_wait, "nvmlEventSetWait_v2", false),
};

int nvml_open(struct nvml *ret, struct err *err)
{
    void *so = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    int rc;

    if (!so)
        return driver_missing(DRIVER_DEVICE, dlerror(), err);
    memset(ret, 0, sizeof *ret);
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(so, symbols[i].symbol);

        if (!found && symbols[i].needed)
            return err_set(err, ERR_DEVICE, "the NVIDIA driver cannot be asked: %s has no %s", library, symbols[i].symbol);
        memcpy((char *)ret + symbols[i].at, &found, sizeof found); /* POSIX guarantees that a function pointer fits; C has no cast for it */
    }
    rc = ret->init();
    if (rc == NVML_NO_DRIVER && access(DRIVER_DEVICE, F_OK) < 0)
        return err_set(err, ERR_UNSUPPORTED, "this machine has no NVIDIA driver: %s", ret->error_string(rc));
    return rc == 0 ? 0 : err_set(err, ERR_DEVICE, "the NVIDIA driver cannot be asked: %s", ret->error_string(rc));
}

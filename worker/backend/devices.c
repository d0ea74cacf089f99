#include "worker/backend/devices.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <string.h>

#include "proto/host/cpu.h"
#include "proto/err.h"
#include "worker/core/device.h"
#include "worker/backend/plugin.h"

const struct device_ops *cpu_backend_avx512(void);
const struct device_ops *cpu_backend_avx2(void);
const struct device_ops *cpu_backend_generic(void);

static bool has_any(void)
{
    return true;
}

/* From the best to the most general. */
static const struct {
    const char *isa;
    bool (*runs)(void);
    const struct device_ops *(*backend)(void);
} builds[] = {
    { "avx512", cpu_has_avx512, cpu_backend_avx512 },
    { "avx2", cpu_has_avx2, cpu_backend_avx2 },
    { "generic", has_any, cpu_backend_generic },
};

static int cpu_backend(const char *isa, const struct device_ops **ret_ops, struct err *err)
{
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
        if (strcmp(isa, "auto") != 0 && strcmp(isa, builds[i].isa) != 0)
            continue;
        if (!builds[i].runs()) {
            if (strcmp(isa, "auto") == 0)
                continue;
            return err_field(err, ERR_INPUT, "run.isa", "run.isa: this processor has no %s", isa);
        }
        *ret_ops = builds[i].backend();
        return 0;
    }
    return err_field(err, ERR_INPUT, "run.isa", "run.isa: no build is called '%s'", isa);
}

int device_choose(const char *device, const char *isa, const struct device_ops **ret_ops, struct err *ret_why, struct err *err)
{
    struct err why = { 0 };

    if (strcmp(device, "cpu") != 0 && plugin_backend(ret_ops, &why) == 0)
        return 0;
    if (strcmp(device, "cuda") == 0)
        return err_field(err, ERR_UNSUPPORTED, "run.device", "run.device: cuda cannot be used: %s", why.msg);
    if (ret_why)
        *ret_why = why;
    return cpu_backend(isa, ret_ops, err);
}

int device_backend(const char *device, const char *isa, const struct device_ops **ret_ops, struct err *err)
{
    return device_choose(device, isa, ret_ops, NULL, err);
}

#include "worker/backend/plugin.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/report.h"
#include "worker/comm/abi.h"

#define PLUGIN WORKER_PLUGIN

/* Builds the plugin's path beside this program. /proc/self/exe gives the real path, also after a start through a link
 * or from a descriptor. */
static int path_beside(char *ret, size_t size, struct err *err)
{
    ssize_t n = readlink("/proc/self/exe", ret, size - 1);
    char *slash;

    if (n < 0)
        return err_sys(err, "read /proc/self/exe");
    ret[n] = '\0';
    slash = strrchr(ret, '/');
    if (!slash || (size_t)(slash + 1 - ret) + sizeof PLUGIN > size)
        return err_set(err, ERR_UNSUPPORTED, "the path of this program is too long");
    memcpy(slash + 1, PLUGIN, sizeof PLUGIN);
    return 0;
}

static int plugin_path(char *ret, size_t size, struct err *err)
{
    const char *number = getenv(WORKER_ENV_PLUGIN);
    char *end;
    long fd;
    int rc;

    if (number) {
        fd = strtol(number, &end, 10);
        if (end == number || *end || fd < 0 || fd > INT_MAX)
            return err_set(err, ERR_UNSUPPORTED, "%s is '%.40s' and no descriptor", WORKER_ENV_PLUGIN, number);
        snprintf(ret, size, "/proc/self/fd/%ld", fd);
        return 0;
    }
    rc = path_beside(ret, size, err);
    if (rc == 0 && access(ret, R_OK) < 0)
        rc = errno == ENOENT ? err_set(err, ERR_UNSUPPORTED, "this installation has no CUDA device: there is no '%s'", ret)
                             : err_sys(err, "open '%s'", ret);
    return rc;
}

static int load(const char *path, const struct device_ops **ret_ops, struct err *err)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol;
    const struct device_ops *ops;
    const char *trouble;
    unsigned abi;

    if (!handle) {
        trouble = dlerror();
        return err_set(err, ERR_UNSUPPORTED, PLUGIN " cannot be loaded: %s", trouble ? trouble : path);
    }
    symbol = dlsym(handle, "detd_backend");
    ops = symbol ? ((__typeof__(detd_backend) *)symbol)() : NULL;
    if (ops && ops->abi == DEVICE_ABI) {
        *ret_ops = ops;
        return 0;
    }
    abi = ops ? ops->abi : 0;
    dlclose(handle);
    if (!ops)
        return err_set(err, ERR_UNSUPPORTED, PLUGIN " is no device: it has no detd_backend()");
    return err_set(err, ERR_UNSUPPORTED, PLUGIN " is of another version: its device interface is number %08x, this program needs %08x", abi,
                   DEVICE_ABI);
}

int plugin_backend(const struct device_ops **ret_ops, struct err *err)
{
    const struct device_ops *ops = NULL;
    char path[PATH_MAX];
    int rc = plugin_path(path, sizeof path, err);

    if (rc == 0)
        rc = load(path, &ops, err);
    if (rc == 0)
        rc = ops->available(err);
    if (rc < 0)
        return rc;
    *ret_ops = ops;
    return 0;
}

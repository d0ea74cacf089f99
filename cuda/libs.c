#include "cuda/libs.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cuda/search.h"
#include "proto/err.h"
#include "worker/core/device.h"

/* The first versions that support all GPUs of this build, sm_80 to sm_100. */
enum { CUDNN_MIN = 90700, CUBLASLT_MIN = 120800, NCCL_MIN = 22501 };

static struct library_found nvrtc; /* part of cuDNN; handle NULL: not found */

static long size_version(void *symbol)
{
    return (long)((size_t(*)(void))symbol)();
}

static long nccl_version(void *symbol)
{
    int version = 0;

    return ((__typeof__(ncclGetVersion) *)symbol)(&version) == ncclSuccess ? version : 0;
}

/* A library of this process. */
struct slot {
    struct library lib;
    pthread_once_t once;
    int rc;
    struct err err;
    struct library_found found;
};

static struct slot cudnn = { .lib = { "cuDNN", { "libcudnn.so.9" }, "cudnnGetVersion", size_version, CUDNN_MIN },
                             .once = PTHREAD_ONCE_INIT };
static struct slot cublaslt = {
    .lib = { "cuBLASLt", { "libcublasLt.so.13", "libcublasLt.so.12" }, "cublasLtGetVersion", size_version, CUBLASLT_MIN },
    .once = PTHREAD_ONCE_INIT
};
static struct slot nccl = { .lib = { "NCCL", { "libnccl.so.2" }, "ncclGetVersion", nccl_version, NCCL_MIN }, .once = PTHREAD_ONCE_INIT };

static struct cudnn_api cudnn_api;
static struct cublaslt_api cublaslt_api;
static struct nccl_api nccl_api;

struct symbol {
    const char *name;
    void *at; /* member of the table of functions */
};

static int resolve(struct slot *s, const struct symbol *symbols, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *address = dlsym(s->found.handle, symbols[i].name);

        if (!address)
            return err_set(&s->err, ERR_UNSUPPORTED, "%s in %s has no function %s", s->lib.name, s->found.path, symbols[i].name);
        memcpy(symbols[i].at, &address, sizeof address);
    }
    return 0;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void open_cublaslt(void)
{
#define X(name) { #name, &cublaslt_api.name },
    const struct symbol symbols[] = { CUBLASLT_FUNCTIONS(X) };
#undef X

    cublaslt.rc = library_find(&cublaslt.lib, &cublaslt.found, &cublaslt.err);
    if (cublaslt.rc == 0)
        cublaslt.rc = resolve(&cublaslt, symbols, COUNT(symbols));
}

static long compiler_version(void *symbol)
{
    int major = 0, minor = 0;

    return ((int (*)(int *, int *))symbol)(&major, &minor) == 0 ? 10000L * major + 100L * minor : 0;
}

/* To build a fused engine cuDNN opens the runtime compiler by its bare name. A library that is open already answers to
 * that name, from any folder. Without it cuDNN does not use these engines. */
static void preload_compiler(void)
{
    struct library compiler = { .name = "NVRTC", .version_symbol = "nvrtcVersion", .version = compiler_version, .minimum = 1 };
    struct err ignored;
    char soname[32];

    snprintf(soname, sizeof soname, "libnvrtc.so.%zu", cudnn_api.cudnnGetCudartVersion() / 1000);
    compiler.soname[0] = soname;
    if (library_find(&compiler, &nvrtc, &ignored) < 0)
        nvrtc.handle = NULL;
}

static void open_cudnn(void)
{
#define X(name) { #name, &cudnn_api.name },
    const struct symbol symbols[] = { CUDNN_FUNCTIONS(X) };
#undef X

    (void)pthread_once(&cublaslt.once, open_cublaslt); /* cuDNN opens it by its bare name, too */
    cudnn.rc = library_find(&cudnn.lib, &cudnn.found, &cudnn.err);
    if (cudnn.rc == 0)
        cudnn.rc = resolve(&cudnn, symbols, COUNT(symbols));
    if (cudnn.rc == 0)
        preload_compiler();
}

static void open_nccl(void)
{
#define X(name) { #name, &nccl_api.name },
    const struct symbol symbols[] = { NCCL_FUNCTIONS(X) };
    const struct symbol optional[] = { NCCL_FUNCTIONS_OPTIONAL(X) };
#undef X

    nccl.rc = library_find(&nccl.lib, &nccl.found, &nccl.err);
    if (nccl.rc == 0)
        nccl.rc = resolve(&nccl, symbols, COUNT(symbols));
    for (size_t i = 0; nccl.rc == 0 && i < COUNT(optional); i++) {
        void *address = dlsym(nccl.found.handle, optional[i].name);

        memcpy(optional[i].at, &address, sizeof address);
    }
}

static int answer(struct slot *s, void (*open)(void), struct err *err)
{
    (void)pthread_once(&s->once, open);
    return s->rc < 0 ? err_set(err, s->rc, "%s", s->err.msg) : 0;
}

int libs_cudnn(const struct cudnn_api **ret_api, struct err *err)
{
    int rc = answer(&cudnn, open_cudnn, err);

    if (rc == 0)
        *ret_api = &cudnn_api;
    return rc;
}

int libs_cublaslt(const struct cublaslt_api **ret_api, struct err *err)
{
    int rc = answer(&cublaslt, open_cublaslt, err);

    if (rc == 0)
        *ret_api = &cublaslt_api;
    return rc;
}

int libs_nccl(const struct nccl_api **ret_api, struct err *err)
{
    int rc = answer(&nccl, open_nccl, err);

    if (rc == 0)
        *ret_api = &nccl_api;
    return rc;
}

int libs_check(struct err *err)
{
    int rc = answer(&cublaslt, open_cublaslt, err);

    return rc < 0 ? rc : answer(&cudnn, open_cudnn, err);
}

void libs_info(struct device_info *ret)
{
    const struct library_found *found[] = { &cudnn.found, &cublaslt.found, &nccl.found, &nvrtc };
    static const char *const names[] = { "cudnn", "cublasLt", "nccl", "nvrtc" };

    for (size_t i = 0; i < COUNT(found) && ret->nversions < DEVICE_MAX_VERSIONS; i++) {
        if (!found[i]->handle)
            continue;
        snprintf(ret->version[ret->nversions].name, sizeof ret->version[0].name, "%s", names[i]);
        library_version_text(found[i]->version, ret->version[ret->nversions++].value, sizeof ret->version[0].value);
    }
}

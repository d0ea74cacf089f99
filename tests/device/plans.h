/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/plans.h - for tests of the choice of algorithms: targets that
 * are descriptions of GPUs, and keys of square convolutions. deviceprop/ describes A100, H100 and B200 in the form that
 * cuDNN reads: an H100's own record, the others written by hand after data sheets. */
#pragma once
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/plan.h"
#include "proto/err.h"
#include "tests/stand/harness.h"

/* A handle that cuDNN requests from the target fails without a driver, and the library keeps its memory. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcublasLt";
}

__attribute__((unused)) static const char *const gpus[] = { "sm_80", "sm_90", "sm_100" };

/* Plans of cuDNN only, which cannot run. */
static int plan_target_describe(struct plan_target *t, const char *json, struct err *err)
{
    memset(t, 0, sizeof *t);
    return cudnn_target_describe(&t->dnn, json, err);
}

/* Skips the test if cuDNN is missing. */
__attribute__((unused)) static void describe(struct plan_target *t, const char *gpu)
{
    char path[128], json[4096];
    struct err err;
    size_t n;
    int rc;
    FILE *f;

    snprintf(path, sizeof path, "tests/device/deviceprop/%s.json", gpu);
    f = fopen(path, "r");
    assert_non_null(f);
    n = fread(json, 1, sizeof json - 1, f);
    fclose(f);
    json[n] = '\0';
    rc = plan_target_describe(t, json, &err);
    if (rc == ERR_UNSUPPORTED)
        SKIP("no cuDNN and cuBLASLt to ask: %s", err.msg);
    assert_int_equal(rc, 0);
}

/* If the driver's library is there, cuDNN also compiles engines for GPUs that are only described. This takes a second
 * or more each: an hour for all keys. */
__attribute__((unused)) static bool driver_is_there(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);

    if (lib)
        dlclose(lib);
    return lib != NULL;
}

/* Square images and filters; dense, and padded to keep the size. */
__attribute__((unused)) static struct conv_key conv(enum conv_dir dir, enum precision precision, enum tier tier, int n, int side, int c,
                                                    int k, int size)
{
    return (struct conv_key){ .dir = dir,
                              .dtype = precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32,
                              .precision = precision,
                              .tier = tier,
                              .n = n,
                              .h = side,
                              .w = side,
                              .c = c,
                              .k = k,
                              .r = size,
                              .s = size,
                              .stride = 1,
                              .pad = size / 2,
                              .x_stride = c,
                              .y_stride = k };
}

/* Makes the plan of a convolution on memory with the allocators' alignment. */
__attribute__((unused)) static void made(struct plan *p, const struct plan_target *t, const struct conv_key *k)
{
    struct plan_key key = plan_key_make(k, NULL);
    struct err err;

    if (plan_make(p, t, &key, &err) < 0)
        fail_msg("%s", err.msg);
}

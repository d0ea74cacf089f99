/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/backend/test_devices.c
 * uses: proto worker/backend trainer cpu
 * The device of a rank: auto takes the CPU and says why, cuda fails with the reason, a plugin is checked before it is
 * used. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/version.h"
#include "proto/report.h"
#include "tests/stand/harness.h"
#include "worker/core/device.h"
#include "worker/backend/devices.h"

/* The message of `cuda`, which must be refused. */
static const char *refusal(struct err *err)
{
    const struct device_ops *ops = NULL;

    memset(err, 0, sizeof *err);
    assert_int_equal(device_backend("cuda", "auto", &ops, err), ERR_UNSUPPORTED);
    assert_null(ops);
    assert_string_equal(err->field, "run.device");
    assert_non_null(strstr(err->msg, "run.device: cuda cannot be used: "));
    return err->msg;
}

/* Makes a shared library from one line of C and passes its descriptor to the loader. Returns false if there is no
 * compiler here. */
static bool offer(const char *c_line)
{
    char path[TEMP_MAX], command[1024], number[16];
    int fd = mkstemp(temp_path(path, sizeof path, "detd-plugin-XXXXXX")), rc;

    assert_true(fd >= 0);
    close(fd);
    snprintf(command, sizeof command, "printf '%%s\\n' '%s' | cc -shared -fPIC -x c -o %s - 2>/dev/null", c_line, path);
    rc = system(command);
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    unlink(path);
    snprintf(number, sizeof number, "%d", fd);
    setenv(WORKER_ENV_PLUGIN, number, 1);
    if (rc != 0)
        close(fd);
    return rc == 0;
}

static void withdraw(void)
{
    close(atoi(getenv(WORKER_ENV_PLUGIN)));
    unsetenv(WORKER_ENV_PLUGIN);
}

static void the_cpu_is_asked_for(void **state)
{
    const struct device_ops *ops = NULL;
    struct err err, why = { .code = 1 };

    (void)state;
    assert_int_equal(device_choose("cpu", "generic", &ops, &why, &err), 0);
    assert_string_equal(ops->version, DETD_VERSION);
    assert_int_equal(why.code, 0);
    assert_int_equal(device_backend("cpu", "mmx", &ops, &err), ERR_INPUT);
    assert_string_equal(err.field, "run.isa");
}

/* Test programs have no plugin beside them. */
static void no_plugin(void **state)
{
    const struct device_ops *ops = NULL;
    struct err err, why;

    (void)state;
    assert_non_null(strstr(refusal(&err), "there is no '/"));
    assert_int_equal(device_choose("auto", "auto", &ops, &why, &err), 0);
    assert_string_equal(ops->version, DETD_VERSION);
    assert_int_equal(why.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(why.msg, WORKER_PLUGIN));
    assert_null(strchr(why.msg, '\n'));
}

static void not_a_library(void **state)
{
    int fd = open("/dev/null", O_RDONLY);
    char number[16];
    struct err err;

    (void)state;
    snprintf(number, sizeof number, "%d", fd);
    setenv(WORKER_ENV_PLUGIN, number, 1);
    assert_non_null(strstr(refusal(&err), "cannot be loaded"));
    setenv(WORKER_ENV_PLUGIN, "seven", 1);
    assert_non_null(strstr(refusal(&err), "is 'seven' and no descriptor"));
    unsetenv(WORKER_ENV_PLUGIN);
    close(fd);
}

static void another_library(void **state)
{
    struct err err;

    (void)state;
    if (!offer("int nothing;"))
        SKIP("no C compiler to make a plugin with");
    assert_non_null(strstr(refusal(&err), "it has no detd_backend()"));
    withdraw();
}

/* The version number is read first: a shorter table must not be read any further. */
static void another_version(void **state)
{
    struct err err;

    (void)state;
    if (!offer("static const unsigned abi = 1; const void *detd_backend(void) { return &abi; }"))
        SKIP("no C compiler to make a plugin with");
    assert_non_null(strstr(refusal(&err), "is of another version: its device interface is number 00000001, this program needs "));
    withdraw();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu_is_asked_for), cmocka_unit_test(no_plugin),       cmocka_unit_test(not_a_library),
        cmocka_unit_test(another_library),      cmocka_unit_test(another_version),
    };

    unsetenv(WORKER_ENV_PLUGIN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/test_err.c - uses: proto */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/host/driver.h"
#include "proto/err.h"

static void fills_code_field_and_text(void **state)
{
    struct err err = { 0 };

    (void)state;
    assert_int_equal(err_field(&err, ERR_INPUT, "train.lr", "train.lr: must be > 0, is %d", -1), ERR_INPUT);
    assert_string_equal(err.field, "train.lr");
    assert_string_equal(err.msg, "train.lr: must be > 0, is -1");
    err_prefix(&err, "job %d", 7);
    assert_string_equal(err.msg, "job 7: train.lr: must be > 0, is -1");
    errno = ENOENT;
    assert_int_equal(err_sys(&err, "open '%s'", "x"), -ENOENT);
    assert_string_equal(err.msg, "open 'x': No such file or directory");
    assert_string_equal(err.field, "");
    assert_string_equal(err_name(ERR_CORRUPT), "CORRUPT");
    assert_null(err_name(-1));
    assert_int_equal(err_set(NULL, ERR_STATE, "nobody listens"), ERR_STATE);
}

/* Our codes end below the system's. */
static void codes_of_the_system(void **state)
{
    static const struct {
        int code;
        bool system;
    } rows[] = { { -ENOENT, true },       { -1, true },        { 0, false }, { 1, false }, { ERR_PROTO, false },
                 { ERR_PROTO + 1, true }, { ERR_INPUT, false } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(err_is_system(&(struct err){ .code = rows[i].code }), rows[i].system);
}

/* A node without a driver, and a node with a driver that the linker does not find; "/" stands for the driver's
 * device. */
static void a_driver_that_cannot_be_loaded(void **state)
{
    static const char why[] = "libnvidia-ml.so.1: cannot open shared object file: No such file or directory";
    struct err err;

    (void)state;
    assert_int_equal(driver_missing("/nowhere/nvidiactl", why, &err), ERR_UNSUPPORTED);
    assert_string_equal(err.msg,
                        "this machine has no NVIDIA driver: libnvidia-ml.so.1: cannot open shared object file: No such file or directory");
    assert_int_equal(driver_missing("/", why, &err), ERR_DEVICE);
    assert_non_null(strstr(err.msg, "the NVIDIA driver cannot be asked: libnvidia-ml.so.1: "));
    assert_non_null(strstr(err.msg, "/etc/ld.so.conf.d and `ldconfig`"));
    assert_non_null(strstr(err.msg, "LD_LIBRARY_PATH is not passed on to ranks"));
    assert_true(strlen(err.msg) < 256); /* as much as detd keeps of it */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(fills_code_field_and_text), cmocka_unit_test(codes_of_the_system),
                                        cmocka_unit_test(a_driver_that_cannot_be_loaded) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

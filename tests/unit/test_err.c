/* tests/unit/test_err.c - uses: proto */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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

/* Ours end where the system's begin. */
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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(fills_code_field_and_text), cmocka_unit_test(codes_of_the_system) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

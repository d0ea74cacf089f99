/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_record.c - uses: proto
 * A line of a rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/record.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "record";
const int fuzz_places = 120;

/* A few members that others build on without another look. */
static void check(enum record_type type, const json_t *msg)
{
    const json_t *step = json_object_get(msg, "step");

    assert_true(json_is_object(msg) && json_is_string(json_object_get(msg, "type")));
    if (type == RECORD_LOSS || type == RECORD_EVAL || type == RECORD_CHECKPOINT || type == RECORD_TIER)
        assert_true(json_is_integer(step) && json_integer_value(step) >= 0);
    if (type == RECORD_LOSS)
        assert_in_range(json_object_size(json_object_get(msg, "terms")), 0, RECORD_MAX_VALUES);
    if (type == RECORD_IDENTITY)
        assert_true(json_is_object(json_object_get(msg, "identity")));
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    enum record_type type = RECORD_UNKNOWN;
    struct err err = { 0 };
    json_t *msg = NULL;
    int rc = record_parse((const char *)bytes, size, &type, &msg, &err);

    if (rc == 0)
        check(type, msg);
    else
        assert_true(rc == ERR_PROTO && err.code == rc && err.msg[0] && !msg);
    json_decref(msg);
}

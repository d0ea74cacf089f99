/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_yaml.c - uses: proto worker/core worker/mask worker/data
 * data.yaml. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/read/labels/data_yaml.h"
#include "worker/data/set/problems.h"

const char fuzz_name[] = "yaml";
const int fuzz_places = 60;

void fuzz_one(const uint8_t *bytes, size_t size)
{
    static struct data_yaml y;
    struct err err = { 0 };
    static struct problems problems;
    int rc = data_yaml_parse("data.yaml", bytes, size, "train", &y, &problems, &err);

    assert_true(rc == 0 || (rc == ERR_DATA && strncmp(err.msg, "data.yaml", 9) == 0));
    assert_in_range(y.npaths, 0, YAML_MAX_PATHS);
    for (int i = 0; i < y.npaths; i++)
        assert_true(y.path[i][0] != '\0');
    for (int i = 0; i < y.names.n; i++)
        assert_int_equal(label_names_find(&y.names, y.names.name[i]), i);
    data_yaml_free(&y);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/read/labels/test_label_paths.c
 * uses: proto worker/core worker/mask worker/data
 * Paths are joined and shortened as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "worker/data/read/labels/label_paths.h"

static void paths_are_shortened(void **state)
{
    static const struct {
        const char *folder, *path, *want;
    } cases[] = {
        { ".", "images", "images" }, { "a//b/", "./c", "a/b/c" }, { "a", "../b", "b" },         { "a/b", "..", "a" },
        { "a", "..", "." },          { ".", ".", "." },           { "a", "../..", ".." },       { "..", "../a", "../../a" },
        { "/none", "..", "/" },      { "/", "../../a", "/a" },    { "/none/b", "..", "/none" }, { "a", "/none//b/.", "/none/b" },
        { "a", "b/../../c", "c" },   { "a", "...", "a/..." },     { "a", "..b", "a/..b" },
    };
    char got[DATASET_MAX_PATH];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(got, 'x', sizeof got);
        assert_true(label_path(cases[i].folder, cases[i].path, got));
        assert_string_equal(got, cases[i].want);
    }
}

static void long_paths_are_refused(void **state)
{
    char name[DATASET_MAX_PATH], got[DATASET_MAX_PATH];

    (void)state;
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_true(label_path(".", name + 1, got) && strlen(got) == sizeof name - 2);
    assert_false(label_path("a", name + 1, got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_shortened),
        cmocka_unit_test(long_paths_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

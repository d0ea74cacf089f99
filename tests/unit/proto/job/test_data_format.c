/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/job/test_data_format.c - a data set's form by its file.
 * uses: proto */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/job/data_format.h"
#include "tests/stand/harness.h"

static void by_its_file(void **state)
{
    static const struct {
        const char *path, *like, *want;
    } sets[] = { { "a/test.json", "coco", "coco" },
                 { "test.json", "voc", "coco" },
                 { "TEST.JSON", "yolo", "coco" },
                 { "data.yaml", "coco", "yolo" },
                 { "./data.yml", "voc", "yolo" },
                 { "obj.data", "coco", "darknet" },
                 { "list.txt", "voc", "voc" },
                 { "list.txt", "coco", "coco" },
                 { "a.json/list", "darknet", "darknet" },
                 { "list", "yolo", "yolo" },
                 { "list.json", "frames", "frames" },
                 { "list.data", "kitti", "kitti" },
                 { ".yaml", "coco", "yolo" },
                 { "", "coco", "coco" } };

    (void)state;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        assert_string_equal(data_format(sets[i].path, sets[i].like), sets[i].want);
}

static void folders(void **state)
{
    char folder[TEMP_MAX];

    (void)state;
    assert_non_null(mkdtemp(temp_path(folder, sizeof folder, "set.json-XXXXXX")));
    assert_string_equal(data_format(folder, "coco"), "voc");
    assert_string_equal(data_format(folder, "yolo"), "yolo");
    assert_string_equal(data_format(folder, "frames"), "frames");
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(by_its_file), cmocka_unit_test(folders) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

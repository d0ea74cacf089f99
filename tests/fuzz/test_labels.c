/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_labels.c - uses: proto worker/core worker/mask worker/data
 * Labels of a picture as text, and the same bytes as names of classes, as a list of pictures and as a .data file of
 * darknet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/fuzz/labels.h"

const char fuzz_name[] = "labels";
const int fuzz_places = 20;

void fuzz_one(const uint8_t *bytes, size_t size)
{
    static const char *const files[] = { "a.txt", "a.png", "a.names", "b.names", "list", "obj.data", NULL };
    char path[TEMP_MAX + 16], names[TEMP_MAX + 16], other[TEMP_MAX + 16], list[TEMP_MAX + 16], data[TEMP_MAX + 16];
    struct labels_options opt = { .form = LABELS_DARKNET,
                                  .annotations = labels_file("list", list),
                                  .names = labels_file("a.names", names) };

    labels_begin("a.png");
    fuzz_write(labels_file("a.txt", path), bytes, size);
    fuzz_write(names, "cat\ndog\n", 8);
    fuzz_write(list, "a.png\n", 6);
    labels_check(&opt);
    opt.form = LABELS_YOLO;
    opt.masks = true;
    labels_check(&opt);
    fuzz_write(labels_file("b.names", other), bytes, size);
    opt.names = other;
    labels_check(&opt);
    opt.names = names;
    fuzz_write(list, bytes, size);
    labels_check(&opt);
    fuzz_write(labels_file("obj.data", data), bytes, size);
    opt.form = LABELS_DARKNET;
    opt.annotations = data;
    labels_check(&opt);
    labels_end(files);
}

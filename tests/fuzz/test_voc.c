/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_voc.c - uses: proto worker/core worker/mask worker/data
 * XML files of Pascal VOC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/fuzz/labels.h"

const char fuzz_name[] = "voc";
const int fuzz_places = 40;

void fuzz_one(const uint8_t *bytes, size_t size)
{
    static const char *const files[] = { "a.xml", "a.png", NULL };
    struct labels_options opt = { .form = LABELS_VOC, .annotations = fuzz_path() };
    char path[TEMP_MAX + 16];

    labels_begin("a.png");
    fuzz_write(labels_file("a.xml", path), bytes, size);
    labels_check(&opt);
    opt.corners = opt.difficult = true;
    labels_check(&opt);
    labels_end(files);
}

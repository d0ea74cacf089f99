/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_weights.c - Darknet weights.
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/core */
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
#include "worker/models/yolo/darknet_weights.h"

const char fuzz_name[] = "weights";
const int fuzz_places = 120;

/* A refusal has a code and a sentence that begins with its subject. */
static void refused(int rc, int code, const struct err *err, const char *about)
{
    if (rc != code || err->code != code || strncmp(err->msg, about, strlen(about)) != 0 || strlen(err->msg) < strlen(about) + 4)
        fail_msg("%d, not %d: \"%s\" about '%s'", rc, code, err->msg, about);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    for (int until = -1; until < 3; until++) {
        float v[13] = { 0 }, zero[13] = { 0 };
        struct darknet_block b[2] = { { 0, 2, 1, 1, v, v + 2, v + 4, v + 6, v + 8, 0, false },
                                      { 1, 1, 2, 1, v + 10, NULL, NULL, NULL, v + 11, 0, false } };
        struct darknet_weights_info info;
        struct err err = { 0 };

        int rc = darknet_weights_parse(bytes, size, "seed", b, 2, until, &info, &err);

        if (rc < 0) {
            refused(rc, ERR_DATA, &err, "seed:");
            assert_memory_equal(v, zero, sizeof v);
        } else {
            assert_true(info.nloaded <= (until < 0 || until > 2 ? 2 : (size_t)until));
        }
    }
}

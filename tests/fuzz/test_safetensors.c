/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_safetensors.c - uses: proto worker/core
 * Arrays by name. */
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
#include "worker/core/safetensors.h"

const char fuzz_name[] = "safetensors";
const int fuzz_places = 120;

/* A refusal has a code and a sentence that begins with its subject. */
static void refused(int rc, int code, const struct err *err, const char *about)
{
    if (rc != code || err->code != code || strncmp(err->msg, about, strlen(about)) != 0 || strlen(err->msg) < strlen(about) + 4)
        fail_msg("%d, not %d: \"%s\" about '%s'", rc, code, err->msg, about);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    struct safetensors *f = NULL;
    struct err err = { 0 };
    uint64_t total = 0;

    int rc = safetensors_parse(bytes, size, "seed", &f, &err);

    if (rc < 0) {
        refused(rc, ERR_CORRUPT, &err, "seed:");
        assert_null(f);
        return;
    }
    for (size_t i = 0; i < safetensors_count(f); i++) {
        const struct st_array *a = safetensors_at(f, i);
        float *v = malloc(st_count(a) * sizeof *v + 1);

        assert_ptr_equal(safetensors_find(f, a->name), a);
        rc = safetensors_f32(a, v, &err);
        if (st_count(a) == 0 || a->dtype == ST_F32 || a->dtype == ST_F16 || a->dtype == ST_BF16 || a->dtype == ST_F64)
            assert_int_equal(rc, 0);
        else
            refused(rc, ERR_UNSUPPORTED, &err, "array '");
        total += st_bytes(a);
        free(v);
    }
    assert_true(total <= size);
    safetensors_close(f);
}

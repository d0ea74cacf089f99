/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_evidence.c - uses: proto
 * The head of evidence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <jansson.h>

#include "proto/err.h"
#include "proto/evidence/evidence_form.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "evidence";
const int fuzz_places = 120;

/* The head of evidence. An accepted head is in bounds, and its written text is read back as the same head. */
static void feed(const char *bytes, size_t len)
{
    struct evidence_head *h = NULL, *again = NULL;
    struct err err = { 0 };
    char *text;
    int rc = evidence_head_parse(bytes, len, &h, &err);

    if (rc == 0) {
        assert_int_equal(evidence_head_check(h, &err), 0);
        assert_int_equal(evidence_head_text(h, &text, &len, &err), 0);
        assert_int_equal(evidence_head_parse(text, len, &again, &err), 0);
        assert_true(evidence_head_equal(h, again));
        free(text);
        free(again);
        free(h);
    } else {
        assert_true((rc == ERR_INPUT || rc == ERR_UNSUPPORTED) && err.code == rc && !h);
        assert_true(strncmp(err.msg, err.field, strlen(err.field)) == 0 && err.msg[0]);
        assert_int_equal(err.field[0] == '\0', !fuzz_is_json(bytes, len, JSON_REJECT_DUPLICATES));
    }
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    feed((const char *)bytes, size);
}

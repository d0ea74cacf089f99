/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/evidence/test_evidence_head.c - uses: proto
 * The head of evidence: its valid members, and the errors for invalid members. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/evidence/evidence_form.h"

static void refuses_heads(void **state)
{
    struct evidence_tensor t = { "a", 1, true };
    struct evidence_head h = { .shards = 1, .ntensors = 1, .tensor = &t };
    struct err err = { 0 };

    (void)state;
    assert_int_equal(evidence_head_check(&h, &err), 0);
    strcpy(t.name, " ~");
    h.shards = EVIDENCE_MAX_SHARDS;
    assert_int_equal(evidence_head_check(&h, &err), 0);
    h.ntensors = -1;
    assert_int_equal(evidence_head_check(&h, &err), ERR_INPUT);
    h.ntensors = 1;
    memset(t.name, 'a', sizeof t.name); /* no end */
    assert_int_equal(evidence_head_check(&h, &err), ERR_INPUT);
    strcpy(t.name, "a\nb");
    assert_int_equal(evidence_head_check(&h, &err), ERR_INPUT);
    strcpy(t.name, "\nb");
    assert_int_equal(evidence_head_check(&h, &err), ERR_INPUT);
    strcpy(t.name, "caf\xc3\xa9");
    assert_int_equal(evidence_head_check(&h, &err), ERR_INPUT);
    strcpy(t.name, "a");
    t.count = 0;
    assert_int_equal(evidence_head_check(&h, &err), ERR_INPUT);
    assert_string_equal(err.field, "tensors");
    t.count = 1;
    h.shards = EVIDENCE_MAX_SHARDS + 1;
    assert_int_equal(evidence_head_check(&h, &err), ERR_INPUT);
    assert_string_equal(err.field, "shards");
    h.shards = 1;
    h.ntensors = EVIDENCE_MAX_TENSORS + 1;
    assert_int_equal(evidence_head_check(&h, &err), ERR_INPUT);
}

/* Replaces a single member of a head in JSON. The error must name this member. */
static void refuses_members(void **state)
{
    static const char *const cases[][2] = {
        { "format", "null" },
        { "format", "1.0" },
        { "level", "\"all\"" },
        { "level", "1" },
        { "spec", "\"00\"" },
        { "data", "null" },
        { "shards", "0" },
        { "shards", "65" },
        { "shards", "4294967297" },
        { "shards", "\"4\"" },
        { "tensors", "{}" },
        { "tensors", "[1]" },
        { "tensors", "[[\"a\",1]]" },
        { "tensors", "[[\"a\",1,true,1]]" },
        { "tensors", "[[1,1,true]]" },
        { "tensors", "[[\"a\",1.5,true]]" },
        { "tensors", "[[\"a\",1,1]]" },
        { "tensors", "[[\"\",1,true]]" },
    };
    static const char *const good[][2] = { { "format", "1" },
                                           { "level", "\"losses\"" },
                                           { "spec", "\"00112233445566778899aabbccddeeff\"" },
                                           { "data", "\"00112233445566778899aabbccddeeff\"" },
                                           { "shards", "64" },
                                           { "tensors", "[[\"a\",1,true]]" } };
    enum { CASES = sizeof cases / sizeof *cases };

    (void)state;
    for (size_t i = 0; i <= CASES; i++) { /* the last is good */
        struct evidence_head *h = NULL;
        struct err err = { 0 };
        char text[400] = "{";

        for (size_t m = 0; m < 6; m++) {
            const char *name = good[m][0], *value = i < CASES && strcmp(name, cases[i][0]) == 0 ? cases[i][1] : good[m][1];

            snprintf(text + strlen(text), sizeof text - strlen(text), "%s\"%s\":%s", m ? "," : "", name, value);
        }
        strcat(text, "}");
        assert_int_equal(evidence_head_parse(text, strlen(text), &h, &err), i < CASES ? ERR_INPUT : 0);
        assert_string_equal(err.field, i < CASES ? cases[i][0] : "");
        free(h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(refuses_heads), cmocka_unit_test(refuses_members) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

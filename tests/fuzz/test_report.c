/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_report.c - uses: proto daemon
 * A record of detd-job, as it comes over sup.sock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <jansson.h>

#include "daemon/job/report.h"
#include "proto/err.h"
#include "proto/identity.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "report";
const int fuzz_places = 120;

static bool ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static void check(const struct report *r)
{
    assert_true(r->job == 7 && r->seq == 11 && r->step >= 0 && r->bytes >= 0 && r->max_rss >= 0 && r->attempt >= 0);
    assert_in_range(r->count, 0, REPORT_MAX_TERMS);
    assert_true(ends(r->kind, sizeof r->kind) && ends(r->label, sizeof r->label) && ends(r->text, sizeof r->text));
    for (int i = 0; i < r->count; i++)
        assert_true(r->values[i].name[0] && ends(r->values[i].name, sizeof r->values[i].name));
    if (r->type == REPORT_IDENTITY)
        assert_true(strlen(r->json) <= IDENTITY_MAX_BYTES);
    if (r->type == REPORT_LOSS || r->type == REPORT_TIER)
        assert_in_range(r->tier, 0, 2);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    json_t *rec = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, NULL);
    struct report *r = NULL;
    struct err err = { 0 };

    if (report_parse(rec, 7, 11, 1.5, &r, &err) == 0)
        check(r);
    else
        assert_true(err.code < 0 && err.msg[0] && !r);
    free(r);
    json_decref(rec);
}

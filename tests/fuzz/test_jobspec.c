/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_jobspec.c - uses: proto
 * A job file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "proto/job/jobtext.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "jobspec";
const int fuzz_places = 120;

/* Reads like jobspec_read(); text that is not JSON may be explained. */
static json_t *read_text(const char *bytes, size_t len)
{
    char *text = malloc(len ? len : 1);
    struct err err = { 0 };
    json_t *root;

    assert_non_null(text);
    memcpy(text, bytes, len);
    jobtext_blank(text, len);
    root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    if (!root && jobtext_explain(text, len, "job.json", &err) < 0)
        assert_int_equal(strncmp(err.msg, "job.json:", 9), 0);
    free(text);
    return root;
}

static void feed(const char *bytes, size_t len)
{
    json_t *root = read_text(bytes, len), *full, *again;
    struct jobspec *s = NULL;
    struct err err = { 0 };
    int rc;

    if (!root)
        return;
    if (json_is_object(root))
        jobspec_absolute(root, "/home/u", &err);
    rc = jobspec_parse(root, &s, &err);
    if (rc == 0) {
        full = jobspec_json(s);
        assert_non_null(full);
        jobspec_free(s);
        assert_int_equal(jobspec_parse(full, &s, &err), 0); /* our own text is read back, and written again the same */
        again = jobspec_json(s);
        assert_true(json_equal(full, again));
        jobspec_free(s);
        json_decref(full);
        json_decref(again);
    } else { /* the key in question is named, and first */
        assert_true(rc == ERR_INPUT && err.code == rc && !s);
        assert_true(strncmp(err.msg, err.field, strlen(err.field)) == 0 && strlen(err.msg) > strlen(err.field) + 4);
    }
    json_decref(root);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    feed((const char *)bytes, size);
}

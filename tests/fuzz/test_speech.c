/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_speech.c - uses: proto supervisor
 * Lines of the ranks of a program, and the rows that they become. The first byte of a line chooses the rank. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/record.h"
#include "supervisor/program/rows.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "speech";
const int fuzz_places = 120;

enum { RANKS = 3 };

static int64_t newest[2]; /* step of the last row of each split */

/* Rows of a split come in rising order, and each has a term total. */
static void on_row(void *arg, const struct rows_row *row)
{
    bool total = false;

    (void)arg;
    assert_true(row->step > newest[row->val]);
    newest[row->val] = row->step;
    assert_in_range(row->n, 1, ROWS_TERMS);
    for (int i = 0; i < row->n; i++) {
        assert_in_range(strlen(row->terms[i].name), 1, ROWS_NAME - 1);
        total = total || strcmp(row->terms[i].name, "total") == 0;
    }
    assert_true(total);
}

static void on_event(void *arg, const char *kind, const char *text)
{
    (void)arg;
    assert_true(kind[0] && text[0]);
}

static void take(struct rows *rows, int rank, enum record_type type, const json_t *msg)
{
    if (type == RECORD_FINISH)
        rows_done(rows, rank);
    if (type == RECORD_CHECKPOINT)
        assert_true(json_is_integer(json_object_get(msg, "step")));
    if (type == RECORD_SHARE)
        assert_true(rows_take(rows, rank, msg) >= 0);
}

static void take_line(struct rows *rows, const char *line, size_t len)
{
    enum record_type type = RECORD_UNKNOWN;
    struct err err = { 0 };
    json_t *msg = NULL;
    int rank = len > 0 ? (unsigned char)line[0] % RANKS : 0;
    int rc = len > 0 ? record_parse_program(line + 1, len - 1, &type, &msg, &err) : ERR_PROTO;

    if (rc == 0)
        take(rows, rank, type, msg);
    else if (len > 0)
        assert_true(rc == ERR_PROTO && err.code == rc && err.msg[0] && !msg);
    json_decref(msg);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    const struct rows_hooks hooks = { on_row, on_event, NULL };
    struct rows *rows = rows_new(RANKS, 1, &hooks);
    const char *text = (const char *)bytes;

    assert_non_null(rows);
    newest[0] = newest[1] = 1;
    for (size_t at = 0, len; at < size; at += len + 1) {
        const char *end = memchr(text + at, '\n', size - at);

        len = end ? (size_t)(end - (text + at)) : size - at;
        take_line(rows, text + at, len);
    }
    rows_failed(rows, 0);
    rows_end(rows);
    rows_free(rows);
}

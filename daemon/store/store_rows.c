/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/store_rows.c - rows of a statement as JSON. */
#include <errno.h>
#include <string.h>

#include "daemon/store/store_impl.h"
#include "daemon/base/text.h"

/* True for a column that holds JSON itself; "" in it is null. */
static bool is_json(const char *declared)
{
    return declared && strcmp(declared, "JSON TEXT") == 0;
}

void row_add_column(struct text *out, sqlite3_stmt *st, int at)
{
    const char *declared = sqlite3_column_decltype(st, at);

    switch (sqlite3_column_type(st, at)) {
    case SQLITE_INTEGER:
        if (declared && strcmp(declared, "BOOLEAN") == 0) {
            text_add(out, sqlite3_column_int(st, at) ? "true" : "false");
            break;
        }
        text_addf(out, "%lld", (long long)sqlite3_column_int64(st, at));
        break;
    case SQLITE_FLOAT:
        text_real(out, sqlite3_column_double(st, at));
        break;
    case SQLITE_NULL:
        text_add(out, "null");
        break;
    default:
        if (is_json(declared))
            text_add(out, sqlite3_column_bytes(st, at) > 0 ? (const char *)sqlite3_column_text(st, at) : "null");
        else
            text_json(out, (const char *)sqlite3_column_text(st, at));
    }
}

void row_add(struct text *out, sqlite3_stmt *st, bool first)
{
    row_add_open(out, st, first);
    text_add(out, "}");
}

void row_add_open(struct text *out, sqlite3_stmt *st, bool first)
{
    text_add(out, first ? "{" : ",{");
    for (int i = 0; i < sqlite3_column_count(st); i++) {
        text_addf(out, "%s\"%s\":", i ? "," : "", sqlite3_column_name(st, i));
        row_add_column(out, st, i);
    }
}

/* Writes all rows of a statement as an array, and finalizes it. */
static int add_rows(sqlite3 *db, sqlite3_stmt *st, struct text *out, struct err *err)
{
    bool first = true;
    int rc;

    text_add(out, "[");
    for (; (rc = reader_step(db, st, err)) == 1; first = false)
        row_add(out, st, first);
    text_add(out, "]");
    sqlite3_finalize(st);
    if (rc == 0 && out->failed)
        rc = err_set(err, -ENOMEM, "out of memory");
    return rc;
}

int rows_list(sqlite3 *db, const char *sql, int64_t id, struct text *out, struct err *err)
{
    sqlite3_stmt *st;
    int rc = reader_prepare(db, sql, &st, err);

    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, id);
    if (sqlite3_bind_parameter_count(st) > 1)
        sqlite3_bind_int(st, 2, ROWS_LISTED);
    return add_rows(db, st, out, err);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/store_curves.c - the queries about losses. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/store.h"
#include "daemon/store/store_impl.h"
#include "daemon/base/text.h"
#include "proto/tier.h"

enum { MAX_SERIES = 1024 };

/* ---- losses ---- */

struct curve {
    int64_t id;
    char split[8], term[REPORT_NAME_MAX + 1];
};

struct curves {
    struct curve *all;
    int count;
};

static int load_curves(sqlite3 *db, const struct store_loss_query *q, struct curves *ret, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int rc;

    ret->count = 0;
    ret->all = calloc(MAX_SERIES, sizeof *ret->all);
    if (!ret->all)
        return err_set(err, -ENOMEM, "out of memory");
    rc = reader_prepare(db,
                        "SELECT id, split, term FROM series WHERE job=?1 AND (?2 IS NULL OR split=?2) AND (?3 IS NULL OR term=?3) "
                        "ORDER BY split, term LIMIT ?4",
                        &st, err);
    if (rc == 0) {
        sqlite3_bind_int64(st, 1, q->job);
        sqlite3_bind_text(st, 2, q->split, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 3, q->term, -1, SQLITE_STATIC);
        sqlite3_bind_int(st, 4, MAX_SERIES);
        while ((rc = reader_step(db, st, err)) == 1) {
            struct curve *c = &ret->all[ret->count++];

            c->id = sqlite3_column_int64(st, 0);
            snprintf(c->split, sizeof c->split, "%s", (const char *)sqlite3_column_text(st, 1));
            snprintf(c->term, sizeof c->term, "%s", (const char *)sqlite3_column_text(st, 2));
        }
    }
    sqlite3_finalize(st);
    return rc;
}

#define POINT_COLUMNS \
    "SELECT step, epoch, num/den, num, den, tier, time FROM point WHERE series=?1 AND step>=?2 AND step<=?3 ORDER BY step LIMIT ?4"

static void add_point(struct text *out, const struct curve *c, sqlite3_stmt *st, bool first)
{
    static const char *const names[] = { "step", "epoch", "value", "num", "den" };

    text_addf(out, "%s{\"split\":\"%s\",\"term\":", first ? "" : ",", c->split);
    text_json(out, c->term);
    for (int i = 0; i < 5; i++) {
        text_addf(out, ",\"%s\":", names[i]);
        row_add_column(out, st, i);
    }
    text_addf(out, ",\"tier\":\"%s\",\"time\":", tier_name(sqlite3_column_int(st, 5)));
    row_add_column(out, st, 6);
    text_add(out, "}");
}

static int first_step(sqlite3 *db, const char *sql, const struct curve *c, const struct store_loss_query *q, int64_t *ret, struct err *err)
{
    sqlite3_stmt *st;
    int rc = reader_prepare(db, sql, &st, err);

    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, c->id);
    sqlite3_bind_int64(st, 2, q->from);
    sqlite3_bind_int64(st, 3, q->to);
    rc = reader_step(db, st, err);
    if (rc == 1)
        *ret = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return rc;
}

/* A curve thinned to n points: n look-ups spread evenly between its ends, whatever its length. The last point is always
 * there. */
static int add_thinned(sqlite3 *db, const struct curve *c, const struct store_loss_query *q, int64_t n, struct text *out, bool *first,
                       struct err *err)
{
    static const char *const low = "SELECT step FROM point WHERE series=?1 AND step>=?2 AND step<=?3 ORDER BY step LIMIT 1";
    static const char *const high = "SELECT step FROM point WHERE series=?1 AND step>=?2 AND step<=?3 ORDER BY step DESC LIMIT 1";
    int64_t lo = 0, hi = 0, last = -1;
    sqlite3_stmt *st;
    int rc = first_step(db, low, c, q, &lo, err);

    if (rc == 1)
        rc = first_step(db, high, c, q, &hi, err);
    if (rc != 1)
        return rc;
    rc = reader_prepare(db, POINT_COLUMNS, &st, err);
    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, c->id);
    sqlite3_bind_int64(st, 3, hi);
    sqlite3_bind_int64(st, 4, 1);
    for (int64_t i = 0; i < n && last < hi; i++) {
        int64_t target = n == 1 ? hi : lo + (int64_t)((double)(hi - lo) * (double)i / (double)(n - 1));

        sqlite3_bind_int64(st, 2, i == n - 1 ? hi : target > last ? target : last + 1);
        rc = reader_step(db, st, err);
        if (rc == 1) {
            last = sqlite3_column_int64(st, 0);
            add_point(out, c, st, *first);
            *first = false;
        }
        sqlite3_reset(st);
        if (rc < 0)
            break;
    }
    sqlite3_finalize(st);
    return rc < 0 ? rc : 0;
}

static int add_all_thinned(sqlite3 *db, const struct curves *curves, const struct store_loss_query *q, struct text *out, struct err *err)
{
    int64_t n = curves->count ? q->limit / curves->count : 0;
    bool first = true;
    int rc = 0;

    n = n < 1 ? 1 : n;
    for (int i = 0; rc == 0 && i < curves->count && out->len < STORE_PAGE_BYTES; i++)
        rc = add_thinned(db, &curves->all[i], q, q->points < n ? q->points : n, out, &first, err);
    text_add(out, "],\"cursor\":null}");
    return rc;
}

struct page_state {
    int64_t left;
    bool first, full;
    int64_t next_series, next_step; /* where the next page starts */
};

static int add_curve(sqlite3 *db, const struct curve *c, const struct store_loss_query *q, int64_t from, struct page_state *page,
                     struct text *out, struct err *err)
{
    sqlite3_stmt *st;
    int rc = reader_prepare(db, POINT_COLUMNS, &st, err);

    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, c->id);
    sqlite3_bind_int64(st, 2, from);
    sqlite3_bind_int64(st, 3, q->to);
    sqlite3_bind_int64(st, 4, page->left + 1);
    while ((rc = reader_step(db, st, err)) == 1) {
        if (page->left == 0 || out->len > STORE_PAGE_BYTES) {
            page->full = true;
            page->next_series = c->id;
            page->next_step = sqlite3_column_int64(st, 0);
            break;
        }
        add_point(out, c, st, page->first);
        page->first = false;
        page->left--;
    }
    sqlite3_finalize(st);
    return rc < 0 ? rc : 0;
}

static int parse_cursor(const char *cursor, int64_t *ret_series, int64_t *ret_step, struct err *err)
{
    long long series, step;
    char rest;

    if (sscanf(cursor, "%lld:%lld%c", &series, &step, &rest) != 2)
        return err_field(err, ERR_INPUT, "cursor", "cursor: must be the cursor of an earlier page");
    *ret_series = series;
    *ret_step = step;
    return 0;
}

static int add_page(sqlite3 *db, const struct curves *curves, const struct store_loss_query *q, struct text *out, struct err *err)
{
    struct page_state page = { .left = q->limit, .first = true };
    int64_t series = 0, step = 0;
    int rc = q->cursor ? parse_cursor(q->cursor, &series, &step, err) : 0, i = 0;

    while (rc == 0 && q->cursor && i < curves->count && curves->all[i].id != series)
        i++;
    for (; rc == 0 && !page.full && i < curves->count; i++)
        rc = add_curve(db, &curves->all[i], q, curves->all[i].id == series && step > q->from ? step : q->from, &page, out, err);
    if (page.full)
        text_addf(out, "],\"cursor\":\"%lld:%lld\"}", (long long)page.next_series, (long long)page.next_step);
    else
        text_add(out, "],\"cursor\":null}");
    return rc;
}

/* Returns ERR_INPUT if the job has losses, but not of this term in any split; err lists its terms. */
static int check_term(sqlite3 *db, const struct store_loss_query *q, struct err *err)
{
    struct text known = { 0 };
    const char *sql = "SELECT DISTINCT term FROM series WHERE job=?1 ORDER BY term LIMIT 512";
    sqlite3_stmt *st;
    bool found = false;
    int rc = reader_prepare(db, sql, &st, err), n = 0;

    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, q->job);
    for (; !found && (rc = reader_step(db, st, err)) == 1; n++) {
        found = strcmp((const char *)sqlite3_column_text(st, 0), q->term) == 0;
        text_addf(&known, "%s%s", n ? ", " : "", (const char *)sqlite3_column_text(st, 0));
    }
    if (rc == 0 && n > 0 && !found)
        rc = err_field(err, ERR_INPUT, "term", "term: job %lld has no loss '%.63s'; it has %.160s%s", (long long)q->job, q->term,
                       known.p ? known.p : "", known.len > 160 ? " ..." : "");
    text_free(&known);
    sqlite3_finalize(st);
    return rc < 0 ? rc : 0;
}

int store_loss_rows(struct store *s, const struct store_loss_query *q, struct text *out, struct err *err)
{
    sqlite3 *db = reader_take(s);
    struct curves curves;
    int rc = load_curves(db, q, &curves, err);

    if (rc == 0 && q->term && curves.count == 0)
        rc = check_term(db, q, err);

    text_add(out, "{\"rows\":[");
    if (rc == 0)
        rc = q->points > 0 ? add_all_thinned(db, &curves, q, out, err) : add_page(db, &curves, q, out, err);
    free(curves.all);
    reader_give(s, db);
    return rc;
}

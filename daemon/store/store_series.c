/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/store_series.c - the numbers of curves, and a cache of them:
 * each reported loss asks for one. */
#include <stdio.h>
#include <string.h>

#include "daemon/store/store.h"
#include "daemon/store/store_impl.h"

static unsigned series_hash(int64_t job, bool val, const char *term)
{
    unsigned h = 2166136261u ^ (unsigned)job * 2654435761u ^ (unsigned)val;

    while (*term)
        h = (h ^ (unsigned char)*term++) * 16777619u;
    return h;
}

static int look_up_series(struct writer *w, int64_t job, bool val, const char *term, int64_t *ret)
{
    sqlite3_stmt *st = w->stmt[ST_SERIES];
    int rc;

    sqlite3_bind_int64(st, 1, job);
    bind_text(st, 2, val ? "val" : "train");
    bind_text(st, 3, term);
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        *ret = sqlite3_column_int64(st, 0);
    sqlite3_reset(st);
    if (rc != SQLITE_DONE)
        return rc == SQLITE_ROW ? SQLITE_OK : rc & 0xff;
    st = w->stmt[ST_NEW_SERIES];
    sqlite3_bind_int64(st, 1, job);
    bind_text(st, 2, val ? "val" : "train");
    bind_text(st, 3, term);
    rc = writer_run(st);
    *ret = sqlite3_last_insert_rowid(w->db);
    return rc;
}

void writer_forget_series(struct writer *w)
{
    memset(w->series, 0, SERIES_SLOTS * sizeof *w->series);
    w->series_used = 0;
}

int writer_series(struct writer *w, int64_t job, bool val, const char *term, int64_t *ret)
{
    unsigned at = series_hash(job, val, term) % SERIES_SLOTS;
    struct series_slot *slot = &w->series[at];
    int rc;

    for (; slot->id; at = (at + 1) % SERIES_SLOTS, slot = &w->series[at])
        if (slot->job == job && slot->val == val && strcmp(slot->term, term) == 0) {
            *ret = slot->id;
            return SQLITE_OK;
        }
    rc = look_up_series(w, job, val, term, ret);
    if (rc != SQLITE_OK)
        return rc;
    if (w->series_used > SERIES_SLOTS / 2) { /* a cache: to begin anew costs a look-up for each series */
        writer_forget_series(w);
        slot = &w->series[series_hash(job, val, term) % SERIES_SLOTS];
    }
    *slot = (struct series_slot){ job, *ret, val, "" };
    snprintf(slot->term, sizeof slot->term, "%s", term);
    w->series_used++;
    return SQLITE_OK;
}

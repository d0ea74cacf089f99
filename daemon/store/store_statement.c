/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/store_statement.c - the statements that the writer prepares
 * once, and how one runs. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/store/store.h"
#include "daemon/store/store_impl.h"
#include "proto/clean.h"
#include "proto/err.h"
#include "proto/utf8.h"

#define JOB_COLUMNS                                                                                                                \
    "state=?2, reason=?3, want=?4, want_tier=?5, want_checkpoint=?6, want_eval=?7, tier=?8, threads=?9, deaths=?10, attempt=?11, " \
    "nonce=?12, last_seq=?13, step=?14, images_per_s=?15, cpu_seconds=?16, max_rss=?17, started=?18, ended=?19, gpus=?20, "        \
    "cpu_before=?21, "                                                                                                             \
    "priority=?22, after=?23, backfill=?24, reported=?25, seconds=?26, seconds_before=?27, limited=?28, held=?29, "                \
    "ended_running=CASE WHEN ?19 IS NULL THEN NULL WHEN ended IS ?19 THEN ended_running "                                          \
    "ELSE coalesce((SELECT CAST(value AS REAL) FROM meta WHERE key='running'), 0) END"

/* Rows about a job that was removed meanwhile would stay for good, so they are not inserted. */
#define IS_THERE "EXISTS (SELECT 1 FROM jobs WHERE id=?1)"

static const char *const sql[ST_COUNT] = {
    [ST_TOKEN] = "SELECT id FROM jobs WHERE uid=?1 AND token=?2 UNION ALL SELECT job FROM removed WHERE uid=?1 AND token=?2",
    [ST_QUEUED] = "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state IN ('queued', 'paused') AND uid=?1 LIMIT ?2)",
    [ST_SUBMIT] = "INSERT INTO jobs (name, user, uid, token, state, reason, tier, device, ranks, threads, priority, restarts, steps, "
                  "submitted, ranks_per_gpu, after, after_ok, ticket, kind, time_limit, id, admin, reported, gpus_asked, fixed) "
                  "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?20, ?21, nullif(?19, 0), ?22, "
                  "?23, ?24, ?25)",
    [ST_STATE] = "SELECT state FROM jobs WHERE id=?1",
    [ST_FIRST_ID] = "INSERT INTO sqlite_sequence (name, seq) SELECT 'jobs', 0 "
                    "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name='jobs')",
    [ST_NEXT_ID] = "UPDATE sqlite_sequence SET seq=seq+1 WHERE name='jobs' RETURNING seq",
    [ST_SKIP_IDS] = "UPDATE sqlite_sequence SET seq=max(seq, ?1, (SELECT coalesce(max(n), 0) FROM (SELECT max(id) AS n FROM jobs "
                    "UNION ALL SELECT max(job) FROM removed UNION ALL SELECT max(job) FROM specs UNION ALL SELECT max(job) FROM attempts "
                    "UNION ALL SELECT max(job) FROM series UNION ALL SELECT max(job) FROM eval UNION ALL SELECT max(job) FROM events "
                    "UNION ALL SELECT max(job) FROM checkpoints UNION ALL SELECT max(job) FROM tiers UNION ALL SELECT max(job) FROM usage "
                    "UNION ALL SELECT max(by) FROM evaluations))) WHERE name='jobs'",
    [ST_SPEC] = "INSERT INTO specs VALUES (?1, ?2)",
    [ST_REOPEN] = "UPDATE jobs SET steps=?2, ticket=?3, cleared=0 WHERE id=?1 AND state IN ('completed', 'failed')",
    [ST_LABEL] = "UPDATE jobs SET note=?2, tags=?3 WHERE id=?1 AND note=?4 AND tags=?5",
    [ST_REOPEN_SPEC] = "UPDATE specs SET spec=?2 WHERE job=?1",
    /* only for a job of the same user; results on another user's job stay under the evaluating job's number alone */
    [ST_EVALUATION] =
        "INSERT INTO evaluations SELECT ?1, id, json_extract(?2, '$.errand.step'), json_extract(?2, '$.errand.set') FROM jobs "
        "WHERE id=CASE WHEN json_valid(?2) THEN json_extract(?2, '$.errand.job') END AND (uid=?3 OR ?3=0)",
    [ST_SAVE] = "UPDATE jobs SET " JOB_COLUMNS " WHERE id=?1",
    [ST_SEQ] = "UPDATE jobs SET last_seq=max(last_seq, ?2), step=max(step, ?3), reported=max(reported, ?4) WHERE id=?1",
    [ST_EVENT] = "INSERT INTO events (job, time, level, kind, text) SELECT ?1, ?2, ?3, ?4, ?5 WHERE ?1 IS NULL OR " IS_THERE,
    [ST_SETTING] = "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value=excluded.value",
    [ST_GPU] = "INSERT INTO gpus (uuid, name, quarantine, memory_bytes, ecc_errors, seen, quarantined) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) "
               "ON CONFLICT (uuid) DO UPDATE SET name=excluded.name, quarantine=excluded.quarantine, memory_bytes=excluded.memory_bytes, "
               "ecc_errors=excluded.ecc_errors, seen=excluded.seen, quarantined=excluded.quarantined",
    [ST_USAGE] = "INSERT OR REPLACE INTO usage SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE " IS_THERE,
    [ST_GRANT] = "INSERT INTO granted VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (hour, uid, device) "
                 "DO UPDATE SET user=excluded.user, slot_seconds=slot_seconds+excluded.slot_seconds",
    [ST_SERIES] = "SELECT id FROM series WHERE job=?1 AND split=?2 AND term=?3",
    [ST_NEW_SERIES] = "INSERT INTO series (job, split, term) VALUES (?1, ?2, ?3)",
    [ST_POINT] = "INSERT INTO point VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [ST_EVAL] = "INSERT INTO eval VALUES (?1, ?2, ?3, ?4, ?5)",
    [ST_CHECKPOINT] =
        "INSERT INTO checkpoints VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (job, step) DO UPDATE SET path=excluded.path, "
        "bytes=excluded.bytes, val_loss=excluded.val_loss, best=excluded.best, time=excluded.time",
    [ST_TIER] = "INSERT INTO tiers VALUES (?1, ?2, ?3) ON CONFLICT (job, step) DO UPDATE SET tier=excluded.tier",
    [ST_ATTEMPT] = "INSERT INTO attempts (job, attempt, node, resume_step, started) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (job, attempt) "
                   "DO UPDATE SET node=excluded.node, resume_step=excluded.resume_step, started=excluded.started",
    [ST_IDENTITY] = "UPDATE attempts SET identity=?3 WHERE job=?1 AND attempt=?2",
    [ST_ENDED] = "UPDATE attempts SET ended=?3, outcome=?4, reason=?5 WHERE job=?1 AND attempt=?2 AND ended IS NULL",
};

int writer_open(struct writer *w, struct err *err)
{
    for (int i = 0; i < ST_COUNT; i++)
        if (sqlite3_prepare_v3(w->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &w->stmt[i], NULL) != SQLITE_OK)
            return err_set(err, ERR_CORRUPT, "detd.db does not have the expected tables: %s", sqlite3_errmsg(w->db));
    w->series = calloc(SERIES_SLOTS, sizeof *w->series);
    if (!w->series)
        return err_set(err, -ENOMEM, "out of memory");
    if (gethostname(w->node, sizeof w->node - 1) < 0)
        snprintf(w->node, sizeof w->node, "?");
    return 0;
}

void writer_close(struct writer *w)
{
    for (int i = 0; i < ST_COUNT; i++)
        sqlite3_finalize(w->stmt[i]);
    free(w->series);
    free(w->points);
    free(w->marks);
}

/* Runs a statement that returns no rows. A refused constraint concerns that statement alone, any other error the whole
 * batch. */
int writer_run(sqlite3_stmt *st)
{
    int rc = sqlite3_step(st);

    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc & 0xff;
}

void bind_text(sqlite3_stmt *st, int at, const char *text)
{
    const char *s = text ? text : "";
    char *whole = utf8_good(s, strlen(s)) ? NULL : clean_whole(s); /* a text of a user may have been cut in a character */

    if (whole)
        sqlite3_bind_text(st, at, whole, -1, free);
    else
        sqlite3_bind_text(st, at, s, -1, SQLITE_STATIC);
}

void bind_real(sqlite3_stmt *st, int at, double v)
{
    if (isfinite(v))
        sqlite3_bind_double(st, at, v);
    else
        sqlite3_bind_null(st, at);
}

int writer_event(struct writer *w, int64_t job, double time, const char *level, const char *kind, const char *text)
{
    sqlite3_stmt *st = w->stmt[ST_EVENT];

    if (job)
        sqlite3_bind_int64(st, 1, job);
    sqlite3_bind_double(st, 2, time);
    bind_text(st, 3, level);
    bind_text(st, 4, kind);
    bind_text(st, 5, text);
    return writer_run(st);
}

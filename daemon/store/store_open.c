/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/store_open.c - the database: its identity, its schema, one
 * connection that writes and those that read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/store/schema.h"
#include "daemon/store/store.h"
#include "daemon/store/store_impl.h"
#include "proto/host/room.h"

enum { BUSY_MS = 5000, STEPS_BETWEEN_LOOKS = 10 };

static int db_error(sqlite3 *db, struct err *err, const char *path)
{
    int last = errno, code = sqlite3_errcode(db), lacks = db_no_room(db, code, last);

    if (lacks)
        return err_set(err, -lacks, "'%s': %s", path, room_lacks(lacks));
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
        return err_set(err, ERR_CORRUPT,
                       "'%s' is damaged (%s); it was not changed. Copy the folder, try `sqlite3 detd.db .recover | sqlite3 new.db`, "
                       "or start with another --state",
                       path, sqlite3_errmsg(db));
    return err_set(err, ERR_CORRUPT, "'%s': %s", path, sqlite3_errmsg(db));
}

static int exec(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static int pragma_int(sqlite3 *db, const char *sql, int *ret)
{
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

    if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        *ret = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return sqlite3_errcode(db) == SQLITE_ROW || sqlite3_errcode(db) == SQLITE_DONE || sqlite3_errcode(db) == SQLITE_OK ? 0 : -1;
}

static int check_identity(sqlite3 *db, const char *path, int *ret_version, struct err *err)
{
    int version = 0, application = 0, tables = 0;

    if (pragma_int(db, "PRAGMA user_version", &version) < 0 || pragma_int(db, "PRAGMA application_id", &application) < 0 ||
        pragma_int(db, "SELECT count(*) FROM sqlite_master", &tables) < 0)
        return db_error(db, err, path);
    if (application != SCHEMA_APPLICATION && (tables > 0 || version > 0))
        return err_set(err, ERR_CORRUPT, "'%s' is a database of another program; it was not changed. Choose another --state", path);
    if (version > schema_version())
        return err_set(
            err, ERR_CORRUPT,
            "'%s' has schema %d and this detd knows up to %d; it was not changed. Start the newer detd, or choose another --state", path,
            version, schema_version());
    *ret_version = version;
    return 0;
}

static int migrate(sqlite3 *db, const char *path, int version, struct err *err)
{
    while (version < schema_version()) {
        char stamp[120];

        version++;
        snprintf(stamp, sizeof stamp, "PRAGMA user_version=%d; PRAGMA application_id=%d; COMMIT", version, SCHEMA_APPLICATION);
        if (exec(db, "BEGIN IMMEDIATE") != SQLITE_OK || exec(db, schema_step(version)) != SQLITE_OK || exec(db, stamp) != SQLITE_OK) {
            int rc = db_error(db, err, path);

            exec(db, "ROLLBACK");
            return rc;
        }
    }
    return 0;
}

/* Sets mode WAL. SQLite returns the mode that holds afterwards as a row: it reports no error if WAL is not possible. */
static int keep_log(sqlite3 *db, const char *path, struct err *err)
{
    sqlite3_stmt *st = NULL;
    char mode[16] = "unknown";
    int rc = sqlite3_prepare_v2(db, "PRAGMA journal_mode=WAL", -1, &st, NULL);

    if (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW)
        snprintf(mode, sizeof mode, "%s", (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    if (rc != SQLITE_ROW)
        return db_error(db, err, path);
    if (strcmp(mode, "wal") == 0)
        return 0;
    return err_set(err, ERR_CORRUPT, "'%s' has to be kept in mode WAL, and stays in mode %s; choose a --state on a local file system", path,
                   mode);
}

static int open_writer(struct store *s, struct err *err)
{
    int version = 0, rc;

    if (sqlite3_open_v2(s->path, &s->w.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return db_error(s->w.db, err, s->path);
    sqlite3_busy_timeout(s->w.db, BUSY_MS);
    sqlite3_db_config(s->w.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL); /* a refused database keeps even its WAL as it was */
    rc = check_identity(s->w.db, s->path, &version, err);
    if (rc < 0)
        return rc;
    rc = keep_log(s->w.db, s->path, err);
    if (rc < 0)
        return rc;
    sqlite3_db_config(s->w.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    if (exec(s->w.db, "PRAGMA synchronous=FULL; PRAGMA cache_size=-2048; PRAGMA wal_autocheckpoint=1000;"
                      "PRAGMA journal_size_limit=16777216; PRAGMA temp_store=MEMORY") != SQLITE_OK)
        return db_error(s->w.db, err, s->path);
    rc = migrate(s->w.db, s->path, version, err);
    /* Changes that a killed detd has committed but not synced are found like all others, and clients will see them: so
     * they are synced first. A full disk does no harm: pages that cannot be moved stay in the log, and it is the log
     * that is synced. */
    if (rc == 0)
        sqlite3_wal_checkpoint_v2(s->w.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    return rc < 0 ? rc : writer_open(&s->w, err);
}

/* Called often: a thinned curve is thousands of statements of only some 20 steps. */
static int is_to_stop(void *arg)
{
    struct store *s = arg;

    return atomic_load(&s->stop_reading);
}

void store_stop_reading(struct store *s)
{
    if (s)
        atomic_store(&s->stop_reading, true);
}

static int open_readers(struct store *s, struct err *err)
{
    for (int i = 0; i < STORE_READERS; i++) {
        if (sqlite3_open_v2(s->path, &s->reader[i], SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
            return db_error(s->reader[i], err, s->path);
        sqlite3_busy_timeout(s->reader[i], BUSY_MS);
        exec(s->reader[i], "PRAGMA cache_size=-1024");
        sqlite3_progress_handler(s->reader[i], STEPS_BETWEEN_LOOKS, is_to_stop, s);
    }
    return 0;
}

/* Loads the database's random name. By it a spool or checkpoint of another database is recognised. */
static int load_id(struct store *s, struct err *err)
{
    unsigned char bytes[16];
    char sql[120], hex[33];
    int rc;

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return err_sys(err, "random bytes");
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    snprintf(sql, sizeof sql, "INSERT OR IGNORE INTO meta VALUES ('store_id', '%s')", hex);
    if (exec(s->w.db, sql) != SQLITE_OK)
        return db_error(s->w.db, err, s->path);
    rc = store_get_setting(s, "store_id", s->id, sizeof s->id, err);
    if (rc == 0 && strlen(s->id) != 32)
        rc = err_set(err, ERR_CORRUPT, "'%s': meta.store_id is not 32 characters", s->path);
    return rc;
}

int databases_open(struct store *s, struct err *err)
{
    int rc = open_writer(s, err);

    if (rc == 0)
        rc = open_readers(s, err);
    return rc < 0 ? rc : load_id(s, err);
}

void databases_close(struct store *s)
{
    writer_close(&s->w);
    for (int i = 0; i < STORE_READERS; i++)
        sqlite3_close(s->reader[i]);
    if (s->w.damaged) /* the WAL stays for the person that mends the database */
        sqlite3_db_config(s->w.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    else if (s->w.db)
        exec(s->w.db, "PRAGMA optimize");
    sqlite3_close(s->w.db);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/database.h - queries of a test's database, and a disk
 * without room below it. Include it after cmocka.h. */
#pragma once
#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#include "tests/stand/harness.h"

/* The first column of the first row, as text; "" if there is no row. */
static inline const char *sql_in(const char *folder, const char *query)
{
    static char ret[256];
    char path[TEMP_MAX + 16];
    sqlite3_stmt *st;
    sqlite3 *db;

    snprintf(path, sizeof path, "%s/detd.db", folder);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, query, -1, &st, NULL), SQLITE_OK);
    ret[0] = '\0';
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_text(st, 0))
        snprintf(ret, sizeof ret, "%s", (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    sqlite3_close(db);
    return ret;
}

static atomic_bool disk_full;

static inline ssize_t write_at(int fd, const void *bytes, size_t len, off_t at)
{
    if (!disk_full)
        return syscall(SYS_pwrite64, fd, bytes, len, at);
    errno = ENOSPC;
    return -1;
}

static inline void fill_disk(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

    vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)(void *)write_at);
    vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)(void *)write_at);
    disk_full = true;
}

/* Callback of a timer that keeps the loop alive. The store alone does not keep it alive. */
static inline void nothing(uv_timer_t *t)
{
    (void)t;
}

/* Callback of events: there is no listener. */
static inline bool nobody_listens(void *arg, unsigned topic)
{
    (void)arg;
    (void)topic;
    return false;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/disk.c - the disk below the database, and the connections
 * to it. A write may find no room. A loss of power takes all unsynced writes, or some of them. A daemon that is killed
 * in the midst of a transaction leaves half of a write, and no write after it. */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/stand/sim/world.h"

enum { PATH_ROOM = 4096, WRITES_MAX = 40, SYNCS_MAX = 4 };

/* ---- changes that are not durable ---- */

struct change {
    struct change *next;
    off_t at, size; /* size: of the file before */
    size_t len, old;
    bool cut;
    unsigned char bytes[]; /* that were written, and that were there */
};

static struct file {
    const char *name;
    ino_t ino; /* 0: not seen yet */
    struct change *newest;
} files[] = { { .name = "detd.db" }, { .name = "detd.db-wal" } };
enum { FILES = sizeof files / sizeof *files };

static void path_of(const struct file *f, char *ret)
{
    snprintf(ret, PATH_ROOM + 16, "%s/%s", world.plan.folder, f->name);
}

/* Returns NULL for a folder, and for a file that does not outlive the processes. */
static struct file *file_of(int fd)
{
    char path[PATH_ROOM + 16];
    struct stat st, named;

    if (fstat(fd, &st) < 0)
        return NULL;
    for (int i = 0; i < FILES; i++)
        if (files[i].ino == st.st_ino)
            return &files[i];
    for (int i = 0; i < FILES; i++) {
        path_of(&files[i], path);
        if (files[i].ino == 0 && stat(path, &named) == 0 && named.st_ino == st.st_ino) {
            files[i].ino = st.st_ino;
            return &files[i];
        }
    }
    return NULL;
}

static void forget_changes(struct file *f)
{
    while (f->newest) {
        struct change *c = f->newest;

        f->newest = c->next;
        free(c);
    }
}

static void note(struct file *f, int fd, const void *bytes, size_t len, off_t at, bool cut)
{
    struct stat st;
    size_t old = 0;
    struct change *c;

    if (fstat(fd, &st) < 0)
        abort();
    if (at < st.st_size)
        old = cut || (off_t)len > st.st_size - at ? (size_t)(st.st_size - at) : len;
    c = must_alloc(sizeof *c + len + old);
    *c = (struct change){ .next = f->newest, .at = at, .size = st.st_size, .len = len, .old = old, .cut = cut };
    if (len)
        memcpy(c->bytes, bytes, len);
    if (pread(fd, c->bytes + len, old, at) != (ssize_t)old)
        abort();
    f->newest = c;
}

static void undo(int fd, const struct change *c)
{
    if (ftruncate(fd, c->size) < 0 || pwrite(fd, c->bytes + c->len, c->old, c->at) != (ssize_t)c->old)
        abort();
}

static void redo(int fd, const struct change *c, size_t len)
{
    if (c->cut ? ftruncate(fd, c->at) < 0 : pwrite(fd, c->bytes, len, c->at) != (ssize_t)len)
        abort();
}

/* Unsynced changes are lost, all or some of them, in any order: a block that was written later may have come to the
 * disk before. */
static void lose(struct file *f)
{
    static const int shares[] = { 0, 0, 50, 90 };
    int share = shares[roll(4)], fd;
    struct change *oldest = NULL;
    char path[PATH_ROOM + 16];

    path_of(f, path);
    fd = f->newest ? open(path, O_RDWR | O_CLOEXEC) : -1;
    while (fd >= 0 && f->newest) {
        struct change *c = f->newest;

        undo(fd, c);
        f->newest = c->next;
        c->next = oldest;
        oldest = c;
    }
    for (const struct change *c = oldest; c; c = c->next)
        if (chance(share))
            redo(fd, c, chance(10) ? c->len / 2 : c->len);
    if (fd >= 0)
        close(fd);
    f->newest = oldest;
    forget_changes(f);
}

/* ---- writing ---- */

static int writes_left, syncs_left; /* until a write is done by half, or a sync not at all; 0: no such fault */
static bool torn;                   /* from then on no write reaches the disk, and the daemon believes that it does */

void disk_tear(bool soon)
{
    bool sync = chance(50);

    writes_left = soon && !sync ? 1 + (int)roll(WRITES_MAX) : 0;
    syncs_left = soon && sync ? 1 + (int)roll(SYNCS_MAX) : 0;
}

bool disk_is_torn(void)
{
    return torn;
}

static bool tears_now(int *left)
{
    if (*left > 0 && --*left == 0)
        torn = true;
    return torn;
}

static ssize_t write_at(int fd, const void *bytes, size_t len, off_t at)
{
    struct file *f = file_of(fd);
    size_t n = len;
    ssize_t done;

    if (f && torn)
        return (ssize_t)len;
    if (f && world.disk_full) {
        errno = ENOSPC;
        return -1;
    }
    if (f && tears_now(&writes_left))
        n = len / 2;
    if (f)
        note(f, fd, bytes, n, at, false);
    done = syscall(SYS_pwrite64, fd, bytes, n, at);
    return f && torn ? (ssize_t)len : done;
}

static int cut_at(int fd, off_t size)
{
    struct file *f = file_of(fd);

    if (f && (torn || tears_now(&writes_left)))
        return 0;
    if (f)
        note(f, fd, NULL, 0, size, true);
    return (int)syscall(SYS_ftruncate, fd, size);
}

static int remove_file(const char *path)
{
    if (torn)
        return 0;
    for (int i = 0; i < FILES; i++) {
        char name[PATH_ROOM + 16];

        path_of(&files[i], name);
        if (strcmp(name, path) == 0) {
            forget_changes(&files[i]);
            files[i].ino = 0;
        }
    }
    return unlink(path);
}

static int sync_file(int fd)
{
    struct file *f = file_of(fd);

    if (f && !torn && !tears_now(&syncs_left))
        forget_changes(f);
    return 0;
}

int fdatasync(int fd)
{
    return sync_file(fd);
}

int fsync(int fd)
{
    return sync_file(fd);
}

/* A wait for a lock of the database would be in vain: no other part runs meanwhile. */
static int no_sleep(sqlite3_vfs *vfs, int microseconds)
{
    (void)vfs;
    return microseconds;
}

static bool replace(sqlite3_vfs *vfs, const char *name, sqlite3_syscall_ptr fn)
{
    return vfs->xSetSystemCall(vfs, name, fn) == SQLITE_OK;
}

void disk_take(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find("unix");

    if (!vfs || !replace(vfs, "pwrite64", (sqlite3_syscall_ptr)write_at) || !replace(vfs, "pwrite", (sqlite3_syscall_ptr)write_at) ||
        !replace(vfs, "ftruncate", (sqlite3_syscall_ptr)cut_at) || !replace(vfs, "unlink", (sqlite3_syscall_ptr)remove_file)) {
        fputs("sim: this SQLite does not let its writes be refused\n", stderr);
        _exit(2);
    }
    vfs->xSleep = no_sleep;
}

/* ---- connections ---- */

struct connection {
    struct connection *next;
    sqlite3 *db;
};
static struct connection *connections;

int __real_sqlite3_open_v2(const char *path, sqlite3 **ret, int flags, const char *vfs);
int __real_sqlite3_close(sqlite3 *db);
int __wrap_sqlite3_open_v2(const char *path, sqlite3 **ret, int flags, const char *vfs);
int __wrap_sqlite3_close(sqlite3 *db);

int __wrap_sqlite3_open_v2(const char *path, sqlite3 **ret, int flags, const char *vfs)
{
    int rc = __real_sqlite3_open_v2(path, ret, flags, vfs);
    struct connection *c = must_alloc(sizeof *c);

    *c = (struct connection){ connections, *ret };
    connections = c;
    return rc;
}

int __wrap_sqlite3_close(sqlite3 *db)
{
    for (struct connection **at = &connections; *at; at = &(*at)->next)
        if ((*at)->db == db) {
            struct connection *c = *at;

            *at = c->next;
            free(c);
            break;
        }
    return __real_sqlite3_close(db);
}

/* A killed process does not do the work of closing a connection. */
static void drop_connections(void)
{
    torn = true;
    while (connections) {
        sqlite3 *db = connections->db;
        sqlite3_stmt *st;

        while ((st = sqlite3_next_stmt(db, NULL)))
            sqlite3_finalize(st);
        if (sqlite3_close(db) != SQLITE_OK)
            abort();
    }
    torn = false;
    writes_left = syncs_left = 0;
}

void disk_crash(bool power)
{
    check_close();
    drop_connections();
    for (int i = 0; power && i < FILES; i++)
        lose(&files[i]);
}

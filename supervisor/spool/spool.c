#include "supervisor/spool/spool.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/folder.h"

static const char magic[8] = { 'D', 'E', 'T', 'D', 'S', 'P', 'L', '1' };

/* A sector of its own, so that writing records never rewrites it. Host byte order: a spool does not leave its
 * machine. */
enum { HEAD_BYTES = 512 };
struct head {
    char magic[8];
    uint64_t first_seq; /* number of the segment's first record */
    char store_id[SPOOL_STORE_ID + 1];
    uint32_t reserved, crc; /* of all before it */
};

struct rec {
    uint32_t len, crc; /* crc goes on from the record before (the first: from first_seq) over len, seq and payload */
    uint64_t seq;
};

struct segment {
    int fd;
    bool made; /* now: nobody can have written to it */
    bool used;
    uint64_t first, last; /* last < first: no records yet */
    size_t end;           /* offset behind the last record */
    uint32_t crc;         /* of the last record */
};

struct spool {
    struct segment seg[2];
    int active;
    size_t segment_bytes;
    uint64_t acked, lost;
    char store_id[SPOOL_STORE_ID + 1];
    char buf[sizeof(struct rec) + SPOOL_MAX_RECORD + 8];
};

/* CRC32C (Castagnoli, reflected polynomial 0x82f63b78; RFC 3720, appendix B.4). */
static uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
    static uint32_t table[256];
    const unsigned char *p = data;

    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t v = i;

            for (int k = 0; k < 8; k++)
                v = v & 1 ? v >> 1 ^ 0x82f63b78u : v >> 1;
            table[i] = v;
        }
    crc = ~crc;
    while (len-- > 0)
        crc = crc >> 8 ^ table[(crc ^ *p++) & 0xff];
    return ~crc;
}

static size_t record_bytes(size_t len)
{
    return (sizeof(struct rec) + len + 7) & ~(size_t)7;
}

static uint32_t record_crc(uint32_t crc, const struct rec *r, const void *payload)
{
    crc = crc32c(crc, &r->len, sizeof r->len);
    crc = crc32c(crc, &r->seq, sizeof r->seq);
    return crc32c(crc, payload, r->len);
}

static uint32_t first_crc(uint64_t first_seq)
{
    return crc32c(0, &first_seq, sizeof first_seq);
}

/* ---- files ---- */

static int write_at(int fd, const void *data, size_t len, size_t at, struct err *err)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = pwrite(fd, p, len, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "write to the spool");
        p += n;
        at += (size_t)n;
        len -= (size_t)n;
    }
    return 0;
}

/* Returns the number of bytes read: less than len at the end of the file only. */
static ssize_t read_at(int fd, void *data, size_t len, size_t at, struct err *err)
{
    size_t got = 0;

    while (got < len) {
        ssize_t n = pread(fd, (char *)data + got, len - got, (off_t)(at + got));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "read the spool");
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

static int segment_path(const char *dir, int i, char *path, size_t size, struct err *err)
{
    return snprintf(path, size, "%s/spool.%d", dir, i) < (int)size ? 0 : err_set(err, -ENAMETOOLONG, "spool: path too long");
}

static int open_segment(struct spool *s, const char *dir, int i, struct err *err)
{
    struct segment *seg = &s->seg[i];
    char path[4096];
    struct stat st;
    int rc = segment_path(dir, i, path, sizeof path, err);

    if (rc < 0)
        return rc;
    seg->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (seg->fd < 0 || fstat(seg->fd, &st) < 0)
        return err_sys(err, "open '%s'", path);
    if (flock(seg->fd, LOCK_EX | LOCK_NB) < 0) /* its lock file was removed, and it lives all the same */
        return errno == EWOULDBLOCK ? err_set(err, -EAGAIN, "'%s' is in use: another detd-job of the job lives", path)
                                    : err_sys(err, "lock '%s'", path);
    seg->made = st.st_size == 0;
    if ((size_t)st.st_size >= s->segment_bytes)
        return 0;
    rc = posix_fallocate(seg->fd, 0, (off_t)s->segment_bytes);
    if (rc != 0)
        return err_set(err, -rc, "reserve %zu bytes for '%s': %s", s->segment_bytes, path, strerror(rc));
    return 0;
}

/* Files without a record would look like a spool that has to be read before the job may end. */
static void remove_made(struct spool *s, const char *dir)
{
    char path[4096];

    for (int i = 0; i < 2; i++)
        if (s->seg[i].made && segment_path(dir, i, path, sizeof path, NULL) == 0)
            unlink(path);
}

static int open_segments(struct spool *s, const char *dir, struct err *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < 2; i++)
        rc = open_segment(s, dir, i, err);
    if (rc < 0)
        remove_made(s, dir);
    return rc;
}

static int write_head(struct spool *s, int i, struct err *err)
{
    struct head h = { .first_seq = s->seg[i].first };

    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.store_id, s->store_id, sizeof h.store_id);
    h.crc = crc32c(0, &h, offsetof(struct head, crc));
    return write_at(s->seg[i].fd, &h, sizeof h, 0, err);
}

/* Begins segment i with number first; or, where that cannot be written, leaves all as it is. */
static int begin_segment(struct spool *s, int i, uint64_t first, struct err *err)
{
    const struct segment before = s->seg[i];
    struct segment *seg = &s->seg[i];
    int rc;

    seg->used = true;
    seg->first = first;
    seg->last = first - 1;
    seg->end = HEAD_BYTES;
    seg->crc = first_crc(first);
    rc = write_head(s, i, err);
    if (rc < 0)
        *seg = before;
    else
        s->active = i;
    return rc;
}

/* ---- opening ---- */

static int read_head(struct spool *s, int i, struct err *err)
{
    struct segment *seg = &s->seg[i];
    struct head h;
    ssize_t n = read_at(seg->fd, &h, sizeof h, 0, err);

    if (n < 0)
        return (int)n;
    if (n < (ssize_t)sizeof h || memcmp(h.magic, magic, sizeof magic) != 0 || h.crc != crc32c(0, &h, offsetof(struct head, crc)))
        return 0; /* new, or torn while it was begun: it holds nothing */
    if (h.first_seq == 0 || h.first_seq > INT64_MAX / 2)
        return 0; /* numbers that nobody gives */
    seg->used = true;
    seg->first = h.first_seq;
    if (!s->store_id[0])
        memcpy(s->store_id, h.store_id, SPOOL_STORE_ID);
    return 0;
}

/* The record at offset into s->buf. 1: it is the one expected; 0: the end of what is good. */
static int read_record(struct spool *s, const struct segment *seg, size_t offset, uint64_t seq, uint32_t crc, struct err *err)
{
    struct rec *r = (struct rec *)s->buf;
    ssize_t n;

    if (offset + sizeof *r > s->segment_bytes)
        return 0;
    n = read_at(seg->fd, r, sizeof *r, offset, err);
    if (n < 0)
        return (int)n;
    if (n < (ssize_t)sizeof *r || r->len == 0 || r->len > SPOOL_MAX_RECORD || r->seq != seq ||
        offset + record_bytes(r->len) > s->segment_bytes)
        return 0;
    n = read_at(seg->fd, r + 1, r->len, offset + sizeof *r, err);
    if (n < 0)
        return (int)n;
    s->buf[sizeof *r + r->len] = '\0';
    return (size_t)n == r->len && record_crc(crc, r, r + 1) == r->crc;
}

static int scan_segment(struct spool *s, struct segment *seg, struct err *err)
{
    const struct rec *r = (const struct rec *)s->buf;
    int rc;

    seg->last = seg->first - 1;
    seg->end = HEAD_BYTES;
    seg->crc = first_crc(seg->first);
    while ((rc = read_record(s, seg, seg->end, seg->last + 1, seg->crc, err)) == 1) {
        seg->end += record_bytes(r->len);
        seg->crc = r->crc;
        seg->last++;
    }
    return rc;
}

/* What a segment holds will never count again, also when numbers come to fit by chance. */
static int discard(struct spool *s, int i, struct err *err)
{
    static const char zeros[HEAD_BYTES];

    s->seg[i].used = false;
    return write_at(s->seg[i].fd, zeros, sizeof zeros, 0, err);
}

/* Decides which segments count. Of two, the newer must go on where the older ends, unless that is committed anyway. */
static int order_segments(struct spool *s, uint64_t last_seq, struct err *err)
{
    struct segment *a = &s->seg[0], *b = &s->seg[1], *older, *newer;

    if (!a->used || !b->used) {
        s->active = b->used;
        return 0;
    }
    s->active = b->first > a->first;
    older = &s->seg[!s->active];
    newer = &s->seg[s->active];
    if (newer->first == older->last + 1)
        return 0;
    if (newer->first <= last_seq + 1)
        return discard(s, !s->active, err);
    s->lost = newer->last - older->last;
    s->active = !s->active;
    return discard(s, !s->active, err);
}

static int load(struct spool *s, uint64_t last_seq, struct err *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < 2; i++) {
        rc = read_head(s, i, err);
        if (rc == 0 && s->seg[i].used)
            rc = scan_segment(s, &s->seg[i], err);
    }
    if (rc == 0)
        rc = order_segments(s, last_seq, err);
    s->acked = last_seq;
    if (rc < 0 || (s->seg[s->active].used && s->seg[s->active].last >= last_seq))
        return rc;
    rc = discard(s, !s->active, err);
    return rc < 0 ? rc : begin_segment(s, s->active, last_seq + 1, err);
}

int spool_open(const char *dir, size_t segment_bytes, uint64_t last_seq, struct spool **ret, struct err *err)
{
    struct spool *s = calloc(1, sizeof *s);
    int rc;

    if (!s)
        return err_set(err, -ENOMEM, "out of memory for the spool");
    s->segment_bytes = segment_bytes;
    s->seg[0].fd = s->seg[1].fd = -1;
    rc = open_segments(s, dir, err);
    if (rc == 0)
        rc = folder_sync(dir, err);
    if (rc == 0)
        rc = load(s, last_seq, err);
    if (rc < 0)
        spool_close(s);
    else
        *ret = s;
    return rc;
}

void spool_close(struct spool *s)
{
    if (!s)
        return;
    for (int i = 0; i < 2; i++)
        if (s->seg[i].fd >= 0)
            close(s->seg[i].fd);
    free(s);
}

/* ---- writing ---- */

static bool other_is_free(const struct spool *s)
{
    const struct segment *other = &s->seg[!s->active];

    return !other->used || other->last <= s->acked;
}

bool spool_has_room(const struct spool *s, size_t bytes)
{
    size_t left = s->segment_bytes - s->seg[s->active].end;

    if (left >= bytes + 2 * sizeof(struct rec))
        return true;
    return other_is_free(s) && s->segment_bytes - HEAD_BYTES >= bytes + 2 * sizeof(struct rec);
}

/* The full segment reaches the disk before the first record behind it can, so a power cut leaves no hole between the
 * two. */
static int change_segment(struct spool *s, struct err *err)
{
    struct segment *seg = &s->seg[s->active];

    if (!other_is_free(s))
        return err_set(err, -ENOSPC, "the spool is full");
    if (fdatasync(seg->fd) < 0) { /* the kernel says so once: what was written may be lost, so this is no want of room that passes */
        err_sys(err, "sync the spool");
        return err->code = -EIO;
    }
    return begin_segment(s, !s->active, seg->last + 1, err);
}

int spool_append(struct spool *s, const void *payload, size_t len, uint64_t *ret_seq, struct err *err)
{
    struct segment *seg = &s->seg[s->active];
    struct rec *r = (struct rec *)s->buf;
    int rc = 0;

    if (len == 0 || len > SPOOL_MAX_RECORD)
        return err_set(err, ERR_INPUT, "a record of %zu bytes, the limit is %d", len, SPOOL_MAX_RECORD);
    if (seg->end + record_bytes(len) > s->segment_bytes)
        rc = change_segment(s, err);
    if (rc < 0)
        return rc;
    seg = &s->seg[s->active];
    memset(s->buf, 0, record_bytes(len));
    memcpy(r + 1, payload, len);
    r->len = (uint32_t)len;
    r->seq = seg->last + 1;
    r->crc = record_crc(seg->crc, r, r + 1);
    rc = write_at(seg->fd, s->buf, record_bytes(len), seg->end, err);
    if (rc < 0)
        return rc;
    seg->end += record_bytes(len);
    seg->crc = r->crc;
    seg->last++;
    if (ret_seq)
        *ret_seq = seg->last;
    return 0;
}

int spool_sync(struct spool *s, struct err *err)
{
    for (int i = 0; i < 2; i++)
        if (fdatasync(s->seg[i].fd) < 0)
            return err_sys(err, "sync the spool");
    return 0;
}

void spool_ack(struct spool *s, uint64_t seq)
{
    if (seq > s->acked)
        s->acked = seq;
}

void spool_unack(struct spool *s, uint64_t seq)
{
    if (seq < s->acked)
        s->acked = seq;
}

uint64_t spool_first(const struct spool *s)
{
    const struct segment *older = &s->seg[!s->active];

    return older->used ? older->first : s->seg[s->active].first;
}

uint64_t spool_last(const struct spool *s)
{
    return s->seg[s->active].last;
}

uint64_t spool_acked(const struct spool *s)
{
    return s->acked;
}

uint64_t spool_lost(const struct spool *s)
{
    return s->lost;
}

const char *spool_store_id(const struct spool *s)
{
    return s->store_id;
}

int spool_set_store_id(struct spool *s, const char *id, struct err *err)
{
    int rc = 0;

    if (strlen(id) > SPOOL_STORE_ID)
        return err_set(err, ERR_INPUT, "store_id: over %d bytes", SPOOL_STORE_ID);
    memset(s->store_id, 0, sizeof s->store_id);
    memcpy(s->store_id, id, strlen(id));
    for (int i = 0; rc == 0 && i < 2; i++)
        if (s->seg[i].used)
            rc = write_head(s, i, err);
    return rc;
}

/* ---- reading ---- */

static void stand_before(struct spool *s, int i, struct spool_cursor *c)
{
    c->segment = i;
    c->seq = s->seg[i].first;
    c->offset = HEAD_BYTES;
    c->crc = first_crc(c->seq);
}

int spool_seek(struct spool *s, uint64_t after, struct spool_cursor *ret, struct err *err)
{
    const struct segment *older = &s->seg[!s->active];
    const char *payload;
    size_t len;
    int rc = 1;

    stand_before(s, older->used && older->last > after ? !s->active : s->active, ret);
    while (rc == 1 && ret->seq <= after)
        rc = spool_next(s, ret, &payload, &len, NULL, err);
    return rc < 0 ? rc : 0;
}

int spool_next(struct spool *s, struct spool_cursor *c, const char **ret_payload, size_t *ret_len, uint64_t *ret_seq, struct err *err)
{
    const struct rec *r = (const struct rec *)s->buf;
    int rc;

    if (c->seq > spool_last(s))
        return 0;
    if (c->seq > s->seg[c->segment].last)
        stand_before(s, s->active, c);
    rc = read_record(s, &s->seg[c->segment], c->offset, c->seq, c->crc, err);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return err_set(err, ERR_CORRUPT, "spool.%d: record %llu cannot be read any more", c->segment, (unsigned long long)c->seq);
    c->offset += record_bytes(r->len);
    c->crc = r->crc;
    if (ret_seq)
        *ret_seq = c->seq;
    c->seq++;
    *ret_payload = (const char *)(r + 1);
    *ret_len = r->len;
    return 1;
}

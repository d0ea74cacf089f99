#include <assert.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/evidence/evidence_form.h"
#include "proto/evidence/evidence_io.h"

enum { LOG, RING, KEPT, FILES };
static const char *const names[] = { EVIDENCE_LOG_FILE, EVIDENCE_RING_FILE, EVIDENCE_TENSORS_FILE };

struct evidence_log {
    struct evidence_head *head;
    struct hash128 start;
    char *dir;
    int dirfd, fd[FILES];
    unsigned char *bytes; /* room for a detail */
};

static int write_at(const struct evidence_log *l, int file, const void *bytes, size_t n, int64_t at, struct err *err)
{
    if (evidence_pwrite(l->fd[file], bytes, n, at) < 0)
        return err_sys(err, "write '%s/%s'", l->dir, names[file]);
    return 0;
}

/* ---- the head ---- */

static int write_tmp(const struct evidence_log *l, const char *text, size_t len, struct err *err)
{
    int rc = 0, fd = openat(l->dirfd, EVIDENCE_HEAD_FILE ".tmp", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (fd < 0)
        return err_sys(err, "create '%s/" EVIDENCE_HEAD_FILE ".tmp'", l->dir);
    if (evidence_pwrite(fd, text, len, 0) < 0 || fsync(fd) < 0)
        rc = err_sys(err, "write '%s/" EVIDENCE_HEAD_FILE ".tmp'", l->dir);
    close(fd);
    return rc;
}

/* Writes the head as a whole and durably, or not at all. */
static int write_head(const struct evidence_log *l, struct err *err)
{
    char *text;
    size_t len;
    int rc = evidence_head_text(l->head, &text, &len, err);

    if (rc < 0)
        return rc;
    rc = write_tmp(l, text, len, err);
    if (rc == 0 && (renameat(l->dirfd, EVIDENCE_HEAD_FILE ".tmp", l->dirfd, EVIDENCE_HEAD_FILE) < 0 || fsync(l->dirfd) < 0))
        rc = err_sys(err, "publish '%s/" EVIDENCE_HEAD_FILE "'", l->dir);
    if (rc < 0)
        unlinkat(l->dirfd, EVIDENCE_HEAD_FILE ".tmp", 0);
    free(text);
    return rc;
}

/* Whether the existing head equals this one. A head that cannot be read does not. */
static int look_at_head(const struct evidence_log *l, bool *ret_same, struct err *err)
{
    struct evidence_head *old = NULL;
    int rc = evidence_head_read(l->dirfd, l->dir, &old, err);

    if (rc < 0 && rc != ERR_INPUT && rc != ERR_UNSUPPORTED && rc != -ENOENT)
        return rc;
    *ret_same = old && evidence_head_equal(old, l->head);
    free(old);
    return 0;
}

/* ---- open and close ---- */

static int open_file(struct evidence_log *l, int file, bool anew, struct err *err)
{
    l->fd[file] = openat(l->dirfd, names[file], O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (l->fd[file] < 0)
        return err_sys(err, "open '%s/%s'", l->dir, names[file]);
    if (anew && lseek(l->fd[file], 0, SEEK_END) != 0 && (ftruncate(l->fd[file], 0) < 0 || fsync(l->fd[file]) < 0))
        return err_sys(err, "empty '%s/%s'", l->dir, names[file]);
    return 0;
}

/* The head is written last: once it is there, nothing of an older run is left. */
static int open_files(struct evidence_log *l, bool *ret_anew, struct err *err)
{
    bool same = false;
    int rc;

    l->dirfd = open(l->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->dirfd < 0)
        return err_sys(err, "open '%s'", l->dir);
    rc = look_at_head(l, &same, err);
    for (int i = 0; i < FILES && rc == 0; i++)
        rc = open_file(l, i, !same, err);
    if (rc == 0 && !same)
        rc = write_head(l, err);
    if (rc == 0)
        *ret_anew = !same;
    return rc;
}

static struct evidence_log *log_new(const char *dir, const struct evidence_head *h)
{
    struct evidence_log *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    *l = (struct evidence_log){ .head = evidence_head_copy(h), .dir = strdup(dir), .dirfd = -1, .fd = { -1, -1, -1 } };
    l->bytes = malloc(evidence_detail_bytes(h));
    if (!l->head || !l->dir || !l->bytes) {
        evidence_log_close(l);
        return NULL;
    }
    l->start = evidence_start(h);
    return l;
}

int evidence_log_open(const char *dir, const struct evidence_head *h, struct evidence_log **ret_log, bool *ret_anew, struct err *err)
{
    struct evidence_log *l;
    int rc = evidence_head_check(h, err);

    if (rc < 0)
        return rc;
    l = log_new(dir, h);
    if (!l)
        return err_set(err, -ENOMEM, "open '%s/" EVIDENCE_LOG_FILE "': out of memory", dir);
    rc = open_files(l, ret_anew, err);
    if (rc == 0)
        *ret_log = l;
    else
        evidence_log_close(l);
    return rc;
}

void evidence_log_close(struct evidence_log *l)
{
    if (!l)
        return;
    for (int i = 0; i < FILES; i++)
        if (l->fd[i] >= 0)
            close(l->fd[i]);
    if (l->dirfd >= 0)
        close(l->dirfd);
    free(l->bytes);
    free(l->dir);
    free(l->head);
    free(l);
}

/* ---- steps ---- */

static int write_detail(const struct evidence_log *l, const struct evidence_detail *d, struct err *err)
{
    int64_t kept = evidence_kept_at(l->head, d->step);
    size_t n = evidence_detail_bytes(l->head);
    int rc;

    evidence_put_detail(l->head, l->start, d, l->bytes);
    rc = write_at(l, RING, l->bytes, n, evidence_ring_at(l->head, d->step), err);
    if (rc == 0 && kept >= 0)
        rc = write_at(l, KEPT, l->bytes, n, kept, err);
    return rc;
}

/* *ret_behind: true if the log does not end before this step. */
static int read_before(const struct evidence_log *l, int64_t step, struct evidence_record *ret, bool *ret_behind, struct err *err)
{
    unsigned char old[EVIDENCE_RECORD_BYTES];
    ssize_t n = evidence_pread(l->fd[LOG], old, sizeof old, (step - 1) * EVIDENCE_RECORD_BYTES);

    if (n < 0)
        return err_sys(err, "read '%s/" EVIDENCE_LOG_FILE "'", l->dir);
    if (n < (ssize_t)sizeof old || !evidence_get_record(l->start, old, step, ret))
        *ret = (struct evidence_record){ 0 };
    *ret_behind = n > 0;
    return 0;
}

/* Cuts the log before this step, so that another record can be written there. A log that ends early claims nothing. A
 * log with records of another run behind would claim too much. */
static int drop_from(const struct evidence_log *l, int64_t step, struct err *err)
{
    if (ftruncate(l->fd[LOG], (step - 1) * EVIDENCE_RECORD_BYTES) < 0)
        return err_sys(err, "shorten '%s/" EVIDENCE_LOG_FILE "'", l->dir);
    return 0;
}

static bool same_chain(const struct evidence_record *before, const struct evidence_record *r)
{
    return before->step == r->step && memcmp(&before->chain, &r->chain, sizeof r->chain) == 0;
}

int evidence_log_write(struct evidence_log *l, const struct evidence_record *r, const struct evidence_detail *d,
                       struct evidence_record *ret_before, struct err *err)
{
    unsigned char bytes[EVIDENCE_RECORD_BYTES];
    struct evidence_record before;
    bool behind = false;
    int rc;

    assert(!d || d->step == r->step);
    if (r->step < 1 || r->step > EVIDENCE_MAX_STEPS)
        return err_set(err, ERR_INPUT, "evidence of step %lld: must be 1 to %d", (long long)r->step, EVIDENCE_MAX_STEPS);
    rc = read_before(l, r->step, &before, &behind, err);
    if (rc == 0 && behind && !same_chain(&before, r))
        rc = drop_from(l, r->step, err);
    if (rc == 0 && d)
        rc = write_detail(l, d, err);
    evidence_put_record(l->start, r, bytes);
    if (rc == 0)
        rc = write_at(l, LOG, bytes, sizeof bytes, (r->step - 1) * EVIDENCE_RECORD_BYTES, err);
    if (rc == 0)
        *ret_before = before;
    return rc;
}

int evidence_log_sync(struct evidence_log *l, struct err *err)
{
    for (int i = 0; i < FILES; i++)
        if (fdatasync(l->fd[i]) < 0)
            return err_sys(err, "sync '%s/%s'", l->dir, names[i]);
    return 0;
}

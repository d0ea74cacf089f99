#include <errno.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/evidence/evidence_form.h"
#include "proto/evidence/evidence_io.h"

enum { RANGE = 512 }; /* records per read */

struct evidence {
    struct evidence_head *head;
    struct hash128 start;
    int log, ring, kept;  /* -1: no such file */
    unsigned char *bytes; /* room for a detail, or for RANGE records */
};

/* A log must be there, or there is nothing to compare. The files of details may be missing. */
static int open_files(struct evidence *e, int dirfd, const char *dir, struct err *err)
{
    int rc = evidence_head_read(dirfd, dir, &e->head, err);
    size_t detail, range = RANGE * EVIDENCE_RECORD_BYTES;

    if (rc < 0)
        return rc == -ENOENT ? err_set(err, rc, "no evidence in '%s'", dir) : rc;
    detail = evidence_detail_bytes(e->head);
    e->bytes = malloc(detail > range ? detail : range);
    if (!e->bytes)
        return err_set(err, -ENOMEM, "out of memory");
    e->start = evidence_start(e->head);
    e->log = evidence_open_file(dirfd, EVIDENCE_LOG_FILE);
    if (e->log < 0)
        return errno == EINVAL || errno == ELOOP ? err_set(err, ERR_INPUT, "'%s/" EVIDENCE_LOG_FILE "' is not a regular file", dir)
                                                 : err_sys(err, "open '%s/" EVIDENCE_LOG_FILE "'", dir);
    e->ring = evidence_open_file(dirfd, EVIDENCE_RING_FILE);
    e->kept = evidence_open_file(dirfd, EVIDENCE_TENSORS_FILE);
    return 0;
}

int evidence_open(const char *dir, struct evidence **ret_evidence, struct err *err)
{
    int rc, dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct evidence *e;

    if (dirfd < 0)
        return err_sys(err, "open '%s'", dir);
    e = malloc(sizeof *e);
    if (e) {
        *e = (struct evidence){ .log = -1, .ring = -1, .kept = -1 };
        rc = open_files(e, dirfd, dir, err);
    } else {
        rc = err_set(err, -ENOMEM, "out of memory");
    }
    close(dirfd);
    if (rc == 0)
        *ret_evidence = e;
    else
        evidence_close(e);
    return rc;
}

void evidence_close(struct evidence *e)
{
    if (!e)
        return;
    if (e->log >= 0)
        close(e->log);
    if (e->ring >= 0)
        close(e->ring);
    if (e->kept >= 0)
        close(e->kept);
    free(e->bytes);
    free(e->head);
    free(e);
}

const struct evidence_head *evidence_head(const struct evidence *e)
{
    return e->head;
}

int64_t evidence_steps(const struct evidence *e)
{
    struct stat st;
    int64_t n = fstat(e->log, &st) == 0 ? st.st_size / EVIDENCE_RECORD_BYTES : 0;

    return n < EVIDENCE_MAX_STEPS ? n : EVIDENCE_MAX_STEPS;
}

/* The first step from `step` on that may have a record. If the file system does not know its holes, returns `step`
 * itself: a hole reads as zero. */
int64_t evidence_next(const struct evidence *e, int64_t step)
{
    off_t data = lseek(e->log, (step - 1) * EVIDENCE_RECORD_BYTES, SEEK_DATA);

    if (data < 0)
        return errno == ENXIO ? EVIDENCE_MAX_STEPS + 1 : step;
    return data / EVIDENCE_RECORD_BYTES + 1;
}

void evidence_read_range(const struct evidence *e, int64_t first, int n, struct evidence_record *ret)
{
    for (int from = 0; from < n; from += RANGE) {
        int count = n - from < RANGE ? n - from : RANGE;
        ssize_t got = evidence_pread(e->log, e->bytes, (size_t)count * EVIDENCE_RECORD_BYTES, (first + from - 1) * EVIDENCE_RECORD_BYTES);

        for (int i = 0; i < count; i++)
            if ((i + 1) * EVIDENCE_RECORD_BYTES > got ||
                !evidence_get_record(e->start, e->bytes + (size_t)i * EVIDENCE_RECORD_BYTES, first + from + i, &ret[from + i]))
                ret[from + i] = (struct evidence_record){ 0 };
    }
}

bool evidence_read(const struct evidence *e, int64_t step, struct evidence_record *ret)
{
    if (step < 1 || step > EVIDENCE_MAX_STEPS)
        return false;
    evidence_read_range(e, step, 1, ret);
    return ret->step == step;
}

static bool read_detail(const struct evidence *e, int fd, int64_t at, int64_t step, struct evidence_detail *ret)
{
    size_t n = evidence_detail_bytes(e->head);

    return fd >= 0 && at >= 0 && evidence_pread(fd, e->bytes, n, at) == (ssize_t)n &&
           evidence_get_detail(e->head, e->start, e->bytes, step, ret);
}

/* Details behind the end of the log are ignored: they may belong to an attempt that was trained again with another
 * result. */
bool evidence_read_detail(const struct evidence *e, int64_t step, struct evidence_detail *ret)
{
    if (step < 1 || step > evidence_steps(e))
        return false;
    return read_detail(e, e->ring, evidence_ring_at(e->head, step), step, ret) ||
           read_detail(e, e->kept, evidence_kept_at(e->head, step), step, ret);
}

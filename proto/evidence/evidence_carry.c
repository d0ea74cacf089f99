#include "proto/evidence/evidence_carry.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/evidence/evidence.h"
#include "proto/evidence/evidence_form.h"
#include "proto/evidence/evidence_io.h"
#include "proto/host/folder.h"
#include "proto/host/wipe.h"

enum { PATH_ROOM = 4096 + 64 };

/* A folder with the new files. It has the first name while they are written, and the second when they are whole and on
 * their way to their places. */
#define WRITING "evidence.carry"
#define WHOLE   "evidence.carried"

/* The head comes last: until then the old head does not fit the files beside it. */
static const char *const files[] = { EVIDENCE_LOG_FILE, EVIDENCE_RING_FILE, EVIDENCE_TENSORS_FILE, EVIDENCE_HEAD_FILE };

static int path_of(char ret[PATH_ROOM], const char *dir, const char *name, struct err *err)
{
    return snprintf(ret, PATH_ROOM, "%s/%s", dir, name) < PATH_ROOM ? 0
                                                                    : err_set(err, -ENAMETOOLONG, "'%.200s...': the path is too long", dir);
}

static int remove_all(const char *path, struct err *err)
{
    int rc;

    while ((rc = wipe_folder(path, INT_MAX, err)) > 0)
        ;
    return rc;
}

/* ---- into place ---- */

static int move_files(const char *dir, const char *whole, struct err *err)
{
    char from[PATH_ROOM], to[PATH_ROOM];
    int rc = 0;

    for (size_t i = 0; i < sizeof files / sizeof *files && rc == 0; i++) {
        rc = path_of(from, whole, files[i], err);
        if (rc == 0)
            rc = path_of(to, dir, files[i], err);
        if (rc == 0 && rename(from, to) < 0 && errno != ENOENT) /* an earlier process has moved it */
            rc = err_sys(err, "rename '%s' to '%s'", from, to);
        if (rc == 0)
            rc = folder_sync(dir, err);
    }
    return rc < 0 ? rc : remove_all(whole, err);
}

/* Completes an earlier run that had made the files whole. Returns 1 if they are for a run with that head; else removes
 * them and returns 0. */
static int finish(const char *dir, const struct evidence_head *h, struct err *err)
{
    char whole[PATH_ROOM];
    struct evidence_head *there = NULL;
    int rc = path_of(whole, dir, WHOLE, err), fd = rc < 0 ? -1 : open(whole, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ours;

    if (fd < 0)
        return rc;
    rc = evidence_head_read(fd, whole, &there, err);
    close(fd);
    ours = rc == 0 && evidence_head_equal(there, h);
    free(there);
    if (!ours)
        return remove_all(whole, err);
    rc = move_files(dir, whole, err);
    return rc < 0 ? rc : 1;
}

/* ---- anew ---- */

static int copy_steps(const struct evidence *old, const struct evidence_head *h, struct evidence_log *log, int64_t last, struct err *err)
{
    struct evidence_record r, none;
    struct evidence_detail detail;
    struct hash128 chain = evidence_start(h);
    int rc = evidence_detail_new(h, &detail, err);

    for (int64_t step = 1; step <= last && rc == 0; step++) {
        bool known = evidence_read_detail(old, step, &detail);

        if (!evidence_read(old, step, &r)) {
            rc = err_set(err, ERR_INPUT, "there is no record of step %lld", (long long)step);
            break;
        }
        chain = r.chain = evidence_chain(chain, &r);
        rc = evidence_log_write(log, &r, known ? &detail : NULL, &none, err);
    }
    evidence_detail_free(&detail);
    return rc < 0 ? rc : evidence_log_sync(log, err);
}

static int copy(const char *dir, const struct evidence *old, const struct evidence_head *h, int64_t last, struct err *err)
{
    char writing[PATH_ROOM], whole[PATH_ROOM];
    struct evidence_log *log = NULL;
    struct err ignored;
    bool anew;
    int rc = path_of(writing, dir, WRITING, err);

    if (rc == 0)
        rc = path_of(whole, dir, WHOLE, err);
    if (rc == 0)
        rc = remove_all(writing, err);
    if (rc == 0)
        rc = folder_make(writing, 0700, err);
    if (rc < 0)
        return rc;
    rc = evidence_log_open(writing, h, &log, &anew, err);
    if (rc == 0)
        rc = copy_steps(old, h, log, last, err);
    evidence_log_close(log);
    if (rc == 0)
        rc = folder_sync(writing, err);
    if (rc == 0 && rename(writing, whole) < 0)
        rc = err_sys(err, "rename '%s'", writing);
    if (rc < 0)
        remove_all(writing, &ignored);
    return rc < 0 ? rc : folder_sync(dir, err);
}

static int check_head(const struct evidence_head *old, const struct evidence_head *h, struct err *err)
{
    struct evidence_head as_old = *h;

    as_old.spec = old->spec;
    return evidence_head_equal(old, &as_old) ? 0 : err_set(err, ERR_INPUT, "it is of other data or tensors");
}

int evidence_carry(const char *dir, const struct evidence_head *h, int64_t last, struct err *err)
{
    struct evidence *old = NULL;
    int rc = finish(dir, h, err);

    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = evidence_open(dir, &old, err);
    if (rc < 0)
        return rc;
    if (!evidence_head_equal(evidence_head(old), h)) {
        rc = check_head(evidence_head(old), h, err);
        if (rc == 0)
            rc = copy(dir, old, h, last, err);
        if (rc == 0)
            rc = finish(dir, h, err);
    }
    evidence_close(old);
    return rc < 0 ? rc : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_folder.c - uses: proto daemon
 * The files in a job's folder before a start: the owner of the folder (jobs/ID/store) and how the job ended
 * (jobs/ID/end). The first byte chooses the other known facts; the two files follow, with a byte 0 between. */
#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/launch/launch.h"
#include "daemon/store/store.h"
#include "proto/err.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "folder";
const int fuzz_places = 10;

enum { HAS_SPOOL = 1, HAS_REPORTS = 2, LATER_ATTEMPT = 4, SUBMITTED = 5, PATH_ROOM = TEMP_MAX + 32 };

static struct store *store;
static uv_loop_t loop;
static uv_timer_t awake; /* the store alone keeps no loop alive */
static int64_t job;

static void nothing(uv_timer_t *t)
{
    (void)t;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void leave(void)
{
    store_close(store);
    uv_close((uv_handle_t *)&awake, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    remove_tree(fuzz_path());
}

static void submitted(void *arg, int rc, int64_t value, const struct err *err)
{
    (void)arg;
    (void)err;
    assert_int_equal(rc, 0);
    job = value;
}

static void enter(void)
{
    static const struct job_row row = { .state = JOB_QUEUED, .want_tier = -1, .tier = 1, .ranks = 1, .steps = 9, .submitted = SUBMITTED };
    struct err err;

    assert_int_equal(mkdir(fuzz_path(), 0700), 0);
    uv_loop_init(&loop);
    uv_timer_init(&loop, &awake);
    uv_timer_start(&awake, nothing, 5, 5);
    assert_int_equal(store_open(fuzz_path(), &loop, &store, &err), 0);
    store_submit(store, &row, "t", "{\"run\":{}}", submitted, NULL);
    while (!job)
        uv_run(&loop, UV_RUN_ONCE);
    atexit(leave);
}

/* Starts no process, because `stop` is set. */
static int prepare(struct launch_request *rq, struct err *err)
{
    atomic_bool stop = true;
    struct launched *l = NULL;
    int rc = launch_start(store, rq, &stop, &l, err);

    assert_null(l);
    assert_true(rc <= 0 && (rc == 0 || err->msg[0]));
    assert_true(!rq->end.state || (job_is_done(rq->end.state) && memchr(rq->end.reason, '\0', sizeof rq->end.reason)));
    return rc;
}

static bool is_there(const char *jobs, const char *name)
{
    char path[8 * PATH_ROOM];

    snprintf(path, sizeof path, "%s/%s", jobs, name);
    return access(path, F_OK) == 0;
}

/* A written end is read back the same. */
static void ends(struct launch_request *rq)
{
    struct job_row row = {
        .id = job, .state = JOB_FAILED, .submitted = SUBMITTED, .attempt = 1, .last_seq = 2, .reason = "rank 1: \"no\" \xe4\xb8\xad"
    };
    struct err err = { 0 };

    launch_drop_spool(rq->jobs_dir, &row, rq->store_id);
    rq->last_seq = 1;
    rq->moved[0] = '\0';
    assert_int_equal(prepare(rq, &err), -ENODATA);
    assert_true(rq->end.state == JOB_FAILED && strcmp(rq->end.reason, row.reason) == 0 && !rq->moved[0]);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    char jobs[PATH_ROOM], folder[2 * PATH_ROOM], path[4 * PATH_ROOM];
    const uint8_t *cut = size > 1 ? memchr(bytes + 1, 0, size - 1) : NULL;
    int known = size ? bytes[0] : 0;
    size_t first = cut ? (size_t)(cut - bytes) - 1 : size ? size - 1 : 0;
    struct launch_request rq = { .attempt = known & LATER_ATTEMPT ? 2 : 1,
                                 .last_seq = known & HAS_REPORTS ? 7 : 0,
                                 .submitted = SUBMITTED,
                                 .threads = 1,
                                 .tier = 1,
                                 .jobs_dir = jobs };
    struct err err = { 0 };

    if (!store)
        enter();
    rq.job = job;
    rq.store_id = store_id(store);
    snprintf(jobs, sizeof jobs, "%s/jobs", fuzz_path());
    snprintf(folder, sizeof folder, "%s/%lld", jobs, (long long)job);
    assert_true(mkdir(jobs, 0700) == 0 && mkdir(folder, 0700) == 0);
    snprintf(path, sizeof path, "%s/store", folder);
    fuzz_write(path, bytes + (size ? 1 : 0), first);
    if (cut) {
        snprintf(path, sizeof path, "%s/end", folder);
        fuzz_write(path, cut + 1, size - first - 2);
    }
    snprintf(path, sizeof path, "%s/spool.0", folder);
    if (known & HAS_SPOOL)
        fuzz_write(path, "", 0);
    prepare(&rq, &err);
    if (rq.moved[0]) { /* it lies beside the new one, under a name without a folder in it */
        assert_true(!strchr(rq.moved, '/') && is_there(jobs, rq.moved));
        snprintf(path, sizeof path, "%s/store", rq.moved);
        assert_true(is_there(jobs, path));
    }
    if (err.code == 0)
        ends(&rq);
    remove_tree(jobs);
}

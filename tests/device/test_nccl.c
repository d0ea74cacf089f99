/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/comm worker/core cuda
 * The NCCL link on emulated GPUs: ranks are threads of one process, each with two streams, over an emulated NCCL that
 * is as asynchronous as the real one; or on a real GPU (tests/stand/emu/nccl_ranks.h), where the cases run that ask
 * nothing of the emulation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/stand/emu/nccl_ranks.h"
#include "worker/ops/families.h"
#include "tests/unit/worker/comm/comm_script.h"

enum {
    REAL_MS = 20000,   /* for a collective of ranks that have turns on one GPU */
    SILENT_MS = 12000, /* the same deadline in tests that wait for it; joining must fit in */
};

/* ---- data that arrive ---- */

/* Everything that other transports do, and the same bytes. */
static void script(struct rank *r)
{
    NEED(comm_rank(r->link) == r->rank && comm_ranks(r->link) == r->nranks);
    work(r->link, r->sync, r->grad, 3);
}

static void test_script(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        nccl_forget();
        nccl_pretend(n % 2, 0);
        assert_int_equal(run_threads(n, SECONDS_20, true, script, NULL), 0);
    }
}

/* A reduction with a host part that never waits: exchange, add, gather, bucket after bucket, and one sync() at the
 * end. */
static void queued(struct rank *r)
{
    enum { COUNT = 1024 * 4, BUCKETS_QUEUED = 6 };
    const size_t bytes = COUNT * sizeof(float);
    int planes[MAX_RANKS], n = r->nranks;
    size_t cut[MAX_RANKS + 1];
    struct tree_part part[MAX_RANKS];
    const void *views[MAX_RANKS];
    struct err err;
    float *host = calloc(COUNT, sizeof(float)), *mine, *sum;

    NEED(host);
    mine = comm_alloc(r->link, BUCKETS_QUEUED * bytes, &err);
    sum = comm_alloc_shared(r->link, BUCKETS_QUEUED * bytes, &err);
    NEED(mine && sum);
    NEED_OK(r->grad->ops->download(r->grad, host, mine, bytes, &err));
    for (int i = 0; i < COUNT; i++)
        NEED(host[i] == 0.0f);
    for (int b = 0; b < BUCKETS_QUEUED; b++) {
        struct comm_planes x = { mine, BUCKETS_QUEUED * bytes, planes, cut };

        for (int i = 0; i < COUNT; i++)
            host[i] = (float)((i * 7 + b * 3 + r->rank) % 1000) / 16.0f;
        NEED_OK(r->grad->ops->upload(r->grad, mine + b * COUNT, host, bytes, &err));
        cut[0] = (size_t)b * bytes;
        for (int j = 0; j < n; j++) {
            planes[j] = 1;
            cut[j + 1] = (size_t)b * bytes + bytes * (size_t)(j + 1) / (size_t)n / 64 * 64;
        }
        cut[n] = ((size_t)b + 1) * bytes;
        NEED_OK(comm_alltoall(r->link, COMM_GRAD, &x, views, &err));
        for (int j = 0; j < n; j++)
            part[j] = (struct tree_part){ j, j + 1, views[j] };
        NEED_OK(r->grad->on->reduce->tree_add(r->grad, sum + cut[r->rank] / sizeof(float), part, n,
                                              (cut[r->rank + 1] - cut[r->rank]) / sizeof(float), &err));
        NEED_OK(comm_allgather(r->link, COMM_GRAD, sum, cut, &err));
    }
    NEED_OK(r->grad->ops->sync(r->grad, &err));
    NEED_OK(comm_check(r->link, COMM_GRAD, &err));
    for (int b = 0; b < BUCKETS_QUEUED; b++) {
        NEED_OK(r->grad->ops->download(r->grad, host, sum + b * COUNT, bytes, &err));
        for (int i = 0; i < COUNT; i++) {
            float want = 0.0f; /* exact: sixteenths */

            for (int j = 0; j < n; j++)
                want += (float)((i * 7 + b * 3 + j) % 1000) / 16.0f;
            NEED(host[i] == want);
        }
    }
    free(host);
}

static void test_queued(void **state)
{
    (void)state;
    nccl_forget();
    for (int n = 1; n <= 4; n++)
        assert_int_equal(run_threads(n, SECONDS_20, true, queued, NULL), 0);
}

/* More operations than may be on the stream at once, and more than are compared on the host. */
static void many(struct rank *r)
{
    size_t cut[MAX_RANKS + 1];
    unsigned char got[MAX_RANKS * 64], mine[64];
    struct err err;
    char *mem = comm_alloc_shared(r->link, sizeof(got), &err);

    NEED(mem);
    for (int j = 0; j <= r->nranks; j++)
        cut[j] = (size_t)j * 64;
    for (int i = 0; i < 700; i++) {
        memset(mine, i + r->rank, sizeof(mine));
        NEED_OK(r->sync->ops->upload(r->sync, mem + cut[r->rank], mine, sizeof(mine), &err));
        NEED_OK(comm_allgather(r->link, COMM_SYNC, mem, cut, &err));
        if (i % 100 != 99)
            continue;
        NEED_OK(r->sync->ops->download(r->sync, got, mem, cut[r->nranks], &err));
        NEED_OK(comm_check(r->link, COMM_SYNC, &err));
        for (int j = 0; j < r->nranks; j++)
            NEED(got[j * 64] == (unsigned char)(i + j) && got[j * 64 + 63] == (unsigned char)(i + j));
    }
}

static void test_many(void **state)
{
    (void)state;
    nccl_forget();
    assert_int_equal(run_threads(2, SECONDS_20, true, many, NULL), 0);
}

/* Only data needed by others are moved, in one group an operation. Equal parts become one gather, other parts become
 * broadcasts, empty parts are not sent. */
static void traffic(struct rank *r)
{
    static const int planes[] = { 2, 1 };
    static const size_t cut[] = { 0, 256, 768 }, even[] = { 0, 64, 128 }, half[] = { 0, 0, 64 }, none[] = { 64, 64, 64 };
    struct nccl_seen before, after;
    struct comm_planes x = { NULL, 4096, planes, cut };
    const void *views[3];
    struct err err;
    char *mem = comm_alloc(r->link, 8192, &err), *shared = comm_alloc_shared(r->link, 4096, &err);

    NEED(mem && shared);
    x.mem = mem;
    NEED_OK(comm_barrier(r->link, COMM_SYNC, &err));
    nccl_look(&before);
    NEED_OK(comm_barrier(r->link, COMM_SYNC, &err));
    NEED_OK(comm_alltoall(r->link, COMM_GRAD, &x, views, &err));
    NEED(r->rank == 0 ? views[0] == mem && views[1] == mem + 4096 : views[2] == mem + 256);
    NEED_OK(comm_allgather(r->link, COMM_SYNC, shared, even, &err));
    NEED_OK(comm_allgather(r->link, COMM_SYNC, shared, half, &err));
    NEED_OK(comm_allgather(r->link, COMM_SYNC, shared, none, &err));
    NEED_OK(r->sync->ops->sync(r->sync, &err));
    NEED_OK(r->grad->ops->sync(r->grad, &err));
    NEED_OK(comm_barrier(r->link, COMM_SYNC, &err));
    nccl_look(&after);
    NEED(after.groups - before.groups == 6);
    NEED(after.gathers - before.gathers == 2 && after.broadcasts - before.broadcasts == 2);
    NEED(after.bytes_moved - before.bytes_moved == 2 * 512 + 256 + 2 * 64 + 64);
    NEED(strstr(after.names[0], "detd") && strstr(after.names[1], "detd"));
}

static void test_traffic(void **state)
{
    (void)state;
    nccl_forget();
    assert_int_equal(run_threads(2, SECONDS_20, true, traffic, NULL), 0);
}

/* ---- failures ---- */

/* Gathers in mem until something fails. Returns the code, and the operations that went well. */
static int gather_in(struct rank *r, enum comm_channel ch, char *mem, int most, int *ret_done, struct err *err)
{
    struct device *dev = ch == COMM_GRAD ? r->grad : r->sync;
    size_t cut[MAX_RANKS + 1];
    int rc = mem ? 0 : err->code;

    for (int j = 0; j <= r->nranks; j++)
        cut[j] = (size_t)j * 64;
    for (*ret_done = 0; rc == 0 && *ret_done < most; ++*ret_done) {
        rc = comm_allgather(r->link, ch, mem, cut, err);
        if (rc == 0)
            rc = dev->ops->sync(dev, err);
        if (rc == 0)
            rc = comm_check(r->link, ch, err);
        if (rc < 0)
            break;
    }
    return rc;
}

static int gather_on(struct rank *r, enum comm_channel ch, int most, int *ret_done, struct err *err)
{
    return gather_in(r, ch, comm_alloc_shared(r->link, MAX_RANKS * 64, err), most, ret_done, err);
}

/* After a failure no operation works, on any channel. */
static void all_over(struct rank *r)
{
    static const size_t cut[MAX_RANKS + 1];
    char byte[4] = { 0 };
    struct err err;

    NEED(comm_aborted(r->link) && comm_aborted(r->host));
    NEED(comm_check(r->link, COMM_SYNC, &err) < 0 && err.msg[0]);
    NEED(comm_allgather(r->link, COMM_GRAD, byte, cut, &err) < 0);
    NEED(comm_barrier(r->link, COMM_SYNC, &err) < 0);
    NEED(!comm_alloc(r->link, 64, &err));
}

/* Rank 1's kernel hangs: the deadline ends the wait of all, and names the operation. */
static void hanging(struct rank *r)
{
    struct err err;
    int done, rc = gather_on(r, COMM_GRAD, 100, &done, &err);

    NEED(done == 5);
    NEED(rc == ERR_TIMEOUT || rc == ERR_ABORTED); /* the first rank that notices it reports it to the others */
    if (rc == ERR_TIMEOUT) {
        NEED(strstr(err.msg, "collective 6 (allgather on grad, ") && strstr(err.msg, "3000 ms"));
        ++*r->arg;
    }
    all_over(r);
}

static void test_hanging(void **state)
{
    atomic_int *timeouts = shared_memory(sizeof(*timeouts));

    (void)state;
    nccl_forget();
    nccl_break(1, ncclInProgress, 5);
    assert_int_equal(run_threads(3, 3000, true, hanging, timeouts), 0);
    assert_true(*timeouts >= 1);
}

/* NCCL reports an error on rank 0. Its text must appear there, and the others must leave. */
static void breaking(struct rank *r)
{
    struct err err;
    int done, rc = gather_on(r, COMM_SYNC, 100, &done, &err);

    NEED(done == 3);
    if (r->rank == 0)
        NEED(rc == ERR_DEVICE && strstr(err.msg, "on sync, rank 0: remote process exited"));
    else
        NEED(rc == ERR_ABORTED);
    all_over(r);
}

static void test_breaking(void **state)
{
    (void)state;
    nccl_forget();
    nccl_break(0, ncclRemoteError, 3);
    assert_int_equal(run_threads(3, SECONDS_20, true, breaking, NULL), 0);
}

/* A rank leaves while the others wait on the stream: this ends their wait before the deadline. */
static void leaving(struct rank *r)
{
    struct timespec soon = { 0, 200 * 1000000L };
    struct err err;
    char *mem = comm_alloc_shared(r->link, MAX_RANKS * 64, &err);
    int done;

    NEED(mem && gather_in(r, COMM_GRAD, mem, 4, &done, &err) == 0);
    ++*r->arg; /* number of ranks that got so far */
    if (r->rank == 1) {
        while (*r->arg < r->nranks)
            sched_yield();
        nanosleep(&soon, NULL); /* now they may come back at any moment; most often they are on the stream */
        comm_abort(r->link);
    } else {
        NEED(gather_in(r, COMM_GRAD, mem, 96, &done, &err) == ERR_ABORTED && done == 0);
    }
    all_over(r);
}

static void test_leaving(void **state)
{
    atomic_int *arrived = shared_memory(sizeof(*arrived));

    (void)state;
    nccl_forget();
    assert_int_equal(run_threads(3, SECONDS_20, true, leaving, arrived), 0);
}

/* Ranks that enter different operations find out before any task is queued. */
static void disagreeing(struct rank *r)
{
    size_t cut[3] = { 0, 64, 128 };
    struct err err;
    char *mem = comm_alloc_shared(r->link, 4096, &err);
    int rc;

    NEED(mem);
    NEED_OK(comm_allgather(r->link, COMM_GRAD, mem, cut, &err));
    cut[2] += r->rank == 1 ? 64 : 0;
    rc = comm_allgather(r->link, COMM_GRAD, mem, cut, &err);
    NEED(rc == ERR_STATE || rc == ERR_ABORTED);
    NEED(rc != ERR_STATE || (strstr(err.msg, "128 bytes") && strstr(err.msg, "192 bytes")));
    *r->arg += rc == ERR_STATE;
    all_over(r);
}

static void test_disagreeing(void **state)
{
    atomic_int *told = shared_memory(sizeof(*told));

    (void)state;
    nccl_forget();
    assert_int_equal(run_threads(2, SECONDS_20, true, disagreeing, told), 0);
    assert_true(*told >= 1);
}

/* Device memory is not available: for a rank's own data, then for the data of the others. */
static void no_memory(struct rank *r)
{
    static const int planes[] = { 1, 1 };
    static const size_t cut[] = { 0, 64, 128 };
    struct comm_planes x = { NULL, 1024, planes, cut };
    const void *views[2];
    struct err err;
    int rc;

    if (r->rank == 0) {
        emu_fail_malloc_after(1);
        NEED(!comm_alloc(r->link, 1000, &err) && err.code == ERR_DEVICE && strstr(err.msg, "4096 bytes"));
    }
    NEED_OK(comm_barrier(r->host, COMM_SYNC, &err));
    x.mem = comm_alloc(r->link, 1024, &err);
    NEED(x.mem);
    NEED_OK(comm_barrier(r->host, COMM_SYNC, &err));
    if (r->rank == 0)
        emu_fail_malloc_after(1); /* of the first rank that allocates */
    NEED_OK(comm_barrier(r->host, COMM_SYNC, &err));
    rc = comm_alltoall(r->link, COMM_GRAD, &x, views, &err);
    if (rc == ERR_DEVICE && strstr(err.msg, "no device memory"))
        ++*r->arg;
    for (int i = 0; i < 6000 && comm_check(r->link, COMM_GRAD, &err) == 0; i++)
        nanosleep(&(struct timespec){ 0, 10 * 1000000L }, NULL);
    all_over(r);
}

static void test_no_memory(void **state)
{
    atomic_int *failed = shared_memory(sizeof(*failed));

    (void)state;
    nccl_forget();
    assert_int_equal(run_threads(2, SECONDS_20, true, no_memory, failed), 0);
    assert_int_equal(*failed, 1);
}

/* A rank does not join. */
static void absent(struct rank *r)
{
    struct err err;
    int rc;

    if (r->rank == 1) {
        NEED(comm_barrier(r->host, COMM_SYNC, &err) < 0); /* its next wait sees that the others have given up */
        return;
    }
    rc = link_open(r, r->id, &err);
    NEED(rc == ERR_TIMEOUT || rc == ERR_ABORTED);
    NEED(rc != ERR_TIMEOUT || strstr(err.msg, "joining the other ranks on "));
    NEED(!r->link && comm_aborted(r->host));
}

static void test_absent(void **state)
{
    (void)state;
    nccl_forget();
    assert_int_equal(run_threads(3, 1000, false, absent, NULL), 0);
}

/* Ids and options that make no sense are refused before NCCL is asked. */
static void refused(struct rank *r)
{
    char id[ID_TEXT];
    struct err err;

    NEED(link_open(r, NULL, &err) == ERR_PROTO);
    NEED(link_open(r, "", &err) == ERR_PROTO);
    NEED(link_open(r, "nccl", &err) == ERR_PROTO);
    NEED(link_open(r, "nccl 22809 0123", &err) == ERR_PROTO && strstr(err.msg, "0123"));
    snprintf(id, sizeof(id), "%s", r->id);
    id[20] = 'x';
    NEED(link_open(r, id, &err) == ERR_PROTO && strstr(err.msg, "damaged"));
    snprintf(id, sizeof(id), "%s00", r->id);
    NEED(link_open(r, id, &err) == ERR_PROTO);
    nccl_pretend(0, 22703);
    NEED(link_open(r, r->id, &err) == ERR_UNSUPPORTED && strstr(err.msg, "22809") && strstr(err.msg, "22703"));
    nccl_pretend(0, 0);
    r->timeout_ms = 0;
    NEED(link_open(r, r->id, &err) == ERR_INPUT && strstr(err.msg, "timeout"));
    r->timeout_ms = 100;
    r->nranks = 2;
    NEED(link_open(r, r->id, &err) == ERR_INPUT && strstr(err.msg, "rank 0 of 2"));
    NEED(r->sync->ops->link_id(id, 100, &err) == ERR_INPUT && strstr(err.msg, "room for 100"));
    NEED(!comm_aborted(r->host));
}

static void test_refused(void **state)
{
    (void)state;
    nccl_forget();
    assert_int_equal(run_threads(1, SECONDS_20, false, refused, NULL), 0);
}

/* ---- the real NCCL ---- */

static void real_cases(void **state)
{
    static const struct {
        const char *name;
        void (*fn)(struct rank *r);
        int least, most; /* ranks */
    } cases[] = { { "script", script, 2, 4 }, { "queued", queued, 4, 4 }, { "many", many, 2, 2 } };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int n = cases[i].least; n <= cases[i].most; n *= 2) {
            int bad = run_joined(n, REAL_MS, cases[i].fn, NULL);

            if (bad)
                fail_msg("%s: %d of %d ranks failed", cases[i].name, bad, n);
            print_message("nccl: %s, %d ranks\n", cases[i].name, n);
        }
}

static void real_leaving(void **state)
{
    atomic_int *arrived = shared_memory(sizeof(*arrived));

    (void)state;
    assert_int_equal(run_joined(2, REAL_MS, leaving, arrived), 0);
}

static void real_disagreeing(void **state)
{
    atomic_int *told = shared_memory(sizeof(*told));

    (void)state;
    assert_int_equal(run_joined(2, REAL_MS, disagreeing, told), 0);
    assert_true(*told >= 1);
}

/* Rank 1 ends without a message: the deadline ends the wait of rank 0, and the abort ends the work of NCCL on the
 * GPU. */
static void silent(struct rank *r)
{
    struct err err;
    char *mem = comm_alloc_shared(r->link, MAX_RANKS * 64, &err);
    int done, rc;

    NEED(mem && gather_in(r, COMM_GRAD, mem, 4, &done, &err) == 0);
    if (r->rank == 1)
        _exit(0);
    rc = gather_in(r, COMM_GRAD, mem, 96, &done, &err);
    NEED(done == 0 && (rc == ERR_TIMEOUT || rc == ERR_ABORTED || rc == ERR_DEVICE));
    all_over(r);
}

static void real_silent(void **state)
{
    (void)state;
    assert_int_equal(run_joined(2, SILENT_MS, silent, NULL), 0);
}

static int run_real(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_cases),
        cmocka_unit_test(real_leaving),
        cmocka_unit_test(real_disagreeing),
        cmocka_unit_test(real_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_script),  cmocka_unit_test(test_queued),      cmocka_unit_test(test_many),
        cmocka_unit_test(test_traffic), cmocka_unit_test(test_hanging),     cmocka_unit_test(test_breaking),
        cmocka_unit_test(test_leaving), cmocka_unit_test(test_disagreeing), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_absent),  cmocka_unit_test(test_refused),
    };

    if (getenv("DETD_TEST_CUDA"))
        return run_real();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

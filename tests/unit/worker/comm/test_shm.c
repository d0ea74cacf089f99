/* SPDX-License-Identifier: Apache-2.0 */ /* The shared-memory transport with real processes: every operation, ranks
 * that die, leave, or enter something else. uses: proto worker/comm worker/core */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <errno.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/worker/comm/ranks.h"

enum { ROUNDS = 30, SECONDS_20 = 20000 };

/* The word that rank r writes into chunk j of plane k in a round; all words differ. */
static uint32_t word(int round, int r, int k, int j)
{
    return (uint32_t)(((round * 300 + r) * 5 + k) * 300 + j);
}

/* Chunks of different lengths, some empty; rank r sends 1 + r % 3 planes. */
static void alltoall_ranks(struct comm *c, void *arg)
{
    int n = comm_ranks(c), me = comm_rank(c), planes[64], nviews = 0;
    size_t cut[65] = { 0 };
    const void *views[192];
    unsigned seed = (unsigned)me + 1;
    struct err err;
    char *mem;

    (void)arg;
    for (int r = 0; r < n; r++) {
        planes[r] = 1 + r % 3;
        cut[r + 1] = cut[r] + (size_t)(r % 4) * 4;
        nviews += planes[r];
    }
    mem = comm_alloc(c, 3 * 8192, &err);
    NEED(mem);
    for (int round = 0; round < ROUNDS; round++) {
        struct comm_planes x = { mem, 8192, planes, cut };
        int v = 0;

        for (int k = 0; k < planes[me]; k++)
            for (int j = 0; j < n; j++)
                for (size_t at = cut[j]; at < cut[j + 1]; at += 4)
                    memcpy(mem + k * 8192 + at, &(uint32_t){ word(round, me, k, j) }, 4);
        if (n <= 8)
            rank_delay(&seed, 300);
        NEED_OK(comm_alltoall(c, COMM_GRAD, &x, views, &err));
        if (n <= 8)
            rank_delay(&seed, 300);
        for (int r = 0; r < n; r++)
            for (int k = 0; k < planes[r]; k++, v++)
                for (size_t at = 0; at < cut[me + 1] - cut[me]; at += 4)
                    NEED(*(const uint32_t *)((const char *)views[v] + at) == word(round, r, k, me));
        NEED(v == nviews);
        NEED_OK(comm_barrier(c, COMM_GRAD, &err)); /* all have read: mem may be written again */
    }
}

static void test_alltoall(void **state)
{
    static const int sizes[] = { 1, 2, 3, 5, 8, 64 };

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        assert_int_equal(run_ranks(sizes[i], SECONDS_20, alltoall_ranks, NULL), 0);
}

static void allgather_ranks(struct comm *c, void *arg)
{
    int n = comm_ranks(c), me = comm_rank(c);
    size_t cut[65] = { 0 };
    unsigned seed = (unsigned)me * 77 + 1;
    struct err err;
    uint32_t *a, *b;

    (void)arg;
    for (int r = 0; r < n; r++)
        cut[r + 1] = cut[r] + (size_t)(r % 3) * 8;
    a = comm_alloc_shared(c, cut[n] + 8, &err);
    b = comm_alloc_shared(c, cut[n] + 8, &err);
    NEED(a && b);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t *buf = round & 1 ? a : b;

        for (size_t i = cut[me] / 4; i < cut[me + 1] / 4; i++)
            buf[i] = word(round, me, 0, (int)i);
        rank_delay(&seed, 300);
        NEED_OK(comm_allgather(c, COMM_SYNC, buf, cut, &err));
        rank_delay(&seed, 300);
        for (int r = 0; r < n; r++)
            for (size_t i = cut[r] / 4; i < cut[r + 1] / 4; i++)
                NEED(buf[i] == word(round, r, 0, (int)i));
    }
}

static void test_allgather(void **state)
{
    (void)state;
    for (int n = 1; n <= 7; n += 2)
        assert_int_equal(run_ranks(n, SECONDS_20, allgather_ranks, NULL), 0);
}

/* Broadcasts and gathers of more than one stage, of nothing, and of different sizes per rank. */
static void private_ranks(struct comm *c, void *arg)
{
    static const size_t sizes[] = { 0, 1, 65536, 65537, 300001 };
    static unsigned char bytes[300001 + 8 * 1000];
    int n = comm_ranks(c), me = comm_rank(c);
    struct err err;

    (void)arg;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t size = sizes[i], mine = me % 2 ? size + (size_t)me * 1000 : 0, cut[9];
        unsigned char *all = NULL;
        void *data;

        for (size_t b = 0; b < size; b++)
            bytes[b] = me == 0 ? (unsigned char)(b * 7 + i) : 0xEE;
        NEED_OK(comm_broadcast(c, COMM_SYNC, bytes, size, &err));
        for (size_t b = 0; b < size; b++)
            NEED(bytes[b] == (unsigned char)(b * 7 + i));
        memset(bytes, me + 1, sizeof(bytes));
        NEED_OK(comm_gather(c, COMM_SYNC, bytes, mine, &data, cut, &err));
        all = data;
        NEED((all != NULL) == (me == 0));
        for (int r = 0; r < n; r++) {
            NEED(cut[r + 1] - cut[r] == (r % 2 ? size + (size_t)r * 1000 : 0));
            for (size_t b = cut[r]; all && b < cut[r + 1]; b++)
                NEED(all[b] == r + 1);
        }
        free(data);
    }
}

static void test_private_bytes(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, SECONDS_20, private_ranks, NULL), 0);
    assert_int_equal(run_ranks(4, SECONDS_20, private_ranks, NULL), 0);
}

/* The progress page counts each channel for itself. */
static void hook_enter(void *arg, int channel, uint32_t number, uint64_t fingerprint)
{
    uint32_t *seen = arg;

    (void)fingerprint;
    seen[channel] = number;
}

static void test_one_rank(void **state)
{
    uint32_t seen[COMM_CHANNELS] = { 0 };
    struct comm_options opt = { .fd = -1, .nranks = 1, .timeout_ms = 1, .hook = { hook_enter, seen } };
    struct comm *c = NULL;
    struct err err;
    size_t cut[] = { 0, 64 };
    char *mem;

    (void)state;
    assert_int_equal(comm_open_shm(&opt, &c, &err), 0);
    mem = comm_alloc_shared(c, 64, &err);
    assert_non_null(mem);
    for (int i = 0; i < 64; i++)
        assert_int_equal(mem[i], 0);
    assert_int_equal(comm_allgather(c, COMM_GRAD, mem, cut, &err), 0);
    assert_int_equal(comm_allgather(c, COMM_GRAD, mem, cut, &err), 0);
    assert_int_equal(comm_barrier(c, COMM_SYNC, &err), 0);
    assert_int_equal(seen[COMM_GRAD], 2);
    assert_int_equal(seen[COMM_SYNC], 1);
    comm_abort(c);
    assert_int_equal(comm_barrier(c, COMM_SYNC, &err), ERR_ABORTED);
    comm_close(c);
}

static void test_bad_options(void **state)
{
    static const struct comm_options bad[] = {
        { .fd = -1, .rank = 0, .nranks = 0, .timeout_ms = 1 },
        { .fd = -1, .rank = 1, .nranks = 1, .timeout_ms = 1 },
        { .fd = -1, .rank = 0, .nranks = 2, .timeout_ms = 1 },
        { .fd = -1, .rank = 0, .nranks = 1, .timeout_ms = 0 },
        { .fd = -1, .rank = 0, .nranks = COMM_MAX_RANKS + 1, .timeout_ms = 1 },
    };
    struct comm *c = NULL;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(comm_open_shm(&bad[i], &c, &err), ERR_INPUT);
    assert_int_equal(comm_open_shm(&(struct comm_options){ .fd = 1000, .nranks = 1, .timeout_ms = 1 }, &c, &err), -EBADF);
    assert_null(c);
}

/* The memory of an earlier attempt must not be taken for a new attempt's. */
static void test_used_memory(void **state)
{
    int fd = memfd_create("test-comm", MFD_CLOEXEC);
    struct comm_options opt = { .fd = fd, .nranks = 1, .timeout_ms = 100 };
    struct comm *c = NULL, *again = NULL;
    struct err err;

    (void)state;
    assert_int_equal(comm_open_shm(&opt, &c, &err), 0);
    assert_int_equal(comm_open_shm(&opt, &again, &err), ERR_STATE);
    comm_close(c);
    close(fd);
}

static void test_missing_rank(void **state)
{
    int fd = memfd_create("test-comm", MFD_CLOEXEC);
    struct comm_options opt = { .fd = fd, .nranks = 2, .timeout_ms = 120 };
    struct comm *c = NULL;
    struct err err;

    (void)state;
    assert_int_equal(comm_open_shm(&opt, &c, &err), ERR_TIMEOUT);
    assert_non_null(strstr(err.msg, "rank 1"));
    close(fd);
}

/* ---- ranks that go wrong: each child stores the code it got ---- */

struct outcome {
    _Atomic int code[8];
    _Atomic int ready;
    int mode;
    char said[8][sizeof((struct err *)NULL)->msg];
};

enum { MODE_STOP, MODE_ABORT, MODE_OTHER_KIND, MODE_OTHER_SIZE, MODE_OTHER_MEMORY };

static int go_wrong(struct comm *c, int mode, struct err *err)
{
    size_t cut[9] = { 0 };
    char byte[2] = { 0 };

    switch (mode) {
    case MODE_STOP:
        for (;;)
            pause();
    case MODE_ABORT:
        comm_abort(c);
        return err_set(err, ERR_ABORTED, "by itself");
    case MODE_OTHER_KIND:
        return comm_allgather(c, COMM_SYNC, byte, cut, err);
    case MODE_OTHER_SIZE:
        return comm_broadcast(c, COMM_SYNC, byte, 2, err);
    default:
        NEED(comm_alloc(c, 4096, err));
        return comm_barrier(c, COMM_SYNC, err);
    }
}

/* Rank 1 goes wrong after a few good operations, the others wait for it. */
static void wrong_ranks(struct comm *c, void *arg)
{
    struct outcome *o = arg;
    int me = comm_rank(c);
    char byte = 0;
    struct err err = { 0 };
    int rc = 0;

    for (int i = 0; i < 5; i++)
        NEED_OK(comm_broadcast(c, COMM_SYNC, &byte, 1, &err));
    atomic_fetch_add(&o->ready, 1);
    if (me == 1)
        rc = go_wrong(c, o->mode, &err);
    else
        rc = o->mode == MODE_OTHER_MEMORY ? comm_barrier(c, COMM_SYNC, &err) : comm_broadcast(c, COMM_SYNC, &byte, 1, &err);
    atomic_store(&o->code[me], rc);
    memcpy(o->said[me], err.msg, sizeof err.msg);
    NEED(rc == 0 || err.msg[0]);
    NEED(comm_barrier(c, COMM_SYNC, &err) == ERR_ABORTED); /* an error is final */
}

static struct outcome *run_wrong(int mode, int nranks, int timeout_ms, bool kill_one)
{
    struct outcome *o = shared_memory(sizeof(*o));
    int fd = memfd_create("test-comm", MFD_CLOEXEC);
    pid_t pids[8];

    o->mode = mode;
    start_ranks(fd, nranks, timeout_ms, wrong_ranks, o, pids);
    if (kill_one) {
        while (atomic_load(&o->ready) < nranks)
            usleep(1000);
        kill(pids[1], SIGKILL);
    }
    assert_int_equal(wait_ranks(pids, nranks), kill_one ? 1 : 0);
    close(fd);
    return o;
}

static void test_killed_rank(void **state)
{
    struct outcome *o = run_wrong(MODE_STOP, 4, 5000, true);
    int timeouts = 0;

    (void)state;
    for (int r = 0; r < 4; r++) {
        if (r == 1)
            continue;
        assert_true(o->code[r] == ERR_TIMEOUT || o->code[r] == ERR_ABORTED);
        timeouts += o->code[r] == ERR_TIMEOUT;
    }
    assert_true(timeouts >= 1);
    munmap(o, sizeof(*o));
}

static void test_abort_wakes(void **state)
{
    struct outcome *o = run_wrong(MODE_ABORT, 4, SECONDS_20, false);

    (void)state;
    for (int r = 0; r < 4; r++)
        assert_int_equal(o->code[r], ERR_ABORTED); /* the deadline would give another code */
    munmap(o, sizeof(*o));
}

/* The error of any rank that compares names both operations. */
static void test_mismatch(void **state)
{
    static const char *const entered[][2] = {
        [MODE_OTHER_KIND] = { " broadcast of 1 bytes", " allgather of 0 bytes" },
        [MODE_OTHER_SIZE] = { " broadcast of 1 bytes", " broadcast of 2 bytes" },
        [MODE_OTHER_MEMORY] = { " barrier of 0 bytes", " barrier of 0 bytes" },
    };

    (void)state;
    for (int mode = MODE_OTHER_KIND; mode <= MODE_OTHER_MEMORY; mode++) {
        struct outcome *o = run_wrong(mode, 3, SECONDS_20, false);
        int named = 0;

        for (int r = 0; r < 3; r++) {
            assert_true(o->code[r] == ERR_STATE || o->code[r] == ERR_ABORTED);
            if (o->code[r] != ERR_STATE)
                continue;
            named++;
            if (!strstr(o->said[r], entered[mode][0]) || !strstr(o->said[r], entered[mode][1]))
                fail_msg("rank %d: %s", r, o->said[r]);
        }
        assert_true(named >= 1);
        munmap(o, sizeof(*o));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),      cmocka_unit_test(test_bad_options), cmocka_unit_test(test_used_memory),
        cmocka_unit_test(test_missing_rank),  cmocka_unit_test(test_alltoall),    cmocka_unit_test(test_allgather),
        cmocka_unit_test(test_private_bytes), cmocka_unit_test(test_killed_rank), cmocka_unit_test(test_abort_wakes),
        cmocka_unit_test(test_mismatch),
    };

    return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}

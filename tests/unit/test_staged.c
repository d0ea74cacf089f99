/* The staged transport with real processes: whatever ranks do over plain shared memory gives the same bytes over device memory with twins.
 * uses: proto worker/comm worker/core cpu */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/ranks.h"
#include "worker/comm/staged.h"
#include "worker/core/device.h"

const struct device_ops *cpu_backend_generic(void);

enum { STEPS = 12, BUCKETS = 3, SECONDS_20 = 20000, MAX_RANKS = 8, MAX_PLANES = 3 };
static const size_t plane_bytes = 9 * 4096;

/* What one thread of a rank works with. */
struct lane {
    struct comm *comm;
    struct device *dev;
    enum comm_channel ch;
    unsigned seed;
    char *planes, *gathered; /* BUCKETS ranges of both are used in turn */
    uint64_t hash;           /* of all bytes that arrived, in order */
};

static struct device *device_open(void)
{
    const struct device_ops *ops = cpu_backend_generic();
    struct device_options opt = { .threads = 1 };
    struct device *dev = NULL;
    struct err err;

    NEED_OK(ops->open(0, &opt, &dev, &err));
    return dev;
}

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* The byte that rank r writes at `at` of its memory before operation n. */
static unsigned char byte(int n, int r, size_t at)
{
    return (unsigned char)((unsigned)n * 89u + (unsigned)r * 31u + (unsigned)at * 7u + (unsigned)(at >> 8) * 13u);
}

static void write_device(struct lane *l, char *dst, int n, size_t bytes)
{
    unsigned char host[12 * 4096];
    struct err err;

    NEED(bytes <= sizeof(host));
    for (size_t i = 0; i < bytes; i++)
        host[i] = byte(n, comm_rank(l->comm), i);
    if (bytes)
        NEED_OK(l->dev->ops->upload(l->dev, dst, host, bytes, &err));
}

/* Reads device memory, compares it with what rank r wrote before operation n, from `from` on, and takes it into the hash. */
static void read_device(struct lane *l, const void *src, int n, int r, size_t from, size_t bytes)
{
    unsigned char host[12 * 4096];
    struct err err;

    NEED(bytes <= sizeof(host));
    if (bytes)
        NEED_OK(l->dev->ops->download(l->dev, host, src, bytes, &err));
    for (size_t i = 0; i < bytes; i++) {
        NEED(host[i] == byte(n, r, from + i));
        l->hash = (l->hash ^ host[i]) * 0x100000001B3u;
    }
}

/* Cuts of a bucket into chunks of different lengths, some empty; all ranks draw the same. */
static void draw_cuts(int nranks, unsigned draw, size_t lo, size_t *cut)
{
    cut[0] = lo;
    for (int r = 0; r < nranks; r++)
        cut[r + 1] = cut[r] + (size_t)(next(&draw) % 4) * 4 * (next(&draw) % 90);
}

static void exchange_bucket(struct lane *l, int step, int bucket)
{
    int nranks = comm_ranks(l->comm), me = comm_rank(l->comm), planes[MAX_RANKS], n = step * BUCKETS + bucket, v = 0;
    struct comm_exchange x = { l->planes, plane_bytes, planes, NULL };
    const void *views[MAX_RANKS * MAX_PLANES];
    size_t cut[MAX_RANKS + 1], lo = (size_t)bucket * 12288;
    struct err err;

    draw_cuts(nranks, (unsigned)n * 77u + (unsigned)l->ch, lo, cut);
    for (int r = 0; r < nranks; r++)
        planes[r] = 1 + (r + step) % MAX_PLANES;
    x.cut = cut;
    for (int k = 0; k < planes[me]; k++)
        write_device(l, l->planes + (size_t)k * plane_bytes + lo, n * 3 + k, cut[nranks] - lo);
    rank_delay(&l->seed, 200);
    NEED_OK(comm_alltoall(l->comm, l->ch, &x, views, &err));
    rank_delay(&l->seed, 200);
    for (int r = 0; r < nranks; r++)
        for (int k = 0; k < planes[r]; k++)
            read_device(l, views[v++], n * 3 + k, r, cut[me] - lo, cut[me + 1] - cut[me]);

    write_device(l, l->gathered + cut[me], n, cut[me + 1] - cut[me]);
    NEED_OK(comm_allgather(l->comm, l->ch, l->gathered, cut, &err));
    rank_delay(&l->seed, 200);
    for (int r = 0; r < nranks; r++)
        read_device(l, l->gathered + cut[r], n, r, 0, cut[r + 1] - cut[r]);
    NEED_OK(comm_check(l->comm, l->ch, &err));
}

static void *lane_run(void *arg)
{
    struct lane *l = arg;

    for (int step = 0; step < STEPS; step++)
        for (int b = 0; b < BUCKETS; b++)
            exchange_bucket(l, step, b);
    return NULL;
}

/* Host bytes, on the channel of the calling thread. */
static void private_bytes(struct lane *l)
{
    int nranks = comm_ranks(l->comm), me = comm_rank(l->comm);
    unsigned char data[1000];
    size_t cut[MAX_RANKS + 1];
    struct err err;
    void *all;

    memset(data, me, sizeof(data));
    NEED_OK(comm_barrier(l->comm, l->ch, &err));
    NEED_OK(comm_gather(l->comm, l->ch, data, (size_t)me * 100, &all, cut, &err));
    for (int r = 0; r < nranks; r++)
        for (size_t i = cut[r]; me == 0 && i < cut[r + 1]; i++)
            NEED(((unsigned char *)all)[i] == r);
    free(all);
    memset(data, me + 5, sizeof(data));
    NEED_OK(comm_broadcast(l->comm, l->ch, data, sizeof(data), &err));
    NEED(data[0] == 5 && data[999] == 5);
}

static void open_lane(struct lane *l, struct comm *c, struct device *dev, enum comm_channel ch)
{
    struct err err;

    *l = (struct lane){ .comm = c, .dev = dev, .ch = ch, .seed = (unsigned)comm_rank(c) * 2 + (unsigned)ch + 1, .hash = 1 };
    l->planes = comm_alloc(c, MAX_PLANES * plane_bytes, &err);
    l->gathered = comm_alloc_shared(c, plane_bytes + 12288, &err);
    NEED(l->planes && l->gathered);
}

/* Both channels at once, as in a training step: COMM_GRAD by a thread of its own. */
static uint64_t work(struct comm *c, struct device *sync, struct device *grad)
{
    struct lane main_lane, side_lane;
    pthread_t thread;

    open_lane(&main_lane, c, sync, COMM_SYNC);
    open_lane(&side_lane, c, grad, COMM_GRAD);
    private_bytes(&main_lane);
    NEED(pthread_create(&thread, NULL, lane_run, &side_lane) == 0);
    lane_run(&main_lane);
    NEED(pthread_join(thread, NULL) == 0);
    private_bytes(&main_lane);
    return main_lane.hash * 31 + side_lane.hash;
}

static void same_ranks(struct comm *shm, void *arg)
{
    struct device *sync = device_open(), *grad = device_open();
    struct comm *staged;
    struct err err;
    uint64_t plain;

    (void)arg;
    plain = work(shm, sync, grad);
    NEED_OK(comm_open_staged(shm, sync, grad, &staged, &err));
    NEED(comm_rank(staged) == comm_rank(shm) && comm_ranks(staged) == comm_ranks(shm));
    NEED(work(staged, sync, grad) == plain);
    NEED_OK(comm_barrier(shm, COMM_SYNC, &err)); /* the host comm goes on by itself */
    comm_close(staged);
    sync->ops->close(sync);
    grad->ops->close(grad);
}

static void test_same_as_shared_memory(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n++)
        assert_int_equal(run_ranks(n, SECONDS_20, same_ranks, NULL), 0);
}

/* One rank exchanges with itself in memory of any kind, and its chunk is not moved. */
static void alone(struct comm *shm, void *arg)
{
    static const int planes[] = { 2 };
    static const size_t cut[] = { 64, 256 };
    struct device *dev = device_open();
    char *mem = dev->ops->alloc(dev, 2048);
    struct comm_exchange x = { mem, 1024, planes, cut };
    const void *views[2];
    struct comm *c;
    struct err err;

    (void)arg;
    NEED_OK(comm_open_staged(shm, dev, dev, &c, &err));
    NEED_OK(comm_alltoall(c, COMM_SYNC, &x, views, &err));
    NEED(views[0] == mem + 64 && views[1] == mem + 1024 + 64);
    comm_close(c);
    dev->ops->free(dev, mem);
    dev->ops->close(dev);
}

static void test_alone(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, SECONDS_20, alone, NULL), 0);
}

/* Memory that is not the comm's ends the job for all. */
static void foreign_memory(struct comm *shm, void *arg)
{
    bool gather = *(bool *)arg;
    struct device *dev = device_open();
    static const int planes[] = { 1, 1 };
    static const size_t cut[] = { 0, 64, 128 };
    struct comm_exchange x = { NULL, 1024, planes, cut };
    const void *views[2];
    struct comm *c;
    struct err err;
    char *mem, other[128];
    int rc;

    NEED_OK(comm_open_staged(shm, dev, dev, &c, &err));
    mem = gather ? comm_alloc_shared(c, 1024, &err) : comm_alloc(c, 1024, &err);
    NEED(mem);
    mem = comm_rank(c) == 1 ? other : mem;
    x.mem = mem;
    rc = gather ? comm_allgather(c, COMM_SYNC, mem, cut, &err) : comm_alltoall(c, COMM_SYNC, &x, views, &err);
    NEED(rc == (comm_rank(c) == 1 ? ERR_INPUT : ERR_ABORTED));
    NEED(strstr(err.msg, comm_rank(c) == 0 ? "rank 1" : gather ? "comm_alloc_shared" : "peers cannot read"));
    NEED(comm_aborted(c) && comm_aborted(shm));
    NEED(comm_barrier(c, COMM_SYNC, &err) == ERR_ABORTED);
    comm_close(c);
    dev->ops->close(dev);
}

static void test_foreign_memory(void **state)
{
    bool gather = false;

    (void)state;
    assert_int_equal(run_ranks(2, SECONDS_20, foreign_memory, &gather), 0);
    gather = true;
    assert_int_equal(run_ranks(2, SECONDS_20, foreign_memory, &gather), 0);
}

/* A rank that dies, and one that leaves, end the others' wait. */
static void missing_peer(struct comm *shm, void *arg)
{
    bool leaves = *(bool *)arg;
    static const size_t cut[] = { 0, 64, 128, 192 };
    struct device *dev = device_open();
    struct comm *c;
    struct err err;
    char *mem;
    int rc;

    NEED_OK(comm_open_staged(shm, dev, dev, &c, &err));
    mem = comm_alloc_shared(c, 1024, &err);
    NEED(mem);
    NEED_OK(comm_allgather(c, COMM_GRAD, mem, cut, &err));
    if (comm_rank(c) == 2) {
        if (leaves)
            comm_abort(c);
        _exit(0);
    }
    rc = comm_allgather(c, COMM_GRAD, mem, cut, &err);
    NEED(rc == ERR_ABORTED || (!leaves && rc == ERR_TIMEOUT));
    NEED(leaves || rc == ERR_ABORTED || strstr(err.msg, "rank 2 did not enter"));
    comm_close(c);
    dev->ops->close(dev);
}

static void test_missing_peer(void **state)
{
    bool leaves = true;

    (void)state;
    assert_int_equal(run_ranks(3, SECONDS_20, missing_peer, &leaves), 0);
    leaves = false;
    assert_int_equal(run_ranks(3, 300, missing_peer, &leaves), 0);
}

/* More allocations than there are regions, and more than the device has. */
static void no_memory(struct comm *shm, void *arg)
{
    struct device *dev = device_open();
    struct comm *c;
    struct err err = { 0 };
    int n = 0;

    (void)arg;
    NEED_OK(comm_open_staged(shm, dev, dev, &c, &err));
    NEED(!comm_alloc(c, (size_t)1 << 45, &err) && err.code < 0 && err.msg[0]);
    while (n < 1000 && comm_alloc_shared(c, 64, &err))
        n++;
    NEED(n > 10 && n < 1000 && err.code == ERR_STATE && strstr(err.msg, "allocations"));
    comm_close(c);
    dev->ops->close(dev);
}

static void test_no_memory(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, SECONDS_20, no_memory, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_shared_memory), cmocka_unit_test(test_alone),     cmocka_unit_test(test_foreign_memory),
        cmocka_unit_test(test_missing_peer),          cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

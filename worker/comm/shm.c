/* SPDX-License-Identifier: Apache-2.0 */ /* Ranks of one machine share one inherited memfd: a head with a cell for each
 * rank, stages for private bytes, then allocations in the order of calls. The file only grows, and takes a page when it
 * is touched. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "proto/err.h"
#include "worker/comm/transport.h"

enum { SLICE_MS = 50, SPINS = 200, MAX_REGIONS = 64 };

/* The newest two operations of one rank on a channel. Two suffice: a rank that enters n + 1 has seen all others enter
 * n, so all have stopped reading n - 1. */
struct post {
    _Alignas(64) _Atomic uint32_t entered; /* number of the operation entered last; compared as a signed difference */
    struct comm_op op[2];
    uint64_t size[2]; /* bytes in the stage */
};

struct cell {
    _Alignas(64) _Atomic uint32_t joined; /* the number of ranks that this rank expects */
    struct post post[COMM_CHANNELS];
};

struct head {
    _Atomic uint32_t abort_by; /* rank + 1 of the first rank that aborted */
    struct cell cell[COMM_MAX_RANKS];
};

struct region {
    char *base;
    size_t bytes, rank_bytes; /* whole mapping; the part of one rank, 0: shared by all */
};

struct shm {
    struct comm comm; /* must stay first */
    int fd, timeout_ms;
    struct head *head;
    char *stage; /* [nranks][channels][2][COMM_STAGE_BYTES] */
    size_t end;  /* size of the file as this rank sees it */
    struct region region[MAX_REGIONS];
    int nregions;
};

static size_t align_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Not FUTEX_PRIVATE: the waiters are other processes. */
static void wait_slice(_Atomic uint32_t *word, uint32_t seen)
{
    struct timespec slice = { 0, SLICE_MS * 1000000L };

    syscall(SYS_futex, word, FUTEX_WAIT, seen, &slice, NULL, 0);
}

static void shm_abort(struct comm *c)
{
    struct shm *s = (struct shm *)c;
    uint32_t none = 0;

    atomic_compare_exchange_strong(&s->head->abort_by, &none, (uint32_t)c->rank + 1);
    for (int r = 0; r < c->nranks; r++) {
        wake(&s->head->cell[r].joined);
        for (int ch = 0; ch < COMM_CHANNELS; ch++)
            wake(&s->head->cell[r].post[ch].entered);
    }
}

static bool shm_aborted(const struct comm *c)
{
    const struct shm *s = (const struct shm *)c;

    return atomic_load_explicit(&s->head->abort_by, memory_order_acquire) != 0;
}

static int check_abort(struct shm *s, struct err *err)
{
    uint32_t by = atomic_load_explicit(&s->head->abort_by, memory_order_acquire);

    if (by == 0)
        return 0;
    if (by == (uint32_t)s->comm.rank + 1)
        return err_set(err, ERR_ABORTED, "rank %d has left the job", s->comm.rank);
    return err_set(err, ERR_ABORTED, "rank %u left the job", by - 1);
}

/* Waits until *word has reached value. Returns 0, ERR_ABORTED, or ERR_TIMEOUT without a message: the caller knows the
 * late rank. */
static int reach(struct shm *s, _Atomic uint32_t *word, uint32_t value, struct err *err)
{
    int64_t deadline = 0;

    for (int i = 0; i < SPINS; i++) {
        if ((int32_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0)
            return 0;
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
    }
    for (;;) {
        uint32_t seen = atomic_load_explicit(word, memory_order_acquire);
        int rc;

        if ((int32_t)(seen - value) >= 0)
            return 0;
        if ((rc = check_abort(s, err)) < 0)
            return rc;
        if (deadline == 0)
            deadline = now_ms() + s->timeout_ms;
        else if (now_ms() >= deadline)
            return ERR_TIMEOUT;
        wait_slice(word, seen);
    }
}

static int check_op(struct shm *s, const struct comm_op *mine, int peer, struct err *err)
{
    const struct comm_op *theirs = &s->head->cell[peer].post[mine->channel].op[mine->number & 1];

    if (theirs->kind == mine->kind && theirs->bytes == mine->bytes && theirs->fingerprint == mine->fingerprint)
        return 0;
    return err_set(err, ERR_STATE, "collective %u on %s: rank %d entered %s of %llu bytes (%016llx), rank %d %s of %llu bytes (%016llx)",
                   mine->number, comm_channel_name(mine->channel), s->comm.rank, comm_kind_name(mine->kind),
                   (unsigned long long)mine->bytes, (unsigned long long)mine->fingerprint, peer, comm_kind_name(theirs->kind),
                   (unsigned long long)theirs->bytes, (unsigned long long)theirs->fingerprint);
}

/* Waits for one peer and checks that it entered the same operation. */
static int meet(struct shm *s, const struct comm_op *op, int peer, struct err *err)
{
    int rc = reach(s, &s->head->cell[peer].post[op->channel].entered, op->number, err);

    if (rc == ERR_TIMEOUT)
        return err_set(err, rc, "rank %d did not enter collective %u (%s on %s, %llu bytes) within %d ms", peer, op->number,
                       comm_kind_name(op->kind), comm_channel_name(op->channel), (unsigned long long)op->bytes, s->timeout_ms);
    return rc < 0 ? rc : check_op(s, op, peer, err);
}

/* Starts every operation: posts it, then waits until all ranks have entered the same one. The first error aborts all
 * ranks. */
static int enter(struct shm *s, const struct comm_op *op, size_t staged, struct err *err)
{
    struct post *post = &s->head->cell[s->comm.rank].post[op->channel];
    int rc = check_abort(s, err);

    if (rc < 0)
        return rc;
    post->op[op->number & 1] = *op;
    post->size[op->number & 1] = staged;
    atomic_store_explicit(&post->entered, op->number, memory_order_release);
    if (s->comm.nranks > 1)
        wake(&post->entered);
    for (int r = 0; rc == 0 && r < s->comm.nranks; r++)
        if (r != s->comm.rank)
            rc = meet(s, op, r, err);
    if (rc < 0)
        shm_abort(&s->comm);
    return rc;
}

/* The address of `peer`'s memory that corresponds to mem of this rank. NULL: mem is not from comm_alloc(). */
static const char *peer_memory(const struct shm *s, const void *mem, int peer)
{
    const char *at = mem;

    for (int i = 0; i < s->nregions; i++) {
        const struct region *g = &s->region[i];

        if (g->rank_bytes && at >= g->base && at < g->base + g->bytes)
            return at + ((ptrdiff_t)peer - s->comm.rank) * (ptrdiff_t)g->rank_bytes;
    }
    return NULL;
}

static int shm_alltoall(struct comm *c, const struct comm_op *op, const struct comm_planes *x, const void **ret_views, struct err *err)
{
    struct shm *s = (struct shm *)c;
    int rc = enter(s, op, 0, err), view = 0;

    for (int r = 0; rc == 0 && r < c->nranks; r++) {
        const char *base = r == c->rank ? x->mem : peer_memory(s, x->mem, r);

        if (!base) {
            shm_abort(c);
            return err_set(err, ERR_INPUT, "alltoall from memory that peers cannot read");
        }
        for (int k = 0; k < x->planes[r]; k++)
            ret_views[view++] = base + (size_t)k * x->plane_bytes + x->cut[c->rank];
    }
    return rc;
}

/* The buffer is one common region: when all have entered, all parts are in place. */
static int shm_allgather(struct comm *c, const struct comm_op *op, void *buffer, const size_t *cut, struct err *err)
{
    (void)buffer;
    (void)cut;
    return enter((struct shm *)c, op, 0, err);
}

static char *stage_of(const struct shm *s, int rank, const struct comm_op *op)
{
    return s->stage + (((size_t)rank * COMM_CHANNELS + op->channel) * 2 + (op->number & 1)) * COMM_STAGE_BYTES;
}

static int shm_exchange(struct comm *c, const struct comm_op *op, const void *mine, size_t bytes, int reader, const void **ret_views,
                        size_t *ret_sizes, struct err *err)
{
    struct shm *s = (struct shm *)c;
    int rc;

    (void)reader; /* every rank may read all parts */
    if (bytes)
        memcpy(stage_of(s, c->rank, op), mine, bytes);
    rc = enter(s, op, bytes, err);
    for (int r = 0; rc == 0 && ret_views && r < c->nranks; r++) {
        ret_views[r] = stage_of(s, r, op);
        ret_sizes[r] = s->head->cell[r].post[op->channel].size[op->number & 1];
    }
    return rc;
}

/* Maps the next `bytes` of the file. Allocating the last byte makes the file long enough. Unlike ftruncate() it never
 * cuts off the part that a faster rank has added. */
static char *map_next(struct shm *s, size_t bytes, struct err *err)
{
    size_t length = align_up(bytes ? bytes : 1, COMM_ALIGN);
    char *base;

    if (fallocate(s->fd, 0, (off_t)(s->end + length - 1), 1) < 0) {
        err_sys(err, "shared memory of %zu bytes", s->end + length);
        return NULL;
    }
    base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, (off_t)s->end);
    if (base == MAP_FAILED) {
        err_sys(err, "map %zu bytes of shared memory", length);
        return NULL;
    }
    s->end += length;
    return base;
}

static void *shm_alloc(struct comm *c, size_t bytes, bool shared, struct err *err)
{
    struct shm *s = (struct shm *)c;
    struct region g = { .rank_bytes = shared ? 0 : align_up(bytes ? bytes : 1, COMM_ALIGN) };

    if (s->nregions == MAX_REGIONS) {
        err_set(err, ERR_STATE, "more than %d allocations of shared memory", MAX_REGIONS);
        return NULL;
    }
    g.bytes = shared ? align_up(bytes ? bytes : 1, COMM_ALIGN) : g.rank_bytes * (size_t)c->nranks;
    g.base = map_next(s, g.bytes, err);
    if (!g.base)
        return NULL;
    s->region[s->nregions++] = g;
    return shared ? g.base : g.base + g.rank_bytes * (size_t)c->rank;
}

static size_t stage_bytes(int nranks)
{
    return (size_t)nranks * COMM_CHANNELS * 2 * COMM_STAGE_BYTES;
}

static void shm_close(struct comm *c)
{
    struct shm *s = (struct shm *)c;

    for (int i = 0; i < s->nregions; i++)
        munmap(s->region[i].base, s->region[i].bytes);
    if (s->stage)
        munmap(s->stage, align_up(stage_bytes(c->nranks), COMM_ALIGN));
    if (s->head)
        munmap(s->head, align_up(sizeof(*s->head), COMM_ALIGN));
    close(s->fd);
    free(s);
}

static const struct comm_ops shm_ops = {
    .name = "shared memory",
    .alloc = shm_alloc,
    .alltoall = shm_alltoall,
    .allgather = shm_allgather,
    .exchange = shm_exchange,
    .abort = shm_abort,
    .aborted = shm_aborted,
    .close = shm_close,
};

/* Announces this rank and waits for all others. */
static int join(struct shm *s, struct err *err)
{
    const struct comm *c = &s->comm;
    uint32_t n = (uint32_t)c->nranks, before = 0;
    int rc = check_abort(s, err);

    if (rc < 0)
        return rc;
    if (!atomic_compare_exchange_strong(&s->head->cell[c->rank].joined, &before, n))
        return err_set(err, ERR_STATE, "rank %d: the shared memory was used before, by a rank of the same number", c->rank);
    wake(&s->head->cell[c->rank].joined);
    for (int r = 0; r < c->nranks; r++) {
        uint32_t theirs;

        rc = reach(s, &s->head->cell[r].joined, 1, err);
        if (rc == ERR_TIMEOUT)
            rc = err_set(err, rc, "rank %d of %d did not open the shared memory within %d ms", r, c->nranks, s->timeout_ms);
        if (rc < 0)
            break;
        theirs = atomic_load(&s->head->cell[r].joined);
        if (theirs != n)
            rc = err_set(err, ERR_INPUT, "rank %d was started for %u ranks, rank %d for %d", r, theirs, c->rank, c->nranks);
        if (rc < 0)
            break;
    }
    if (rc < 0)
        shm_abort(&s->comm);
    return rc;
}

static int check_options(const struct comm_options *opt, struct err *err)
{
    if (opt->nranks < 1 || opt->nranks > COMM_MAX_RANKS)
        return err_set(err, ERR_INPUT, "number of ranks must be 1 to %d, is %d", COMM_MAX_RANKS, opt->nranks);
    if (opt->rank < 0 || opt->rank >= opt->nranks)
        return err_set(err, ERR_INPUT, "rank must be 0 to %d, is %d", opt->nranks - 1, opt->rank);
    if (opt->timeout_ms <= 0)
        return err_set(err, ERR_INPUT, "timeout of collectives must be > 0 ms, is %d", opt->timeout_ms);
    if (opt->fd < 0 && opt->nranks > 1)
        return err_set(err, ERR_INPUT, "%d ranks need shared memory that all inherit", opt->nranks);
    return 0;
}

static int open_memory(struct shm *s, int fd, struct err *err)
{
    s->fd = fd < 0 ? memfd_create("detd-comm", MFD_CLOEXEC) : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (s->fd < 0)
        return err_sys(err, fd < 0 ? "create shared memory" : "shared memory of the job, descriptor %d", fd);
    s->head = (struct head *)(void *)map_next(s, sizeof(*s->head), err);
    if (!s->head)
        return err->code;
    s->stage = map_next(s, stage_bytes(s->comm.nranks), err);
    return s->stage ? 0 : err->code;
}

int comm_open_shm(const struct comm_options *opt, struct comm **ret_comm, struct err *err)
{
    struct err local = { 0 };
    struct shm *s;
    int rc = check_options(opt, err);

    if (rc < 0)
        return rc;
    s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, -ENOMEM, "shared-memory transport: out of memory");
    s->comm = (struct comm){ .ops = &shm_ops, .rank = opt->rank, .nranks = opt->nranks, .hook = opt->hook };
    s->fd = -1;
    s->timeout_ms = opt->timeout_ms;
    err = err ? err : &local;
    rc = open_memory(s, opt->fd, err);
    if (rc == 0)
        rc = join(s, err);
    if (rc < 0) {
        comm_close(&s->comm);
        return rc;
    }
    *ret_comm = &s->comm;
    return 0;
}

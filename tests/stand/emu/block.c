/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/block.c - runs a grid: blocks one after the other in random
 * order, the threads of a block on fibers.
 *
 * Threads that may run are in a bag. A thread that stops (at a barrier, at its end) draws the next at random. A fiber
 * runs thread after thread until one waits, so threads that never wait share one stack and cost a function call each.
 * Threads change only at waits: the effect of a missing barrier is a result that depends on the seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand/emu/fiber.h"
#include "tests/stand/emu/internal.h"

enum { MAX_SHARED = 64, NOBODY = -1 };
enum wait { RUNS, AT_BARRIER, IN_MEETING };

struct thread {
    struct fiber *fiber; /* NULL: not started */
    enum wait wait;
    struct emu_site site; /* where it waits */
    unsigned mask;        /* IN_MEETING */
};

/* Lanes of a warp that exchange values. */
struct meeting {
    unsigned mask, came, unread; /* mask 0: free */
    bool done;
    struct emu_site site;
    uint64_t value[EMU_WARP];
};

struct shared {
    const void *key;
    size_t bytes;
    void *mem;
};

static struct {
    const struct emu_launch *launch;
    const void *args;
    struct fiber *home; /* emu_run_grid() */
    int nthreads, live;
    struct thread thread[EMU_MAX_THREADS];
    int bag[EMU_MAX_THREADS], nbag;
    int self;
    int arrived, voted; /* at the barrier */
    int votes, voters;  /* of the barrier passed last */
    struct meeting meeting[EMU_MAX_THREADS / EMU_WARP][EMU_WARP];
    struct shared shared[MAX_SHARED];
    int nshared;
    struct fiber *idle[EMU_MAX_THREADS + 1];
    int nidle;
} b;

struct emu_dim threadIdx, blockIdx, blockDim, gridDim;

static void put(int t)
{
    b.bag[b.nbag++] = t;
}

/* Adds to the message the barriers of the waiting threads. */
static _Noreturn void stuck(void)
{
    char text[600];
    size_t n = 0;
    struct emu_site last = { NULL, 0 };

    text[0] = '\0';
    for (int t = 0; t < b.nthreads; t++) {
        const struct thread *th = &b.thread[t];

        if (th->wait == RUNS || (last.file && last.line == th->site.line && strcmp(last.file, th->site.file) == 0))
            continue;
        last = th->site;
        if (n < sizeof text - 1)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s thread %d waits %s %s:%d", n ? ";" : "", t,
                                  th->wait == AT_BARRIER ? "at the barrier of" : "for lanes at", last.file, last.line);
    }
    emu_violation("%s:%d: kernel %s, block (%u,%u,%u): threads wait for each other for ever:%s; %d of %d threads live", b.launch->site.file,
                  b.launch->site.line, b.launch->kernel, blockIdx.x, blockIdx.y, blockIdx.z, text, b.live, b.nthreads);
}

/* Draws a thread. Returns NOBODY if no thread can run. */
static int draw(void)
{
    int i, t;

    if (b.nbag == 0)
        return NOBODY;
    i = (int)emu_random((uint32_t)b.nbag);
    t = b.bag[i];
    b.bag[i] = b.bag[--b.nbag];
    return t;
}

static void become(int t)
{
    unsigned i = (unsigned)t;

    b.self = t;
    threadIdx.x = i;
    if (blockDim.y * blockDim.z > 1) {
        threadIdx.x = i % blockDim.x;
        threadIdx.y = i / blockDim.x % blockDim.y;
        threadIdx.z = i / blockDim.x / blockDim.y;
    }
}

static void release_barrier(void)
{
    b.voters = b.arrived;
    b.votes = b.voted;
    b.arrived = b.voted = 0;
    for (int t = 0; t < b.nthreads; t++)
        if (b.thread[t].wait == AT_BARRIER) {
            b.thread[t].wait = RUNS;
            put(t);
        }
}

/* Lanes of warp w that have not ended. */
static unsigned living[EMU_MAX_THREADS / EMU_WARP];

static void release_meeting(int warp, struct meeting *m)
{
    if (m->done || m->came == 0 || m->came != (m->mask & living[warp]))
        return;
    m->done = true;
    m->unread = m->came;
    for (int lane = 0; lane < EMU_WARP; lane++)
        if (m->came >> lane & 1u) {
            b.thread[warp * EMU_WARP + lane].wait = RUNS;
            put(warp * EMU_WARP + lane);
        }
}

/* Thread t has ended: threads that waited only for it continue. */
static void ended(int t)
{
    int warp = t / EMU_WARP;

    b.live--;
    living[warp] &= ~(1u << (t % EMU_WARP));
    if (b.live > 0 && b.arrived == b.live)
        release_barrier();
    for (int i = 0; i < EMU_WARP; i++)
        if (b.meeting[warp][i].mask)
            release_meeting(warp, &b.meeting[warp][i]);
}

static int next = NOBODY; /* the thread that a fiber taken from the idle ones starts with */

/* The main function of every fiber: runs threads one after the other. */
static void fiber_main(void)
{
    for (;;) {
        int t = next != NOBODY ? next : draw();
        struct fiber *f;

        next = NOBODY;
        if (t == NOBODY && b.live > 0)
            stuck();
        if (t != NOBODY && !b.thread[t].fiber) {
            b.thread[t].fiber = fiber_self();
            become(t);
            b.launch->invoke(b.args);
            ended(b.self);
            continue;
        }
        f = t == NOBODY ? b.home : b.thread[t].fiber;
        b.idle[b.nidle++] = fiber_self();
        if (t != NOBODY)
            become(t);
        fiber_switch(f);
    }
}

static struct fiber *take_idle(void)
{
    return b.nidle > 0 ? b.idle[--b.nidle] : fiber_new(fiber_main);
}

/* The running thread waits until another thread puts it into the bag and it is drawn. */
static void wait_here(void)
{
    int me = b.self, t = draw();

    if (t == NOBODY)
        stuck();
    if (t == me) /* the last to come is drawn first */
        return;
    if (b.thread[t].fiber) {
        become(t);
        fiber_switch(b.thread[t].fiber);
    } else {
        next = t;
        fiber_switch(take_idle());
    }
    become(me);
}

static bool same_site(struct emu_site x, struct emu_site y)
{
    return x.line == y.line && (x.file == y.file || strcmp(x.file, y.file) == 0);
}

int emu_barrier(struct emu_site site, int predicate, int *ret_all)
{
    struct thread *th = &b.thread[b.self];
    static struct emu_site first;

    if (b.arrived == 0)
        first = site;
    else if (!same_site(first, site))
        emu_violation("%s:%d: kernel %s, block (%u,%u,%u): thread %d comes to this barrier while others wait at that of %s:%d", site.file,
                      site.line, b.launch->kernel, blockIdx.x, blockIdx.y, blockIdx.z, b.self, first.file, first.line);
    th->wait = AT_BARRIER;
    th->site = site;
    b.arrived++;
    b.voted += predicate != 0;
    if (b.arrived == b.live)
        release_barrier();
    wait_here();
    if (ret_all)
        *ret_all = b.voters;
    return b.votes;
}

static struct meeting *find_meeting(int warp, unsigned mask, struct emu_site site)
{
    struct meeting *open = NULL;

    for (int i = 0; i < EMU_WARP; i++) {
        struct meeting *m = &b.meeting[warp][i];

        if (m->mask == mask && !m->done && same_site(m->site, site))
            return m;
        if (m->mask == 0 && !open)
            open = m;
    }
    memset(open, 0, sizeof(*open));
    open->mask = mask;
    open->site = site;
    return open;
}

unsigned emu_meet(struct emu_site site, unsigned mask, uint64_t value, uint64_t ret_values[EMU_WARP], int *ret_lane)
{
    int warp = b.self / EMU_WARP, lane = b.self % EMU_WARP;
    struct thread *th = &b.thread[b.self];
    struct meeting *m = find_meeting(warp, mask, site);

    if (!(mask >> lane & 1u))
        emu_violation("%s:%d: kernel %s, block (%u,%u,%u): lane %d is not in its own mask %08x", site.file, site.line, b.launch->kernel,
                      blockIdx.x, blockIdx.y, blockIdx.z, lane, mask);
    th->wait = IN_MEETING;
    th->site = site;
    th->mask = mask;
    m->came |= 1u << lane;
    m->value[lane] = value;
    release_meeting(warp, m);
    wait_here();
    memcpy(ret_values, m->value, sizeof m->value);
    *ret_lane = lane;
    mask = m->came;
    m->unread &= ~(1u << lane);
    if (m->unread == 0)
        m->mask = 0;
    return mask;
}

void *emu_shared(const void *key, size_t bytes)
{
    struct shared *s = b.shared;

    for (int i = 0; i < b.nshared; i++, s++)
        if (s->key == key)
            return s->mem;
    if (b.nshared == MAX_SHARED || posix_memalign(&s->mem, 16, bytes) != 0)
        emu_violation("kernel %s: too many shared arrays, or no memory for %zu bytes", b.launch->kernel, bytes);
    emu_poison(s->mem, bytes);
    s->key = key;
    s->bytes = bytes;
    b.nshared++;
    return s->mem;
}

/* A kernel gets 48 KiB without asking for more. */
static void free_shared(void)
{
    size_t sum = 0;

    for (int i = 0; i < b.nshared; i++) {
        sum += b.shared[i].bytes;
        free(b.shared[i].mem);
    }
    b.nshared = 0;
    if (sum > 48 << 10)
        emu_violation("%s:%d: kernel %s uses %zu bytes of shared memory, more than 48 KiB", b.launch->site.file, b.launch->site.line,
                      b.launch->kernel, sum);
}

static void run_block(void)
{
    b.live = b.nthreads;
    b.nbag = b.nthreads;
    b.arrived = b.voted = 0;
    memset(b.thread, 0, (size_t)b.nthreads * sizeof(b.thread[0]));
    for (int t = 0; t < b.nthreads; t++)
        b.bag[t] = t;
    memset(living, 0, sizeof living);
    for (int t = 0; t < b.nthreads; t++)
        living[t / EMU_WARP] |= 1u << (t % EMU_WARP);
    threadIdx.y = threadIdx.z = 0;
    fiber_switch(take_idle());
    free_shared();
}

/* Walks 0 .. n-1 in an order of the seed: start + i * step mod n, step prime to n. */
static uint64_t step_prime_to(uint64_t n)
{
    for (;;) {
        uint64_t step = 1 + emu_random(n > 1 ? (uint32_t)(n < 65536 ? n : 65536) : 1), a = step, c = n;

        while (c != 0) {
            uint64_t r = a % c;

            a = c;
            c = r;
        }
        if (a == 1)
            return step;
    }
}

void emu_run_grid(const struct emu_launch *launch, const void *args)
{
    uint64_t n = (uint64_t)launch->grid.x * launch->grid.y * launch->grid.z, at, step;

    b.launch = launch;
    b.args = args;
    b.home = fiber_self();
    b.nthreads = (int)(launch->block.x * launch->block.y * launch->block.z);
    blockDim = launch->block;
    gridDim = launch->grid;
    at = n > 1 ? emu_random((uint32_t)(n < UINT32_MAX ? n : UINT32_MAX)) : 0;
    step = step_prime_to(n);
    for (uint64_t i = 0; i < n; i++, at = (at + step) % n) {
        blockIdx.x = (unsigned)(at % gridDim.x);
        blockIdx.y = (unsigned)(at / gridDim.x % gridDim.y);
        blockIdx.z = (unsigned)(at / gridDim.x / gridDim.y);
        run_block();
    }
}

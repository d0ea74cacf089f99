/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/nccl.c - ranks are threads, operations are tasks on
 * emulated streams that meet in mailboxes. A single lock for everything, taken inside the emulator's lock and never
 * around it. */
#include "tests/stand/emu/nccl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/libs_nccl.h"
#include "tests/stand/emu/emu.h"

enum { RANKS = 16, GROUP_OPS = 4096, VERSION = 22809 };

struct post {
    const void *mem;
    size_t bytes;
    struct ncclComm *from;
    bool taken;
    struct post *next;
};

/* The communicators and messages of one id. */
struct world {
    ncclUniqueId id;
    int nranks, joined, members;
    struct post *box[RANKS][RANKS]; /* from, to; oldest first */
    struct task *active;            /* tasks that their streams have reached */
    struct world *next;
};

enum action { SEND, RECEIVE };
struct action_of {
    enum action action;
    int peer;
    void *mem;
    size_t bytes;
};

/* A group on its way to the stream, then on it. */
struct task {
    struct ncclComm *comm;
    cudaStream_t stream;
    bool stuck; /* never gets done */
    bool posted, done;
    int delay;              /* number of checks before it begins: streams of ranks do not run at the same speed */
    int nactions, received; /* the first actions that receive, up to this one, are finished */
    struct action_of *action;
    struct post **sent; /* of each action, NULL where it sends nothing */
    struct task *next;  /* active in this world */
};

struct ncclComm {
    struct world *world;
    int rank;
    int refs; /* the handle and the tasks on streams */
    bool aborted, finalized;
    ncclResult_t state; /* ncclSuccess until something breaks */
    int polls;          /* that are still answered with ncclInProgress */
    struct task *queueing;
    ncclWindow_t *window; /* to be filled when the registration is through */
    unsigned groups, break_after;
    ncclResult_t break_how;
    atomic_bool inside;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct world *worlds;
static struct nccl_seen seen;
static unsigned ids, dice = 1;
static int windows_offered, version_told;
static struct {
    ncclResult_t how;
    unsigned ops;
} broken[RANKS];
static _Thread_local struct {
    int depth;
    struct task *task;
    ncclResult_t wrong;
} group;
static _Thread_local char last_error[128];

static unsigned roll(unsigned sides)
{
    dice = dice * 1664525u + 1013904223u;
    return (dice >> 8) % sides;
}

static ncclResult_t refuse(ncclResult_t r, const char *why)
{
    snprintf(last_error, sizeof(last_error), "%s", why);
    return r;
}

/* ---- communicators ---- */

/* The lock, and a look whether this thread is the only one inside. */
static void enter(struct ncclComm *c)
{
    bool second = atomic_exchange(&c->inside, true);

    pthread_mutex_lock(&lock);
    seen.races += second;
}

static void leave(struct ncclComm *c)
{
    atomic_store(&c->inside, false);
    pthread_mutex_unlock(&lock);
}

/* With the lock held. */
static void release(struct ncclComm *c)
{
    struct world *w = c->world;

    if (--c->refs > 0)
        return;
    seen.comms--;
    free(c);
    if (--w->members > 0)
        return;
    for (struct world **at = &worlds; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    free(w);
}

static void drop_task(struct task *t)
{
    free(t->action);
    free(t->sent);
    free(t);
}

static struct world *world_of(const ncclUniqueId *id, int nranks)
{
    struct world *w = worlds;

    while (w && memcmp(&w->id, id, sizeof(*id)) != 0)
        w = w->next;
    if (w || !(w = calloc(1, sizeof(*w))))
        return w;
    w->id = *id;
    w->nranks = nranks;
    w->next = worlds;
    worlds = w;
    return w;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = version_told ? version_told : VERSION;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r)
{
    static const char *const text[] = { "no error",         "unhandled cuda error", "unhandled system error", "internal error",
                                        "invalid argument", "invalid usage",        "remote process exited",  "in progress" };

    return text[r];
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < NCCL_UNIQUE_ID_BYTES; i++)
        id->internal[i] = (char)roll(256);
    memcpy(id->internal, &ids, sizeof(ids));
    ids++;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    struct ncclComm *c = calloc(1, sizeof(*c));

    if (!c || config->blocking || config->maxCTAs < 1 || !config->commName || nranks > RANKS || rank >= nranks) {
        free(c);
        return refuse(ncclInvalidArgument, "not what the device asks for");
    }
    pthread_mutex_lock(&lock);
    c->world = world_of(&id, nranks);
    c->rank = rank;
    c->refs = 1;
    c->break_how = broken[rank].how;
    c->break_after = broken[rank].ops;
    c->polls = (int)roll(3);
    c->world->members++;
    c->world->joined++;
    snprintf(seen.names[seen.comms++ % 2], sizeof(seen.names[0]), "%s", config->commName);
    if (c->world->nranks != nranks)
        c->state = ncclInvalidUsage;
    *comm = c;
    pthread_mutex_unlock(&lock);
    return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    enter(c);
    c->finalized = true;
    c->polls = (int)roll(3);
    leave(c);
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    ncclResult_t r = c->finalized ? ncclSuccess : ncclInvalidUsage;

    pthread_mutex_lock(&lock);
    release(c);
    pthread_mutex_unlock(&lock);
    return r;
}

/* Has another communicator of the rank something on the GPU? */
static bool busy(int rank)
{
    bool yes = false;

    pthread_mutex_lock(&lock);
    for (const struct world *w = worlds; w; w = w->next)
        for (const struct task *t = w->active; t; t = t->next)
            yes = yes || (t->comm->rank == rank && !t->comm->aborted && !t->done);
    pthread_mutex_unlock(&lock);
    return yes;
}

/* Tasks on streams notice the abort by themselves; messages that this rank has sent and no rank took are lost. Returns
 * when the GPU is done with the rank's tasks, like the library, which frees memory on the way. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
    int rank = c->rank;

    enter(c);
    seen.aborts++;
    c->aborted = true;
    if (c->queueing) {
        drop_task(c->queueing);
        c->queueing = NULL;
        c->refs--;
    }
    atomic_store(&c->inside, false);
    release(c);
    pthread_mutex_unlock(&lock);
    emu_wake();
    while (busy(rank))
        usleep(200);
    return ncclSuccess;
}

/* ---- tasks ---- */

static void post_all(struct task *t)
{
    struct ncclComm *c = t->comm;

    for (int i = 0; i < t->nactions; i++) {
        struct post **at = &c->world->box[c->rank][t->action[i].peer];

        if (t->action[i].action != SEND)
            continue;
        while (*at)
            at = &(*at)->next;
        *at = t->sent[i] = calloc(1, sizeof(**at));
        if (!*at)
            abort();
        **at = (struct post){ .mem = t->action[i].mem, .bytes = t->action[i].bytes, .from = c };
    }
    t->posted = true;
    t->next = c->world->active;
    c->world->active = t;
}

static void unpost(struct task *t)
{
    struct ncclComm *c = t->comm;

    for (int i = 0; t->posted && i < t->nactions; i++) {
        struct post **at = &c->world->box[c->rank][t->action[i].peer];

        while (t->sent[i] && *at && *at != t->sent[i])
            at = &(*at)->next;
        if (t->sent[i] && *at)
            *at = (*at)->next;
        free(t->sent[i]);
    }
    for (struct task **at = &c->world->active; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            return;
        }
}

/* Takes the messages that have come. Returns true if it took any. */
static bool receive(struct task *t)
{
    struct ncclComm *c = t->comm;
    bool any = false;

    for (; t->received < t->nactions && !c->aborted && !t->stuck; t->received++) {
        const struct action_of *a = &t->action[t->received];
        struct post **box = &c->world->box[a->peer][c->rank], *p = *box;

        if (a->action == SEND)
            continue;
        if (!p)
            break;
        if (p->bytes != a->bytes) {
            c->state = p->from->state = ncclInternalError;
            t->stuck = true;
            break;
        }
        memcpy(a->mem, p->mem, p->bytes);
        seen.bytes_moved += p->bytes;
        *box = p->next;
        p->taken = any = true;
    }
    return any;
}

static void look_done(struct task *t)
{
    t->done = !t->stuck && t->received == t->nactions;
    for (int i = 0; t->done && i < t->nactions; i++)
        t->done = !t->sent[i] || t->sent[i]->taken;
}

/* The stream has reached this task: all tasks that have come so far advance as far as they can. */
static int run_task(void *arg)
{
    struct task *t = *(struct task **)arg;
    struct ncclComm *c = t->comm;
    bool any = true;

    pthread_mutex_lock(&lock);
    if (!c->aborted && t->delay-- > 0) {
        pthread_mutex_unlock(&lock);
        return EMU_AGAIN;
    }
    if (!c->aborted && !t->posted && !t->stuck)
        post_all(t);
    while (any) {
        any = false;
        for (struct task *o = c->world->active; o; o = o->next)
            any = receive(o) || any;
    }
    for (struct task *o = c->world->active; o; o = o->next)
        look_done(o);
    if (!t->done && !c->aborted) {
        pthread_mutex_unlock(&lock);
        return EMU_AGAIN;
    }
    unpost(t);
    drop_task(t);
    release(c);
    pthread_mutex_unlock(&lock);
    return EMU_DONE;
}

/* The work of the library's thread after a call has returned. Returns the task to be put on a stream. With the lock
 * held. */
static struct task *go_on(struct ncclComm *c)
{
    struct task *t = c->queueing;

    c->queueing = NULL;
    if (c->window)
        *c->window = windows_offered ? (ncclWindow_t)(void *)c : NULL;
    c->window = NULL;
    return t;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
    struct task *t = NULL;

    enter(c);
    if (c->world->joined < c->world->nranks || c->polls > 0) {
        *state = c->state == ncclSuccess ? ncclInProgress : c->state;
        c->polls -= c->polls > 0;
    } else {
        t = go_on(c);
        *state = c->state;
    }
    pthread_mutex_unlock(&lock);
    if (t && emu_task(t->stream, "NCCL", run_task, &t, sizeof(t)) != 0)
        abort();
    atomic_store(&c->inside, false);
    return ncclSuccess;
}

/* ---- groups ---- */

ncclResult_t ncclGroupStart(void)
{
    if (group.depth++ == 0)
        group.wrong = ncclSuccess;
    return ncclSuccess;
}

static ncclResult_t add(struct ncclComm *c, enum action action, int peer, void *mem, size_t bytes, cudaStream_t stream)
{
    struct task *t = group.task;

    if (!group.depth || (t && (t->comm != c || t->stream != stream)) || bytes == 0 || peer == c->rank || peer >= c->world->nranks)
        return group.wrong = refuse(ncclInvalidUsage, "not what the device asks for");
    if (!t) {
        t = group.task = calloc(1, sizeof(*t));
        if (!t || !(t->action = calloc(GROUP_OPS, sizeof(*t->action))) || !(t->sent = calloc(GROUP_OPS, sizeof(struct post *))))
            abort();
        t->comm = c;
        t->stream = stream;
    }
    if (t->nactions == GROUP_OPS)
        return group.wrong = refuse(ncclInvalidArgument, "too many operations in one group");
    t->action[t->nactions++] = (struct action_of){ action, peer, mem, bytes };
    return ncclSuccess;
}

static unsigned *counter(enum action a)
{
    return a == SEND ? &seen.sends : &seen.receives;
}

ncclResult_t ncclGroupEnd(void)
{
    struct task *t = group.task;
    struct ncclComm *c = t ? t->comm : NULL;
    ncclResult_t r = group.wrong;

    if (--group.depth > 0)
        return r;
    group.task = NULL;
    if (!t)
        return r;
    enter(c);
    seen.groups++;
    if (r == ncclSuccess && (c->queueing || c->polls > 0 || c->world->joined < c->world->nranks))
        r = refuse(ncclInvalidUsage, "something is still in progress on this communicator");
    if (r == ncclSuccess) {
        for (int i = 0; i < t->nactions; i++)
            (*counter(t->action[i].action))++;
        if (c->break_how != ncclSuccess && c->groups++ == c->break_after) {
            t->stuck = true;
            c->state = c->break_how == ncclInProgress ? ncclSuccess : c->break_how;
        }
        t->delay = roll(8) == 0 ? 1 + (int)roll(2) : 0;
        c->queueing = t;
        c->refs++;
        c->polls = (int)roll(3);
        r = ncclInProgress;
    } else {
        drop_task(t);
    }
    leave(c);
    return r;
}

ncclResult_t ncclSend(const void *mem, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
    return type == ncclUint8 ? add(c, SEND, peer, (void *)(uintptr_t)mem, count, stream) : ncclInvalidArgument;
}

ncclResult_t ncclRecv(void *mem, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
    return type == ncclUint8 ? add(c, RECEIVE, peer, mem, count, stream) : ncclInvalidArgument;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t c, cudaStream_t stream)
{
    ncclResult_t r = from == (char *)to + (size_t)c->rank * count && type == ncclUint8 ? ncclSuccess : ncclInvalidUsage; /* in place */

    for (int p = 0; r == ncclSuccess && p < c->world->nranks; p++) {
        if (p == c->rank)
            continue;
        r = add(c, SEND, p, (void *)(uintptr_t)from, count, stream);
        if (r == ncclSuccess)
            r = add(c, RECEIVE, p, (char *)to + (size_t)p * count, count, stream);
    }
    pthread_mutex_lock(&lock);
    seen.gathers++;
    pthread_mutex_unlock(&lock);
    return r;
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t c, cudaStream_t stream)
{
    ncclResult_t r = from == to && type == ncclUint8 ? ncclSuccess : ncclInvalidUsage;

    for (int p = 0; r == ncclSuccess && root == c->rank && p < c->world->nranks; p++)
        if (p != root)
            r = add(c, SEND, p, (void *)(uintptr_t)from, count, stream);
    if (r == ncclSuccess && root != c->rank)
        r = add(c, RECEIVE, root, to, count, stream);
    pthread_mutex_lock(&lock);
    seen.broadcasts++;
    pthread_mutex_unlock(&lock);
    return r;
}

/* ---- memory ---- */

/* Not zeroed, as the library's is not: the emulator's device memory starts as NaNs. */
ncclResult_t ncclMemAlloc(void **mem, size_t bytes)
{
    if (cudaMalloc(mem, bytes) != cudaSuccess)
        return ncclUnhandledCudaError;
    pthread_mutex_lock(&lock);
    seen.memory++;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *mem)
{
    pthread_mutex_lock(&lock);
    seen.memory--;
    pthread_mutex_unlock(&lock);
    return cudaFree(mem) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* The library returns success, too, when it has only begun. */
ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *mem, size_t bytes, ncclWindow_t *window, int flags)
{
    ncclResult_t r;

    if (!mem || bytes % 4096 != 0 || flags != NCCL_WIN_COLL_SYMMETRIC)
        return refuse(ncclInvalidArgument, "not a symmetric window");
    enter(c);
    r = c->polls > 0 || c->window ? refuse(ncclInvalidUsage, "something is still in progress on this communicator")
        : roll(2)                 ? ncclInProgress
                                  : ncclSuccess;
    c->window = window;
    c->polls = (int)roll(3);
    seen.windows += windows_offered != 0;
    leave(c);
    return r;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t window)
{
    enter(c);
    c->polls = (int)roll(3);
    seen.windows -= window == (ncclWindow_t)(void *)c;
    leave(c);
    return ncclInProgress;
}

/* ---- the table, and queries of tests ---- */

int libs_nccl(const struct nccl_api **ret_api, struct err *err)
{
#define X(name) .name = name,
    static const struct nccl_api api = { X(ncclGetVersion) X(ncclGetErrorString) X(ncclGetLastError) X(ncclGetUniqueId)
                                             X(ncclCommInitRankConfig) X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort)
                                                 X(ncclCommGetAsyncError) X(ncclMemAlloc) X(ncclMemFree) X(ncclGroupStart) X(ncclGroupEnd)
                                                     X(ncclSend) X(ncclRecv) X(ncclAllGather) X(ncclBroadcast) X(ncclCommWindowRegister)
                                                         X(ncclCommWindowDeregister) };
#undef X

    (void)err;
    *ret_api = &api;
    return 0;
}

void nccl_look(struct nccl_seen *ret)
{
    pthread_mutex_lock(&lock);
    *ret = seen;
    pthread_mutex_unlock(&lock);
}

void nccl_forget(void)
{
    pthread_mutex_lock(&lock);
    memset(&seen, 0, sizeof(seen));
    memset(broken, 0, sizeof(broken));
    windows_offered = version_told = 0;
    pthread_mutex_unlock(&lock);
}

void nccl_pretend(int windows, int version)
{
    windows_offered = windows;
    version_told = version;
}

void nccl_break(int rank, ncclResult_t how, unsigned ops)
{
    broken[rank].how = how;
    broken[rank].ops = ops;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/loop.c - the base of detd, under the simulator's control:
 * libuv's queue, threads that run only on command, and wires with bytes that arrive at random times. Only the functions
 * that the linked parts of detd call are here; the linker reports any other. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/base/clock.h"
#include "daemon/base/errand.h"
#include "daemon/socket/gate.h"
#include "daemon/socket/listener.h"
#include "daemon/socket/wire.h"
#include "proto/err.h"
#include "proto/frame.h"
#include "proto/host/passed.h"
#include "tests/stand/emu/fiber.h"
#include "tests/stand/sim/world.h"

double now_s(void)
{
    return CLOCK_BEGIN + world.mono + world.wall_offset;
}

double mono_s(void)
{
    return 5000 + world.mono;
}

/* The next action of detd may run out of memory, mostly at one of its first allocations. */
static void starve(void)
{
    if (world.faults && chance(world.rates.memory))
        memory_fail(1 + (int)roll(chance(70) ? 3 : 12));
}

/* ---- the loop's queue ---- */

struct task {
    struct task *next;
    void (*fn)(void *arg);
    void *arg;
};
static struct task *tasks;

static void append(struct task **list, void (*fn)(void *arg), void *arg)
{
    struct task *t = must_alloc(sizeof *t);

    *t = (struct task){ NULL, fn, arg };
    while (*list)
        list = &(*list)->next;
    *list = t;
}

void loop_post(void (*fn)(void *arg), void *arg)
{
    append(&tasks, fn, arg);
}

bool loop_turn(void)
{
    struct task *t = tasks;

    if (!t)
        return false;
    tasks = t->next;
    starve();
    t->fn(t->arg);
    memory_fail(0);
    free(t);
    return true;
}

/* ---- libuv ---- */

static struct task *pool;

static void after(void *arg)
{
    uv_work_t *req = arg;

    req->after_work_cb(req, 0);
}

static void work(void *arg)
{
    uv_work_t *req = arg;

    req->work_cb(req);
    loop_post(after, req);
}

int uv_queue_work(uv_loop_t *loop, uv_work_t *req, uv_work_cb fn, uv_after_work_cb then)
{
    (void)loop;
    req->work_cb = fn;
    req->after_work_cb = then;
    append(&pool, work, req);
    return 0;
}

/* The thread of errands does them in order. */
static struct task *errands;

struct errand {
    void (*work)(void *arg);
    void (*after)(void *arg);
    void *arg;
};

static void errand_after(void *arg)
{
    struct errand *it = arg;

    it->after(it->arg);
    free(it);
}

static void errand_work(void *arg)
{
    struct errand *it = arg;

    it->work(it->arg);
    loop_post(errand_after, it);
}

int errands_add(struct errands *e, void (*work_fn)(void *arg), void (*after_fn)(void *arg), void *arg)
{
    struct errand *it = must_alloc(sizeof *it);

    (void)e;
    *it = (struct errand){ work_fn, after_fn, arg };
    append(&errands, errand_work, it);
    return 0;
}

/* The pool's threads take work in order and finish in any. */
bool pool_step(void)
{
    struct task **at = errands && (!pool || chance(50)) ? &errands : &pool, *t;

    if (!*at)
        return false;
    while (at != &errands && (*at)->next && chance(30))
        at = &(*at)->next;
    t = *at;
    *at = t->next;
    starve();
    t->fn(t->arg);
    memory_fail(0);
    free(t);
    return true;
}

int uv_async_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb cb)
{
    (void)loop;
    async->async_cb = cb;
    async->pending = 0;
    return 0;
}

static void async_due(void *arg)
{
    uv_async_t *async = arg;

    async->pending = 0;
    async->async_cb(async);
}

int uv_async_send(uv_async_t *async)
{
    if (!async->pending)
        loop_post(async_due, async);
    async->pending = 1;
    return 0;
}

static void close_due(void *arg)
{
    uv_handle_t *handle = arg;

    if (handle->close_cb)
        handle->close_cb(handle);
}

void uv_close(uv_handle_t *handle, uv_close_cb cb)
{
    handle->close_cb = cb;
    loop_post(close_due, handle);
}

void uv_unref(uv_handle_t *handle)
{
    (void)handle;
}

int uv_run(uv_loop_t *loop, uv_run_mode mode)
{
    (void)loop;
    (void)mode;
    while (loop_turn())
        ;
    return 0;
}

const char *uv_strerror(int code)
{
    return strerror(-code);
}

static struct listener {
    const struct listener_events *events;
    void *arg;
} server;

int gate_bind(const struct gate *g, bool *ret_bound, struct err *err)
{
    (void)g;
    (void)err;
    *ret_bound = true;
    return 0;
}

int listener_open(uv_loop_t *loop, int fd, int backlog, struct user_shares *shares, const struct listener_events *events, void *arg,
                  struct listener **ret, struct err *err)
{
    (void)loop;
    (void)fd;
    (void)backlog;
    (void)shares;
    (void)err;
    server = (struct listener){ events, arg };
    *ret = &server;
    return 0;
}

void listener_close(struct listener *l)
{
    (void)l;
}

/* ---- threads: each is a fiber that runs till it waits ---- */

struct thread {
    struct thread *next;
    struct fiber *fiber;
    void *(*fn)(void *arg);
    void *arg;
    const pthread_cond_t *on; /* NULL: it does not wait */
    bool timed, signalled, done;
};
static struct thread *threads, *running;
static struct fiber *host;

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_join(pthread_t thread, void **ret);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);

static void thread_main(void)
{
    struct thread *me = running;

    me->fn(me->arg);
    me->done = true;
    for (;;)
        fiber_switch(host);
}

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    struct thread *t = calloc(1, sizeof *t);

    (void)attr;
    if (!t)
        return ENOMEM;
    *t = (struct thread){ .next = threads, .fiber = fiber_new(thread_main), .fn = fn, .arg = arg };
    threads = t;
    *ret = (pthread_t)t;
    return 0;
}

static void run_thread(struct thread *t)
{
    running = t;
    host = fiber_self();
    fiber_switch(t->fiber);
    running = NULL;
}

int __wrap_pthread_join(pthread_t thread, void **ret)
{
    struct thread *t = (struct thread *)thread;

    if (ret)
        *ret = NULL;
    while (!t->done)
        run_thread(t);
    return 0;
}

static int wait_for(const pthread_cond_t *cond, pthread_mutex_t *mutex, bool timed)
{
    struct thread *me = running;
    bool signalled;

    if (!me) {
        fail("the loop waits for another thread");
        return EDEADLK;
    }
    me->on = cond;
    me->timed = timed;
    me->signalled = false;
    pthread_mutex_unlock(mutex);
    fiber_switch(host);
    pthread_mutex_lock(mutex);
    signalled = me->signalled;
    me->on = NULL;
    return signalled ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    wait_for(cond, mutex, false);
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
    (void)until;
    return wait_for(cond, mutex, true);
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    for (struct thread *t = threads; t; t = t->next)
        t->signalled = t->signalled || t->on == cond;
    return 0;
}

bool threads_step(void)
{
    for (struct thread *t = threads; t; t = t->next)
        if (!t->done && (!t->on || t->signalled || t->timed)) {
            run_thread(t);
            return true;
        }
    return false;
}

/* ---- wires ---- */

struct wire {
    struct link *link;
    const struct wire_events *events;
    struct frame *frame;
    void *owner;
    bool held, closed;
};

static struct link *links;

struct link *link_connect(void)
{
    struct link *l = server.events ? must_alloc(sizeof *l) : NULL;

    if (!l)
        return NULL;
    l->next = links;
    links = l;
    return l;
}

bool link_write(struct link *l, const char *bytes, size_t len)
{
    if (l->detd_closed)
        return true;
    if (l->nto_detd + len > sizeof l->to_detd)
        return false;
    memcpy(l->to_detd + l->nto_detd, bytes, len);
    l->nto_detd += len;
    return true;
}

void link_send(struct link *l, const char *line)
{
    if (!link_write(l, line, strlen(line)) || !link_write(l, "\n", 1))
        fail("a connection's buffer is too small for the simulator");
}

void link_drop(struct link *l, bool torn)
{
    l->sup_closed = true;
    if (torn && l->nto_detd > 0)
        l->nto_detd = roll((uint32_t)l->nto_detd);
}

const char *link_line(struct link *l)
{
    static char line[sizeof l->to_sup];
    const char *end = memchr(l->to_sup, '\n', l->nto_sup);
    size_t len;

    if (!end)
        return NULL;
    len = (size_t)(end - l->to_sup);
    memcpy(line, l->to_sup, len);
    line[len] = '\0';
    memmove(l->to_sup, end + 1, l->nto_sup - len - 1);
    l->nto_sup -= len + 1;
    if (l->by_liar && l->nto_sup == 0 && l->wire && l->wire->events->drained)
        l->wire->events->drained(l->wire);
    return line;
}

static void hand_out(struct wire *w)
{
    const char *line;
    size_t len;

    while (!w->held && !w->closed && (line = frame_next(w->frame, &len))) {
        starve();
        w->events->line(w, line, len);
        memory_fail(0);
    }
}

static void closed_due(void *arg)
{
    struct wire *w = arg;

    w->events->closed(w);
    frame_free(w->frame);
    free(w);
}

static void arrive(struct link *l)
{
    size_t n = chance(50) ? l->nto_detd : 1 + roll((uint32_t)l->nto_detd);
    struct wire *w = l->wire;
    struct err err;

    if (frame_push(w->frame, l->to_detd, n, &err) < 0) {
        if (!l->by_liar)
            fail("frame: %s", err.msg);
        w->events->broken(w, &err);
        return;
    }
    memmove(l->to_detd, l->to_detd + n, l->nto_detd - n);
    l->nto_detd -= n;
    hand_out(w);
}

static bool step_link(struct link *l)
{
    if (!l->accepted && server.events) {
        l->accepted = true;
        server.events->connected(server.arg, -1, l->uid ? l->uid : geteuid());
        l->detd_closed = !l->wire;
        check_connection(l, l->wire != NULL);
        return true;
    }
    if (!l->wire || l->wire->held)
        return false;
    if (l->nto_detd > 0)
        arrive(l);
    else if (l->sup_closed)
        wire_close(l->wire);
    else
        return false;
    return true;
}

static void forget_closed(void)
{
    for (struct link **at = &links; *at;) {
        struct link *l = *at;

        if (l->sup_closed && l->detd_closed && !l->wire) {
            *at = l->next;
            free(l);
        } else {
            at = &l->next;
        }
    }
}

static bool has_news(const struct link *l)
{
    return (!l->accepted && server.events) || (l->wire && !l->wire->held && (l->nto_detd > 0 || l->sup_closed));
}

bool links_idle(void)
{
    for (const struct link *l = links; l; l = l->next)
        if (has_news(l))
            return false;
    return true;
}

bool links_step(void)
{
    uint32_t n = 0, at;

    forget_closed();
    for (const struct link *l = links; l; l = l->next)
        n += has_news(l);
    if (n == 0)
        return false;
    at = roll(n);
    for (struct link *l = links; l; l = l->next)
        if (has_news(l) && at-- == 0)
            return step_link(l);
    return false;
}

/* A connection of the simulator has no descriptor. */
void passed_close(int fd)
{
    (void)fd;
}

struct wire *wire_accept(struct wires *all, int fd, size_t max_line, const struct wire_events *events, struct err *err)
{
    struct wire *w = must_alloc(sizeof *w);
    struct link *l = links;

    (void)all;
    (void)fd;
    (void)err;
    memory_fail(0);
    while (l && (!l->accepted || l->wire || l->detd_closed))
        l = l->next;
    if (!l || !(w->frame = frame_new(max_line)))
        abort();
    w->link = l;
    w->events = events;
    l->wire = w;
    return w;
}

void wire_set_owner(struct wire *w, void *owner)
{
    w->owner = owner;
}

void *wire_owner(const struct wire *w)
{
    return w->owner;
}

/* There is room for all here. */
void wire_set_guest(struct wire *w, uid_t uid)
{
    (void)w;
    (void)uid;
}

void wire_trust(struct wire *w)
{
    (void)w;
}

void wire_send(struct wire *w, const char *bytes, size_t len)
{
    struct link *l = w->link;

    if (w->closed || l->sup_closed)
        return;
    if (l->nto_sup + len > sizeof l->to_sup)
        fail("detd sends more than %zu bytes that nobody reads", sizeof l->to_sup);
    if (l->by_liar && l->nto_sup > 0)
        check_unread(l, bytes);
    memcpy(l->to_sup + l->nto_sup, bytes, len);
    l->nto_sup += len;
    check_welcome(l, bytes);
}

/* An honest supervisor reads before the kernel's buffer is full. A hostile one may not read: then nothing fits. */
size_t wire_queued(const struct wire *w)
{
    return !w->closed && w->link->by_liar ? w->link->nto_sup : 0;
}

void wire_hold(struct wire *w, bool hold)
{
    if (w->held == hold)
        return;
    w->held = hold;
    if (!hold)
        hand_out(w);
}

void wire_close(struct wire *w)
{
    if (w->closed)
        return;
    w->closed = true;
    w->link->wire = NULL;
    w->link->detd_closed = true;
    loop_post(closed_due, w);
}

void wire_close_after_send(struct wire *w)
{
    wire_close(w);
}

/* ---- the end of a daemon ---- */

void loop_forget(void)
{
    tasks = pool = errands = NULL;
    threads = NULL;
    server.events = NULL;
    for (struct link *l = links; l; l = l->next) {
        l->accepted = true;
        l->detd_closed = true;
        l->wire = NULL;
    }
}

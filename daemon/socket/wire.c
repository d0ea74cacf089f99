#include "daemon/socket/wire.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/bounds.h"
#include "daemon/base/text.h"
#include "proto/err.h"
#include "proto/frame.h"
#include "proto/host/passed.h"

enum { READ_BYTES = 32 << 10, TURN_NS = 2000000 };

struct wire {
    uv_pipe_t pipe;
    struct wires *all;
    const struct wire_events *events;
    void *owner;
    struct frame *frame;
    struct text out;     /* not handed to libuv yet */
    struct text writing; /* with libuv */
    uv_write_t write;
    struct wire *prev, *next, *next_dirty, *next_waiting;
    uint64_t given;                  /* bytes given to wire_send() since the beginning */
    uid_t uid;                       /* the user, for a guest */
    size_t long_bytes, queued_bytes; /* counted in the sums of all wires */
    bool guest, trusted, dirty, waiting, held, reading, in_lines, end_of_file, close_after_send;
    bool unreadable; /* its next bytes come with descriptors, or it is broken */
};

/* ---- turns of the loop ---- */

/* Time spent in callbacks = time passed - time spent in epoll. */
static void on_prepare(uv_prepare_t *prepare);
static void on_idle(uv_idle_t *idle);

int wires_open(struct wires *all, uv_loop_t *loop, struct err *err)
{
    int rc;

    memset(all, 0, sizeof *all);
    all->loop = loop;
    all->turn_started = uv_hrtime();
    all->last_waiting = &all->waiting;
    rc = uv_loop_configure(loop, UV_METRICS_IDLE_TIME);
    if (rc < 0)
        return err_set(err, rc, "event loop: %s", uv_strerror(rc));
    uv_prepare_init(loop, &all->prepare);
    uv_idle_init(loop, &all->idle);
    all->prepare.data = all->idle.data = all;
    uv_prepare_start(&all->prepare, on_prepare);
    uv_unref((uv_handle_t *)&all->prepare);
    return 0;
}

double wires_longest_ms(struct wires *all, double *ret_cpu_ms)
{
    double ms = (double)all->longest_turn / 1e6;

    *ret_cpu_ms = (double)all->longest_cpu / 1e6;
    all->longest_turn = all->longest_cpu = 0;
    return ms;
}

static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static bool turn_is_long(const struct wires *all)
{
    uint64_t now = uv_hrtime(), idle = uv_metrics_idle_time(all->loop);

    return now - all->turn_started - (idle - all->idle_time) > TURN_NS;
}

/* ---- closing ---- */

static void leave_dirty(const struct wire *w)
{
    for (struct wire **at = &w->all->dirty; *at; at = &(*at)->next_dirty)
        if (*at == w) {
            *at = w->next_dirty;
            return;
        }
}

static void leave_waiting(const struct wire *w)
{
    for (struct wire **at = &w->all->waiting; *at; at = &(*at)->next_waiting)
        if (*at == w) {
            *at = w->next_waiting;
            if (w->all->last_waiting == &w->next_waiting)
                w->all->last_waiting = at;
            return;
        }
}

static void count_queued(struct wire *w)
{
    w->all->queued_bytes -= w->queued_bytes;
    w->queued_bytes = wire_queued(w);
    w->all->queued_bytes += w->queued_bytes;
}

/* To be called after the frame has taken or given bytes. */
static void count_long(struct wire *w)
{
    size_t bytes = frame_bytes(w->frame);

    w->all->long_bytes -= w->long_bytes;
    w->long_bytes = bytes > WIRE_SHORT_BYTES && !w->trusted ? bytes - WIRE_SHORT_BYTES : 0;
    w->all->long_bytes += w->long_bytes;
}

static bool long_line_fits(const struct wire *w)
{
    struct bound_load load = { .all = (int64_t)w->all->long_bytes };

    if (w->long_bytes == 0)
        return true;
    for (const struct wire *other = w->all->first; other; other = other->next) {
        load.guests += other->guest ? (int64_t)other->long_bytes : 0;
        load.user += other->guest && other->uid == w->uid ? (int64_t)other->long_bytes : 0;
    }
    return bound_check(BOUND_LONG_LINES, &load, !w->guest, NULL) == 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct wire *w = handle->data;

    w->events->closed(w);
    if (w->prev)
        w->prev->next = w->next;
    else
        w->all->first = w->next;
    if (w->next)
        w->next->prev = w->prev;
    w->all->long_bytes -= w->long_bytes;
    w->all->queued_bytes -= w->queued_bytes;
    frame_free(w->frame);
    text_free(&w->out);
    text_free(&w->writing);
    free(w);
}

void wire_close(struct wire *w)
{
    int last;

    if (uv_is_closing((uv_handle_t *)&w->pipe))
        return;
    leave_dirty(w);
    leave_waiting(w);
    last = fcntl(wire_fd(w), F_DUPFD_CLOEXEC, 0);
    uv_close((uv_handle_t *)&w->pipe, on_closed);
    if (last >= 0)
        passed_close(last);
}

void wire_close_after_send(struct wire *w)
{
    w->close_after_send = true;
    w->held = true;
    if (w->out.len == 0 && w->writing.len == 0)
        wire_close(w);
}

/* ---- output ---- */

static void flush(struct wire *w);

static void drained(struct wire *w)
{
    if (w->close_after_send)
        wire_close(w);
    else if (w->events->drained)
        w->events->drained(w);
}

static void on_written(uv_write_t *req, int status)
{
    struct wire *w = req->data;

    text_free(&w->writing);
    count_queued(w);
    if (status < 0)
        wire_close(w);
    else if (w->out.len)
        flush(w);
    else
        drained(w);
}

/* Most output fits into the socket's buffer at once; only the rest is handed to libuv, one write at a time. */
static void flush(struct wire *w)
{
    uv_buf_t buf = uv_buf_init(w->out.p, (unsigned)w->out.len);
    int n = uv_try_write((uv_stream_t *)&w->pipe, &buf, 1);

    if (n < 0 && n != UV_EAGAIN) {
        wire_close(w);
        return;
    }
    if (n == (int)w->out.len) {
        w->out.len = 0;
        if (w->out.cap > (64 << 10))
            text_free(&w->out);
        count_queued(w);
        drained(w);
        return;
    }
    w->writing = w->out;
    w->out = (struct text){ 0 };
    n = n < 0 ? 0 : n;
    buf = uv_buf_init(w->writing.p + n, (unsigned)(w->writing.len - (size_t)n));
    w->write.data = w;
    if (uv_write(&w->write, (uv_stream_t *)&w->pipe, &buf, 1, on_written) < 0)
        wire_close(w);
}

void wire_send(struct wire *w, const char *bytes, size_t len)
{
    if (uv_is_closing((uv_handle_t *)&w->pipe) || w->out.failed)
        return;
    text_add_bytes(&w->out, bytes, len);
    w->given += len;
    count_queued(w);
    if (!w->dirty) {
        w->dirty = true;
        w->next_dirty = w->all->dirty;
        w->all->dirty = w;
    }
}

size_t wire_queued(const struct wire *w)
{
    return w->out.len + w->writing.len;
}

uint64_t wire_sent(const struct wire *w)
{
    return w->given - w->out.len - uv_stream_get_write_queue_size((const uv_stream_t *)&w->pipe);
}

/* ---- input ---- */

static void wait_for_next_turn(struct wire *w)
{
    if (w->waiting || uv_is_closing((uv_handle_t *)&w->pipe)) /* a line may have closed the wire */
        return;
    w->waiting = true;
    w->next_waiting = NULL;
    *w->all->last_waiting = w;
    w->all->last_waiting = &w->next_waiting;
    uv_idle_start(&w->all->idle, on_idle);
}

/* Offers room for the bytes that come without descriptors; libuv reads at once. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char shared[READ_BYTES]; /* shared: there is one thread, and every read is copied into its frame before the next */
    struct wire *w = handle->data;
    bool passed;
    ssize_t n = passed_look(wire_fd(w), shared, sizeof shared, &passed);

    (void)suggested;
    w->unreadable = passed || (n < 0 && n != -EAGAIN && n != -EINTR);
    *buf = uv_buf_init(shared, passed || n < 0 ? 0 : n > 0 ? (unsigned)n : sizeof shared);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

static void set_reading(struct wire *w, bool on)
{
    if (uv_is_closing((uv_handle_t *)&w->pipe) || w->reading == on || w->end_of_file)
        return;
    w->reading = on;
    if (on)
        uv_read_start((uv_stream_t *)&w->pipe, on_alloc, on_read);
    else
        uv_read_stop((uv_stream_t *)&w->pipe);
}

/* Hands out lines until there are no more, the wire is held, or the turn has lasted long enough. Reading continues only
 * when all are handed out: data that a client sends too fast waits in its own socket. */
static void hand_out(struct wire *w)
{
    const char *line;
    size_t len;

    if (w->in_lines)
        return;
    w->in_lines = true;
    while (!w->held && !uv_is_closing((uv_handle_t *)&w->pipe)) {
        line = frame_next(w->frame, &len);
        if (!line)
            break;
        w->events->line(w, line, len);
        if (frame_bytes(w->frame) > 0 && turn_is_long(w->all)) {
            wait_for_next_turn(w);
            break;
        }
    }
    w->in_lines = false;
    frame_trim(w->frame);
    count_long(w);
    set_reading(w, !w->held && !w->waiting);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct wire *w = stream->data;
    struct err err;

    if (n == 0 || (n == UV_ENOBUFS && !w->unreadable))
        return;
    if (n < 0) {
        set_reading(w, false);
        w->end_of_file = true;
        if (n != UV_EOF)
            wire_close(w);
        else if (w->events->ended)
            w->events->ended(w);
        else
            wire_close_after_send(w);
        return;
    }
    if (frame_push(w->frame, buf->base, (size_t)n, &err) < 0) {
        set_reading(w, false);
        w->events->broken(w, &err);
        return;
    }
    count_long(w);
    if (!long_line_fits(w)) {
        set_reading(w, false);
        frame_clear(w->frame); /* at once, so that no other client is refused because of it */
        count_long(w);
        err_set(&err, ERR_STATE, "long lines of clients fill the memory that is reserved for them; try again");
        w->events->broken(w, &err);
        return;
    }
    hand_out(w);
    if (w->reading && turn_is_long(w->all)) { /* a long line is read in pieces, too */
        set_reading(w, false);
        wait_for_next_turn(w);
    }
}

void wire_hold(struct wire *w, bool hold)
{
    if (w->held == hold || w->close_after_send)
        return;
    w->held = hold;
    if (!hold)
        hand_out(w);
    else if (!w->in_lines)
        set_reading(w, false);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct wires *all = prepare->data;
    uint64_t now, idle, busy, cpu;

    while (all->dirty) {
        struct wire *w = all->dirty;

        all->dirty = w->next_dirty;
        w->dirty = false;
        if (w->out.failed)
            wire_close(w); /* out of memory: a reply is lost, and a client that waits for it should learn that */
        else if (w->out.len && w->writing.len == 0)
            flush(w);
    }
    now = uv_hrtime();
    idle = uv_metrics_idle_time(all->loop);
    busy = now - all->turn_started - (idle - all->idle_time);
    if (busy > all->longest_turn)
        all->longest_turn = busy;
    cpu = cpu_ns();
    if (cpu - all->turn_cpu > all->longest_cpu)
        all->longest_cpu = cpu - all->turn_cpu;
    all->turn_started = now;
    all->idle_time = idle;
    all->turn_cpu = cpu;
}

static void on_idle(uv_idle_t *idle)
{
    struct wires *all = idle->data;

    do { /* at least one, however long the turn was already; the others come first in the next turn */
        struct wire *w = all->waiting;

        if (!w)
            break;
        leave_waiting(w);
        w->waiting = false;
        hand_out(w);
    } while (!turn_is_long(all));
    if (!all->waiting)
        uv_idle_stop(idle);
}

/* ---- life ---- */

struct wire *wire_accept(struct wires *all, int fd, size_t max_line, const struct wire_events *events, struct err *err)
{
    struct wire *w = calloc(1, sizeof *w);
    int rc;

    if (w)
        w->frame = frame_new(max_line);
    if (!w || !w->frame) {
        free(w);
        passed_close(fd);
        err_set(err, -ENOMEM, "out of memory for a connection");
        return NULL;
    }
    w->all = all;
    w->events = events;
    w->next = all->first;
    if (w->next)
        w->next->prev = w;
    all->first = w;
    rc = uv_pipe_init(all->loop, &w->pipe, 0);
    w->pipe.data = w;
    if (rc == 0)
        rc = uv_pipe_open(&w->pipe, fd);
    if (rc < 0) {
        passed_close(fd);
        err_set(err, rc, "accept a connection: %s", uv_strerror(rc));
        wire_close(w);
        return NULL;
    }
    set_reading(w, true);
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

void wire_set_guest(struct wire *w, uid_t uid)
{
    w->guest = true;
    w->uid = uid;
}

void wire_trust(struct wire *w)
{
    w->trusted = true;
}

int wire_fd(const struct wire *w)
{
    int fd = -1;

    return uv_fileno((const uv_handle_t *)&w->pipe, &fd) < 0 ? -1 : fd;
}

#include "supervisor/link.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/frame.h"
#include "proto/report.h"
#include "supervisor/spool/spool.h"

/* Reports wait in the spool, not in memory: a slow detd holds at most so many bytes of ours. */
enum { MAX_QUEUED_BYTES = 1 << 20, RETRY_FIRST_MS = 50, RETRY_MAX_MS = 2000, WELCOME_MS = 10000 };

enum state { AWAY, CONNECTING, GREETED, UP };

struct link {
    struct link_config config;
    enum state state;
    uv_pipe_t pipe; /* one at a time; made anew for each connection */
    uv_connect_t connect;
    uv_timer_t timer; /* AWAY: the next try; GREETED: patience with a silent detd */
    bool pipe_open, closing;
    int open_handles;
    unsigned retry_ms;
    struct frame *in;
    struct spool_cursor cursor; /* UP: next record to send */
    uint64_t sent;              /* last record sent on this connection */
    char in_bytes[64 << 10];
    char told[256]; /* last trouble */
};

struct sending {
    uv_write_t req;
    char text[];
};

static void try_now(uv_timer_t *timer);

static void trouble(struct link *l, const char *text)
{
    if (strncmp(l->told, text, sizeof l->told - 1) == 0)
        return;
    snprintf(l->told, sizeof l->told, "%s", text);
    l->config.trouble(l->config.arg, text);
}

static void free_when_closed(struct link *l)
{
    if (!l->closing || l->open_handles > 0)
        return;
    frame_free(l->in);
    free(l);
}

static void on_pipe_closed(uv_handle_t *handle)
{
    struct link *l = handle->data;

    l->open_handles--;
    l->pipe_open = false;
    if (!l->closing)
        uv_timer_start(&l->timer, try_now, l->retry_ms, 0);
    free_when_closed(l);
}

/* Ends the connection; the next try comes after a pause that grows until detd welcomes us. */
static void drop(struct link *l)
{
    l->state = AWAY;
    uv_timer_stop(&l->timer);
    if (!uv_is_closing((uv_handle_t *)&l->pipe))
        uv_close((uv_handle_t *)&l->pipe, on_pipe_closed);
}

static void on_written(uv_write_t *req, int status)
{
    struct sending *s = (struct sending *)req;
    struct link *l = req->handle->data;

    free(s);
    if (status == UV_ECANCELED || l->closing)
        return;
    if (status < 0)
        drop(l);
    else
        link_kick(l);
}

/* Writes head, middle and tail as one line. */
static bool send_parts(struct link *l, const char *head, const char *middle, size_t middle_len, const char *tail)
{
    size_t head_len = strlen(head), tail_len = strlen(tail), len = head_len + middle_len + tail_len;
    struct sending *s = malloc(sizeof *s + len);
    uv_buf_t buf;

    if (!s)
        return false;
    memcpy(s->text, head, head_len);
    memcpy(s->text + head_len, middle, middle_len);
    memcpy(s->text + head_len + middle_len, tail, tail_len);
    buf = uv_buf_init(s->text, (unsigned)len);
    if (uv_write(&s->req, (uv_stream_t *)&l->pipe, &buf, 1, on_written) == 0)
        return true;
    free(s);
    return false;
}

static bool has_queue_room(const struct link *l)
{
    return uv_stream_get_write_queue_size((const uv_stream_t *)&l->pipe) < MAX_QUEUED_BYTES;
}

void link_kick(struct link *l)
{
    const char *payload;
    struct err err = { 0 };
    char head[64];
    uint64_t seq;
    size_t len;
    int rc = 1;

    while (l->state == UP && has_queue_room(l) && (rc = spool_next(l->config.spool, &l->cursor, &payload, &len, &seq, &err)) == 1) {
        snprintf(head, sizeof head, "{\"type\":\"report\",\"seq\":%llu,\"rec\":", (unsigned long long)seq);
        if (!send_parts(l, head, payload, len, "}\n")) {
            drop(l);
            return;
        }
        l->sent = seq;
    }
    if (rc < 0) {
        trouble(l, err.msg);
        drop(l);
    }
}

bool link_send(struct link *l, const char *line, size_t len)
{
    return l->state == UP && has_queue_room(l) && send_parts(l, "", line, len, "");
}

bool link_is_up(const struct link *l)
{
    return l->state == UP;
}

/* ---- what detd says ---- */

static int take_welcome(struct link *l, const json_t *msg, struct err *err)
{
    int rc = l->config.welcome(l->config.arg, msg, err);

    if (rc < 0)
        return rc;
    uv_timer_stop(&l->timer);
    l->retry_ms = RETRY_FIRST_MS;
    l->told[0] = '\0';
    rc = spool_seek(l->config.spool, spool_acked(l->config.spool), &l->cursor, err);
    if (rc < 0)
        return rc;
    l->sent = spool_acked(l->config.spool);
    l->state = UP;
    link_kick(l);
    return 0;
}

static int take_ack(struct link *l, const json_t *msg, struct err *err)
{
    json_int_t seq = json_integer_value(json_object_get(msg, "seq"));

    if (seq < 0 || (uint64_t)seq > l->sent)
        return err_set(err, ERR_PROTO, "ack of record %lld, which was not sent", (long long)seq);
    spool_ack(l->config.spool, (uint64_t)seq);
    l->config.acked(l->config.arg);
    return 0;
}

static int take_line(struct link *l, const char *text, size_t len, struct err *err)
{
    json_error_t je;
    json_t *msg = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    const char *type = json_string_value(json_object_get(msg, "type"));
    int rc = 0;

    if (!msg)
        return err_set(err, ERR_PROTO, "not JSON: %s", je.text);
    if (!type)
        rc = err_set(err, ERR_PROTO, "a message without a type");
    else if (l->state == GREETED && strcmp(type, "welcome") == 0)
        rc = take_welcome(l, msg, err);
    else if (l->state == UP && strcmp(type, "ack") == 0)
        rc = take_ack(l, msg, err);
    else if (l->state == UP && strcmp(type, "control") == 0)
        l->config.control(l->config.arg, msg);
    json_decref(msg);
    return rc;
}

static void on_alloc(uv_handle_t *handle, size_t want, uv_buf_t *buf)
{
    struct link *l = handle->data;

    (void)want;
    *buf = uv_buf_init(l->in_bytes, sizeof l->in_bytes);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct link *l = stream->data;
    struct err err = { 0 };
    const char *text;
    size_t len;
    int rc = 0;

    if (n == 0)
        return;
    if (n < 0) {
        trouble(l, "detd is away; reports are kept");
        drop(l);
        return;
    }
    rc = frame_push(l->in, buf->base, (size_t)n, &err);
    while (rc == 0 && l->state != AWAY && (text = frame_next(l->in, &len)))
        rc = take_line(l, text, len, &err);
    if (rc < 0) {
        err_prefix(&err, "message from detd");
        trouble(l, err.msg);
        drop(l);
    }
}

/* ---- connecting ---- */

static void on_no_welcome(uv_timer_t *timer)
{
    struct link *l = timer->data;

    trouble(l, "detd does not answer hello");
    drop(l);
}

static void on_connected(uv_connect_t *req, int status)
{
    struct link *l = req->handle->data;

    if (l->closing || status == UV_ECANCELED)
        return;
    if (status < 0) {
        trouble(l, "detd is away; reports are kept");
        drop(l);
        return;
    }
    l->state = GREETED;
    frame_free(l->in);
    l->in = frame_new(SUP_MAX_LINE);
    if (!l->in || uv_read_start((uv_stream_t *)&l->pipe, on_alloc, on_read) < 0 ||
        !send_parts(l, l->config.hello(l->config.arg), "", 0, ""))
        drop(l);
    else
        uv_timer_start(&l->timer, on_no_welcome, WELCOME_MS, 0);
}

static void try_now(uv_timer_t *timer)
{
    struct link *l = timer->data;

    l->retry_ms = l->retry_ms * 2 < RETRY_MAX_MS ? l->retry_ms * 2 : RETRY_MAX_MS;
    if (uv_pipe_init(l->config.loop, &l->pipe, 0) < 0)
        return;
    l->pipe.data = l;
    l->pipe_open = true;
    l->open_handles++;
    l->state = CONNECTING;
    uv_pipe_connect(&l->connect, &l->pipe, l->config.path, on_connected);
}

int link_open(const struct link_config *config, struct link **ret, struct err *err)
{
    struct link *l;
    int rc;

    if (strlen(config->path) > 107) /* libuv would cut it silently */
        return err_set(err, ERR_INPUT, "socket '%s': path over 107 bytes", config->path);
    l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, -ENOMEM, "out of memory");
    l->config = *config;
    l->retry_ms = RETRY_FIRST_MS;
    rc = uv_timer_init(config->loop, &l->timer);
    if (rc < 0) {
        free(l);
        return err_set(err, rc, "timer: %s", uv_strerror(rc));
    }
    l->timer.data = l;
    l->open_handles = 1;
    try_now(&l->timer);
    *ret = l;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct link *l = handle->data;

    l->open_handles--;
    free_when_closed(l);
}

void link_close(struct link *l)
{
    if (!l || l->closing)
        return;
    l->closing = true;
    l->state = AWAY;
    uv_close((uv_handle_t *)&l->timer, on_timer_closed);
    if (l->pipe_open && !uv_is_closing((uv_handle_t *)&l->pipe))
        uv_close((uv_handle_t *)&l->pipe, on_pipe_closed);
}

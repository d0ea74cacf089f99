#include "daemon/gpu/gpu_child.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpu/gpu.h"
#include "proto/err.h"
#include "proto/frame.h"
#include "proto/host/tasks.h"

enum { LINE_MAX_BYTES = 8192, READ_BYTES = 4096, HANDLES = 4 };

/* One process. If it hangs, it outlives its gpu_child, and only its exit is waited for. */
struct probe {
    struct gpu_child *owner; /* NULL: no gpu_child waits for it */
    uv_process_t process;
    uv_pipe_t in, out;
    uv_timer_t deadline;
    struct frame *frame;
    struct probe *next; /* in the list of given-up ones */
    int open_handles;
    bool exited, hung;
    char why[256]; /* its own words about its end */
    bool absent;
    char bytes[READ_BYTES];
};

struct gpu_child {
    struct gpu_child_config config;
    struct probe *probe, *given_up; /* the one in use; killed ones that have not exited */
    uv_timer_t later;               /* failures that are known at once are reported from the loop */
    char later_why[256];
    bool looking;
};

/* ---- the end of a process ---- */

static void on_closed(uv_handle_t *handle)
{
    struct probe *p = handle->type == UV_PROCESS ? (struct probe *)((char *)handle - offsetof(struct probe, process)) : handle->data;

    if (--p->open_handles > 0)
        return;
    frame_free(p->frame);
    free(p);
}

static void forget(struct probe *p)
{
    p->owner = NULL;
    uv_close((uv_handle_t *)&p->process, on_closed);
}

/* Kills the process if it still runs. Its exit is waited for without holding anything up. */
static void drop(struct probe *p)
{
    uv_handle_t *handles[] = { (uv_handle_t *)&p->in, (uv_handle_t *)&p->out, (uv_handle_t *)&p->deadline };
    struct gpu_child *c = p->owner;

    c->probe = NULL;
    for (int i = 0; i < 3; i++)
        uv_close(handles[i], on_closed);
    if (p->exited) {
        forget(p);
        return;
    }
    uv_process_kill(&p->process, SIGKILL);
    p->next = c->given_up;
    c->given_up = p;
}

static void fail(struct gpu_child *c, bool absent, const char *why)
{
    char text[256];

    snprintf(text, sizeof text, "%s", why);
    c->looking = false;
    if (c->probe)
        drop(c->probe);
    c->config.failed(c->config.arg, absent, text);
}

/* The exit of the process in use is noticed by the end of its output, which comes after its last words. */
static void on_exit_child(uv_process_t *process, int64_t status, int signal)
{
    struct probe *p = (struct probe *)((char *)process - offsetof(struct probe, process)), **at;

    (void)status;
    (void)signal;
    p->exited = true;
    if (!p->owner || p->owner->probe == p)
        return;
    for (at = &p->owner->given_up; *at != p; at = &(*at)->next)
        continue;
    *at = p->next;
    forget(p);
}

static bool one_hangs(const struct gpu_child *c)
{
    for (const struct probe *p = c->given_up; p; p = p->next)
        if (p->hung)
            return true;
    return false;
}

static void on_deadline(uv_timer_t *timer)
{
    struct probe *p = timer->data;
    struct gpu_child *c = p->owner;
    char why[120];

    p->hung = true;
    snprintf(why, sizeof why, "the GPU driver has not answered for %u s", c->config.deadline_ms / 1000);
    fail(c, false, why);
}

/* ---- its output ---- */

static void take_other(struct probe *p, const char *line)
{
    struct gpu_child *c = p->owner;
    json_t *root = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    const char *uuid = json_string_value(json_object_get(root, "uuid")), *text;

    if (json_is_integer(json_object_get(root, "xid")) && uuid) {
        c->config.xid(c->config.arg, uuid, json_integer_value(json_object_get(root, "xid")));
    } else if (json_is_integer(json_object_get(root, "done")) && c->looking) {
        c->looking = false;
        uv_timer_stop(&p->deadline);
        c->config.done(c->config.arg);
    } else if ((text = json_string_value(json_object_get(root, "absent")))) {
        snprintf(p->why, sizeof p->why, "%s", text);
        p->absent = true;
    } else if ((text = json_string_value(json_object_get(root, "trouble")))) {
        snprintf(p->why, sizeof p->why, "%s", text);
    }
    json_decref(root);
}

static void take_line(struct probe *p, const char *line)
{
    struct gpu_seen seen;
    struct err err;

    if (gpu_parse(line, &seen, &err) == 0)
        p->owner->config.seen(p->owner->config.arg, &seen);
    else
        take_other(p, line);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct probe *p = handle->data;

    (void)suggested;
    *buf = uv_buf_init(p->bytes, sizeof p->bytes);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct probe *p = stream->data;
    struct gpu_child *c = p->owner;
    const char *line;
    struct err err;

    if (n < 0 || (n > 0 && frame_push(p->frame, buf->base, (size_t)n, &err) < 0)) {
        fail(c, p->absent, p->why[0] ? p->why : "the process that asks the GPU driver has ended");
        return;
    }
    while (c->probe == p && (line = frame_next(p->frame, NULL)))
        take_line(p, line);
}

/* ---- starting and asking ---- */

static int spawn(struct gpu_child *c, struct probe *p)
{
    static char program[] = "/proc/self/exe", option[] = "--watch-gpus";
    char *args[] = { program, option, NULL };
    uv_stdio_container_t stdio[3] = { { .flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&p->in },
                                      { .flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&p->out },
                                      { .flags = UV_IGNORE } };
    uv_process_options_t options = { .exit_cb = on_exit_child, .file = program, .args = args, .stdio_count = 3, .stdio = stdio };
    uv_handle_t *handles[] = { (uv_handle_t *)&p->in, (uv_handle_t *)&p->out, (uv_handle_t *)&p->deadline, (uv_handle_t *)&p->process };
    int rc;

    uv_pipe_init(c->config.loop, &p->in, 0);
    uv_pipe_init(c->config.loop, &p->out, 0);
    uv_timer_init(c->config.loop, &p->deadline);
    p->in.data = p->out.data = p->deadline.data = p;
    p->open_handles = HANDLES;
    rc = uv_spawn(c->config.loop, &p->process, &options);
    for (int i = 0; i < HANDLES; i++)
        uv_unref(handles[i]);
    return rc < 0 ? rc : uv_read_start((uv_stream_t *)&p->out, on_alloc, on_read);
}

static int start(struct gpu_child *c)
{
    struct probe *p = calloc(1, sizeof *p);
    int rc;

    if (p)
        p->frame = frame_new(LINE_MAX_BYTES);
    if (!p || !p->frame) {
        free(p);
        return -ENOMEM;
    }
    p->owner = c;
    c->probe = p;
    rc = spawn(c, p);
    p->exited = rc < 0; /* on an error nothing runs; else its exit closes it */
    if (rc < 0)
        drop(p);
    return rc;
}

static void tell_later(uv_timer_t *timer)
{
    struct gpu_child *c = timer->data;

    fail(c, false, c->later_why);
}

static void fail_later(struct gpu_child *c, const char *what, const char *why)
{
    snprintf(c->later_why, sizeof c->later_why, "%s%s", what, why);
    uv_timer_start(&c->later, tell_later, 0, 0);
}

void gpu_child_look(struct gpu_child *c)
{
    uv_buf_t ask = uv_buf_init((char[]){ "look\n" }, 5);
    int rc = 0;

    if (c->looking)
        return;
    c->looking = true;
    if (one_hangs(c)) {
        fail_later(c, "the GPU driver does not let go of the process that asked it last", "");
        return;
    }
    if (!c->probe)
        rc = start(c);
    if (rc == 0)
        rc = uv_try_write((uv_stream_t *)&c->probe->in, &ask, 1);
    if (rc < 0 && rc != UV_EPIPE) /* EPIPE: it has ended, and its last words say why */
        fail_later(c, "the process that asks the GPU driver cannot be used: ", rc == -EAGAIN ? process_lacks(-rc) : uv_strerror(rc));
    else
        uv_timer_start(&c->probe->deadline, on_deadline, c->config.deadline_ms, 0);
}

bool gpu_child_is_looking(const struct gpu_child *c)
{
    return c->looking;
}

void gpu_child_rest(struct gpu_child *c)
{
    if (c->probe && !c->looking)
        drop(c->probe);
}

/* ---- life ---- */

static void free_child(uv_handle_t *handle)
{
    free(handle->data);
}

struct gpu_child *gpu_child_new(const struct gpu_child_config *config)
{
    struct gpu_child *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->config = *config;
    uv_timer_init(config->loop, &c->later);
    uv_unref((uv_handle_t *)&c->later);
    c->later.data = c;
    return c;
}

void gpu_child_free(struct gpu_child *c)
{
    if (!c)
        return;
    if (c->probe)
        drop(c->probe);
    while (c->given_up) {
        struct probe *p = c->given_up;

        c->given_up = p->next;
        forget(p);
    }
    uv_close((uv_handle_t *)&c->later, free_child);
}

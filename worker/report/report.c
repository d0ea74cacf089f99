#include "worker/report/report.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/frame.h"
#include "proto/line.h"
#include "proto/record.h"
#include "proto/report.h"

enum { MAX_CONTROLS = 64, MAX_TEXT = 4000, MAX_BAD = 20, MAX_BAD_TEXT = 400 };
enum { ESCAPED_MAX = 6, NUMBER_MAX = 64 }; /* bytes in a line: for a character of a name; for the rest of a metric */

struct report {
    int fd, rank, local_rank, nranks; /* fd -1: without detd-job */
    struct frame *in;
    void (*on_wait)(void *arg, bool waiting);
    void *on_wait_arg;
    struct report_control controls[MAX_CONTROLS]; /* not yet taken by the trainer, oldest first */
    int ncontrols;
    int64_t published;         /* last step that may be published, or -1 */
    struct report_tier agreed; /* the last durable change of tier; step -1: no change */
    struct report_go *go;      /* receives the answer while report_wait_go() waits */
    bool gone_on;              /* the start message came */
    struct line line;
    char buf[REPORT_MAX_LINE];
};

int report_open(int fd, int rank, int local_rank, int nranks, struct report **ret, struct err *err)
{
    struct report *r = calloc(1, sizeof *r);

    if (!r)
        return err_set(err, -ENOMEM, "out of memory");
    *r = (struct report){ .fd = fd, .rank = rank, .local_rank = local_rank, .nranks = nranks, .published = -1, .agreed.step = -1 };
    r->in = frame_new(REPORT_MAX_LINE);
    if (!r->in) {
        free(r);
        return err_set(err, -ENOMEM, "out of memory");
    }
    *ret = r;
    return 0;
}

void report_close(struct report *r)
{
    if (!r)
        return;
    frame_free(r->in);
    free(r);
}

void report_on_wait(struct report *r, void (*fn)(void *arg, bool waiting), void *arg)
{
    r->on_wait = fn;
    r->on_wait_arg = arg;
}

/* ---- reading ---- */

static void copy_text(char *to, size_t size_bytes, const char *from)
{
    snprintf(to, size_bytes, "%s", from ? from : "");
}

static int take_control(struct report *r, const json_t *msg, struct err *err)
{
    static const char *const words[] = { "", "pause", "cancel", "checkpoint", "tier", "eval" };
    const char *word = json_string_value(json_object_get(msg, "word"));
    struct report_control *c = &r->controls[r->ncontrols];

    if (!word)
        return err_set(err, ERR_PROTO, "control: word is missing");
    if (r->ncontrols == MAX_CONTROLS)
        return 0; /* commands are desired state: with a full queue the trainer will not miss one more */
    for (int i = WORD_PAUSE; i <= WORD_EVAL; i++) {
        if (strcmp(word, words[i]) != 0)
            continue;
        c->word = (enum report_word)i;
        copy_text(c->tier, sizeof c->tier, json_string_value(json_object_get(msg, "tier")));
        r->ncontrols++;
        return 0;
    }
    return 0; /* from a later version */
}

static int take_go(struct report *r, const json_t *msg, struct err *err)
{
    struct report_go *go = r->go;
    json_t *tiers = json_object_get(msg, "tiers"), *entry;
    size_t i;

    if (!go)
        return err_set(err, ERR_PROTO, "go: unexpected, this rank does not wait for it");
    memset(go, 0, sizeof *go);
    go->attempt = (int)json_integer_value(json_object_get(msg, "attempt"));
    copy_text(go->nccl_id, sizeof go->nccl_id, json_string_value(json_object_get(msg, "nccl_id")));
    copy_text(go->store_id, sizeof go->store_id, json_string_value(json_object_get(msg, "store_id")));
    if (json_array_size(tiers) > REPORT_MAX_TIERS)
        return err_set(err, ERR_PROTO, "go: %zu changes of tier, at most %d are possible", json_array_size(tiers), REPORT_MAX_TIERS);
    json_array_foreach (tiers, i, entry) {
        go->tiers[i].step = json_integer_value(json_object_get(entry, "step"));
        copy_text(go->tiers[i].tier, sizeof go->tiers[i].tier, json_string_value(json_object_get(entry, "tier")));
    }
    go->ntiers = (int)json_array_size(tiers);
    r->gone_on = true;
    return 0;
}

static int take_msg(struct report *r, const json_t *msg, struct err *err)
{
    const char *type = json_string_value(json_object_get(msg, "type"));

    if (!type)
        return err_set(err, ERR_PROTO, "a message without a type");
    if (strcmp(type, "go") == 0)
        return take_go(r, msg, err);
    if (strcmp(type, "control") == 0)
        return take_control(r, msg, err);
    if (strcmp(type, "publish") == 0)
        r->published = json_integer_value(json_object_get(msg, "step"));
    if (strcmp(type, "tier_ok") == 0) {
        r->agreed.step = json_integer_value(json_object_get(msg, "step"));
        copy_text(r->agreed.tier, sizeof r->agreed.tier, json_string_value(json_object_get(msg, "tier")));
    }
    return 0;
}

static int take_line(struct report *r, const char *text, size_t len, struct err *err)
{
    json_error_t je;
    json_t *msg = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    int rc;

    if (!msg)
        return err_set(err, ERR_PROTO, "not JSON: %s", je.text);
    rc = take_msg(r, msg, err);
    json_decref(msg);
    return rc;
}

/* Reads the messages in the socket without waiting. */
static int read_some(struct report *r, struct err *err)
{
    char bytes[4096];
    const char *text;
    size_t len;
    int rc = 0;
    ssize_t n = recv(r->fd, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : err_sys(err, "read from detd-job");
    if (n == 0)
        return err_set(err, ERR_ABORTED, "detd-job is gone");
    rc = frame_push(r->in, bytes, (size_t)n, err);
    while (rc == 0 && (text = frame_next(r->in, &len)))
        rc = take_line(r, text, len, err);
    if (rc < 0)
        err_prefix(err, "message from detd-job");
    return rc;
}

/* Waits until the socket is readable, or has the other events. */
static int wait_socket(struct report *r, short events, struct err *err)
{
    struct pollfd p = { .fd = r->fd, .events = (short)(POLLIN | events) };

    if (poll(&p, 1, -1) < 0 && errno != EINTR)
        return err_sys(err, "wait for detd-job");
    return p.revents & (POLLIN | POLLHUP) ? read_some(r, err) : 0;
}

/* ---- writing ---- */

static struct line *begin(struct report *r, const char *type)
{
    line_begin(&r->line, r->buf, sizeof r->buf, type);
    return &r->line;
}

static int write_alone(const char *bytes, size_t left, struct err *err)
{
    while (left > 0) {
        ssize_t n = write(STDOUT_FILENO, bytes, left);

        if (n < 0 && errno != EINTR)
            return err_sys(err, "write a report to stdout");
        bytes += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* detd-job does not read while its spool is full. Its messages are read meanwhile, so that the two never wait for each
 * other. */
static int send_all(struct report *r, const char *bytes, size_t left, struct err *err)
{
    bool waiting = false;
    int rc = 0;

    while (rc == 0 && left > 0) {
        ssize_t n = send(r->fd, bytes, left, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n >= 0) {
            bytes += n;
            left -= (size_t)n;
        } else if (errno == EAGAIN) {
            if (!waiting && r->on_wait)
                r->on_wait(r->on_wait_arg, true);
            waiting = true;
            rc = wait_socket(r, POLLOUT, err);
        } else if (errno == EPIPE || errno == ECONNRESET) {
            rc = err_set(err, ERR_ABORTED, "detd-job is gone");
        } else if (errno != EINTR) {
            rc = err_sys(err, "report to detd-job");
        }
    }
    if (waiting && r->on_wait)
        r->on_wait(r->on_wait_arg, false);
    return rc;
}

static int finish(struct report *r, struct err *err)
{
    int rc = line_done(&r->line, err);

    if (rc < 0)
        return rc;
    return r->fd < 0 ? write_alone(r->buf, r->line.len, err) : send_all(r, r->buf, r->line.len, err);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int report_hello(struct report *r, const struct report_device *device, const char *link_id, struct err *err)
{
    struct line *l = begin(r, "hello");

    line_int(l, "rank", r->rank);
    line_int(l, "local_rank", r->local_rank);
    line_int(l, "nranks", r->nranks);
    line_int(l, "pid", getpid());
    line_str(l, "device", device->name);
    line_int(l, "memory_bytes", device->memory_bytes);
    line_open(l, "versions", '{');
    for (const char *const *v = device->versions; v && v[0]; v += 2)
        line_str(l, v[0], v[1]);
    line_close(l, '}');
    if (link_id)
        line_str(l, "nccl_id", link_id);
    if (device->uuid) {
        line_str(l, "uuid", device->uuid);
        line_int(l, "devices", device->devices);
    }
    return finish(r, err);
}

int report_wait_go(struct report *r, struct report_go *ret, struct err *err)
{
    int rc = 0;

    if (r->fd < 0) {
        memset(ret, 0, sizeof *ret);
        ret->attempt = 1;
        return 0;
    }
    r->go = ret;
    while (rc == 0 && !r->gone_on)
        rc = wait_socket(r, 0, err);
    r->go = NULL;
    return rc;
}

int report_start(struct report *r, int64_t resume_step, const char *checkpoint, struct err *err)
{
    struct line *l = begin(r, "start");

    line_int(l, "resume_step", resume_step);
    line_str(l, "checkpoint", checkpoint);
    return finish(r, err);
}

int report_identity(struct report *r, const char *json, struct err *err)
{
    line_json(begin(r, "identity"), "identity", json);
    return finish(r, err);
}

static void put_nonfinite(struct line *l, int n, const struct report_term *terms)
{
    bool any = false;

    for (int i = 0; i < n; i++)
        any |= !isfinite(terms[i].num) || !isfinite(terms[i].den);
    if (!any)
        return;
    line_open(l, "nonfinite", '[');
    for (int i = 0; i < n; i++)
        if (!isfinite(terms[i].num) || !isfinite(terms[i].den))
            line_str(l, NULL, terms[i].name);
    line_close(l, ']');
}

int report_loss(struct report *r, const struct report_loss *loss, struct err *err)
{
    struct line *l = begin(r, "loss");

    line_str(l, "split", loss->split);
    line_int(l, "step", loss->step);
    line_real(l, "epoch", loss->epoch);
    line_str(l, "tier", loss->tier);
    line_real(l, "time", now());
    if (loss->images_per_s > 0)
        line_real(l, "images_per_s", loss->images_per_s);
    line_open(l, "terms", '{');
    for (int i = 0; i < loss->nterms; i++) {
        line_open(l, loss->terms[i].name, '[');
        line_real(l, NULL, loss->terms[i].num);
        line_real(l, NULL, loss->terms[i].den);
        line_close(l, ']');
    }
    line_close(l, '}');
    put_nonfinite(l, loss->nterms, loss->terms);
    return finish(r, err);
}

/* Writes one record of the first of n metrics, as many as are allowed and surely fit. Returns their number. */
static int put_metrics(struct line *l, int n, const struct report_metric *metrics)
{
    int i = 0;

    line_open(l, "metrics", '{');
    for (; i < n && i < RECORD_MAX_VALUES; i++) {
        size_t most = ESCAPED_MAX * strlen(metrics[i].name) + NUMBER_MAX;

        if (i > 0 && l->len + most > l->size)
            break;
        line_real(l, metrics[i].name, metrics[i].value);
    }
    line_close(l, '}');
    return i;
}

int report_eval(struct report *r, int64_t step, int n, const struct report_metric *metrics, struct err *err)
{
    double time = now();
    int rc = 0;

    while (rc == 0 && n > 0) {
        struct line *l = begin(r, "eval");
        int put;

        line_int(l, "step", step);
        line_real(l, "time", time);
        put = put_metrics(l, n, metrics);
        metrics += put;
        n -= put;
        rc = finish(r, err);
    }
    return rc;
}

int report_ckpt_wait_publish(struct report *r, int64_t step, const char *path, struct err *err)
{
    struct line *l = begin(r, "checkpoint");
    int rc;

    line_int(l, "step", step);
    line_str(l, "phase", "ready");
    line_str(l, "path", path);
    rc = finish(r, err);
    while (rc == 0 && r->fd >= 0 && r->published != step)
        rc = wait_socket(r, 0, err);
    r->published = -1;
    return rc;
}

int report_ckpt_published(struct report *r, int64_t step, const char *path, int64_t bytes, double val_loss, bool best, struct err *err)
{
    struct line *l = begin(r, "checkpoint");

    line_int(l, "step", step);
    line_str(l, "phase", "published");
    line_str(l, "path", path);
    line_int(l, "bytes", bytes);
    line_real(l, "val_loss", val_loss);
    line_bool(l, "best", best);
    return finish(r, err);
}

int report_tier_propose(struct report *r, int64_t step, const char *tier, struct err *err)
{
    struct line *l = begin(r, "tier");

    line_int(l, "step", step);
    line_str(l, "tier", tier);
    if (r->fd < 0) {
        r->agreed.step = step;
        copy_text(r->agreed.tier, sizeof r->agreed.tier, tier);
    }
    return finish(r, err);
}

static bool tier_agreed(const struct report *r, int64_t step, const char *tier)
{
    return r->agreed.step == step && strcmp(r->agreed.tier, tier) == 0;
}

int report_tier_ok(struct report *r, int64_t step, const char *tier, bool *ret_ok, struct err *err)
{
    int rc = r->fd < 0 ? 0 : read_some(r, err);

    if (rc == 0)
        *ret_ok = tier_agreed(r, step, tier);
    return rc;
}

int report_wait_tier(struct report *r, int64_t step, const char *tier, struct err *err)
{
    int rc = 0;

    while (rc == 0 && !tier_agreed(r, step, tier)) {
        if (r->fd < 0)
            return err_set(err, ERR_STATE, "tier %s from step %lld was not proposed", tier, (long long)step);
        rc = wait_socket(r, 0, err);
    }
    return rc;
}

int report_data(struct report *r, const char *split, int64_t images, int64_t boxes, int64_t skipped, int nbad, const char *const *bad,
                struct err *err)
{
    struct line *l = begin(r, "data");

    line_str(l, "split", split);
    line_int(l, "images", images);
    if (boxes >= 0)
        line_int(l, "boxes", boxes);
    line_int(l, "skipped", skipped);
    line_open(l, "bad", '[');
    for (int i = 0; i < nbad && i < MAX_BAD; i++)
        line_text(l, NULL, bad[i], MAX_BAD_TEXT);
    line_close(l, ']');
    return finish(r, err);
}

int report_control(struct report *r, struct report_control *ret, struct err *err)
{
    int rc = r->fd < 0 ? 0 : read_some(r, err);

    ret->word = WORD_NONE;
    if (rc < 0 || r->ncontrols == 0)
        return rc;
    *ret = r->controls[0];
    r->ncontrols--;
    memmove(r->controls, r->controls + 1, (size_t)r->ncontrols * sizeof *r->controls);
    return 0;
}

__attribute__((format(printf, 4, 0))) static struct line *begin_event(struct report *r, const char *level, const char *kind,
                                                                      const char *fmt, va_list ap)
{
    struct line *l = begin(r, "event");
    char text[MAX_TEXT + 1];

    vsnprintf(text, sizeof text, fmt, ap);
    line_str(l, "level", level);
    line_str(l, "kind", kind);
    line_text(l, "text", text, MAX_TEXT);
    return l;
}

int report_event(struct report *r, struct err *err, const char *level, const char *kind, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    begin_event(r, level, kind, fmt, ap);
    va_end(ap);
    return finish(r, err);
}

int report_tier_refused(struct report *r, const char *tier, struct err *err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    line_str(begin_event(r, "warning", "tier", fmt, ap), "tier", tier);
    va_end(ap);
    return finish(r, err);
}

int report_end(struct report *r, const char *outcome, const char *reason, const char *class, struct err *err)
{
    struct line *l = begin(r, "end");

    line_str(l, "outcome", outcome);
    line_text(l, "reason", reason, MAX_TEXT);
    line_str(l, "class", class);
    return finish(r, err);
}

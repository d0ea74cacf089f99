#include "supervisor/records.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/report.h"
#include "supervisor/going.h"
#include "supervisor/link.h"
#include "supervisor/ranks/log.h"

enum {
    LATE_MAX_BYTES = 4 << 20,
    KIND_MAX = 63,             /* bytes of what detd keeps */
    TEXT_MAX = REPORT_MAX_LINE /* bytes, escaped: with the rest of an event it is within SUP_MAX_LINE */
};

struct late {
    struct late *next;
    uint64_t *ret_seq; /* or NULL */
    size_t len;
    char text[];
};

static bool is_full(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT;
}

static int keep(struct records *r, const char *text, size_t len, uint64_t *ret_seq, struct err *err)
{
    struct late *late, **end = &r->late;

    if (r->late_bytes + len > LATE_MAX_BYTES)
        return err_set(err, -ENOBUFS, "over %d bytes of reports wait for room on the disk", LATE_MAX_BYTES);
    late = malloc(sizeof *late + len);
    if (!late)
        return err_set(err, -ENOMEM, "out of memory for reports that wait for room on the disk");
    *late = (struct late){ .ret_seq = ret_seq, .len = len };
    memcpy(late->text, text, len);
    while (*end)
        end = &(*end)->next;
    *end = late;
    r->late_bytes += len;
    return 0;
}

/* Told before the record that is the first to wait: after an `end` nothing may come. */
static void tell_no_room(struct records *r, const struct err *why)
{
    struct late *first = r->late, *event;

    snprintf(r->no_room, sizeof r->no_room, "its reports wait for room on the disk, and its ranks with them: %.120s", why->msg);
    job_log("%s", r->no_room);
    records_event(r, -1, "warning", "no_room", r->no_room, NULL);
    event = first->next;
    if (!event) /* fatal */
        return;
    event->next = first;
    first->next = NULL;
    r->late = event;
}

static void put(struct records *r, const char *text, size_t len, uint64_t *ret_seq)
{
    bool behind = r->late != NULL;
    struct err err = { 0 }, why = { 0 };
    int rc = behind ? -ENOSPC : spool_append(r->spool, text, len, ret_seq, &why);

    if (rc == 0) {
        if (r->link)
            link_kick(r->link);
        return;
    }
    if (!is_full(rc)) {
        r->fatal(r->arg, &why);
        return;
    }
    if (keep(r, text, len, ret_seq, &err) < 0) {
        r->fatal(r->arg, &err);
        return;
    }
    if (!behind)
        tell_no_room(r, &why);
}

void records_add_text(struct records *r, const char *text, size_t len)
{
    put(r, text, len, NULL);
}

struct line *records_begin(struct records *r, const char *type)
{
    line_begin(&r->line, r->text, sizeof r->text, type);
    return &r->line;
}

void records_add(struct records *r, uint64_t *ret_seq)
{
    struct err err = { 0 };

    if (line_done(&r->line, &err) < 0)
        r->fatal(r->arg, &err);
    else
        put(r, r->text, r->line.len - 1, ret_seq);
}

/* Bytes of the text that escaped are at most `room`: one that is many lines is longer in a report than as its rank said
 * it. */
static size_t fitting(const char *text, size_t room)
{
    size_t n = 0, cost;

    for (; text[n]; n++) {
        cost = (unsigned char)text[n] < 0x20 ? 6 : text[n] == '"' || text[n] == '\\' ? 2 : 1;
        if (cost > room)
            break;
        room -= cost;
    }
    return n;
}

void records_attempt(struct records *r, int nranks, int64_t resume_step, const char *device)
{
    struct line *l = records_begin(r, "attempt");

    line_int(l, "attempt", r->going->attempt);
    line_int(l, "resume_step", resume_step);
    line_real(l, "time", job_time());
    line_int(l, "ranks", nranks);
    line_str(l, "device", device);
    line_bool(l, "first", !r->told);
    r->told = true;
    records_add(r, NULL);
}

void records_event(struct records *r, int rank, const char *level, const char *kind, const char *text, const char *tier)
{
    struct line *l = records_begin(r, "event");

    line_str(l, "level", level);
    line_text(l, "kind", kind, KIND_MAX);
    line_text(l, "text", text, fitting(text, TEXT_MAX));
    line_real(l, "time", job_time());
    if (rank >= 0)
        line_int(l, "rank", rank);
    else
        line_null(l, "rank");
    line_int(l, "attempt", r->going->attempt);
    if (tier)
        line_str(l, "tier", tier);
    records_add(r, NULL);
}

void records_warn(struct records *r, int rank, const char *kind, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    job_log("%s", text);
    records_event(r, rank, "warning", kind, text, NULL);
}

static void drop_first(struct records *r)
{
    struct late *late = r->late;

    r->late = late->next;
    r->late_bytes -= late->len;
    free(late);
}

bool records_write_late(struct records *r)
{
    struct err err = { 0 };
    int rc = 0;

    if (!r->late)
        return false;
    while (r->late && (rc = spool_append(r->spool, r->late->text, r->late->len, r->late->ret_seq, &err)) == 0)
        drop_first(r);
    if (rc < 0 && !is_full(rc)) {
        r->fatal(r->arg, &err);
        return false;
    }
    link_kick(r->link);
    if (rc < 0)
        return false;
    r->no_room[0] = '\0';
    job_log("there is room for reports again");
    return true;
}

void records_drop_late(struct records *r)
{
    int n = 0;

    for (; r->late; n++)
        drop_first(r);
    if (n > 0)
        job_log("%d reports have found no room on the disk and are lost", n);
}

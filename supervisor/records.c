/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/records.c - records on their way into the spool. On a file system that needs room to overwrite a full disk may keep them out: they wait in
 * memory, few, since ranks are not read meanwhile, and nothing that they have to come before goes on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/report.h"
#include "supervisor/job_impl.h"

enum {
    LATE_MAX_BYTES = 4 << 20,
    KIND_MAX = 63,             /* bytes of what detd keeps */
    TEXT_MAX = REPORT_MAX_LINE /* bytes, escaped: with the rest of an event it is within SUP_MAX_LINE */
};

struct late {
    struct late *next;
    uint64_t *ret_seq; /* of the job, or NULL */
    size_t len;
    char text[];
};

static bool is_full(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT;
}

static int keep(struct job *j, const char *text, size_t len, uint64_t *ret_seq, struct err *err)
{
    struct late *late, **end = &j->late;

    if (j->late_bytes + len > LATE_MAX_BYTES)
        return err_set(err, -ENOBUFS, "over %d bytes of reports wait for room on the disk", LATE_MAX_BYTES);
    late = malloc(sizeof *late + len);
    if (!late)
        return err_set(err, -ENOMEM, "out of memory for reports that wait for room on the disk");
    *late = (struct late){ .ret_seq = ret_seq, .len = len };
    memcpy(late->text, text, len);
    while (*end)
        end = &(*end)->next;
    *end = late;
    j->late_bytes += len;
    return 0;
}

/* Told before the record that is the first to wait: after an `end` nothing may come. */
static void tell_no_room(struct job *j, const struct err *why)
{
    struct late *first = j->late, *event;

    snprintf(j->no_room, sizeof j->no_room, "its reports wait for room on the disk, and its ranks with them: %.120s", why->msg);
    job_log("%s", j->no_room);
    job_event(j, -1, "warning", "no_room", j->no_room);
    event = first->next;
    if (!event) /* fatal */
        return;
    event->next = first;
    first->next = NULL;
    j->late = event;
}

static void put(struct job *j, const char *text, size_t len, uint64_t *ret_seq)
{
    bool behind = j->late != NULL;
    struct err err = { 0 }, why = { 0 };
    int rc = behind ? -ENOSPC : spool_append(j->spool, text, len, ret_seq, &why);

    if (rc == 0) {
        if (j->link)
            link_kick(j->link);
        return;
    }
    if (!is_full(rc)) {
        job_fatal(j, &why);
        return;
    }
    if (keep(j, text, len, ret_seq, &err) < 0) {
        job_fatal(j, &err);
        return;
    }
    if (!behind)
        tell_no_room(j, &why);
}

void job_append_text(struct job *j, const char *text, size_t len)
{
    put(j, text, len, NULL);
}

void job_append(struct job *j, struct line *l, uint64_t *ret_seq)
{
    struct err err = { 0 };

    if (line_done(l, &err) < 0)
        job_fatal(j, &err);
    else
        put(j, l->buf, l->len - 1, ret_seq);
}

/* Bytes of the text that escaped are at most `room`: one that is many lines is longer in a report than as its rank said it. */
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

void job_event(struct job *j, int rank, const char *level, const char *kind, const char *text)
{
    job_event_of_tier(j, rank, level, kind, text, NULL);
}

void job_event_of_tier(struct job *j, int rank, const char *level, const char *kind, const char *text, const char *tier)
{
    struct line l;

    line_begin(&l, j->record, sizeof j->record, "event");
    line_str(&l, "level", level);
    line_text(&l, "kind", kind, KIND_MAX);
    line_text(&l, "text", text, fitting(text, TEXT_MAX));
    line_real(&l, "time", job_time());
    if (rank >= 0)
        line_int(&l, "rank", rank);
    else
        line_null(&l, "rank");
    line_int(&l, "attempt", j->attempt);
    if (tier)
        line_str(&l, "tier", tier);
    job_append(j, &l, NULL);
}

static void drop_first(struct job *j)
{
    struct late *late = j->late;

    j->late = late->next;
    j->late_bytes -= late->len;
    free(late);
}

void job_write_late(struct job *j)
{
    struct err err = { 0 };
    int rc = 0;

    if (!j->late || j->fatal.code)
        return;
    while (j->late && (rc = spool_append(j->spool, j->late->text, j->late->len, j->late->ret_seq, &err)) == 0)
        drop_first(j);
    if (rc < 0 && !is_full(rc))
        job_fatal(j, &err);
    if (j->link && !j->fatal.code)
        link_kick(j->link);
    if (rc < 0)
        return;
    j->no_room[0] = '\0';
    job_log("there is room for reports again");
    job_answer_late(j);
    if (j->state == RUN_ENDED)
        job_end_written(j);
    else if (j->ranks)
        ranks_resume(j->ranks);
}

void job_drop_late(struct job *j)
{
    int n = 0;

    for (; j->late; n++)
        drop_first(j);
    if (n > 0)
        job_log("%d reports have found no room on the disk and are lost", n);
}

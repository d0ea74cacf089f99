#include "daemon/jobs/event.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/store/store.h"
#include "daemon/base/text.h"

bool events_wanted(const struct events *e, unsigned topic)
{
    return e->wanted(e->arg, topic);
}

void events_tell(const struct events *e, unsigned topic, int64_t job, const char *json)
{
    e->tell(e->arg, topic, job, json);
}

void event_tell(const struct events *e, int64_t job, const char *level, const char *kind, const char *text, double time)
{
    struct text t = { 0 };

    if (!events_wanted(e, TOPIC_EVENTS))
        return;
    if (job)
        text_addf(&t, "{\"job\":%lld,\"time\":", (long long)job);
    else
        text_add(&t, "{\"job\":null,\"time\":");
    text_real(&t, time);
    text_add(&t, ",\"level\":");
    text_json(&t, level);
    text_add(&t, ",\"kind\":");
    text_json(&t, kind);
    text_add(&t, ",\"text\":");
    text_json(&t, text);
    text_add(&t, "}");
    if (!t.failed)
        events_tell(e, TOPIC_EVENTS, job, t.p);
    text_free(&t);
}

/* The journal gets events of the node, warnings and errors of jobs, and audit events. Users read the rest in `detctl
 * events`. */
static void log_event(const struct events *e, int64_t job, int64_t uid, const char *level, const char *kind, const char *text)
{
    if (job == 0)
        log_line(level, "%s: %s", kind, text);
    else if ((strcmp(level, "info") != 0 || strcmp(kind, EVENT_AUDIT) == 0) && (!e->may_log || e->may_log(e->arg, job, uid)))
        log_line(level, "job %lld: %s: %s", (long long)job, kind, text);
}

static void add(const struct events *e, int64_t job, int64_t uid, const char *level, const char *kind, const char *text)
{
    log_event(e, job, uid, level, kind, text);
    store_event(e->store, job, level, kind, text, now_s());
    event_tell(e, job, level, kind, text, now_s());
}

void event_add(const struct events *e, int64_t job, const char *level, const char *kind, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    add(e, job, -1, level, kind, text);
}

void event_add_audit(const struct events *e, int64_t job, int64_t uid, const char *text)
{
    add(e, job, uid, "info", EVENT_AUDIT, text);
}

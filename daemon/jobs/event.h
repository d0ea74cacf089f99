/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/jobs/event.h - events of jobs and of the node: they are stored, and
 * listeners are told of them and of other changes. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "daemon/job/report.h"

struct store;

/* The topics that a client can listen to. */
enum { TOPIC_JOBS = 1, TOPIC_LOSSES = 2, TOPIC_EVENTS = 4, TOPIC_ALL = 7 };

/* The kind of the events of audit.h. */
#define EVENT_AUDIT REPORT_AUDIT

/* The way to the listeners. They belong to a layer above the callers of this module. */
struct events {
    struct store *store;
    bool (*wanted)(void *arg, unsigned topic);
    void (*tell)(void *arg, unsigned topic, int64_t job, const char *json);
    /* Whether the journal gets a line about the job that the user caused (-1: the job's user). NULL: each line. */
    bool (*may_log)(void *arg, int64_t job, int64_t uid);
    void *arg;
};

/* Whether there is a listener. Saves building the text. */
bool events_wanted(const struct events *e, unsigned topic);
void events_tell(const struct events *e, unsigned topic, int64_t job, const char *json);
/* Stores an event of a job (0: of the node) and tells the listeners. */
void event_add(const struct events *e, int64_t job, const char *level, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The same for an event of kind EVENT_AUDIT: a request of the user. */
void event_add_audit(const struct events *e, int64_t job, int64_t uid, const char *text);
/* Tells the listeners of an event that reaches the store in another way. */
void event_tell(const struct events *e, int64_t job, const char *level, const char *kind, const char *text, double time);

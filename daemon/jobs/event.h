/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/jobs/event.h - what happens to jobs and to the node: events are stored, and whoever listens hears of them and of what else changes. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct store;

/* What one can listen to. */
enum { TOPIC_JOBS = 1, TOPIC_LOSSES = 2, TOPIC_EVENTS = 4, TOPIC_ALL = 7 };

/* Kind of the events of audit.h. */
#define EVENT_AUDIT "audit"

/* The listeners sit above all who tell. */
struct events {
    struct store *store;
    bool (*wanted)(void *arg, unsigned topic);
    void (*tell)(void *arg, unsigned topic, int64_t job, const char *json);
    void *arg;
};

/* Is anybody listening? Saves building the text. */
bool events_wanted(const struct events *e, unsigned topic);
void events_tell(const struct events *e, unsigned topic, int64_t job, const char *json);
/* An event of a job (0: of the node): stored, and told. */
void event_add(const struct events *e, int64_t job, const char *level, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Tells of an event that the store gets by another way. */
void event_tell(const struct events *e, int64_t job, const char *level, const char *kind, const char *text, double time);

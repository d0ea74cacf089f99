/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/jobs/audit.h - who asked for what: an event of the job (0: of the node) for each request that changes something, in the journal too. */
#pragma once
#include <stdint.h>

struct errands;
struct events;

/* The user's name, or his number where he has none. Names may come over a network: for a thread. ret: of JOB_USER_MAX + 1. */
void audit_name(uint32_t uid, char *ret);

struct audit {
    const struct events *events;
    struct errands *names; /* the thread that looks for names */
};

/* "WHAT by NAME (uid N)". name NULL: it is looked for, and the event comes when it is found. */
void audit_add(const struct audit *a, int64_t job, uint32_t uid, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

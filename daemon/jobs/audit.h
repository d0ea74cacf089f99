/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/jobs/audit.h - records the user of each request that changes
 * something: an event of the job (0: of the node), also in the journal. */
#pragma once
#include <stdint.h>

struct errands;
struct events;

/* The user's name, or the number of a user without a name, as it was within the last ten seconds. Names may come over a
 * network, so only one thread may call it, that of `names`. ret: of JOB_USER_MAX + 1. */
void audit_name(uint32_t uid, char *ret);

struct audit {
    const struct events *events;
    struct errands *names; /* the thread that looks up names */
};

/* Adds the event "WHAT by NAME (uid N)". name NULL: the name is looked up, and the event comes when it is found. */
void audit_add(const struct audit *a, int64_t job, uint32_t uid, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

#include "daemon/jobs/audit.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/errand.h"
#include "daemon/jobs/event.h"
#include "daemon/job/job.h"

enum { KNOWN = 64, KNOWN_S = 10 };

/* Names that were found in the last KNOWN_S seconds: a user may make a thousand changes at once. */
static struct known {
    uint32_t uid;
    double until;
    char name[JOB_USER_MAX + 1];
} known[KNOWN];

static void look_up(struct known *k, uint32_t uid)
{
    char room[4096];
    struct passwd entry, *found = NULL;

    if (getpwuid_r(uid, &entry, room, sizeof room, &found) == 0 && found)
        snprintf(k->name, sizeof k->name, "%s", found->pw_name);
    else
        snprintf(k->name, sizeof k->name, "%u", uid);
    k->uid = uid;
    k->until = mono_s() + KNOWN_S;
}

void audit_name(uint32_t uid, char *ret)
{
    struct known *k = &known[uid % KNOWN];

    if (k->uid != uid || mono_s() >= k->until)
        look_up(k, uid);
    memcpy(ret, k->name, sizeof k->name);
}

struct note {
    const struct events *events;
    int64_t job;
    uint32_t uid;
    char what[200], name[JOB_USER_MAX + 1];
};

static void find_name(void *arg)
{
    struct note *n = arg;

    audit_name(n->uid, n->name);
}

static void add(void *arg)
{
    struct note *n = arg;

    char text[sizeof n->what + sizeof n->name + 32];

    snprintf(text, sizeof text, "%s by %s (uid %u)", n->what, n->name, n->uid);
    event_add_audit(n->events, n->job, n->uid, text);
    free(n);
}

void audit_add(const struct audit *a, int64_t job, uint32_t uid, const char *name, const char *fmt, ...)
{
    struct note *n = calloc(1, sizeof *n);
    va_list ap;

    if (!n) {
        event_add(a->events, job, "info", EVENT_AUDIT, "a request of uid %u", uid);
        return;
    }
    *n = (struct note){ .events = a->events, .job = job, .uid = uid };
    va_start(ap, fmt);
    vsnprintf(n->what, sizeof n->what, fmt, ap);
    va_end(ap);
    if (name)
        snprintf(n->name, sizeof n->name, "%s", name);
    else /* until the name is found; for good if detd is stopping */
        snprintf(n->name, sizeof n->name, "%u", uid);
    if (name || errands_add(a->names, find_name, add, n) < 0)
        add(n);
}

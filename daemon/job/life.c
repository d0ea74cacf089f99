#include "daemon/job/life.h" /* SPDX-License-Identifier: Apache-2.0 */

/* within_s: seconds until the deadline; 0: no deadline. */
struct cell {
    bool means; /* false: the fact means nothing in this phase */
    enum life_phase next;
    enum life_action action;
    int within_s;
};

#define TO(next, action, within)                 \
    {                                            \
        true, LIFE_##next, LIFE_##action, within \
    }
#define AT(phase, fact) [LIFE_##phase][LIFE_FACT_##fact]

/* clang-format off */
static const struct cell table[LIFE_PHASE_COUNT][LIFE_FACT_COUNT] = {
    AT(IDLE, ADOPTED)           = TO(STARTED, NOTHING, LIFE_HELLO_S),
    AT(IDLE, FOUND)             = TO(LEAVING, NOTHING, LIFE_OBEY_S), /* it may be running run.on_end, for which it has 50 s */
    AT(IDLE, GRANTED)           = TO(COMMITTING, COMMIT, 0),
    AT(IDLE, HELLO)             = TO(LEAVING, NOTHING, LIFE_OBEY_S), /* it waits for the ack of its end, or runs run.on_end */

    AT(COMMITTING, COMMITTED)   = TO(WAITING, NOTHING, 0),
    AT(COMMITTING, ENDED)       = TO(LEAVING, NOTHING, LIFE_LEAVE_S), /* instead of another start */
    AT(COMMITTING, UNCOMMITTED) = TO(STARTED, NOTHING, LIFE_HELLO_S), /* its lock will be found free, and the start begins anew */

    AT(WAITING, DUE)            = TO(PREPARING, PREPARE, 0),
    AT(WAITING, ENDED)          = TO(LEAVING, NOTHING, LIFE_LEAVE_S),

    AT(PREPARING, READY)        = TO(STARTED, NOTHING, LIFE_HELLO_S),
    AT(PREPARING, REFUSED)      = TO(WAITING, TELL_REFUSED, 0),
    AT(PREPARING, UNREADABLE)   = TO(WAITING, TELL_UNREADABLE, 0),
    AT(PREPARING, UNREACHABLE)  = TO(WAITING, TELL_UNREACHABLE, 0),
    AT(PREPARING, HELD)         = TO(WAITING, TELL_HELD, 0),
    AT(PREPARING, HELLO)        = TO(CONNECTED, NOTHING, 0), /* quicker than the thread that has started it */
    AT(PREPARING, ENDED)        = TO(LEAVING, NOTHING, LIFE_LEAVE_S),

    AT(STARTED, REFUSED)        = TO(WAITING, TELL_REFUSED, 0),
    AT(STARTED, UNREADABLE)     = TO(WAITING, TELL_UNREADABLE, 0),
    AT(STARTED, UNREACHABLE)    = TO(WAITING, TELL_UNREACHABLE, 0),
    AT(STARTED, HELLO)          = TO(CONNECTED, NOTHING, 0),
    AT(STARTED, EXITED)         = TO(STARTED, NOTHING, LIFE_EXIT_S),
    AT(STARTED, ENDED)          = TO(LEAVING, NOTHING, LIFE_LEAVE_S),
    AT(STARTED, LOST)           = TO(COMMITTING, LOSE, 0),
    AT(STARTED, LEFT)           = TO(IDLE, RELEASE, 0),
    AT(STARTED, OVERDUE)        = TO(STUCK, KILL, LIFE_LEAVE_S),

    AT(CONNECTED, HELLO)        = TO(CONNECTED, NOTHING, 0),
    AT(CONNECTED, GONE)         = TO(STARTED, NOTHING, LIFE_HELLO_S),
    AT(CONNECTED, EXITED)       = TO(STARTED, NOTHING, LIFE_EXIT_S), /* its last messages may still be unread */
    AT(CONNECTED, ENDED)        = TO(LEAVING, NOTHING, LIFE_OBEY_S),
    AT(CONNECTED, OVERDUE)      = TO(STUCK, KILL, LIFE_LEAVE_S),

    AT(LEAVING, EXITED)         = TO(LEAVING, NOTHING, LIFE_EXIT_S),
    AT(LEAVING, LOST)           = TO(COMMITTING, LOSE, 0),
    AT(LEAVING, LEFT)           = TO(IDLE, RELEASE, 0),
    AT(LEAVING, OVERDUE)        = TO(STUCK, KILL, LIFE_LEAVE_S),

    AT(STUCK, LOST)             = TO(COMMITTING, LOSE, 0),
    AT(STUCK, LEFT)             = TO(IDLE, RELEASE, 0),
    AT(STUCK, OVERDUE)          = TO(STUCK, NAME, LIFE_NAME_S),
};
/* clang-format on */

double life_backoff_s(int tries)
{
    double s = 1;

    for (int i = 1; i < tries && s < LIFE_BACKOFF_MAX_S; i++)
        s *= 2;
    return tries == 0 ? 0 : s < LIFE_BACKOFF_MAX_S ? s : LIFE_BACKOFF_MAX_S;
}

static void count(struct life *l, enum life_fact fact, double now)
{
    switch (fact) {
    case LIFE_FACT_ADOPTED:
    case LIFE_FACT_LOST:
        l->written = true;
        break;
    case LIFE_FACT_READY:
        l->tried = l->child = true;
        l->known = l->unseen = false;
        break;
    case LIFE_FACT_REFUSED:
        l->not_before = now + life_backoff_s(++l->refusals);
        break;
    case LIFE_FACT_UNREADABLE:
        l->not_before = now + life_backoff_s(++l->unreadable);
        break;
    case LIFE_FACT_UNREACHABLE:
        l->not_before = now + life_backoff_s(++l->unreachable);
        break;
    case LIFE_FACT_HELD: /* most often by a process on its way out */
        l->refusals++;
        l->not_before = now + 1;
        break;
    case LIFE_FACT_HELLO:
        l->known = l->written = true;
        l->tried = false;
        l->silent_s = l->unreadable = l->unreachable = l->mute = 0;
        break;
    default:
        break;
    }
}

enum life_action life_next(struct life *l, enum life_fact fact, double now)
{
    const struct cell *c = &table[l->phase][fact];

    if (fact == LIFE_FACT_EXITED)
        l->child = false;
    if (!c->means)
        return LIFE_NOTHING;
    if (fact != LIFE_FACT_HELLO && fact != LIFE_FACT_GONE && fact != LIFE_FACT_EXITED)
        l->obey_by = 0;
    if (l->phase == LIFE_PREPARING && fact == LIFE_FACT_HELLO)
        count(l, LIFE_FACT_READY, now);
    l->phase = c->next;
    l->deadline = c->within_s == 0 ? 0 : now + c->within_s;
    count(l, fact, now);
    return c->action;
}

enum life_fact life_clock(const struct life *l, double now)
{
    bool late = (l->deadline != 0 && now > l->deadline) || (l->obey_by != 0 && now > l->obey_by),
         silent = l->beats && l->silent_s > LIFE_SILENT_S;

    if (l->phase == LIFE_WAITING)
        return now >= l->not_before ? LIFE_FACT_DUE : LIFE_FACT_COUNT;
    return late || (l->phase == LIFE_CONNECTED && silent) ? LIFE_FACT_OVERDUE : LIFE_FACT_COUNT;
}

bool life_is_to_look(const struct life *l)
{
    return !l->child && (l->phase == LIFE_STARTED || l->phase == LIFE_LEAVING || l->phase == LIFE_STUCK);
}

void life_within(struct life *l, double now, double seconds)
{
    if (l->obey_by == 0 || l->obey_by > now + seconds)
        l->obey_by = now + seconds;
}

void life_put_off(struct life *l, double now)
{
    if (l->phase == LIFE_STARTED)
        l->deadline = now + LIFE_HELLO_S;
}

void life_reported(struct life *l)
{
    l->refusals = 0;
}

bool life_is_in_vain(const struct life *l, double now)
{
    return l->phase == LIFE_WAITING && now < l->not_before && (l->unreachable > 0 || l->refusals >= LIFE_REFUSALS_MAX);
}

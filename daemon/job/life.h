/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/job/life.h - the launch life cycle: whether processes of a job live,
 * and the actions of detd for them. Pure: a table of phases and facts; the time is an argument (of the monotonic
 * clock). The job's state for its user is the other state machine, job.h; run.c carries out the actions. */
#pragma once
#include <stdbool.h>

enum life_phase {
    LIFE_IDLE,       /* no process of it lives or is wanted */
    LIFE_COMMITTING, /* its nonce is on the way to the disk */
    LIFE_WAITING,    /* to be prepared, but not before not_before */
    LIFE_PREPARING,  /* a thread makes its folder and takes its lock */
    LIFE_STARTED,    /* its supervisor was started, and has not said hello */
    LIFE_CONNECTED,
    LIFE_LEAVING, /* its end is recorded */
    LIFE_STUCK,   /* its processes were killed, and the lock is still held */
    LIFE_PHASE_COUNT
};

enum life_fact {
    LIFE_FACT_ADOPTED, /* it lived when detd was started */
    LIFE_FACT_FOUND,   /* the lock is held though no process of it should live */
    LIFE_FACT_GRANTED, /* it has its slots */
    LIFE_FACT_COMMITTED,
    LIFE_FACT_UNCOMMITTED,
    LIFE_FACT_DUE,         /* not_before has come */
    LIFE_FACT_READY,       /* its supervisor was started, with the lock */
    LIFE_FACT_REFUSED,     /* the system lacks something that a start needs */
    LIFE_FACT_UNREADABLE,  /* its spool is missing or cannot be read */
    LIFE_FACT_UNREACHABLE, /* its folder cannot be used */
    LIFE_FACT_HELD,        /* the lock could not be taken */
    LIFE_FACT_HELLO,
    LIFE_FACT_GONE,    /* its connection is closed */
    LIFE_FACT_EXITED,  /* its supervisor has left */
    LIFE_FACT_ENDED,   /* an end is recorded */
    LIFE_FACT_LOST,    /* the lock is free, and the job has no end */
    LIFE_FACT_LEFT,    /* the lock is free, and the job has ended or is queued again */
    LIFE_FACT_OVERDUE, /* its deadline is over: no hello in time, or it has not left; or its supervisor is silent */
    LIFE_FACT_COUNT
};

enum life_action {
    LIFE_NOTHING,
    LIFE_COMMIT,           /* give it a nonce and store its row */
    LIFE_PREPARE,          /* prepare and start its supervisor */
    LIFE_TELL_REFUSED,     /* the start waits: say why */
    LIFE_TELL_UNREADABLE,  /* the same; the third time the job ends */
    LIFE_TELL_UNREACHABLE, /* the same; after LIFE_UNREACHABLE_MAX times the job ends */
    LIFE_TELL_HELD,
    LIFE_LOSE,    /* count the death if it was seen, then commit another start or end the job */
    LIFE_RELEASE, /* free its slots */
    LIFE_KILL,    /* kill its processes */
    LIFE_NAME     /* kill once more, and name a process that stays */
};

enum {
    LIFE_HELLO_S = 60,  /* a supervisor must say hello, or come back, within this time */
    LIFE_OBEY_S = 60,   /* detd-job gives its ranks 30 s after a cancel; after twice that its session is killed */
    LIFE_LEAVE_S = 20,  /* for a supervisor that only has to leave, or to read a spool */
    LIFE_EXIT_S = 5,    /* for processes that a supervisor has left behind */
    LIFE_MARGIN_S = 20, /* after a deadline that the supervisor keeps for others, until detd keeps it */
    LIFE_NAME_S = 60,   /* between two tries to kill a process that does not die */
    LIFE_SILENT_S = 60, /* a supervisor that beats must not be silent longer */
    LIFE_BACKOFF_MAX_S = 60,
    LIFE_UNREADABLE_MAX = 3,
    LIFE_UNREACHABLE_MAX = 7, /* these tries take about a minute */
    LIFE_MUTE_MAX = 7,        /* the same */
    LIFE_REFUSALS_MAX = 3,    /* then the job waits without slots */
    LIFE_DRAINS_MAX = 6       /* for a job that runs as its submitter (the possible cause): then it ends without the spool's reports */
};

struct life {
    enum life_phase phase;
    bool known;        /* this daemon has heard a supervisor of it: its death counts */
    bool tried;        /* a supervisor was started, and has not said hello */
    bool written;      /* a supervisor since the grant may have written reports that are still in the spool */
    bool unseen;       /* its exit cannot be observed, so its silence is not held against the job */
    bool child;        /* its supervisor is a child of this daemon, which will see its exit */
    bool beats;        /* its supervisor sends a message every few seconds */
    int silent_s;      /* since its last message */
    int refusals;      /* refused starts in a row */
    int unreadable;    /* times in a row that its spool was missing or could not be read */
    int unreachable;   /* the same: its folder could not be used */
    int mute;          /* the same: its supervisor left before it said hello, and that was observed */
    int drains;        /* supervisors started to read its spool to the end, in a row */
    double not_before; /* no supervisor is started earlier */
    double deadline;   /* 0: no deadline */
    double obey_by;    /* the same; a hello does not put it off */
};

/* Applies the fact, and returns the action. A fact without meaning in this phase changes nothing. */
enum life_action life_next(struct life *l, enum life_fact fact, double now);
/* The fact that follows from time alone: DUE, OVERDUE, or LIFE_FACT_COUNT: no fact. */
enum life_fact life_clock(const struct life *l, double now);
/* Whether the caller must check if the lock is free, since no other event would tell. */
bool life_is_to_look(const struct life *l);
/* Its processes must end within `seconds`, or by an earlier deadline that was set before. Later hellos of a supervisor
 * do not put this off. */
void life_within(struct life *l, double now, double seconds);
/* Seconds before try number `tries` + 1: 0, 1, 2, 4 ... LIFE_BACKOFF_MAX_S. */
double life_backoff_s(int tries);
/* Its supervisor has sent a report: the disk takes reports. A hello alone proves nothing about the next refusal. */
void life_reported(struct life *l);
/* Its supervisor has come, and is sent away while detd works on its earlier reports: the time to come back begins anew.
 * A deadline of life_within() stays. */
void life_put_off(struct life *l, double now);
/* Whether its slots are of no use to it, since its start was refused too often. Reports that wait in its spool are not
 * considered. */
bool life_is_in_vain(const struct life *l, double now);

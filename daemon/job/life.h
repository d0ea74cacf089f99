/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/job/life.h - the launch life cycle: whether processes of a job live, and what detd does about it. Pure: a table of phases and facts, the time is
 * an argument (of a clock that nobody sets). What a job is to its user is the other state machine, job.h; run.c carries the actions out. */
#pragma once
#include <stdbool.h>

enum life_phase {
    LIFE_IDLE,       /* no process of it lives and none is wanted */
    LIFE_COMMITTING, /* its nonce is on the way to the disk */
    LIFE_WAITING,    /* to be prepared, not before a moment */
    LIFE_PREPARING,  /* a thread makes its folder and takes its lock */
    LIFE_STARTED,    /* its supervisor was started, and has not said hello */
    LIFE_CONNECTED,
    LIFE_LEAVING, /* its end is recorded */
    LIFE_STUCK,   /* its processes were killed, and the lock is held still */
    LIFE_PHASE_COUNT
};

enum life_fact {
    LIFE_FACT_ADOPTED, /* it lived when detd was started */
    LIFE_FACT_FOUND,   /* the lock is held though nothing of it should live */
    LIFE_FACT_GRANTED, /* it has its slots */
    LIFE_FACT_COMMITTED,
    LIFE_FACT_UNCOMMITTED,
    LIFE_FACT_DUE,         /* the moment has come */
    LIFE_FACT_READY,       /* its supervisor was started, with the lock */
    LIFE_FACT_REFUSED,     /* the system has not what a start needs */
    LIFE_FACT_UNREADABLE,  /* its spool is missing or cannot be read */
    LIFE_FACT_UNREACHABLE, /* its folder cannot be used */
    LIFE_FACT_HELD,        /* the lock could not be taken */
    LIFE_FACT_HELLO,
    LIFE_FACT_GONE,   /* its connection is closed */
    LIFE_FACT_EXITED, /* its supervisor has left */
    LIFE_FACT_ENDED,  /* an end is recorded */
    LIFE_FACT_LOST,   /* the lock is free, and the job has no end */
    LIFE_FACT_LEFT,   /* the lock is free, and the job has ended or is queued again */
    LIFE_FACT_OVERDUE,
    LIFE_FACT_COUNT
};

enum life_action {
    LIFE_NOTHING,
    LIFE_COMMIT,           /* give it a nonce and store its row */
    LIFE_PREPARE,          /* prepare and start its supervisor */
    LIFE_TELL_REFUSED,     /* it waits: say why */
    LIFE_TELL_UNREADABLE,  /* likewise; the third time it ends */
    LIFE_TELL_UNREACHABLE, /* likewise; after so many times it ends */
    LIFE_TELL_HELD,
    LIFE_LOSE,    /* count the death where one was seen, and commit another start or end the job */
    LIFE_RELEASE, /* its slots are free */
    LIFE_KILL,
    LIFE_NAME /* kill once more, and say which process stays */
};

enum {
    LIFE_HELLO_S = 60,  /* a supervisor says hello, or comes back, within */
    LIFE_OBEY_S = 60,   /* detd-job gives its ranks 30 s after a cancel; after twice that its session is killed */
    LIFE_LEAVE_S = 20,  /* what only has to leave, or to read a spool */
    LIFE_EXIT_S = 5,    /* processes that a supervisor has left behind */
    LIFE_NAME_S = 60,   /* between two tries to kill what does not die */
    LIFE_SILENT_S = 60, /* without a line of a supervisor that beats */
    LIFE_BACKOFF_MAX_S = 60,
    LIFE_UNREADABLE_MAX = 3,
    LIFE_UNREACHABLE_MAX = 7, /* a minute, by then */
    LIFE_MUTE_MAX = 7,        /* likewise */
    LIFE_REFUSALS_MAX = 3,    /* then it waits without slots */
    LIFE_DRAINS_MAX = 6       /* of a job that runs as its submitter, who may be the cause: then it ends without what its spool holds */
};

struct life {
    enum life_phase phase;
    bool known;        /* a supervisor of it was heard by this daemon: its death counts */
    bool tried;        /* one was started, and has not said hello */
    bool written;      /* a supervisor since the grant may have written reports that are still in the spool */
    bool unseen;       /* nobody tells how it leaves, so its silence is not held against the job */
    bool child;        /* its supervisor is a child of this daemon, which will hear of its exit */
    bool beats;        /* its supervisor says something every few seconds */
    int silent_s;      /* since it said something */
    int refusals;      /* of starts, in a row */
    int unreadable;    /* times in a row that its spool was missing or could not be read */
    int unreachable;   /* likewise, its folder could not be used */
    int mute;          /* likewise, its supervisor left before it said hello, and was seen to */
    int drains;        /* supervisors started to read its spool to the end, in a row */
    double not_before; /* no supervisor is started earlier */
    double deadline;   /* 0: none */
    double obey_by;    /* likewise; no hello puts it off */
};

/* What follows from the fact. One that means nothing in this phase changes nothing. */
enum life_action life_next(struct life *l, enum life_fact fact, double now);
/* The fact that time alone brings: DUE, OVERDUE, or LIFE_FACT_COUNT for none. */
enum life_fact life_clock(const struct life *l, double now);
/* Whether to look if its lock is free: nobody else would tell. */
bool life_is_to_look(const struct life *l);
/* What lives has to end within `seconds`, or when it had to already if that is sooner, however often a supervisor says hello till then. */
void life_within(struct life *l, double now, double seconds);
/* Seconds before try number `tries` + 1: 0, 1, 2, 4 ... LIFE_BACKOFF_MAX_S. */
double life_backoff_s(int tries);
/* Its slots are of no use to it: it has been refused a start too often. Whether reports wait in its spool is another question. */
bool life_is_in_vain(const struct life *l, double now);

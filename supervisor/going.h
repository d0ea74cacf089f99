/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/going.h - the states of detd-job, as a table: a phase and a fact
 * give the next phase and an action. Pure: no process, file or clock. job.c tells the facts, sets the timer and carries
 * the actions out. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "supervisor/spool/outcome.h"

enum going_phase {
    GOING_NEW,       /* the spool was read, and nothing was started */
    GOING_READING,   /* the job file is to be read and the trainer opened */
    GOING_LOCKING,   /* the granted GPUs are to be locked */
    GOING_WAITING,   /* no rank lives; the timer starts the next attempt */
    GOING_LAUNCHING, /* ranks are being started, here or by another process */
    GOING_GREETING,  /* ranks were started; a rank that has to say hello has not said it */
    GOING_RUNNING,   /* the ranks were told to go */
    GOING_STOPPING,  /* the ranks have until the timer to leave by themselves */
    GOING_KILLED,    /* the ranks were killed */
    GOING_CLEANING,  /* every rank has left; processes that ranks started are killed */
    GOING_ENDING,    /* the record `end` waits for room on the disk */
    GOING_ENDED,     /* `end` is written; detd has until the timer to ack it */
    GOING_OVER,      /* this supervisor leaves */
    GOING_PHASE_COUNT
};

enum going_fact {
    GOING_FACT_RECORDED,  /* the spool holds an `end` that detd has not acked */
    GOING_FACT_BEGUN,     /* the job is to run */
    GOING_FACT_READ,      /* the job file was read, the trainer opened */
    GOING_FACT_LOCKED,    /* the granted GPUs were locked */
    GOING_FACT_REFUSED,   /* the system lacks something that a start needs; it may come back */
    GOING_FACT_STARTED,   /* all ranks were started */
    GOING_FACT_GREETED,   /* all required hellos came; where none is required, this follows STARTED */
    GOING_FACT_DUE,       /* the phase's time is over */
    GOING_FACT_HELD,      /* likewise, but reports wait for room on the disk */
    GOING_FACT_BROKEN,    /* a rank says what no trainer says, or uses a GPU that it was not given */
    GOING_FACT_HUNG,      /* a verdict of the watch */
    GOING_FACT_TRACED,    /* likewise, and ranks dump their stacks into their logs */
    GOING_FACT_FAILED,    /* a rank said that it failed, or was lost before it said how it ended */
    GOING_FACT_DONE,      /* rank 0 said how the attempt ended */
    GOING_FACT_GONE,      /* every rank has left */
    GOING_FACT_REMAIN,    /* a process that a rank started still lives */
    GOING_FACT_AGAIN,     /* another attempt is to follow */
    GOING_FACT_CONCLUDED, /* no attempt is to follow: the outcome of the job is known */
    GOING_FACT_CANCEL,    /* detd's word */
    GOING_FACT_PAUSE,     /* detd's word */
    GOING_FACT_LEAVE,     /* SIGTERM came */
    GOING_FACT_LIMIT,     /* run.time_limit is over */
    GOING_FACT_DISOBEYED, /* the deadline of a wish to stop is over */
    GOING_FACT_WRITTEN,   /* `end` is in the spool */
    GOING_FACT_ACKED,     /* detd has acked `end` */
    GOING_FACT_FATAL,     /* the spool cannot be written, or the like: nothing can be promised any more */
    GOING_FACT_COUNT
};

enum going_action {
    GOING_NOTHING,
    GOING_READ,         /* read the job file, open the trainer */
    GOING_LOCK,         /* lock the granted GPUs */
    GOING_START,        /* start the ranks */
    GOING_TELL_REFUSED, /* the job waits: say why */
    GOING_GO,           /* tell the ranks to go */
    GOING_PASS,         /* pass the wish to rank 0, with its deadline */
    GOING_TERM,         /* send SIGTERM to the ranks */
    GOING_KILL,         /* kill the ranks */
    GOING_TELL_UNHEARD, /* say which rank said no hello, and kill the ranks */
    GOING_TELL_STUCK,   /* say which rank outlives its SIGKILL, and kill once more */
    GOING_CLEAN,        /* kill what the ranks left behind; when nothing is left, judge the attempt */
    GOING_END,          /* record the outcome of the job */
    GOING_END_STOPPED,  /* record that the job was stopped as wished */
    GOING_CONFIRM,      /* make `end` durable, run run.on_end, then as GOING_AWAIT */
    GOING_AWAIT,        /* look whether detd has acked `end` already */
    GOING_TELL_UNACKED, /* say that detd did not ack `end`, and leave */
    GOING_QUIT,         /* leave */
    GOING_DIE           /* kill the ranks and leave */
};

enum {
    GOING_HELLO_MS = 120000, /* every rank has to say hello within */
    GOING_OTHERS_MS = 3000,  /* after the first rank broke, the others may still say what they saw */
    GOING_LEAVE_MS = 30000,  /* after rank 0 said its end */
    GOING_DUMP_MS = 2000,    /* for stacks, before the ranks are killed */
    GOING_TERM_MS = 5000,    /* from SIGTERM to SIGKILL: a trainer may still write what it likes to; a program has program.stop_grace */
    GOING_STAYS_MS = 20000,  /* between two looks at ranks that were killed and live */
    GOING_STAYS_LOOKS = 30,  /* one of so many is told */
    GOING_LEFT_MS = 50,      /* between two looks at what the ranks left behind */
    GOING_LEFT_LOOKS = 200,
    GOING_LATE_MS = 1000,      /* no attempt begins before the reports of the last one are written */
    GOING_END_ACK_MS = 10000,  /* for detd's ack of `end`; later detd reads the spool */
    GOING_BACKOFF_MAX_S = 30,  /* between two attempts */
    GOING_ELSEWHERE_TRIES = 5, /* starts in a row that another process's port may end without being counted */
    GOING_MISSING_TRIES = 4,   /* attempts in a row that a missing file may end before the job gives its slots back */
    GOING_KEEP = -1            /* wait_ms: the timer stays as it is */
};

/* Wishes to stop: bits of going.wishes. */
enum { GOING_WISH_CANCEL = 1, GOING_WISH_PAUSE = 2, GOING_WISH_LEAVE = 4, GOING_WISH_LIMIT = 8 };

struct going {
    enum going_phase phase;
    int wait_ms; /* set by going_next(): the timer of the phase; 0: none, GOING_KEEP: as it was */
    unsigned wishes;
    int attempt;         /* number of this or the next attempt */
    int64_t saved;       /* step of the newest checkpoint that is known of; 0: none */
    int failures;        /* in a row without a newer checkpoint */
    int missing;         /* attempts that ended for a missing file, since the newest checkpoint */
    bool waits_for_file; /* the last attempt ended for a missing file */
    int elsewhere;       /* attempts in a row that are repeated with another port */
    int term_ms;         /* from the signal to stop to SIGKILL; 0: GOING_TERM_MS */
    int refusals;        /* of a start by the system, in a row */
    int looks;           /* at ranks that outlive SIGKILL, or at what ranks left behind */
    bool hung;           /* this attempt ended by a hang verdict */
    int lost;            /* attempt that was cut off by the loss of its detd-job; 0: none */
    bool unheard;        /* the spool or the folder has a checkpoint that detd has not stored */
    uint64_t end_seq;    /* of the record `end`; 0: none */
    bool final;          /* that end: the job will not go on */
    int restarts;        /* run.restarts */
    bool fail_on_hang;   /* run.on_hang */
    double limit_s;      /* run.time_limit; 0: none */
};

/* The outcome of the job, as its record `end` tells it. */
struct going_end {
    char outcome[OUTCOME_WORD], class[OUTCOME_WORD];
    char reason[OUTCOME_TEXT + 100];
};

/* Returns the action that follows from the fact. A fact without meaning in this phase changes nothing, except that an
 * order to stop is always remembered. */
enum going_action going_next(struct going *g, enum going_fact fact);
/* Whether ranks of an attempt live that nothing has stopped yet. */
bool going_has_attempt(const struct going *g);
/* A checkpoint of that step exists: failures count anew if it is newer than all before. Ranks say again what they begin
 * from. */
void going_saved(struct going *g, int64_t step);

/* ---- what was before ---- */

enum going_record { GOING_RECORD_OTHER, GOING_RECORD_ATTEMPT, GOING_RECORD_ENDED, GOING_RECORD_END, GOING_RECORD_CHECKPOINT };
struct going_past {
    enum going_record type;
    uint64_t seq;
    int attempt;
    int64_t step;                /* of a checkpoint, or that an attempt resumed from */
    const char *outcome, *class; /* "": none */
};
/* Each record of the spool, the oldest first. last_seq: the newest that detd has. */
void going_recall(struct going *g, const struct going_past *r, uint64_t last_seq);
/* Whether the job only ends here. drain: outcome that detd wishes, or NULL. "failed" is detd's word for a spent budget;
 * a checkpoint that detd has not heard of proves it wrong. */
bool going_is_drained(const struct going *g, const char *drain);
/* The GPUs are locked: LOCKED, or CONCLUDED if detd-jobs of it were lost too often. *ret_end: as of going_judge(). */
enum going_fact going_ready(struct going *g, struct going_end *ret_end);

/* ---- what comes after ---- */

/* Whether the failed attempt ends the job as it was wished: the wish is granted from the last checkpoint. */
bool going_grants(const struct going *g, const struct outcome *o);
/* Counts how the attempt ended: AGAIN, or CONCLUDED and the outcome of the job in *ret_end. */
enum going_fact going_judge(struct going *g, const struct outcome *o, struct going_end *ret_end);
/* The outcome of a job that was stopped as wished. If it was only told to leave, detd queues it again. */
void going_stopped(const struct going *g, const char *reason, struct going_end *ret_end);
/* Whether run.time_limit ends the job now. Other wishes to stop come first. */
bool going_is_overtime(const struct going *g, double ran_s);

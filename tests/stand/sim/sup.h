/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/sup.h - a supervisor of an honest user, and its spool. */
#pragma once
#include "supervisor/going.h"
#include "tests/stand/sim/world.h"

/* The parts of a step, in their order. */
enum stage { STAGE_START, STAGE_STEP, STAGE_VAL, STAGE_EVAL, STAGE_PUBLISH, STAGE_SAVED, STAGE_WISHES };

struct sup {
    struct folder *f;
    struct launch_request rq;
    int detd; /* the number of the detd that is its parent */
    struct link *link;
    bool welcomed;
    int64_t sent;
    bool opened, told, died; /* died: nothing can be promised any more */
    struct going going;
    struct going_end end;
    double due;     /* timer of the phase; 0: no timer; the same below */
    double obey_by; /* deadline of a wish to stop */
    double hangs;   /* when ranks that stand still are noticed */
    /* ranks */
    struct outcome out; /* of the attempt, as far as it is known */
    int64_t step, validated;
    enum stage stage;
    bool passed, want_save, want_eval, fails, mute; /* passed: a wish to stop; mute: they do nothing more */
    int want_tier, tier;
    int silent_s;
};

/* ---- spool.c: each appends a record, as of the supervisor's step ---- */
int64_t spool_last(const struct folder *f); /* the newest number; 0: no record */
void spool_loss(struct sup *s, bool val);
void spool_eval(struct sup *s);
void spool_checkpoint(struct sup *s);
void spool_attempt(struct sup *s);
void spool_tier(struct sup *s);
/* The end of an attempt, or of the job. Returns its number. */
int64_t spool_outcome(struct sup *s, bool end, const char *outcome, const char *reason);
